"""Hooks of every kind on every module of patched models: they see what they would in the stock model, and what they
change has the same effect. Other listeners are in test_bypassed_modules.py."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import copy  # noqa: E402
import warnings  # noqa: E402

import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.modules import module as modules  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("device", "stock_afterwards"),
    pytest.mark.filterwarnings("ignore:.*ackward hook"),
]
F32 = 1e-5
LAYER = "model.layers.1"
SIZES = dict(num_hidden_layers=2, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1)


def make(family, **sizes):
    return tiny.make(family, **{**SIZES, **({"head_dim": 8} if family == "qwen3" else {}), **sizes})


# ---- what a listener sees and changes ----


def snapshot(value):
    """A copy of what a hook gets that later runs leave alone."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):  # outputs of models, too
        return {name: snapshot(inner) for name, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(snapshot, value))
    return value if isinstance(value, (int, float, str, type(None))) else type(value)


def halved(value):
    """Half of the first tensor of real numbers, in the same form."""
    if isinstance(value, torch.Tensor):
        return value * 0.5 if value.is_floating_point() else value
    if isinstance(value, dict):
        first = next(name for name, inner in value.items() if isinstance(inner, torch.Tensor) and inner.is_floating_point())
        value[first] = value[first] * 0.5
        return value
    done = []
    for inner in value:
        new = inner if inner is None or any(a is not b for a, b in zip(done, value)) else halved(inner)
        done.append(new)
    return tuple(done)


def assert_seen(ours, theirs, place):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, torch.Tensor), (place, type(ours))
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, (place, ours.shape, theirs.shape)
        if not torch.equal(ours, theirs):
            assert theirs.is_floating_point(), place
            assert tiny.distance(ours, theirs) <= F32, (place, tiny.distance(ours, theirs))
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs), (place, ours, theirs)
        for index, (mine, other) in enumerate(zip(ours, theirs)):
            assert_seen(mine, other, (*place, index))
    elif isinstance(theirs, dict):
        assert isinstance(ours, dict) and ours.keys() == theirs.keys(), (place, ours.keys(), theirs.keys())
        for name in theirs:
            assert_seen(ours[name], theirs[name], (*place, name))
    else:
        assert ours == theirs, (place, ours, theirs)


def assert_same(ours, theirs):
    """As tiny.assert_close; but a gradient below a hundredth of the largest is held to that, since those of keys nearly
    cancel in so few tokens."""
    assert abs(ours[0] - theirs[0]) <= F32 * abs(theirs[0]), (ours[0], theirs[0])
    assert ours[1].keys() == theirs[1].keys()
    least = 0.01 * max(gradient.abs().max() for gradient in theirs[1].values())
    for name, gradient in theirs[1].items():
        off = (ours[1][name].double() - gradient.double()).abs().max()
        assert off <= F32 * max(gradient.abs().max(), least), (name, off, gradient.abs().max())


def hook_of(kind, seen, names):
    """A hook that notes what it gets and returns half of it, for `register_<kind>_hook`."""

    def note(module, *values):
        seen.append((names.get(module), *map(snapshot, values)))

    def forward(module, *values):
        note(module, *values)
        return halved(values[-1])

    def before(module, arguments, keywords=None):
        note(module, arguments, keywords)
        if keywords is None:
            return halved(arguments)
        if "hidden_states" in keywords:
            keywords = {**keywords, "hidden_states": halved(keywords["hidden_states"])}
        return halved(arguments), keywords

    def gradient(module, *gradients):
        note(module, *gradients)
        if all(each is None for each in gradients[0]):
            return None  # PyTorch demands it where no input has a gradient
        return halved(gradients[0])

    return {"forward": forward, "forward_pre": before}.get(kind, gradient)


def inputs_of():
    return tiny.batch((1, 6))


def compare(model, change, report=None, patch=tegula.apply_to_model):
    """Loss and gradients, stock and patched, of a model that `change` has altered before the patch."""
    change(model)
    inputs = inputs_of()
    stock = tiny.loss_and_gradients(model, inputs)
    patch(model)
    assert_same(tiny.loss_and_gradients(model, inputs), stock)
    if report:
        assert report in str(tegula.report(model))
    tegula.reset()
    return stock


# name -> (kind of hook, options of its registration)
KINDS = {
    "forward": ("forward", {}),
    "forward, keywords": ("forward", dict(with_kwargs=True)),
    "forward, always": ("forward", dict(always_call=True)),
    "before": ("forward_pre", {}),
    "before, keywords": ("forward_pre", dict(with_kwargs=True)),
    "backward": ("full_backward", {}),
    "before backward": ("full_backward_pre", {}),
    "backward, old kind": ("backward", {}),
}


def run(model, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tiny.loss_and_gradients(model, inputs)


def places(model):
    """The model's modules, projections in the last layer alone."""
    names = [name for name, module in model.named_modules() if not isinstance(module, nn.ModuleList)]
    return [name for name in names if not (name.endswith("_proj") and ".0." in name)]


def is_bypassed(name, keywords):
    """Whether a replacement bypasses the module, changes its positional arguments, or `keywords`."""
    last = name.split(".")[-1]
    return last.isdigit() or last in ("", "act_fn", "lm_head") or "norm" in last or keywords and last == "self_attn"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_hooks_of_every_module(family, kind):
    """What they see, what becomes of their changes, and that the report names modules that are called for them."""
    stock, inputs = make(family), inputs_of()
    ours = copy.deepcopy(stock)
    tegula.apply_to_model(ours)
    assert "hook" not in str(tegula.report(ours))
    base, plain = kind.split(",")[0], run(stock, inputs)
    changed = 0
    for name in places(stock):
        seen, results = [], []
        for model in (stock, ours):
            seen.append([])
            register, options = KINDS[kind]
            hook = hook_of(register, seen[-1], {model.get_submodule(name): name})
            handle = getattr(model.get_submodule(name), f"register_{register}_hook")(hook, **options)
            if model is ours:
                heard = is_bypassed(name, "keywords" in kind) or name == "model" and kind == "backward, old kind"
                assert ("hook" in str(tegula.report(ours))) == heard, name
            results.append(run(model, inputs))
            handle.remove()
        assert_seen(tuple(seen[1]), tuple(seen[0]), (name,))
        assert_same(results[1], results[0])
        changed += any(not torch.equal(results[0][1][each], plain[1][each]) for each in plain[1])
    assert changed >= len(places(stock)) / 3, (base, changed)
    again = run(ours, inputs)
    assert_same(again, plain)
    assert ours(**inputs).logits is None  # nothing is left behind


# ---- hooks for all modules ----

EVERYWHERE = {
    "forward": lambda hook: modules.register_module_forward_hook(hook),
    "forward, keywords": lambda hook: modules.register_module_forward_hook(hook, with_kwargs=True),
    "before": lambda hook: modules.register_module_forward_pre_hook(hook),
    "backward": lambda hook: modules.register_module_full_backward_hook(hook),
    "before backward": lambda hook: modules.register_module_full_backward_pre_hook(hook),
    "backward, old kind": lambda hook: modules.register_module_backward_hook(hook),
}


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_hooks_for_all_modules(monkeypatch, family, kind):
    """Calls come in the order of the original, those of a backward in any."""
    monkeypatch.setattr(modules, "_global_is_full_backward_hook", None)  # PyTorch allows either kind, once for all
    stock, inputs = make(family), inputs_of()
    ours, seen, results = copy.deepcopy(stock), [], []
    tegula.apply_to_model(ours)
    before = run(ours, inputs)
    for model in (stock, ours):
        names = {module: name for name, module in model.named_modules()}
        seen.append([])
        handle = EVERYWHERE[kind](hook_of(KINDS[kind][0], seen[-1], names))
        try:
            results.append(run(model, inputs))
            if model is ours:
                text = str(tegula.report(ours))
                assert "lm_head is under hooks for all modules" in text and "act_fn is under hooks" in text
                assert ("see keywords" in text) == ("keywords" in kind)
        finally:
            handle.remove()
    if "backward" in kind:
        seen = [sorted(events, key=lambda event: event[0]) for events in seen]
    assert [event[0] for event in seen[1]] == [event[0] for event in seen[0]]
    assert len({event[0] for event in seen[0]}) >= 0.7 * len(names)
    assert_seen(tuple(seen[1]), tuple(seen[0]), ())
    assert_same(results[1], results[0])
    assert_same(run(ours, inputs), before)
    assert "hooks" not in str(tegula.report(ours)) and ours(**inputs).logits is None


# ---- masks, logits, checkpoints, compiled layers ----


@pytest.mark.parametrize("name", [LAYER, f"{LAYER}.self_attn"])
def test_masks_of_hooks(name):
    """Who sees keywords sees transformers' mask; else a hook keeps neither padding nor windows from Tegula's attention."""
    model, inputs, seen = tiny.make("qwen3 window"), tiny.batch(padding=[0, 4]), []

    def hook(module, arguments, keywords):
        seen.append(snapshot(keywords))

    handle = model.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert_seen(seen[1], seen[0], ())
    assert seen[0]["attention_mask"].dtype == torch.bool and "has hooks that see keywords" in str(tegula.report(model))
    handle.remove()
    model.get_submodule(name).register_forward_pre_hook(lambda module, arguments: seen.append(arguments))
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert len(seen) == 3 and tiny.served(model) == {"tegula"} and "masks as ranges" in str(tegula.report(model))


def test_masks_of_generate_for_hooks():
    """generate makes the masks for a cache of fixed length, and the model itself sees them."""
    model, seen = tiny.make().eval(), []
    model.register_forward_pre_hook(lambda module, arguments, keywords: seen[-1].append(snapshot(keywords["attention_mask"])), with_kwargs=True)
    padded = tiny.batch(padding=[0, 4])
    tokens = []
    for patch in (None, tegula.apply_to_model):
        if patch:
            patch(model)
        seen.append([])
        tokens.append(model.generate(padded["input_ids"], attention_mask=padded["attention_mask"], max_new_tokens=3, do_sample=False, cache_implementation="static", disable_compile=True))
    assert torch.equal(*tokens)
    assert_seen(tuple(seen[1]), tuple(seen[0]), ())


def test_logits_for_hooks_of_the_model():
    model, inputs, seen = make("llama"), inputs_of(), []
    tegula.apply_to_model(model)
    model.register_forward_hook(lambda module, arguments, out: seen.append(out.logits))
    assert model(**inputs).logits is not None and seen[0] is not None
    assert "loss from logits otherwise: the model has hooks" in str(tegula.report(model))
    assert model(**inputs, skip_logits=True).logits is None and seen[1] is None


@pytest.mark.parametrize("reentrant", [True, False])
def test_hooks_in_checkpointed_layers(reentrant):
    seen = []

    def change(model):
        model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
        model.enable_input_require_grads()
        for name in (LAYER, f"{LAYER}.post_attention_layernorm", f"{LAYER}.mlp.act_fn"):
            module = model.get_submodule(name)
            module.register_forward_hook(lambda module, arguments, out, name=name: (seen.append(name), out * 0.5)[1])
            module.register_full_backward_hook(lambda module, *gradients, name=name: seen.append((name, len(gradients[0]))))

    compare(make("llama"), change)
    half = len(seen) // 2
    assert seen[:half] == seen[half:] and len(seen) == 2 * half >= 16


def test_hooks_in_compiled_layers():
    model, inputs = make("qwen3"), inputs_of()
    for name in ("post_attention_layernorm", "mlp.act_fn", "self_attn.q_norm"):
        model.get_submodule(f"{LAYER}.{name}").register_forward_hook(lambda module, arguments, out: out * 0.5)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    torch._dynamo.reset()
    for layer in model.model.layers:
        layer.compile(fullgraph=True, backend="eager")
    assert_same(tiny.loss_and_gradients(model, inputs), stock)
