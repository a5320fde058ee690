"""Whole tiny models, patched against stock: loss, logits, every gradient, hooks, compilation, copies."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import copy  # noqa: E402
import warnings  # noqa: E402

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from transformers import AutoModelForSequenceClassification, DynamicCache  # noqa: E402

from tegula.patching.cache_name import CACHE  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
F32 = 1e-5  # of the largest value; what summing in another order costs in these models


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_loss_logits_and_every_gradient(variant):
    model, inputs = tiny.make(variant), tiny.batch()
    stock, stock_logits = tiny.loss_and_gradients(model, inputs), tiny.logits(model, inputs)
    names = tegula.apply_to_model(model)
    assert len(names) == 5
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.distance(tiny.logits(model, inputs), stock_logits) <= F32
    assert tiny.served(model) == {"tegula"}
    tegula.reset()
    again = tiny.loss_and_gradients(model, inputs)
    assert again[0] == stock[0] and all(torch.equal(again[1][name], stock[1][name]) for name in stock[1])


@pytest.mark.parametrize("op", ["rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_each_op_alone_and_all_but_one(family, op):
    model, inputs = tiny.make(family), tiny.batch()
    stock = tiny.loss_and_gradients(model, inputs)
    others = [name for name in ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention") if name != op]
    with tegula.patched(model, **dict.fromkeys(others, False)) as names:
        assert names == [f"{op}_{family}"]
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    with tegula.patched(model, **{op: False}) as names:
        assert len(names) == 4
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)


def errors(result, exact):
    return {name: (result[1][name].double() - exact[1][name].double()).norm().item() for name in exact[1]}


def assert_as_near(ours, stock, exact):
    """Rounding errors no larger than PyTorch's: those of all gradients together, with room for chance, and of each at
    most twice, as for every op alone; the loss to the same digits."""
    mine, theirs = errors(ours, exact), errors(stock, exact)
    assert sum(mine.values()) <= 1.1 * sum(theirs.values())
    for name in theirs:
        assert mine[name] <= 2 * theirs[name], name
    assert abs(ours[0] - exact[0]) <= 2**-11 * exact[0]


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_bf16_within_pytorchs_own_distance(variant):
    model, inputs = tiny.make(variant, torch.bfloat16), tiny.batch((4, 33))
    exact = tiny.loss_and_gradients(copy.deepcopy(model).float(), inputs)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    assert_as_near(tiny.loss_and_gradients(model, inputs), stock, exact)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_bf16_gives_the_bits_of_the_stock_forward(family):
    """Rotation and gate: every bit. Norms: but for results so near the middle of two numbers that the last bit of a
    sum of squares decides, of which these models have a few in 100000."""
    model, inputs = tiny.make(family, torch.bfloat16), tiny.batch((4, 33))
    want = tiny.logits(model, inputs)
    # A GPU's gate is one for every bit but where the last bit of an exponential decides, as in norms.
    with tegula.patched(model, rms_norm=False, attention=False, swiglu=placed.device == "cpu"):
        assert torch.equal(tiny.logits(model, inputs), want)
    gate, up = placed.randn(1024, 64).bfloat16(), placed.randn(1024, 64).bfloat16()
    assert (tegula.ops.swiglu(gate, up) != torch.nn.functional.silu(gate) * up).sum() <= 1e-4 * gate.numel()
    x, residual = placed.randn(2, 512, 64).bfloat16(), placed.randn(2, 512, 64).bfloat16()
    norm = model.model.norm
    stock = norm(residual + x)
    with tegula.patched(model):
        for ours in (norm(residual + x), norm((x, residual))):
            assert (ours != stock).sum() <= 1e-4 * stock.numel()


def test_another_head_on_the_same_trunk():
    """And embeddings in the place of ids."""
    causal = tiny.make("qwen3", num_labels=3)
    model = AutoModelForSequenceClassification.from_config(causal.config)
    ids = tiny.batch()["input_ids"]
    model = placed.to_device(model)
    inputs = dict(inputs_embeds=model.get_input_embeddings()(ids).detach(), labels=placed.tensor([2, 0]))
    model.config.pad_token_id = None
    inputs = {key: value[:1] for key, value in inputs.items()}
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply()
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.served(model) == {"tegula"}


# ---- what modules let others see ----


def test_hidden_states_and_attentions_are_recorded():
    model, inputs = tiny.make().eval(), tiny.batch()
    want = model(**inputs, output_hidden_states=True)
    tegula.apply_to_model(model)
    ours = model(**inputs, output_hidden_states=True)
    assert len(ours.hidden_states) == len(want.hidden_states) == 4
    for mine, theirs in zip(ours.hidden_states, want.hidden_states):
        assert tiny.distance(mine, theirs) <= F32
    after = model(**inputs)  # the recorder's hooks stay, and do not keep pairs away
    assert after.hidden_states is None and tiny.distance(after.logits, want.logits) <= F32
    assert "add_rms_norm between layers" in str(tegula.report(model))
    model.set_attn_implementation("eager")
    assert len(model(**inputs, output_attentions=True).attentions) == 3


@pytest.mark.parametrize("place", ["model.layers.1", "model.layers.0.post_attention_layernorm", "model.layers.2.self_attn.q_norm", "model.norm"])
def test_hooks_see_what_they_would(place):
    model, inputs = tiny.make(), tiny.batch()
    seen = []
    model.get_submodule(place).register_forward_hook(lambda module, arguments, out: seen.append(out.detach().clone()))
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert len(seen) == 2 and tiny.distance(seen[1], seen[0]) <= F32
    assert "hooks" in str(tegula.report(model))


# ---- the name of the cache ----


def calls_with_a_cache(model, keywords):
    """name -> a call of the model or of a part of it; `keywords` makes the arguments that name the cache."""
    ids = tiny.batch((1, 5))["input_ids"]
    trunk, layer = model.model, model.model.layers[0]
    hidden = trunk.embed_tokens(ids)
    rotation = trunk.rotary_emb(hidden, placed.arange(5)[None])
    return {
        "the model": lambda: model(ids, **keywords()),
        "its trunk": lambda: trunk(ids, **keywords()),
        "a layer": lambda: layer(hidden, position_embeddings=rotation, attention_mask=None, **keywords()),
        "attention": lambda: layer.self_attn(hidden, position_embeddings=rotation, attention_mask=None, **keywords()),
    }


@pytest.mark.parametrize("names", [("past_key_values",), (CACHE,), ("past_key_values", CACHE)], ids=str)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_transformers_warns_of_the_old_name_of_the_cache(family, names):
    """In its own words, and for the same calls; the cache that it would use is used."""
    model, caches, told = tiny.make(family).eval(), [], []

    def keywords():
        caches.append({name: DynamicCache(config=model.config) for name in dict.fromkeys(names)})
        return caches[-1]

    for patch in (None, tegula.apply_to_model):
        if patch:
            patch(model)
        for name, call in calls_with_a_cache(model, keywords).items():
            with warnings.catch_warnings(record=True) as caught, torch.no_grad():
                warnings.simplefilter("always")
                call()
            told.append([name, [(warning.category, str(warning.message).partition("=<")[0]) for warning in caught]])
            told[-1] += [caches[-1][each].get_seq_length() for each in dict.fromkeys(names)]
    half = len(told) // 2
    assert told[half:] == told[:half]
    assert all(sorted(lengths)[-1] == 5 for _, _, *lengths in told)
    if CACHE != "past_key_values" and "past_key_values" in names:
        assert all(messages and "past_key_values" in messages[0][1] for _, messages, *_ in told)


# ---- compilation, autocast, copies ----


@pytest.mark.parametrize("whole", [True, False])
def test_compiles(whole):
    """The model, or its layers, without a break of the graph; without a mask, attention is Tegula's."""
    model, inputs, padded = tiny.make("qwen3 window", num_hidden_layers=2), tiny.batch(), tiny.batch(padding=[0, 6])
    stock, stock_padded = tiny.loss_and_gradients(model, inputs), model(**padded).loss
    tegula.apply_to_model(model)
    torch._dynamo.reset()
    calls = set()

    def collect(graph, example):
        calls.update(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    for module in [model] if whole else model.model.layers:
        module.compile(fullgraph=True, backend=aot_autograd(fw_compiler=collect, bw_compiler=collect))
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert {f"tegula.{name}.default" for name in ("attention_fwd", "attention_bwd", "add_rms_norm_bwd")} <= calls
    assert "compiled" in str(tegula.report(model))
    if not whole:
        return  # masks reach layers as they do in the whole model
    assert tiny.distance(model(**padded).loss, stock_padded) <= F32
    want = tiny.logits(copy.deepcopy(model), padded)
    real = padded["attention_mask"].bool()
    assert tiny.distance(tiny.logits(model, padded)[real], want[real]) <= F32  # without gradients


@pytest.mark.parametrize("by_class", [True, False])
def test_a_patch_after_compilation_is_noticed(by_class):
    model, inputs = tiny.make(num_hidden_layers=1), tiny.batch()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    assert compiled(**inputs).logits is not None
    tegula.apply() if by_class else tegula.apply_to_model(model)
    assert compiled(**inputs).logits is None
    tegula.reset()
    assert compiled(**inputs).logits is not None


@pytest.mark.parametrize("variant", ["qwen3", "llama"])
def test_autocast(variant):
    """f32 weights: norms and additions stay in f32, products and attention are in bf16."""
    model, inputs = tiny.make(variant), tiny.batch((4, 33))
    exact = tiny.loss_and_gradients(model, inputs)
    with torch.autocast(placed.device, dtype=torch.bfloat16):
        stock = tiny.loss_and_gradients(model, inputs)
        tegula.apply_to_model(model)
        ours = tiny.loss_and_gradients(model, inputs)
    assert_as_near(ours, stock, exact)
    assert tiny.served(model) == {"tegula"}
    assert all(gradient.dtype == torch.float32 for gradient in ours[1].values())


def test_copies_and_files(tmp_path):
    model, inputs = tiny.make(), tiny.batch()
    stock = tiny.logits(model, inputs)
    tegula.apply_to_model(model)
    twin = copy.deepcopy(model)
    assert twin.model.layers[0].forward.__self__ is twin.model.layers[0]
    ours = tiny.logits(model, inputs)
    assert torch.equal(tiny.logits(twin, inputs), ours)
    model.save_pretrained(tmp_path)
    back = placed.to_device(type(model).from_pretrained(tmp_path))
    assert torch.equal(tiny.logits(back, inputs), stock)
    torch.save(model, tmp_path / "pickle")
    pickled = torch.load(tmp_path / "pickle", weights_only=False)
    assert torch.equal(tiny.logits(pickled, inputs), stock)
    tegula.apply_to_model(pickled)
    assert torch.equal(tiny.logits(pickled, inputs), ours)
    del model
    tegula.reset()
    assert not any("forward" in vars(module) for module in twin.modules())
    assert torch.equal(tiny.logits(twin, inputs), stock)
