"""Modules that a fused op would bypass run by themselves if others see them by more than hooks of PyTorch: forwards and
calls of their own, hooks of accelerate, weights that are computed. Hooks of PyTorch are in test_listeners.py."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import copy  # noqa: E402
import functools  # noqa: E402
import types  # noqa: E402

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from test_listeners import LAYER, assert_same, assert_seen, compare, halved, inputs_of, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402
from transformers.models.qwen3 import modeling_qwen3  # noqa: E402

from tegula.patching import hub, listeners  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("device", "stock_afterwards"),
    pytest.mark.filterwarnings("ignore:.*(ackward hook|weight_norm)"),
]
PLACES = [
    LAYER, f"{LAYER}.input_layernorm", "model.layers.0.post_attention_layernorm", f"{LAYER}.self_attn", f"{LAYER}.mlp.act_fn",
    "model.norm", "lm_head", "model",
]  # fmt: skip


# ---- forwards and calls of others ----


def subclass(model, name, attribute):
    """Makes the module one of a subclass whose `attribute` halves the result of the class's."""
    module = model.get_submodule(name)
    cls = type(module)

    def method(self, *arguments, **keywords):
        return halved(getattr(cls, attribute)(self, *arguments, **keywords))

    module.__class__ = type(f"Listening{cls.__name__}", (cls,), {attribute: method})


def own_forward(model, name, wraps=False):
    """Gives the module a forward of its own that halves the result of the one that it has now."""
    module = model.get_submodule(name)
    inner = module.forward

    def forward(*arguments, **keywords):
        return halved(inner(*arguments, **keywords))

    module.forward = functools.wraps(inner)(forward) if wraps else forward


CHANGES = {
    "forward of a subclass": functools.partial(subclass, attribute="forward"),
    "call of a subclass": functools.partial(subclass, attribute="__call__"),
    "call_impl of a subclass": functools.partial(subclass, attribute="_call_impl"),
    "own forward": own_forward,
}


@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_forwards_of_others(family, kind, by_class):
    base = make(family)
    plain = tiny.loss_and_gradients(base, inputs_of())
    for name in [*PLACES, f"{LAYER}.self_attn.q_norm"] if family == "qwen3" else PLACES:
        model = copy.deepcopy(base)
        changed = compare(
            model, lambda model: CHANGES[kind](model, name), patch=lambda model: tegula.apply() if by_class else tegula.apply_to_model(model)
        )
        assert not torch.equal(changed[1]["model.embed_tokens.weight"], plain[1]["model.embed_tokens.weight"]), name


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("by_class", [True, False])
def test_forwards_around_ours(by_class, wraps):
    """Put there after the patch. functools.wraps copies what a replacement is recognised by."""
    base = make("qwen3")
    for name in [*PLACES, f"{LAYER}.self_attn.k_norm"]:
        stock, ours = copy.deepcopy(base), copy.deepcopy(base)
        own_forward(stock, name, wraps)
        want = tiny.loss_and_gradients(stock, inputs_of())
        tegula.apply() if by_class else tegula.apply_to_model(ours)
        own_forward(ours, name, wraps)
        assert_same(tiny.loss_and_gradients(ours, inputs_of()), want)
        tegula.reset()


def test_a_forward_bound_to_another_module():
    """Two norms that share the first one's forward use the first one's weight."""

    def change(model):
        first, second = (layer.post_attention_layernorm for layer in model.model.layers)
        second.forward = types.MethodType(type(first).forward, first)

    def after(model):
        tegula.apply(model_type="llama")
        change(model)

    want = compare(make("llama"), change)
    assert f"{LAYER}.post_attention_layernorm.weight" not in want[1]
    model = make("llama")
    after(model)
    assert_same(tiny.loss_and_gradients(model, inputs_of()), want)
    assert "post_attention_layernorm runs by itself: it runs another forward" in str(tegula.report(model))


class Thresholded(nn.SiLU):
    def forward(self, x):
        y = super().forward(x)
        return y * (y > 0.05)


@pytest.mark.parametrize("act_fn", [Thresholded, functools.partial(nn.SiLU, inplace=True), nn.GELU, nn.Identity])
def test_other_activations(act_fn):
    seen = []

    def change(model):
        model.model.layers[1].mlp.act_fn = act_fn()
        kept = []
        model.model.layers[1].mlp.gate_proj.register_forward_hook(lambda module, arguments, out: kept.append(out))
        model.model.layers[1].mlp.down_proj.register_forward_hook(lambda *_: seen.append(kept[-1].detach().clone()))

    compare(make("llama"), change, "its activation is ")
    assert_seen(seen[1], seen[0], ())  # an activation in place changes what came before


def test_the_activation_of_our_own_mlp():
    config = make("llama").config
    stock = make("llama").model.layers[0].mlp
    ours = placed.to_device(tegula.TegulaSwiGLUMLP(config))
    ours.load_state_dict(stock.state_dict())
    x, results = placed.randn(3, 16), []
    for mlp in (stock, ours):
        plain = mlp(x)
        handle = mlp.act_fn.register_forward_hook(lambda module, arguments, out: out * 0.5)
        hooked = mlp(x)
        handle.remove()
        mlp.act_fn = Thresholded()
        results.append((plain, hooked, mlp(x)))
    assert_seen(results[1], results[0], ())
    assert not torch.equal(hooked, plain)


def test_an_activation_of_the_kernels_package_is_fused():
    """kernelize puts our own SiLU, or the class's own forward, into the module."""
    model = make("llama")
    for layer, function in zip(model.model.layers, (hub.SiLU.forward, type(model.model.layers[0].mlp.act_fn).forward)):
        layer.mlp.act_fn.forward = types.MethodType(function, layer.mlp.act_fn)
    tegula.apply_to_model(model)
    assert [row.runs for row in tegula.report(model) if row.modules.endswith("mlp")] == ["tegula: swiglu"] * 2


def test_hooks_of_a_rotation_that_is_a_module(monkeypatch):
    """As transformers makes it beside certain versions of `kernels`."""
    stock = modeling_qwen3.apply_rotary_pos_emb

    class Rotation(nn.Module):
        def forward(self, *arguments, **keywords):
            return stock(*arguments, **keywords)

    function = Rotation()
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", function)
    model = make("qwen3")
    before = compare(model, lambda model: None, "qk_norm_rope")
    function.register_forward_hook(lambda module, arguments, out: halved(tuple(out)))
    after = compare(model, lambda model: None, "rope of transformers: apply_rotary_pos_emb has hooks")
    assert not torch.equal(before[1]["model.embed_tokens.weight"], after[1]["model.embed_tokens.weight"])


def test_functions_in_the_place_of_those_that_an_op_replaces(monkeypatch):
    """A rotation in the modelling file, put there before or after the patch; attention and masks by the name "sdpa"."""
    stock, calls = modeling_qwen3.apply_rotary_pos_emb, []
    sdpa, mask = ALL_ATTENTION_FUNCTIONS["sdpa"], ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]

    @functools.wraps(stock)
    def rotation(*arguments, **keywords):
        calls.append("rotation")
        return halved(tuple(stock(*arguments, **keywords)))

    def attention(*arguments, **keywords):
        calls.append("attention")
        return halved(sdpa(*arguments, **keywords))

    def masks(*arguments, **keywords):
        calls.append("mask")
        return mask(*arguments, **keywords)

    model = make("qwen3")
    tegula.apply_to_model(model)
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", rotation)
    after = tiny.loss_and_gradients(model, inputs_of())
    assert_same(after, compare(make("qwen3"), lambda model: None, "apply_rotary_pos_emb is another function"))
    monkeypatch.undo()
    for functions, function, count in ((ALL_ATTENTION_FUNCTIONS, attention, 4), (ALL_MASK_ATTENTION_FUNCTIONS, masks, 2)):
        monkeypatch.setitem(functions._global_mapping, "sdpa", function)
        del calls[:]
        compare(make("qwen3"), lambda model: None, "another function is registered as 'sdpa'")
        assert len(calls) == count
        monkeypatch.undo()


# ---- hooks of accelerate ----


@pytest.mark.parametrize("name", PLACES)
def test_hooks_of_accelerate_that_look(name):
    """Those that only move tensors do not count; one that changes the output does, behind another, too."""
    hooks = pytest.importorskip("accelerate.hooks", reason="without accelerate")

    class Halving(hooks.ModelHook):
        def post_forward(self, module, output):
            return halved(output)

    plain = tiny.loss_and_gradients(make("llama"), inputs_of())
    for hook in (Halving(), hooks.SequentialHook(hooks.AlignDevicesHook(placed.device), Halving())):
        want = compare(make("llama"), lambda model: hooks.add_hook_to_module(model.get_submodule(name), hook))
        assert not torch.equal(want[1]["model.embed_tokens.weight"], plain[1]["model.embed_tokens.weight"])
    model = make("llama")
    hooks.add_hook_to_module(model.model.layers[0].mlp.act_fn, no_gradients := hooks.ModelHook())
    no_gradients.no_grad = True
    compare(model, lambda model: None, "act_fn runs another forward")
    tegula.apply_to_model(model)
    layer = model.model.layers[1]
    for hook in (hooks.SequentialHook(hooks.AlignDevicesHook(placed.device)), hooks.CpuOffload(placed.device)):
        hooks.add_hook_to_module(layer, hook)
        assert listeners.why_heard(layer, "layer", around=True) is None


# ---- weights that are computed ----


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, weight):
        self.calls += 1
        return weight * 1.5


@pytest.mark.parametrize("name", ["model.norm", f"{LAYER}.input_layernorm", f"{LAYER}.post_attention_layernorm", f"{LAYER}.self_attn.q_norm", "lm_head"])
def test_parametrized_weights(name):
    """Computed as often as in the original, since a computation may draw random numbers."""
    model, inputs = make("qwen3"), inputs_of()
    weight = Counted()
    parametrize.register_parametrization(model.get_submodule(name), "weight", weight)
    counts, results = [], []
    for patch in (None, tegula.apply_to_model):
        if patch:
            patch(model)
        weight.calls = 0
        results.append(tiny.loss_and_gradients(model, inputs))
        counts.append(weight.calls)
    assert_same(results[1], results[0])
    assert counts[1] == counts[0] > 0


@pytest.mark.parametrize("name", ["model.norm", f"{LAYER}.input_layernorm", f"{LAYER}.self_attn.q_norm", "lm_head"])
@pytest.mark.parametrize("kind", ["prune", "weight_norm", "spectral_norm"])
def test_weights_computed_by_hooks(kind, name):
    if kind != "prune" and name != "lm_head":
        pytest.skip("they are for matrices")

    def change(model):
        module = model.get_submodule(name)
        if kind == "prune":
            prune.l1_unstructured(module, "weight", amount=0.5)
        elif kind == "weight_norm":
            nn.utils.weight_norm(module, dim=None)
        else:
            nn.utils.spectral_norm(module).eval()  # in training each forward changes its vectors

    want = compare(make("qwen3"), change, "has hooks")
    assert any(each.startswith(f"{name}.weight_") for each in want[1])


# ---- as they were reported ----


def on_every_act_fn(change):
    return lambda model: [change(layer.mlp) for layer in model.model.layers]


REPORTED = {
    "a backward hook of a layer halves": lambda model: model.model.layers[1].register_full_backward_hook(
        lambda module, taken, given: (taken[0] * 0.5,)
    ),
    "a backward pre-hook of a layer halves": lambda model: model.model.layers[1].register_full_backward_pre_hook(
        lambda module, given: (given[0] * 0.5,)
    ),
    "hooks of act_fn zero": on_every_act_fn(lambda mlp: mlp.act_fn.register_forward_hook(lambda module, taken, out: out * 0)),
    "act_fn is a subclass": on_every_act_fn(lambda mlp: setattr(mlp, "act_fn", Thresholded())),
    "act_fn has a forward": on_every_act_fn(lambda mlp: setattr(mlp.act_fn, "forward", lambda x: x * 0)),
    "a backward hook of lm_head zeroes": lambda model: model.lm_head.register_full_backward_hook(
        lambda module, taken, given: (taken[0] * 0,)
    ),
}


@pytest.mark.parametrize("what", REPORTED)
def test_as_reported(what):
    plain = tiny.loss_and_gradients(make("llama"), inputs_of())
    want = compare(make("llama"), REPORTED[what])
    name = "model.embed_tokens.weight"
    if "backward" in what:  # the gradient of what lies below
        factor = 0 if "zeroes" in what else 0.5
        assert torch.allclose(want[1][name], plain[1][name] * factor, atol=1e-7) and want[0] == plain[0]
    else:
        assert abs(want[0] - plain[0]) > 1e-4 * plain[0]
