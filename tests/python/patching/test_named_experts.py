"""`set_experts_implementation("tegula")`, and experts that stay transformers': the reasons in the report."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import functools  # noqa: E402
import types  # noqa: E402

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers.models.qwen3_moe import modeling_qwen3_moe  # noqa: E402

from tegula.patching import stacked_experts  # noqa: E402
from tegula.patching.stacked_experts import STACKED, WHY_NOT_STACKED  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("device", "stock_afterwards"), pytest.mark.skipif(not STACKED, reason=WHY_NOT_STACKED),
]  # fmt: skip
F32 = 1e-5
SHAPE = (2, 17)
FAMILIES = ("gpt_oss", "qwen3_moe", "mixtral")


def experts_of(model):
    return [module for module in model.modules() if type(module).__name__.endswith("Experts")]


def rows_of(model, end="mlp.experts"):
    return [row for row in tegula.report(model) if row.modules.endswith(end)]


# ---- by name ----


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("patch", [False, True], ids=["stock", "patched"])
def test_named_experts(family, patch):
    model, inputs = tiny.make(family), tiny.batch(SHAPE)
    theirs = tiny.loss_and_gradients(model, inputs)
    tegula.register_experts()
    if patch:
        tegula.apply_to_model(model)
    model.set_experts_implementation("tegula")
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, F32)
    rows = rows_of(model)
    assert {row.runs for row in rows} == {"tegula: experts"} and {row.note for row in rows} == {"this model" if patch else "by name"}
    assert {stacked_experts.served_by(experts) for experts in experts_of(model)} == {"tegula"}


def test_apply_registers_the_name():
    tegula.apply(model_type="llama")
    model = tiny.make("mixtral")
    model.set_experts_implementation("tegula")
    model(**tiny.batch(SHAPE))
    assert {row.runs for row in rows_of(model)} == {"tegula: experts"}


@pytest.mark.parametrize("family", FAMILIES)
def test_slots_of_other_processes_are_dropped(family):
    """Ids from the number of experts on, as expert parallelism marks them."""
    experts = experts_of(tiny.make(family))[0]
    count = len(experts.gate_up_proj)
    x, scores = placed.randn(7, 64, requires_grad=True), placed.rand(7, 2, requires_grad=True)
    indices = placed.tensor([[0, count], [count + 5, 1], [2, 3], [count, count], [1, 0], [count, 3], [3, 2]])
    kept = indices < count
    theirs = experts(x, indices.clamp(max=count - 1), scores * kept)
    tegula.register_experts()
    experts.config._experts_implementation = "tegula"
    ours = experts(x, indices, scores)
    upstream = torch.randn_like(ours)
    assert tiny.distance(ours, theirs) < F32 and not ours[3].any()
    inputs = [x, scores, *experts.parameters()]
    for mine, wanted in zip(torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream)):
        assert tiny.distance(mine, wanted) < F32
    (dscores,) = torch.autograd.grad(experts(x, indices, scores).sum(), [scores])
    assert not dscores[~kept].any()


def test_a_family_without_patches():
    from transformers import OlmoeConfig, OlmoeForCausalLM

    torch.manual_seed(0)
    sizes = {**tiny.SIZES, "num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2}
    model, inputs = placed.to_device(OlmoeForCausalLM(OlmoeConfig(**sizes))), tiny.batch(SHAPE)
    theirs = tiny.loss_and_gradients(model, inputs)
    tegula.register_experts()
    model.set_experts_implementation("tegula")
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, F32)
    assert [(row.modules, row.runs) for row in tegula.report(model)] == [("model.layers.*.mlp.experts", "tegula: experts")] * 2


def test_named_experts_that_tegula_does_not_compute():
    """transformers' "grouped_mm" does."""
    model, inputs = tiny.make("qwen3_moe", hidden_act="gelu"), tiny.batch(SHAPE)
    model.set_experts_implementation("grouped_mm")
    theirs = tiny.loss_and_gradients(model, inputs)
    tegula.register_experts()
    model.set_experts_implementation("tegula")
    ours = tiny.loss_and_gradients(model, inputs)
    assert ours[0] == theirs[0] and all(torch.equal(ours[1][name], theirs[1][name]) for name in theirs[1])
    assert {(row.runs, row.note) for row in rows_of(model)} == {("transformers", "by name; its activation is GELUActivation")}


# ---- refused ----


def hook_activation(model):
    for experts in experts_of(model):
        experts.act_fn.register_forward_hook(lambda *_: None)


def old_hook(model):
    for experts in experts_of(model):
        experts.register_backward_hook(lambda module, inputs, outputs: None)


def mix_dtypes(model):
    for experts in experts_of(model):
        experts.down_proj_bias.data = experts.down_proj_bias.data.bfloat16()


def mark_parallel(model):
    for experts in experts_of(model):
        experts._is_expert_parallel = True


class Sharded(torch.Tensor):
    """Another class of tensors, which computes as PyTorch's do."""


def shard(model):
    for experts in experts_of(model):
        weight = experts.down_proj.data.as_subclass(Sharded)
        experts.down_proj = nn.Parameter(weight)
        assert type(experts.down_proj) is not nn.Parameter


def other_gate(model):
    for experts in experts_of(model):
        experts._apply_gate = types.MethodType(lambda self, x: x[..., ::2] * x[..., 1::2], experts)


def no_limit(model):
    for experts in experts_of(model):
        experts.limit = float("inf")


def by_name(name):
    return lambda model: model.set_experts_implementation(name)


REFUSALS = {
    "hooks": ("qwen3_moe", hook_activation, "act_fn has hooks"),
    "a backward hook of the old kind": ("qwen3_moe", old_hook, "a backward hook of the old kind sees their last function"),
    "dtypes": ("gpt_oss", mix_dtypes, "down_proj_bias is torch.bfloat16, gate_up_proj torch.float32"),
    "expert parallelism": ("mixtral", mark_parallel, "expert parallelism"),
    "another class of tensor": ("gpt_oss", shard, "down_proj is a Sharded"),
    "another gate": ("gpt_oss", other_gate, "their gate is another"),
    "no limit": ("gpt_oss", no_limit, "alpha 1.702 and limit inf of their gate"),
    "another implementation": ("mixtral", by_name("batched_mm"), "the model's experts are 'batched_mm'"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("case", REFUSALS)
def test_refused_experts_run_in_transformers(case, by_class):
    family, change, reason = REFUSALS[case]
    model, inputs = tiny.make(family), tiny.batch((1, 9))
    change(model)
    theirs = tiny.loss_and_gradients(model, inputs)
    others = ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention")
    flags = dict.fromkeys(others, False)
    tegula.apply(**flags) if by_class else tegula.apply_to_model(model, **flags)
    for _ in range(2):  # the report says so before a call, too
        assert {row.runs for row in rows_of(model)} == {"transformers"}
        assert {row.note.split(";")[0] for row in rows_of(model)} == {reason}
        ours = tiny.loss_and_gradients(model, inputs)
        tiny.assert_close(ours, theirs, F32)


def router_of_transformers_5_0(self, hidden_states):
    """It returns probabilities, as versions 5.0 to 5.7 do, and scores in f32."""
    probabilities = nn.functional.linear(hidden_states, self.weight).float().softmax(-1)
    scores, indices = probabilities.topk(self.top_k)
    return probabilities, scores / scores.sum(-1, keepdim=True), indices


def test_routers_that_return_no_logits(monkeypatch):
    """The auxiliary loss is that of this transformers then, too."""
    monkeypatch.setattr(modeling_qwen3_moe.Qwen3MoeTopKRouter, "forward", router_of_transformers_5_0)
    model, inputs = tiny.make("qwen3_moe"), dict(tiny.batch(SHAPE), output_router_logits=True)
    theirs = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, F32)
    notes = {row.note for row in rows_of(model, "mlp.gate")}
    assert notes == {"the router of this transformers returns no logits; this model"}
    assert {row.runs for row in rows_of(model)} == {"tegula: experts"}


def test_hidden_states_of_another_dtype():
    """As under autocast, with 16-bit experts in an f32 model."""
    tegula.apply(model_type="qwen3_moe")
    model = tiny.make("qwen3_moe")
    model.set_experts_implementation("grouped_mm")
    for experts in experts_of(model):
        experts.bfloat16()
    assert {row.runs for row in rows_of(model)} == {"tegula: experts"}
    model(**tiny.batch((1, 9)))
    note = "last experts by transformers: hidden states are torch.float32, gate_up_proj torch.bfloat16"
    assert {(row.runs, row.note) for row in rows_of(model)} == {("transformers", note)}


def test_blocks_of_others():
    """A block whose own forward is replaced, as kernelize does, does not call its router and experts."""
    model, inputs = tiny.make("gpt_oss"), tiny.batch((1, 9))
    block = model.model.layers[1].mlp
    block.forward = functools.partial(lambda x: (x * 0.5, None))
    theirs = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, F32)
    (row,) = rows_of(model, ".mlp")
    assert row.runs == "functools.partial" and row.note == "its router and experts are not called"
    assert len(rows_of(model)) == len(rows_of(model, "mlp.router")) == 3


def test_quantised_experts():
    """The modules of MXFP4 are made here; only a GPU runs them."""
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    model = tiny.make("gpt_oss")
    for layer in model.model.layers:
        layer.mlp.experts = mxfp4.Mxfp4GptOssExperts(model.config)
    tegula.apply_to_model(model)
    assert {(row.runs, row.note) for row in rows_of(model)} == {("transformers", "quantised experts, Mxfp4GptOssExperts")}


def test_accelerate_moves_the_weights_of_experts():
    """Its hooks around the module run, and the experts are Tegula's."""
    hooks = pytest.importorskip("accelerate.hooks")
    model, inputs = tiny.make("mixtral"), tiny.batch((1, 9))
    theirs = tiny.loss_and_gradients(model, inputs)
    for experts in experts_of(model):
        hooks.add_hook_to_module(experts, hooks.AlignDevicesHook(placed.device, offload=False))
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), theirs, F32)
    assert {stacked_experts.served_by(experts) for experts in experts_of(model)} == {"tegula"}
    assert "tegula: experts" in str(tegula.report(model))
