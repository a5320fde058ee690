"""Patched models in training: loss curves, checkpointing, the Trainer, accelerate, PEFT."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import gc  # noqa: E402
import inspect  # noqa: E402
import weakref  # noqa: E402

accelerate = pytest.importorskip("accelerate", reason="without accelerate: no Trainer")
import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from accelerate.hooks import AlignDevicesHook, add_hook_to_module  # noqa: E402
from transformers import DynamicCache, Trainer, TrainingArguments  # noqa: E402

from tegula import settings  # noqa: E402
from tegula.autograd import kept_attention  # noqa: E402
from tegula.ops import attention_ops  # noqa: E402
from tegula.patching.models.decoder import checkpoints_in_call  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
F32 = 1e-5
# AdamW's. With its default, 1e-8, an element whose gradient is nothing but rounding moves by lr all the same, and the
# parameters of PyTorch's own runs come to lie apart by a step of it.
EPS = 1e-4


def patch(model, by_class):
    return tegula.apply(model_type=model.config.model_type) if by_class else tegula.apply_to_model(model)


def curve(model, steps=32):
    """AdamW on batches of every kind; the losses."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, eps=EPS)
    losses = []
    for step in range(steps):
        padding = None if step % 2 else [0, step % 5]
        loss = model(**tiny.batch((2, 16), seed=step, padding=padding)).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


def parameters(model):
    """All in one vector."""
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_curve_in_f32(family):
    """The stock model's losses; and parameters as near to those of a run in f64 as its own, most of which is that f32
    rounds them in every step."""
    exact, stock, ours = tiny.make(family).double(), tiny.make(family), tiny.make(family)
    curve(exact)
    want = curve(stock)
    patch(ours, by_class=True)
    losses = curve(ours)
    assert tiny.distance(losses, want) <= F32 and losses[-8:].mean() < losses[:8].mean() - 0.05
    off, allowed = ((parameters(model) - parameters(exact)).norm() for model in (ours, stock))
    assert 0 < off <= 2 * allowed


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_curve_in_bf16(family):
    """Against the curve in f32, no further than PyTorch's own in bf16."""
    exact = curve(tiny.make(family, torch.bfloat16).float())
    stock = curve(tiny.make(family, torch.bfloat16))
    patch(ours := tiny.make(family, torch.bfloat16), by_class=False)
    assert (curve(ours) - exact).norm() <= 1.5 * (stock - exact).norm()


@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(monkeypatch, by_class, reentrant):
    """Same gradients, and each half of a layer runs twice: attention alone is kept."""
    model, inputs = tiny.make("qwen3 window"), tiny.batch(padding=[0, 4])
    stock = tiny.loss_and_gradients(model, inputs)
    patch(model, by_class)
    plain = tiny.loss_and_gradients(model, inputs)
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    model.enable_input_require_grads()
    runs, attentions = [], runs_of_attention(monkeypatch)
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    ours = tiny.loss_and_gradients(model, inputs)
    assert len(runs) == 2 and attentions == ["attention_fwd"] * 3
    assert all(torch.equal(ours[1][name], plain[1][name]) for name in plain[1])
    tiny.assert_close(ours, stock, F32)
    text = str(tegula.report(model))
    assert ("layers by a way that loses pairs" if checkpoints_in_call() else "add_rms_norm between layers") in text
    cache = DynamicCache()
    model(**inputs, past_key_values=cache, use_cache=True).loss.backward()
    assert cache.get_seq_length() == 0  # a layer that runs twice would store its keys twice


def test_generate_in_training_mode():
    """Without gradients nothing is checkpointed; the cache is used if the original uses it, as since transformers 5.24."""
    model = tiny.make()
    model.gradient_checkpointing_enable()
    ids, tokens = tiny.batch((1, 6))["input_ids"], []
    for patch in (None, tegula.apply_to_model):
        if patch:
            patch(model)
        with torch.no_grad():
            tokens.append(model.generate(ids, max_new_tokens=8, do_sample=False))
    assert torch.equal(*tokens)


def runs_of_attention(monkeypatch):
    row, runs = attention_ops._attention.forward_entry, []
    monkeypatch.setattr(row, "run", lambda *given, run=row.run: (runs.append(row.name), run(*given))[1])
    return runs


@pytest.mark.parametrize("reentrant", [True, False])
def test_attention_of_checkpointed_layers(monkeypatch, reentrant):
    """It runs once for a backward; again for a second one, without gradients, and where that is asked for."""
    model, inputs = tiny.make(), tiny.batch(padding=[0, 4])
    tegula.apply_to_model(model)
    plain = tiny.loss_and_gradients(model, inputs)
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    model.enable_input_require_grads()
    runs, layers = runs_of_attention(monkeypatch), len(model.model.layers)

    def counted(call):
        runs.clear()
        result = call()
        return len(runs) // layers, result

    def both(retain):
        loss = model(**inputs).loss
        loss.backward(retain_graph=retain)
        if retain:
            loss.backward()

    assert "attention's outputs are kept" in str(tegula.report(model))
    assert counted(lambda: both(False))[0] == 1
    assert counted(lambda: both(True))[0] == 2
    with torch.no_grad():
        assert counted(lambda: model(**inputs))[0] == 1
    first, second = model(**inputs).loss, model(**tiny.batch(seed=5)).loss  # two graphs at once
    model.zero_grad()
    (first + second).backward()
    both_graphs = {name: p.grad.clone() for name, p in model.named_parameters()}
    monkeypatch.setattr(settings, "_recomputes_attention", False)  # as before, afterwards
    tegula.recompute_attention()
    assert "attention's outputs are kept" not in str(tegula.report(model))
    number, ours = counted(lambda: tiny.loss_and_gradients(model, inputs))
    assert number == 2 and all(torch.equal(ours[1][name], plain[1][name]) for name in plain[1])
    model.zero_grad()
    (model(**inputs).loss + model(**tiny.batch(seed=5)).loss).backward()
    assert all(torch.equal(p.grad, both_graphs[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_layer_that_runs_more_than_once(reentrant):
    """Its runs are told from each other, or nothing of them is kept."""
    model, inputs = tiny.make(), dict(tiny.batch(), use_cache=False)
    model.model.layers[1] = model.model.layers[0]
    model.enable_input_require_grads()
    tegula.apply_to_model(model)
    plain = tiny.loss_and_gradients(model, inputs)
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    ours = tiny.loss_and_gradients(model, inputs)
    assert ours[0] == plain[0]
    tiny.assert_close(ours, plain, F32)


def test_kept_attention_is_given_back():
    """With its layer's graph, or when nobody has a use for it any more."""
    model, inputs = tiny.make(), tiny.batch()
    tegula.apply_to_model(model)
    model.gradient_checkpointing_enable(dict(use_reentrant=False))
    made = []

    class Watched(kept_attention.KeptAttention):
        def __init__(self):
            super().__init__()
            made.append(weakref.ref(self))

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(kept_attention, "KeptAttention", Watched)
        loss = model(**inputs).loss
        assert sum(len(outputs) for outputs in made[0]()._outputs.values()) == 3
        loss.backward()
        assert made[0]() is None or not any(made[0]()._outputs.values())
        loss = model(**inputs).loss
        del loss  # without a backward
        gc.collect()
        assert [each() for each in made] == [None, None]


# ---- Trainer ----


def rows(count, length=12):
    """Answers of different lengths: micro batches count different numbers of tokens."""
    examples = []
    for index in range(count):
        one = tiny.batch((1, length), seed=100 + index)
        one["labels"][0, : 1 + 2 * (index % 5)] = -100
        examples.append({key: value[0].cpu() for key, value in one.items()})
    return examples


class InOrder(Trainer):
    """Takes rows as they come, which earlier transformers have no option for."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def train(model, folder, size, accumulation, **more):
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=size, gradient_accumulation_steps=accumulation, max_steps=3,
        learning_rate=1e-3, adam_epsilon=EPS, lr_scheduler_type="constant", logging_steps=1, report_to=[], save_strategy="no",
        use_cpu=placed.device == "cpu", disable_tqdm=True, **more,
    )  # fmt: skip
    trainer = InOrder(model=model, args=arguments, train_dataset=rows(12), eval_dataset=rows(4))
    trainer.train()
    return trainer, torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])


@pytest.mark.parametrize("by_class", [True, False])
def test_trainer_accumulates(tmp_path, by_class):
    """One of four and four of one: the same losses and parameters, and those of the stock model."""
    stock = tiny.make()
    _, want = train(stock, tmp_path, 4, 1)
    first, second = tiny.make(), tiny.make()
    for model in (first, second):
        patch(model, by_class)
    whole, losses = train(first, tmp_path, 4, 1)
    parts, pieces = train(second, tmp_path, 1, 4)
    assert tiny.distance(losses, want) <= F32 and tiny.distance(pieces, want) <= F32
    reached = parameters(stock)
    moved = (reached - parameters(tiny.make())).norm()
    for model in (first, second):
        assert (parameters(model) - reached).norm() <= F32 * moved
    assert parts.model_accepts_loss_kwargs and whole.label_names == ["labels"]
    result = whole.predict(rows(4))
    assert result.predictions.shape == (4, 12, 97)  # real logits in evaluation
    assert abs(result.metrics["test_loss"] - stock.eval()(**tiny_batch(4)).loss.item()) <= 1e-4


def tiny_batch(count):
    return placed.to_device({key: torch.stack([row[key] for row in rows(count)]) for key in ("input_ids", "labels")})


def test_signatures_stay():
    model = tiny.make()
    before = inspect.signature(model.forward), [inspect.signature(type(m).forward) for m in model.modules()]
    tegula.apply()
    assert (inspect.signature(model.forward), [inspect.signature(type(m).forward) for m in model.modules()]) == before
    tegula.reset()
    tegula.apply_to_model(model)
    assert inspect.signature(model.forward) == before[0]


# ---- accelerate ----


@pytest.mark.parametrize("order", ["before", "after, classes", "after, this model"])
def test_hooks_of_accelerate(order):
    """As device_map places them: around every module that has parameters of its own."""
    model, inputs = tiny.make(), tiny.batch()
    stock = tiny.loss_and_gradients(model, inputs)
    seen = []

    class Watch(AlignDevicesHook):
        def pre_forward(self, module, *arguments, **keywords):
            seen.append(type(module).__name__)
            return super().pre_forward(module, *arguments, **keywords)

    if order == "before":
        patch(model, by_class=False)
    for module in list(model.modules()):
        if list(module.parameters(recurse=False)) or type(module).__name__ in ("Qwen3DecoderLayer", "Qwen3MLP"):
            add_hook_to_module(module, Watch(placed.device))
    if order == "after, classes":
        tegula.apply()
    elif order == "after, this model":
        tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert seen.count("Qwen3RMSNorm") == 3 * 4 + 1 and seen.count("Qwen3MLP") == 3
    rows = {row.modules: row for row in tegula.report(model)}
    mlp = rows["model.layers.*.mlp"]
    if order == "after, classes":
        assert mlp.runs == "transformers" and mlp.note.startswith("hooked by accelerate before the patch")
    else:
        assert mlp.runs == "tegula: swiglu" and "under accelerate's hook" in mlp.note
    tegula.reset()
    assert "tegula:" not in str(tegula.report(model)) or order == "before"
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    if order == "after, this model":
        assert all("_tegula" not in vars(module) for module in model.modules())


@pytest.mark.parametrize("order", ["before", "after, classes", "after, this model"])
def test_mixed_precision_of_accelerate(order):
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # which the Trainer has set
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=placed.device == "cpu")
    model, inputs = tiny.make(), tiny.batch()
    want = accelerator.prepare(tiny.make())(**inputs).loss
    if order == "before":
        patch(model, by_class=False)
    prepared = accelerator.prepare(model)
    if order == "after, classes":
        tegula.apply()
    elif order == "after, this model":
        names = tegula.apply_to_model(model)
        assert "fused_linear_cross_entropy_qwen3" not in names and len(names) == 4
        assert tegula.apply_to_model(model) == names == tegula.get_patched_ops()
    out = prepared(**inputs)
    accelerator.backward(out.loss)
    assert abs(out.loss - want) <= 2**-9 * want and out.loss.dtype == torch.float32
    top = tegula.report(prepared)[0]
    if order == "before":
        assert out.logits is None and top.runs == "tegula: linear_cross_entropy in training"
    else:
        assert out.logits is not None and "forward of its own" in top.note
    assert "tegula: qk_norm_rope, attention" in str(tegula.report(prepared))


# ---- PEFT ----


@pytest.mark.parametrize("order", ["before", "after, classes", "after, this model"])
@pytest.mark.parametrize("targets", ["attention", "head", "saved norms"])
def test_lora(targets, order):
    peft = pytest.importorskip("peft", reason="without PEFT")
    options = {
        "attention": dict(target_modules=["q_proj", "v_proj", "down_proj"]),
        "head": dict(target_modules=["q_proj", "lm_head"]),
        "saved norms": dict(target_modules=["q_proj"], modules_to_save=["post_attention_layernorm", "k_norm", "lm_head"]),
    }[targets]
    config = peft.LoraConfig(r=4, init_lora_weights=False, **options)

    def adapted(model):
        torch.manual_seed(3)
        return peft.get_peft_model(model, config)

    inputs = tiny.batch()
    want = tiny.loss_and_gradients(adapted(tiny.make()), inputs)
    model = tiny.make()
    if order == "before":
        patch(model, by_class=False)
    model = adapted(model)
    if order == "after, classes":
        tegula.apply()
    elif order == "after, this model":
        tegula.apply_to_model(model)
    ours = tiny.loss_and_gradients(model, inputs)
    tiny.assert_close(ours, want, F32)
    assert ours[1] and not any("base_layer" in name for name in ours[1])
    text = str(tegula.report(model.get_base_model()))
    if targets == "attention":
        assert "linear_cross_entropy in training" in text and "qk_norm_rope" in text
    else:
        assert "loss from logits: lm_head is a peft." in text
    if targets == "saved norms":
        assert "post_attention_layernorm runs by itself" in text and "q_norm and k_norm run by themselves" in text
    merged = model.merge_and_unload().eval()
    assert tiny.distance(merged(**inputs).loss, want[0]) <= F32
