"""What attention of patched models sees: masks, packed sequences, windows, caches, and who serves it."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import types  # noqa: E402

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402

from tegula.patching import attention, attention_masks  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
F32 = 1e-5


def packed(lengths, rows=1):
    places = torch.cat([placed.arange(length) for length in lengths])
    inputs = tiny.batch((rows, len(places)))
    return dict(inputs, position_ids=places.expand(rows, -1), use_cache=False)


MASKS = {
    "all ones": lambda: tiny.batch(padding=[0, 0]),
    "left": lambda: tiny.batch(padding=[0, 6]),
    "right": lambda: tiny.batch(padding=[-4, -9]),
    "both, and a row of padding": lambda: tiny.batch((3, 17), padding=[3, -5, 17]),
    "packed": lambda: packed([5, 1, 9, 2]),
    "packed rows": lambda: packed([5, 1, 9, 2], rows=2),
    "positions in order": lambda: packed([17]),
}


@pytest.mark.parametrize("variant", ["qwen3", "qwen3 window", "qwen2 window", "llama"])
@pytest.mark.parametrize("name", MASKS)
def test_masks(variant, name):
    """Every mask that says which keys stand side by side is Tegula's; tokens of padding may differ, all others agree."""
    model, inputs = tiny.make(variant), MASKS[name]()
    stock, stock_logits = tiny.loss_and_gradients(model, inputs), tiny.logits(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    assert tiny.distance(tiny.logits(model, inputs)[real], stock_logits[real]) <= F32
    assert tiny.served(model) == {"tegula"}


def test_packed_sequences_do_not_see_each_other():
    model = tiny.make().eval()
    tegula.apply_to_model(model)
    inputs = {key: value for key, value in packed([5, 1, 9, 2]).items() if key != "labels"}
    whole = model(**inputs).logits[0]
    for start, stop in ((0, 5), (5, 6), (6, 15), (15, 17)):
        alone = model(input_ids=inputs["input_ids"][:, start:stop], use_cache=False).logits[0]
        assert tiny.distance(whole[start:stop], alone) <= F32
    lengths = placed.tensor([0, 5, 6, 15, 17], dtype=torch.int32)
    given = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"], cu_seq_lens_q=lengths, use_cache=False)
    assert tiny.distance(given.logits[0], whole) <= F32


@pytest.mark.parametrize("mask", ["holes", "four axes", "dropout"])
def test_what_goes_to_pytorch_says_so(mask):
    model, inputs = tiny.make(attention_dropout=0.5 if mask == "dropout" else 0.0), tiny.batch(padding=[0, 0])
    if mask == "holes":
        inputs["attention_mask"][0, 4:7] = 0
    elif mask == "four axes":
        inputs["attention_mask"] = placed.ones(17, 17, dtype=torch.bool).tril(2)[None, None]
    torch.manual_seed(0)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    torch.manual_seed(0)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    reason = "dropout" if mask == "dropout" else "a dense mask"
    assert tiny.served(model) == {f"pytorch: {reason}"}
    assert f"last attention by pytorch: {reason}" in str(tegula.report(model))


@pytest.mark.parametrize("variant", ["qwen3", "qwen3 window"])
@pytest.mark.parametrize("name", MASKS)
def test_masks_without_a_fast_kernel(monkeypatch, variant, name):
    """As on a GPU where PyTorch's attention is faster: it gets what the mask says."""
    monkeypatch.setattr(attention, "has_fast_kernel", lambda *_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "this GPU")
    model, inputs = tiny.make(variant), MASKS[name]()
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.served(model) == {"pytorch: no fast forward and backward for torch.float32 heads of 16 on this GPU"}
    prompt = {key: inputs[key] for key in inputs if key in ("input_ids", "attention_mask")}
    for implementation in (None, "static"):
        options = dict(max_new_tokens=5, do_sample=False, disable_compile=True, cache_implementation=implementation)
        ours = model.eval().generate(**prompt, **options)
        assert tiny.served(model) <= {"pytorch: no fast forward for torch.float32 heads of 16 on this GPU", "pytorch: a dense mask"}
        tegula.reset()
        assert torch.equal(ours, model.generate(**prompt, **options))
        tegula.apply_to_model(model)


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("mask, queries, keys", [
    (lambda: attention_masks.plain(placed.device), 4, 9),
    (lambda: attention_masks.segments(*placed.tensor([[0, 3, 3, 6, 10, 12]] * 2)), 6, 6),
    (lambda: attention_masks.segments(*placed.tensor([[0, 2, 4, 4, 8], [0, 5, 9, 11, 18]])), 4, 9),
    (lambda: attention_masks.ranges(*placed.tensor([[0, 2], [7, 9], [5, 5]])), 4, 9),
    (lambda: attention_masks.ranges(*placed.tensor([[0, 8], [11, 12], [9, 9]])), 3, 7),  # the cache has dropped 5 of 12
])  # fmt: skip
def test_masks_are_what_they_say(mask, queries, keys, window):
    if (keys, window) == (7, 0):
        return  # only a window drops keys
    torch.manual_seed(0)
    mask = mask()
    q, k, v = placed.randn(2, 4, queries, 8), placed.randn(2, 2, keys, 8), placed.randn(2, 2, keys, 8)
    ours = attention.attend(q, k, v, attention.Seen(mask, True, window), 0.3, 0.0, None)
    seen = attention_masks.as_booleans(mask, 2, queries, keys, window)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, scale=0.3, enable_gqa=True)
    assert tiny.distance(ours, theirs) <= F32


@pytest.mark.cpu("it imagines its GPUs")
def test_which_kernels_are_fast(monkeypatch):
    q = torch.empty(1, 1, 1, 128, dtype=torch.bfloat16)
    assert attention.has_fast_kernel(q, q, True)
    gpu = types.SimpleNamespace(device=torch.device("cuda", 0), dtype=q.dtype, shape=q.shape)
    for capability, fast in (((9, 0), True), ((8, 6), True), ((12, 0), True), ((10, 0), False), ((7, 5), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert attention.has_fast_kernel(gpu, q, False) is fast and attention.has_fast_kernel(gpu, q, True) is fast
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu.shape = (1, 1, 1, 192)
    assert attention.has_fast_kernel(gpu, q, False) and attention.has_fast_kernel(gpu, q, True)
    gpu.shape = (1, 1, 1, 256)
    assert attention.has_fast_kernel(gpu, q, False) and not attention.has_fast_kernel(gpu, q, True)
    gpu.dtype = torch.float32
    assert not attention.has_fast_kernel(gpu, q, False)
    gpu.dtype, gpu.shape = q.dtype, (1, 1, 1, 192)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert not attention.has_fast_kernel(gpu, q, False)


@pytest.mark.parametrize("variant", ["qwen3", "qwen3 window", "llama"])
@pytest.mark.parametrize("padding", [None, [0, 6]])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(variant, padding, cache):
    model = tiny.make(variant).eval()
    inputs = {key: value for key, value in tiny.batch((2, 9), padding=padding).items() if key != "labels"}
    options = dict(
        max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True, disable_compile=True,
        cache_implementation=None if cache == "dynamic" else "static",
    )  # fmt: skip
    stock = model.generate(**inputs, **options)
    tegula.apply_to_model(model)
    ours = model.generate(**inputs, **options)
    assert torch.equal(ours.sequences, stock.sequences)
    for mine, theirs in zip(ours.logits, stock.logits, strict=True):
        assert tiny.distance(mine, theirs) <= F32
    if (variant, cache) == ("qwen3 window", "static"):  # a buffer that turns around
        assert tiny.served(model) == {"pytorch: a dense mask"}
    else:
        assert tiny.served(model) == {"tegula"}


@pytest.mark.parametrize("variant", ["qwen3", "qwen3 window"])
@pytest.mark.parametrize("padding", [None, [0, 3]])
def test_cached_pieces(variant, padding):
    """A prompt in pieces of several tokens, as chunked prefill and assisted decoding feed it."""
    model = tiny.make(variant).eval()
    inputs = tiny.batch((2, 15), padding=padding)
    whole = tiny.logits(model, {key: inputs[key] for key in inputs if key != "labels"})
    tegula.apply_to_model(model)
    cache, start = None, 0
    with torch.no_grad():
        for stop in (4, 5, 11, 15):
            mask = inputs["attention_mask"][:, :stop] if padding else None
            out = model(inputs["input_ids"][:, start:stop], attention_mask=mask, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            real = placed.ones(2, stop - start, dtype=torch.bool) if mask is None else mask[:, start:stop].bool()
            assert tiny.distance(out.logits[real], whole[:, start:stop][real]) <= F32
            start = stop
    assert tiny.served(model) == {"tegula"}


@pytest.mark.parametrize("variant", ["qwen3 window", "llama"])
@pytest.mark.parametrize("name", ["left", "packed", "all ones"])
def test_tegula_as_attn_implementation(variant, name):
    """Without any patch, and with all."""
    tegula.register_attention()
    model, inputs = tiny.make(variant), MASKS[name]()
    stock = tiny.loss_and_gradients(model, inputs)
    model.set_attn_implementation("tegula")
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.served(model) == {"tegula"}
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.served(model) == {"tegula"}


def test_another_attention_by_name_is_left_alone():
    model, inputs = tiny.make(attn_implementation="eager"), MASKS["left"]()
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert tiny.served(model) == {None} and "attention: eager" in str(tegula.report(model))
