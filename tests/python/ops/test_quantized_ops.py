"""The quantised ops and sample, against PyTorch in f64 and the rules of their headers."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def values(*shape, seed=0):
    return placed.randn(shape, generator=torch.Generator().manual_seed(seed))


def half_steps(x, q, scale, zero_point):
    """Bounds of |x - what came back| in units of the scale, in f64."""
    back = (q.double() - (0 if zero_point is None else zero_point.double())) * scale.double()
    return ((x.double() - back).abs() / scale.double()).max()


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("granularity", ["tensor", "row", "column"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_int8(dtype, granularity, asymmetric):
    x = (values(2, 5, 37) + 0.5).to(dtype)
    q, scale, zero_point = ops.quantize_int8(x, granularity=granularity, asymmetric=asymmetric)
    assert q.shape == x.shape and q.dtype == torch.int8 and (zero_point is not None) == asymmetric
    shape = {"tensor": (1, 1), "row": (10, 1), "column": (1, 37)}[granularity]
    assert scale.shape == (max(shape),)
    spread = lambda t: None if t is None else t.view(shape)  # noqa: E731
    assert half_steps(x.view(10, 37), q.view(10, 37), spread(scale), spread(zero_point)) <= 0.5
    widest = x.double().view(10, 37)
    axis = {"tensor": (0, 1), "row": 1, "column": 0}[granularity]
    reach = widest.abs().amax(axis) / 127
    if asymmetric:
        reach = (widest.amax(axis).clamp(min=0) - widest.amin(axis).clamp(max=0)) / 255
    assert (scale.double() <= reach.view(-1) * (1 + 2**-13)).all() and (scale.double() >= reach.view(-1)).all()
    for wide in DTYPES:
        back = ops.dequantize_int8(q, scale, zero_point, granularity=granularity, dtype=wide)
        exact = (q.view(10, 37).float() - (0 if zero_point is None else spread(zero_point).float())) * spread(scale)
        assert back.dtype == wide and torch.equal(back, exact.to(wide).view(x.shape))


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("group_size, cols", [(32, 64), (64, 75), (128, 127)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float16], ids=str)
def test_int4(scale_dtype, group_size, cols, asymmetric):
    x = values(6, cols) + 0.5
    q, scale, zero_point = ops.quantize_int4(x, group_size=group_size, asymmetric=asymmetric, scale_dtype=scale_dtype)
    assert q.shape == (6, (cols + 1) // 2) and scale.shape == (6, -(-cols // group_size)) and scale.dtype == scale_dtype
    numbers = torch.stack((q & 15, q >> 4), -1).view(6, -1)[:, :cols]
    spread = lambda t: t.repeat_interleave(group_size, 1)[:, :cols]  # noqa: E731
    zero = spread(zero_point).float() if asymmetric else 8.0
    assert half_steps(x, numbers.float() - zero, spread(scale), None) <= 0.5
    for dtype in DTYPES:
        back = ops.dequantize_int4(q, scale, zero_point, group_size=group_size, cols=cols, dtype=dtype)
        assert torch.equal(back, ((numbers.float() - zero) * spread(scale).float()).to(dtype))
    if cols % 2 == 0:
        whole = ops.dequantize_int4(q, scale, zero_point, group_size=group_size, dtype=dtype)
        assert torch.equal(whole, back)


def int8_weight(w):
    q, scale, zero_point = ops.quantize_int8(w, asymmetric=True)
    return ops.pack_int8(q, scale, zero_point), ops.dequantize_int8(q, scale, zero_point).double()


def int4_weight(w):
    q, scale, zero_point = ops.quantize_int4(w, group_size=32, asymmetric=True)
    packed = ops.pack_int4(q, scale, zero_point, group_size=32, cols=w.shape[1])
    return packed, ops.dequantize_int4(q, scale, zero_point, group_size=32, cols=w.shape[1]).double()


def fp8_weight(w):
    scale = w.abs().amax().view(1, 1) / 448
    q = (w / scale).to(torch.float8_e4m3fn)
    return ops.pack_fp8(q, scale), q.double() * scale.double()


def exports_fp8():
    """PyTorch before 2.10 refuses to, and says so."""
    return tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)


PRODUCTS = {"int8": (int8_weight, ops.linear_int8), "int4": (int4_weight, ops.linear_int4), "fp8": (fp8_weight, ops.linear_fp8)}


@pytest.fixture
def overlap():
    yield
    tegula.allow_overlap(False)


def test_overlap_is_off_unless_it_is_allowed(overlap):
    assert tegula.allow_overlap() is False
    assert tegula.allow_overlap() is True
    for wrong in (1, None, "no"):
        with pytest.raises(TypeError, match="allow_overlap: allow: expected a bool, got "):
            tegula.allow_overlap(wrong)
    assert tegula.allow_overlap(False) is True
    assert tegula.allow_overlap(allow=False) is False


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_launches_that_may_overlap_give_the_same_bits(overlap, name):
    weight, linear = PRODUCTS[name]
    x = values(8, 256).bfloat16()
    weights = [weight(values(256, 256, seed=n) / 16)[0] for n in range(1, 9)]

    def layers():
        y = x
        for packed in weights:
            y = linear(y, packed)
        return y

    plain = layers()
    tegula.allow_overlap()
    assert all(torch.equal(layers(), plain) for _ in range(5))
    tegula.allow_overlap(False)
    assert torch.equal(layers(), plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    if name == "fp8" and not exports_fp8():
        with pytest.raises(BufferError, match="float8"):
            fp8_weight(values(33, 77))
        return
    quantise, linear = PRODUCTS[name]
    packed, w = quantise(values(33, 77))
    assert (packed.out_features, packed.in_features) == (33, 77)
    x, bias = values(2, 5, 77, seed=1).to(dtype), values(33, seed=2).to(dtype)
    exact = F.linear(x.double(), w, bias.double())
    naive = F.linear(x, w.to(dtype), bias)
    y = linear(x, packed, bias)
    assert y.dtype == dtype and y.shape == exact.shape
    floor = exact.abs().max() * (1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps / 2)
    assert (y.double() - exact).abs().max() <= torch.maximum(2 * (naive.double() - exact).abs().max(), floor)
    wide = linear(x, packed, dtype=torch.float32)
    assert wide.dtype == torch.float32 and (wide - (exact - bias.double())).abs().max() <= 1e-5 * exact.abs().max()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, p: linear(x, p, bias), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, packed), y)
    with pytest.raises(ValueError, match=rf"linear_{name}: x: expected \[\.\.\., 77\], got \[3, 76\]"):
        linear(x.new_zeros(3, 76), packed)
    with pytest.raises(NotImplementedError, match=f"linear_{name}: expected tensors without gradients"):
        linear(x.clone().requires_grad_(), packed)
    other = packed._replace(data=packed.data[:-1])
    with pytest.raises(ValueError, match=f"linear_{name}_fwd: weight: expected"):
        linear(x, other)


def test_dynamic_activations():
    packed, w = int8_weight(values(33, 77))
    x = values(4, 77, seed=1)
    q, scale, _ = ops.quantize_int8(x)
    exact = (q.double() * scale.double()[:, None]) @ w.T
    assert (ops.linear_int8(x, packed, mode="dynamic") - exact).abs().max() <= 1e-6 * exact.abs().max()


def e4m3_rows(x):
    """Codes and scales of rows, as tegula/linear_fp8_fp8.h defines them; PyTorch divides so on the CPU alone."""
    wide = x.float().cpu()
    scale = (wide.abs().amax(1) / torch.full((len(x),), 448.0)).clamp(min=2.0**-126)
    return (wide / scale[:, None]).to(torch.float8_e4m3fn).to(x.device), scale.to(x.device)


@pytest.mark.skipif(not exports_fp8(), reason="PyTorch before 2.10 does not export float8")
@pytest.mark.parametrize("rows, columns, out", [(5, 77, 33), (7, 144, 48), (70, 144, 48), (200, 272, 24)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fp8_by_fp8(dtype, rows, columns, out):
    weight, weight_scale = e4m3_rows(values(out, columns))
    x, bias = values(rows, columns, seed=1).to(dtype), values(out, seed=2).to(dtype)
    codes, x_scale = e4m3_rows(x)
    exact = (codes.double() * x_scale.double()[:, None]) @ (weight.double() * weight_scale.double()[:, None]).T + bias.double()
    y = ops.linear_fp8_fp8(x, weight, weight_scale, bias)
    assert y.dtype == dtype and y.shape == (rows, out)
    most = exact.abs().max()
    assert (y.double() - exact).abs().max() <= most * max(1e-3, torch.finfo(dtype).eps)
    assert torch.equal(ops.linear_fp8_fp8(codes, weight, weight_scale, bias, x_scale=x_scale, dtype=dtype), y)
    fast = ops.linear_fp8_fp8(x, weight, weight_scale, bias, allow_fast_accum=True, dtype=torch.float32)
    assert fast.dtype == torch.float32 and (fast - exact).abs().max() <= 2e-3 * most
    bad = x.clone()
    bad[3, 1] = float("nan")
    others = torch.arange(rows, device=y.device) != 3
    z = ops.linear_fp8_fp8(bad, weight, weight_scale, bias)
    assert z[3].isnan().all() and torch.equal(z[others], y[others])
    with pytest.raises(ValueError, match="linear_fp8_fp8_fwd: x_scale: expected none of x that is quantised in the call, got scales"):
        ops.linear_fp8_fp8(x, weight, weight_scale, x_scale=x_scale)
    with pytest.raises(ValueError, match="linear_fp8_fp8_fwd: x_scale: expected scales of x in f8_e4m3, got none"):
        ops.linear_fp8_fp8(codes, weight, weight_scale)
    with pytest.raises(ValueError, match=rf"linear_fp8_fp8: weight: expected \[out, {columns}\], got \[{columns}, {out}\]"):
        ops.linear_fp8_fp8(x, weight.T, weight_scale)


@pytest.mark.parametrize("call, exception, message", [
    (lambda x: ops.quantize_int8(x, granularity="group"), ValueError, "granularity: expected tensor or row or column, got 'group'"),
    (lambda x: ops.quantize_int4(x, group_size=48), ValueError, "quantize_int4_fwd: group_size: expected 32, 64 or 128, got 48"),
    (lambda x: ops.quantize_int4(x, group_size=0), ValueError, "quantize_int4_fwd: group_size: expected"),
    (lambda x: ops.quantize_int8(x.clone().requires_grad_()), NotImplementedError, "expected tensors without gradients"),
    (lambda x: ops.pack_int8(x, placed.ones(4)), TypeError, "linear_int8_pack: weight: expected i8"),
    (lambda x: ops.pack_int8(x.to(torch.int8), placed.ones(3)), ValueError, "linear_int8_pack: scale: expected"),
    (lambda x: ops.pack_int8(x[0].to(torch.int8), placed.ones(4)), ValueError, "linear_int8: weight: expected rank 2, got rank 1"),
    (lambda x: ops.pack_int4(x.to(torch.uint8), placed.ones(4, 4), group_size=48), ValueError, "linear_int4_pack"),
    (lambda x: tegula._core.packed_bytes("linear", x, x), ValueError, "pack: op: expected linear_int8, linear_int4, linear_fp8 or grouped_linear_mxfp4, got linear"),
])  # fmt: skip
def test_refused(call, exception, message):
    with pytest.raises(exception, match=message):
        call(values(4, 64))


# ---- sample ----


def filtered(logits, temperature, top_k, top_p, min_p):
    """The probabilities that are left, in f64, by sorting."""
    z = logits.double() / temperature
    order = z.argsort(descending=True, stable=True)
    p = z.softmax(-1).gather(-1, order)
    keep = torch.ones_like(p, dtype=torch.bool)
    if top_k:
        keep[..., top_k:] = False
        p = torch.where(keep, p, 0)
    if top_p:
        p = p / p.sum(-1, keepdim=True)
        keep &= p.cumsum(-1) - p < top_p
    if min_p:
        keep &= p >= min_p * p[..., :1]
    p = torch.where(keep, p, 0)
    return torch.zeros_like(z).scatter(-1, order, p / p.sum(-1, keepdim=True))


@pytest.mark.parametrize("choice", [
    dict(temperature=1.0, top_k=0, top_p=0.0, min_p=0.0), dict(temperature=0.7, top_k=5, top_p=0.0, min_p=0.0),
    dict(temperature=1.3, top_k=0, top_p=0.8, min_p=0.0), dict(temperature=1.0, top_k=0, top_p=0.0, min_p=0.2),
    dict(temperature=0.9, top_k=9, top_p=0.9, min_p=0.05),
], ids=str)  # fmt: skip
def test_sample_draws_what_is_left(choice):
    draws, vocab = 4000, 23
    logits = 2 * values(vocab)
    p = filtered(logits, **choice)
    ids, log_prob = ops.sample(logits.expand(draws, vocab).contiguous(), seed=7, log_prob=True, **choice)
    assert ids.shape == (draws,) and ids.dtype == torch.int64
    torch.testing.assert_close(log_prob.double(), p[ids].log(), rtol=0, atol=4e-6)
    counts = torch.bincount(ids, minlength=vocab).double()
    deviation = (counts - draws * p).abs() / (draws * p * (1 - p) + 1).sqrt()
    assert (counts[p == 0] == 0).all() and deviation.max() < 5


def test_sample_repeats_and_penalises():
    logits = values(2, 3, 50)
    first = ops.sample(logits, seed=1, position=4)
    assert first.shape == (2, 3) and torch.equal(first, ops.sample(logits, seed=1, position=4))
    rows = placed.full((6,), 4)
    assert torch.equal(first.view(-1), ops.sample(logits.view(6, 50), seed=1, positions=rows))
    wide = values(64, 50)
    assert not torch.equal(ops.sample(wide, seed=1), ops.sample(wide, seed=2))
    assert torch.equal(ops.sample(logits, seed=1, temperature=0.0), logits.argmax(-1))
    best = logits.argmax(-1, keepdim=True)
    again = ops.sample(logits, seed=1, temperature=0.0, history=best, repetition_penalty=100.0)
    penalised = torch.where(logits > 0, logits / 100, logits * 100)
    expected = logits.scatter(-1, best, penalised.gather(-1, best)).argmax(-1)
    assert torch.equal(again, expected) and not torch.equal(again, best[..., 0])
    none = ops.sample(logits, seed=1, temperature=0.0, history=best, repetition_penalty=100.0,
                      history_lengths=placed.zeros(2, 3, dtype=torch.int64))  # fmt: skip
    assert torch.equal(none, best[..., 0])
    compiled = torch.compile(lambda z: ops.sample(z, seed=1, position=4), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(logits), first)
    with pytest.raises(ValueError, match="sample_fwd: temperature: expected"):
        ops.sample(logits, seed=1, temperature=-1.0)


@pytest.mark.parametrize("wrong", [[0, torch.nan, 1], [torch.inf, 0, 0], [-torch.inf] * 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sample_names_rows_without_a_largest_logit(wrong, temperature):
    logits = placed.tensor([[0, -torch.inf, -torch.inf], wrong, [-torch.inf, 0, -torch.inf]])
    picked = []
    with pytest.raises(ValueError, match=r"sample_fwd: logits\[1\]: expected numbers below infinity and a finite one, got a row without"):
        picked += ops.sample(logits, seed=1, temperature=temperature, log_prob=True)
        tegula.check()  # a GPU has picked when it tells
    assert bool(picked) == (placed.device != "cpu")
    if picked:
        ids, log_prob = picked
        assert ids.tolist() == [0, -1, 1] and log_prob[1].isnan() and not log_prob[::2].any()
    tegula.check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mxfp4_is_transformers_conversion(dtype):
    """All codes at all scales, bit for bit. In f16, whose exponents transformers computes in f16 too, at those that it reaches."""
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4", reason="without transformers")
    convert = getattr(mxfp4, "_convert_moe_packed_tensors", None) or mxfp4.convert_moe_packed_tensors
    scales = torch.arange(104, 141) if dtype is torch.float16 else torch.arange(256)
    scales = scales.to(torch.uint8).repeat(2, 3, 1)
    blocks = torch.randint(256, (*scales.shape, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    blocks[0, 0] = torch.arange(16) * 17  # every code twice
    ours = ops.dequantize_mxfp4(placed.to_device(blocks), placed.to_device(scales), dtype=dtype)
    theirs = convert(blocks, scales, dtype=dtype).transpose(1, 2)  # [experts, out, in] again
    assert ours.shape == theirs.shape and torch.equal(ours.cpu(), theirs)
    assert torch.equal(ours.cpu().signbit(), theirs.signbit())
