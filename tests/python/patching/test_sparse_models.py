"""Sparse models patched against stock: GPT-OSS, Qwen3-MoE, Mixtral. What GPT-OSS has beside is in test_gpt_oss.py."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import copy  # noqa: E402
import statistics  # noqa: E402

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from transformers import Trainer, TrainingArguments  # noqa: E402

from tegula.patching import stacked_experts  # noqa: E402
from tegula.patching.stacked_experts import STACKED, WHY_NOT_STACKED  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
stacked = pytest.mark.skipif(not STACKED, reason=WHY_NOT_STACKED)
F32 = 1e-5
SHAPE = (2, 17)
VARIANTS = {
    "qwen3_moe": ("qwen3_moe", {}),
    "qwen3_moe, not normed": ("qwen3_moe", dict(norm_topk_prob=False)),
    "qwen3_moe with a window": ("qwen3_moe", dict(use_sliding_window=True, sliding_window=5)),
    "mixtral": ("mixtral", {}),
    "mixtral with a window": ("mixtral", dict(sliding_window=5)),
    "mixtral, as wide": ("mixtral", dict(intermediate_size=64)),
    "gpt_oss, as wide": ("gpt_oss", dict(intermediate_size=64)),
}
PADDING = {"whole": None, "left": (6, 0), "right": (-6, 0)}


def make(variant, **more):
    family, sizes = VARIANTS.get(variant, (variant, {}))
    return tiny.make(family, **{**sizes, **more})


def routers_of(model):
    return [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]


def experts_of(model):
    return [module for module in model.modules() if type(module).__name__.endswith("Experts")]


def compare(variant, inputs, change=lambda model: None, bound=F32, **more):
    """Loss and gradients of a patched model against those of the stock one, both changed; returns the patched model."""
    model = make(variant, **more)
    change(model)
    theirs = tiny.loss_and_gradients(model, inputs)
    names = tegula.apply_to_model(model)
    assert not STACKED or f"experts_{model.config.model_type}" in names
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, bound)
    return model


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("balanced", [False, True], ids=["", "auxiliary loss"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_every_gradient(variant, balanced, padding):
    inputs = dict(tiny.batch(SHAPE, padding=PADDING[padding]), output_router_logits=balanced)
    model = compare(variant, inputs, bound=2 * F32)
    assert tiny.served(model) == {"tegula"}
    out = model(**inputs)
    assert out.logits is None and (out.aux_loss is not None) == balanced
    assert not balanced or len(out.router_logits) >= len(routers_of(model))


@pytest.mark.parametrize("variant", ["qwen3_moe", "mixtral"])
def test_the_auxiliary_loss_is_added_once(variant):
    model, inputs = make(variant), dict(tiny.batch(SHAPE), output_router_logits=True)
    stock = model(**inputs, num_items_in_batch=7)
    tegula.apply_to_model(model)
    out, alone = model(**inputs, num_items_in_batch=7), model(**{**inputs, "output_router_logits": False}, num_items_in_batch=7)
    assert type(out) is type(stock) and torch.allclose(out.loss, stock.loss) and torch.allclose(out.aux_loss, stock.aux_loss)
    assert torch.allclose(out.loss, alone.loss + model.router_aux_loss_coef * out.aux_loss)


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe", "mixtral"])
def test_experts_alone_and_all_but_them(variant):
    model, inputs = make(variant), tiny.batch((2, 9))
    stock = tiny.loss_and_gradients(model, inputs)
    others = ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention")
    with tegula.patched(model, **dict.fromkeys(others, False)) as names:
        assert names == [f"experts_{model.config.model_type}"]
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    with tegula.patched(model, experts=False) as names:
        assert not any(name.startswith("experts") for name in names)
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    again = tiny.loss_and_gradients(model, inputs)
    assert again[0] == stock[0] and all(torch.equal(again[1][name], stock[1][name]) for name in stock[1])


@stacked
def test_experts_without_tokens_and_one_with_all():
    """The gradients of experts without tokens are 0, also where their memory held something else before."""

    def favour(model):
        for router in routers_of(model):
            router.bias.data[1:3] += 100.0

    model = compare("gpt_oss", tiny.batch((1, 5)), favour)
    for _ in range(2):
        _, gradients = tiny.loss_and_gradients(model, tiny.batch((1, 5)))
        for name, gradient in gradients.items():
            if ".experts." in name:
                assert gradient[1].any() and gradient[2].any() and not gradient[[0, 3]].any()
    compare("qwen3_moe", tiny.batch((1, 3)), num_experts=16, num_experts_per_tok=1, norm_topk_prob=False)


@stacked
def test_inputs_beyond_the_clamp():
    """With alpha and limit of the module. So wide, f32 is far from f64 on either side, and how far differs from batch to
    batch by a factor of a hundred: ours is as near to it, in the geometric mean over some."""
    model, batches = make("gpt_oss"), [tiny.batch(SHAPE, seed=seed) for seed in range(1, 5)]
    for experts in experts_of(model):
        experts.gate_up_proj.data *= 30
        experts.limit, experts.alpha = 5.0, 1.25
    double = copy.deepcopy(model).double()
    exact = [tiny.loss_and_gradients(double, inputs) for inputs in batches]
    theirs = [tiny.loss_and_gradients(model, inputs) for inputs in batches]
    tegula.apply_to_model(model)
    ours = [tiny.loss_and_gradients(model, inputs) for inputs in batches]

    def error(found, truth, name):
        return max(5e-5, tiny.distance(found[1][name], truth[1][name]))

    for found, truth in zip(ours, exact):
        assert abs(found[0] - truth[0]) <= F32 * abs(truth[0])
    for name in exact[0][1]:
        ratios = [error(our, truth, name) / error(their, truth, name) for our, their, truth in zip(ours, theirs, exact)]
        assert statistics.geometric_mean(ratios) <= 2, name


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe", "mixtral"])
def test_bf16_within_pytorchs_own_distance(variant):
    """With every expert chosen: one ulp may change which of them the k largest are."""
    more = dict(num_experts_per_tok=5 if variant == "qwen3_moe" else 4)
    model, inputs = make(variant, dtype=torch.bfloat16, **more), tiny.batch((4, 33))
    exact = tiny.loss_and_gradients(copy.deepcopy(model).float(), inputs)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    ours = tiny.loss_and_gradients(model, inputs)

    def errors(found):
        return sum((found[1][name].double() - exact[1][name].double()).norm().item() for name in exact[1])

    assert errors(ours) <= 1.1 * errors(stock)
    assert abs(ours[0] - exact[0]) <= 2**-10 * exact[0]


def routes_of(model, inputs):
    """The set of experts of each token in each layer."""
    found = []
    hooks = [router.register_forward_hook(lambda module, _, out: found.append(out[-1].sort(-1).values)) for router in routers_of(model)]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return torch.stack(found)


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe", "mixtral"])
def test_share_of_routes_that_bf16_changes(variant, record_property):
    """Which experts a token gets in bf16 is decided by roundings, here as in transformers: the shares are reported, and ours
    is no larger."""
    shares = []
    for seed in range(6):
        torch.manual_seed(seed)
        model, inputs = make(variant, dtype=torch.bfloat16), tiny.batch((4, 33), seed=seed)
        exact = routes_of(copy.deepcopy(model).float(), inputs)
        stock = routes_of(model, inputs)
        tegula.apply_to_model(model)
        shares.append([(routes != exact).any(-1).float().mean().item() for routes in (stock, routes_of(model, inputs))])
    stock, ours = torch.tensor(shares).mean(0).tolist()
    record_property("changed routes", f"{variant}: transformers {stock:.4f}, tegula {ours:.4f}")
    print(f"{variant}: share of changed routes in bf16: transformers {stock:.4f}, tegula {ours:.4f}")
    assert ours <= 1.25 * stock + 0.005 and ours < 0.1


# ---- ways to train ----


@stacked
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe", "mixtral"])
def test_checkpointed_layers_route_as_before(variant, reentrant):
    model, inputs = make(variant), tiny.batch(SHAPE)
    if reentrant:
        model.enable_input_require_grads()
    tegula.apply_to_model(model)
    plain = tiny.loss_and_gradients(model, inputs)
    seen = {router: [] for router in routers_of(model)}
    for router, routes in seen.items():
        router.register_forward_hook(lambda module, _, out, routes=routes: routes.append([t.detach().clone() for t in out]))
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    ours = tiny.loss_and_gradients(model, inputs)
    assert ours[0] == plain[0] and all(torch.equal(ours[1][name], plain[1][name]) for name in plain[1])
    for first, second in seen.values():
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert "topk_router" in str(tegula.report(model))


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", pytest.param("mixtral", marks=pytest.mark.nightly)])
def test_compiles(variant):
    """The whole model, without a break of the graph; nothing in it depends on the routes."""
    model, inputs = make(variant, num_hidden_layers=2), tiny.batch(SHAPE)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    torch._dynamo.reset()
    calls, graphs = set(), []

    def collect(graph, example):
        graphs.append(graph)
        calls.update(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    model.compile(fullgraph=True, backend=aot_autograd(fw_compiler=collect, bw_compiler=collect))
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    names = ("moe_mlp_fwd", "moe_mlp_bwd", "topk_router_fwd", "topk_router_bwd", "moe_plan_fwd")
    assert {f"tegula.{name}.default" for name in names} <= calls
    tiny.assert_close(
        tiny.loss_and_gradients(model, tiny.batch(SHAPE, seed=5)),
        tiny.loss_and_gradients(make(variant, num_hidden_layers=2), tiny.batch(SHAPE, seed=5)), F32,
    )  # fmt: skip
    assert len(graphs) == 2  # other routes, the same graphs


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", "mixtral"])
def test_frozen_experts(variant):
    def freeze(model):
        for experts in experts_of(model):
            experts.requires_grad_(False)

    asked = []

    class Asked(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.tegula.moe_mlp_bwd.default:
                asked.append(args[-1])
            return function(*args, **(kwargs or {}))

    model = compare(variant, tiny.batch(SHAPE), freeze)
    with Asked():
        model(**tiny.batch(SHAPE)).loss.backward()
    assert asked == [[True, True, False, False, False, False, False]] * len(experts_of(model))


LORA = {
    "attention": dict(target_modules=["q_proj", "v_proj"]),
    "experts": dict(target_modules=[], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    "both": dict(target_modules=["q_proj"], target_parameters=["mlp.experts.down_proj"]),
}


@stacked
@pytest.mark.parametrize("targets", LORA)
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe"])
def test_lora(variant, targets, monkeypatch):
    """An adapted weight is read once in a forward, where transformers' loop reads it for each expert."""
    peft = pytest.importorskip("peft", reason="without PEFT")
    config = peft.LoraConfig(r=2, init_lora_weights=False, **LORA[targets])

    def adapted():
        model = make(variant)
        torch.manual_seed(3)
        return peft.get_peft_model(model, config)

    inputs = tiny.batch((2, 9))
    want = tiny.loss_and_gradients(adapted(), inputs)
    tegula.apply(model_type=variant)
    model, reads, lists = adapted(), [], torch.nn.utils.parametrize.ParametrizationList
    read, computed = lists.forward, stacked_experts.computed

    def counted(*arguments):
        with monkeypatch.context() as inside:
            inside.setattr(lists, "forward", lambda self: reads.append(self) or read(self))
            return computed(*arguments)

    monkeypatch.setattr(stacked_experts, "computed", counted)
    model(**inputs)
    assert len(reads) == len(experts_of(model.get_base_model())) * len(LORA[targets].get("target_parameters", []))
    ours = tiny.loss_and_gradients(model, inputs)
    tiny.assert_close(ours, want, F32)
    assert ours[1] and all("lora" in name and gradient.any() for name, gradient in ours[1].items())
    assert "tegula: experts" in str(tegula.report(model.get_base_model()))


@stacked
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe"])
def test_trainer(variant, tmp_path):
    """One of four and four of one, with the auxiliary loss in each."""
    examples = []
    for index in range(4):
        one = tiny.batch((1, 9), seed=100 + index)
        examples.append({name: value[0].cpu() for name, value in one.items()})

    def train(model, size):
        arguments = TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=size, gradient_accumulation_steps=4 // size, max_steps=2,
            learning_rate=1e-3, logging_steps=1, report_to=[], save_strategy="no", use_cpu=placed.device == "cpu",
            disable_tqdm=True, gradient_checkpointing=size == 1,
        )  # fmt: skip
        trainer = Trainer(model=model, args=arguments, train_dataset=examples)
        trainer.train()
        return torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])

    want = {size: train(make(variant, output_router_logits=True), size) for size in (4, 1)}
    for size, losses in want.items():
        model = make(variant, output_router_logits=True)
        tegula.apply_to_model(model)
        assert tiny.distance(train(model, size), losses) <= F32


@pytest.mark.parametrize("variant", ["qwen3_moe", "mixtral"])
def test_a_packed_row_trains_what_its_sequences_do(variant):
    rows = tiny.batch((3, 13))["input_ids"]
    labels = rows.clone()
    labels[:, 0] = -100
    places = torch.arange(13, device=rows.device).repeat(3)[None]
    packed = dict(input_ids=rows.reshape(1, -1), labels=labels.reshape(1, -1), position_ids=places, use_cache=False)
    model = make(variant)
    tegula.apply_to_model(model)
    apart = tiny.loss_and_gradients(model, dict(input_ids=rows, labels=labels))
    tiny.assert_close(tiny.loss_and_gradients(model, packed), apart, F32)


@pytest.mark.parametrize("variant", ["qwen3_moe", "qwen3_moe with a window", "mixtral", "mixtral with a window"])
def test_greedy_text(variant):
    ids = tiny.batch((2, 9), padding=(3, 0))
    ids.pop("labels")
    how = dict(max_new_tokens=8, do_sample=False)
    theirs = make(variant).eval().generate(**ids, **how)
    model = make(variant).eval()
    tegula.apply_to_model(model)
    assert torch.equal(model.generate(**ids, **how), theirs)


def test_verify(capsys):
    errors = tegula.verify(make("mixtral"), tiny.batch(SHAPE))
    assert max(error.tegula for error in errors) < F32
    assert not STACKED or "experts_mixtral" in capsys.readouterr().out


@pytest.mark.skipif(STACKED, reason="this transformers has stacked experts")
@pytest.mark.parametrize("variant", ["gpt_oss", "qwen3_moe", "mixtral"])
def test_experts_of_earlier_transformers_stay(variant):
    model = compare(variant, tiny.batch(SHAPE), bound=2 * F32)
    notes = [row.note for row in tegula.report(model) if row.modules.endswith(".experts")]
    assert notes and set(notes) == {WHY_NOT_STACKED}
    with pytest.raises(NotImplementedError, match="register_experts: expected transformers 5"):
        tegula.register_experts()
