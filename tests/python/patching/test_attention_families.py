"""`attn_implementation="tegula"` in models that no patch knows: windows, softcaps, sinks and chunks beside padding,
packing and caches, against "eager" attention."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
import tiny_families as tiny  # noqa: E402
import torch  # noqa: E402

from tegula.patching import attention  # noqa: E402

pytestmark = pytest.mark.usefixtures("fast_everywhere")
tegula.register_attention()
F32 = 1e-5
DECODERS = ["gemma2", "gpt_oss", "mistral", "gemma3_text", "phi3", "starcoder2", "llama4_text"]
no_interface = not tiny.has_interface("modernbert")
FAMILIES = [
    *DECODERS, pytest.param("modernbert", marks=pytest.mark.skipif(no_interface, reason="an earlier transformers"))
]  # fmt: skip
FEATURES = {"gemma2": "softcap", "gpt_oss": "sinks"}  # that PyTorch's attention does not have
PADDING = {"none": None, "left": (0, 6), "right": (-4, -9), "both, and a row of padding": (3, -5, 17)}


@pytest.fixture(scope="module")
def models():
    """model_type -> model: building one takes longer than calling it."""
    made = {}

    def get(model_type):
        key = model_type, placed.device
        if key not in made:
            made[key] = tiny.make(model_type)
        return made[key]

    return get


def with_both(model, run):
    """(Tegula's, eager's) results of `run(model)`, and who served the former."""
    model.set_attn_implementation("eager")
    theirs = run(model)
    model.set_attn_implementation("tegula")
    attention._last_call.clear()
    ours = run(model)
    return ours, theirs, {attention.served_by(module) for module in list(attention._last_call)}


def logits_of(inputs):
    def run(model):
        with torch.no_grad():
            return model(**inputs).logits

    return run


def inputs_for(padding):
    return tiny.ids_of((3, 17) if padding and len(padding) == 3 else (2, 17), padding)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padding", PADDING)
def test_padding(models, family, padding):
    inputs = inputs_for(PADDING[padding])
    ours, theirs, served = with_both(models(family), logits_of(inputs))
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    assert tiny.distance(ours[real], theirs[real]) <= F32
    assert served == {"tegula"}


@pytest.mark.parametrize("family", DECODERS)
def test_packed_sequences(models, family):
    places = torch.cat([placed.arange(length) for length in (8, 1, 6, 2)])
    inputs = dict(tiny.ids_of(), position_ids=places.expand(2, -1), use_cache=False)
    ours, theirs, served = with_both(models(family), logits_of(inputs))
    assert tiny.distance(ours, theirs) <= F32 and served == {"tegula"}
    if family != "gpt_oss":  # it does not tell its masks of positions
        alone = models(family)(inputs["input_ids"][:, 9:15], use_cache=False).logits
        assert tiny.distance(ours[:, 9:15], alone) <= F32


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients(models, family, checkpointing):
    model = models(family)
    inputs = inputs_for(PADDING["left"])
    weights = torch.where(inputs["attention_mask"].bool(), placed.rand(2, 17), 0.0)[..., None]

    def run(model):
        model.zero_grad()
        (model(**inputs, use_cache=False).logits * weights).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    if checkpointing:
        model.gradient_checkpointing_enable(dict(use_reentrant=True))
        model.train()
    try:
        ours, theirs, served = with_both(model, run)
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
    assert served == {"tegula"} and ours.keys() == theirs.keys()
    if family == "gpt_oss":
        assert any(name.endswith("sinks") for name in ours)
    for name in theirs:
        assert tiny.distance(ours[name], theirs[name]) <= 2 * F32, name


GENERATION = {
    "greedy": dict(),
    "static cache": dict(cache_implementation="static", disable_compile=True),
    "beams": dict(num_beams=3, num_return_sequences=2),
    "no cache": dict(use_cache=False),
}


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("way", GENERATION)
@pytest.mark.parametrize("padding", [None, (0, 3)])
def test_generation(models, family, way, padding):
    """The prompt is longer than the window, and windows drop keys while tokens are made."""
    inputs = tiny.ids_of((2, 8), padding)

    def run(model):
        return model.generate(
            **inputs, max_new_tokens=6, min_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True,
            **GENERATION[way],
        )  # fmt: skip

    ours, theirs, served = with_both(models(family), run)
    assert torch.equal(ours.sequences, theirs.sequences)
    for mine, other in zip(ours.logits, theirs.logits, strict=True):
        assert tiny.distance(mine, other) <= F32
    assert served == {"tegula"}


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("padding", [None, (0, 3)])
def test_cached_pieces(models, family, padding):
    """A prompt in pieces of several tokens, as chunked prefill and assisted decoding feed it."""
    inputs = tiny.ids_of((2, 17), padding)

    def run(model):
        cache, found = None, []
        for start, stop in ((0, 3), (3, 5), (5, 13), (13, 14), (14, 17)):
            mask = inputs["attention_mask"][:, :stop] if padding else None
            known = {} if cache is None else {cache[0]: cache[1]}
            with torch.no_grad():
                out = model(inputs["input_ids"][:, start:stop], attention_mask=mask, use_cache=True, **known)
            name = "cache" if "cache" in out else "past_key_values"
            cache = name, out[name]
            found.append(out.logits)
        return torch.cat(found, 1)

    ours, theirs, served = with_both(models(family), run)
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    assert tiny.distance(ours[real], theirs[real]) <= F32
    assert served == {"tegula"}


@pytest.mark.nightly
@pytest.mark.cpu("compiling for a GPU takes longer still")
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "mistral"])
@pytest.mark.parametrize("padding", [None, (0, 3)])
def test_compiled_generation(models, family, padding):
    """On a GPU, generate compiles the forward for a cache of fixed length; the masks are its inputs."""
    from transformers import CompileConfig

    compiling = CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
    compiling._compile_all_devices = True

    def run(model):
        torch._dynamo.reset()
        return model.generate(
            **tiny.ids_of((2, 8), padding), max_new_tokens=6, min_new_tokens=6, do_sample=False, output_logits=True,
            return_dict_in_generate=True, cache_implementation="static", compile_config=compiling,
        )  # fmt: skip

    ours, theirs, _ = with_both(models(family), run)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert tiny.distance(torch.stack(ours.logits), torch.stack(theirs.logits)) <= F32


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["gemma2", "llama4_text"])
def test_compiled_layers(models, family):
    """Masks are made in eager mode and are inputs of compiled layers."""
    model, inputs = models(family), inputs_for(PADDING["left"])
    model.set_attn_implementation("tegula")
    theirs = logits_of(inputs)(model)
    layer = model.model.layers[0]
    layer.compile(fullgraph=True, backend="aot_eager")
    try:
        assert tiny.distance(logits_of(inputs)(model), theirs) <= F32
    finally:
        layer._compiled_call_impl = None
        torch._dynamo.reset()


def with_holes():
    inputs = tiny.ids_of(padding=(0, 0))
    inputs["attention_mask"][0, 4:7] = 0
    return inputs


def with_four_axes():
    seen = placed.ones(17, 17, dtype=torch.bool).tril(2)[None, None]
    lowest = torch.finfo(torch.float32).min
    return dict(tiny.ids_of(), attention_mask=torch.where(seen, 0.0, lowest).expand(2, 1, -1, -1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("make", [with_holes, with_four_axes])
def test_masks_that_are_no_ranges(models, family, make):
    """PyTorch's attention runs where it gives the right value; else the error names what it does not know."""
    inputs = make()
    if family in FEATURES:
        models(family).set_attn_implementation("tegula")
        with pytest.raises(NotImplementedError, match=f"{FEATURES[family]} of .*Attention: .*a dense mask"):
            logits_of(inputs)(models(family))
        return
    ours, theirs, served = with_both(models(family), logits_of(inputs))
    real = inputs["attention_mask"].bool() if make is with_holes else torch.ones_like(inputs["input_ids"]).bool()
    assert tiny.distance(ours[real], theirs[real]) <= F32
    assert "pytorch: a dense mask" in served


def test_report(models):
    """The family has no patches."""
    inputs = with_holes()
    with_both(models("mistral"), logits_of(inputs))
    row = "model.layers.*.self_attn (4)  transformers       last attention by pytorch: a dense mask"
    assert row.split() == str(tegula.report(models("mistral"))).splitlines()[1].split()
    with_both(models("mistral"), logits_of(inputs_for(PADDING["left"])))
    assert "tegula: attention" in str(tegula.report(models("mistral")))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("padding", ["none", "left"])
def test_without_a_fast_kernel(models, monkeypatch, family, padding):
    """As on a GPU where PyTorch's attention is faster: it gets what the mask says, but for softcaps and sinks."""
    monkeypatch.setattr(attention, "has_fast_kernel", lambda *_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "this GPU")
    inputs = inputs_for(PADDING[padding])
    ours, theirs, served = with_both(models(family), logits_of(inputs))
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    assert tiny.distance(ours[real], theirs[real]) <= F32
    slower = "pytorch: no fast forward for torch.float32 heads of 16 on this GPU"
    assert served == ({"tegula"} if family in FEATURES else {slower})


@pytest.mark.parametrize("family", FEATURES)
def test_dropout_beside_what_pytorch_lacks(models, family):
    model = models(family)
    model.set_attn_implementation("tegula")
    layer = next(module for name, module in model.named_modules() if name.endswith("self_attn"))
    rate, layer.attention_dropout = layer.attention_dropout, 0.5
    try:
        with pytest.raises(NotImplementedError, match=f"{FEATURES[family]} of {type(layer).__name__}: .* got dropout"):
            model.train()(**tiny.ids_of())
    finally:
        layer.attention_dropout = rate
        model.eval()


@pytest.mark.parametrize("name", attention.UNKNOWN)
def test_unknown_arguments(name):
    q = placed.randn(1, 2, 3, 8)
    with pytest.raises(NotImplementedError, match=f"attention: {name}: expected None, got one from Identity"):
        attention.attention_forward(torch.nn.Identity(), q, q, q, None, **{name: placed.zeros(1)})
