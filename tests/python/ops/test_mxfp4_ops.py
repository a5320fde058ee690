"""Experts whose weights stay in MXFP4: products with packed weights against those with the values of dequantize_mxfp4."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
# tokens, in, out, experts, k: ragged panels, in is out, one token, a real width
SHAPES = [(37, 64, 23, 5, 3), (16, 32, 32, 4, 2), (1, 96, 33, 8, 4), (9, 2880, 34, 6, 4), (70, 32, 5, 3, 1)]


def differ(a, b):
    return ((a.detach().double() - b.detach().double()).abs().max() / b.detach().abs().max().clamp(min=1e-30)).item()


def stored(experts, out, wide, seed=0):
    """blocks and scales, all codes, with sums near 1; and their values in f64."""
    g = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (experts, out, wide // 32, 16), dtype=torch.uint8, generator=g)
    scales = torch.randint(-2, 2, (experts, out, wide // 32), generator=g) + 126 - (wide.bit_length() // 2)
    blocks, scales = blocks.to(placed.device), scales.to(torch.uint8).to(placed.device)
    return blocks, scales, ops.dequantize_mxfp4(blocks, scales, dtype=torch.float32).double()


def plan_of(tokens, experts, k):
    """Expert 1 has no rows, and some slots are dropped."""
    indices = torch.randint(0, experts + 1, (tokens, k), generator=torch.Generator().manual_seed(tokens))
    indices[indices == 1] = 0
    return ops.moe_plan(indices.to(placed.device), experts)


def reference(x, weight, bias, offsets, slot, k):
    rows, bounds = x[slot.long() // k], offsets.tolist()
    parts = [rows[bounds[e] : bounds[e + 1]] @ weight[e].T + bias[e] for e in range(len(weight))]
    return torch.cat([*parts, 0 * (rows[bounds[-1] :] @ weight[0].T)])


def test_packed_bytes_are_the_blocks_and_scales():
    """Of a row of a panel: its scale, then four words of codes."""
    blocks, scales, _ = stored(2, 35, 64)
    packed = ops.pack_mxfp4(blocks, scales)
    assert packed[1:] == (2, 35, 64) and packed.data.dtype == torch.uint8
    data = packed.data.cpu()
    assert bytes(data[:8].tolist()) == b"TGmxfp4\0" and len(data) == 64 + 2 * 2 * 2 * 544
    groups = data[64:].view(2, 2, 2, 544)  # expert, panel, group
    for e, o, g in ((0, 0, 0), (1, 31, 1), (0, 32, 0), (1, 34, 1)):
        group, row = groups[e, o // 32, g], o % 32
        assert group[row] == scales[e, o, g].cpu()
        assert torch.equal(group[32:].view(4, 32, 4)[:, row].flatten(), blocks[e, o, g].cpu())
    assert not groups[:, 1, :, 3:32].any() and not groups[:, 1, :, 32:].view(2, 2, 4, 32, 4)[..., 3:, :].any()


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_like_dequantised(shape, dtype):
    tokens, wide, out, experts, k = shape
    blocks, scales, weight = stored(experts, out, wide, tokens)
    packed = ops.pack_mxfp4(blocks, scales)
    offsets, slot, row = plan_of(tokens, experts, k)
    torch.manual_seed(tokens)
    ours = [placed.randn(tokens, wide).to(dtype).requires_grad_(), placed.randn(experts, out).to(dtype).requires_grad_()]
    theirs = [t.detach().double().requires_grad_() for t in ours]
    y = ops.grouped_linear_mxfp4(ours[0], packed, offsets, ours[1], slot=slot, row=row)
    wanted = reference(theirs[0], weight, theirs[1], offsets, slot, k)
    kept = int(offsets[-1])
    assert y.dtype == dtype and differ(y, wanted) < BOUND[dtype] and not y[kept:].any()
    upstream = placed.randn(*y.shape).to(dtype)
    poisoned = upstream.clone()
    poisoned[kept:] = float("nan")  # nobody reads it
    grads = torch.autograd.grad(y, ours, poisoned)
    for a, b in zip(grads, torch.autograd.grad(wanted, theirs, upstream.double())):
        assert a.dtype == dtype and differ(a, b) < 2 * BOUND[dtype]
    with torch.no_grad():  # gathered as it is read
        assert torch.equal(ops.grouped_linear_mxfp4(ours[0], packed, offsets, ours[1], slot=slot), y)
    of_bias = ops.grouped_linear_mxfp4(ours[0].detach(), packed, offsets, ours[1], slot=slot)
    assert torch.equal(of_bias, y) and torch.equal(torch.autograd.grad(of_bias, ours[1], poisoned)[0], grads[1])


@pytest.mark.parametrize("packing", ["halves", "interleaved"])
@pytest.mark.parametrize("activation", ["swiglu", "swiglu_clamped"])
def test_activation_is_that_of_grouped_linear(activation, packing):
    blocks, scales, weight = stored(4, 30, 64)
    offsets, slot, row = plan_of(21, 4, 2)
    torch.manual_seed(2)
    x, bias = (3 * placed.randn(21, 64)).requires_grad_(), placed.randn(4, 30)
    call = dict(slot=slot, row=row, activation=activation, alpha=1.75, packing=packing)
    y = ops.grouped_linear_mxfp4(x, ops.pack_mxfp4(blocks, scales), offsets, bias, **call)
    wanted = ops.grouped_linear(x, weight.float(), offsets, bias, **call)
    assert y.shape == (42, 15) and differ(y, wanted) < 1e-5
    for a, b in zip(torch.autograd.grad(y.square().sum(), x), torch.autograd.grad(wanted.square().sum(), x)):
        assert differ(a, b) < 1e-4
    with torch.no_grad():
        assert torch.equal(ops.grouped_linear_mxfp4(x, ops.pack_mxfp4(blocks, scales), offsets, bias, **call), y)


def test_rows_do_not_depend_on_others():
    blocks, scales, _ = stored(3, 33, 800)
    packed = ops.pack_mxfp4(blocks, scales)
    for dtype in BOUND:
        x = placed.randn(40, 800).to(dtype)
        whole = ops.grouped_linear_mxfp4(x, packed, placed.tensor([0, 0, 33, 40], dtype=torch.int32))
        for r, e in ((0, 1), (11, 1), (32, 1), (33, 2), (39, 2)):
            alone = placed.tensor([0] * (e + 1) + [1] * (3 - e), dtype=torch.int32)
            assert torch.equal(ops.grouped_linear_mxfp4(x[r : r + 1], packed, alone)[0], whole[r])


def block_of_experts(x, up, down, offsets, slot, row):
    z = ops.grouped_linear_mxfp4(x, up, offsets, slot=slot, row=row, activation="swiglu_clamped", packing="interleaved")
    return ops.moe_combine(ops.grouped_linear_mxfp4(z, down, offsets), row, slot=slot)


def test_compiled():
    up, down = ops.pack_mxfp4(*stored(3, 64, 32)[:2]), ops.pack_mxfp4(*stored(3, 32, 32)[:2])
    x = placed.randn(6, 32).requires_grad_()
    plan = plan_of(6, 3, 2)
    compiled = torch.compile(block_of_experts, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x, up, down, *plan).square().sum(), x),
        torch.autograd.grad(block_of_experts(x, up, down, *plan).square().sum(), x),
    )


def test_refuses():
    blocks, scales, _ = stored(2, 5, 64)
    packed = ops.pack_mxfp4(blocks, scales)
    x, offsets = placed.randn(4, 64), placed.tensor([0, 2, 4], dtype=torch.int32)
    with pytest.raises(ValueError, match="grouped_linear_mxfp4_pack: scales: expected at most 252, got 253"):
        ops.pack_mxfp4(blocks, torch.where(scales == scales[0, 0, 0], 253, scales).to(torch.uint8))
    with pytest.raises(ValueError, match=r"grouped_linear_mxfp4_pack: scales: expected u8 \[2, 5, 2\], got u8 \[2, 5, 1\]"):
        ops.pack_mxfp4(blocks, scales[..., :1])
    with pytest.raises(ValueError, match=r"grouped_linear_mxfp4_pack: blocks: expected u8 \[2, 5, 2, 16\], got u8 \[2, 5, 2, 8\]"):
        ops.pack_mxfp4(blocks[..., :8], scales)
    with pytest.raises(TypeError, match="grouped_linear_mxfp4: weight: expected PackedExperts, got <class 'torch.Tensor'>"):
        ops.grouped_linear_mxfp4(x, packed.data, offsets)
    with pytest.raises(ValueError, match=r"grouped_linear_mxfp4: x: expected \[rows, 64\], got \[4, 33\]"):
        ops.grouped_linear_mxfp4(x[:, :33], packed, offsets)
    with pytest.raises(ValueError, match="grouped_linear_mxfp4_fwd: x: expected a multiple of 32 inputs, got 33"):
        ops.grouped_linear_mxfp4(x[:, :33], packed._replace(in_features=33), offsets)
    with pytest.raises(ValueError, match=r"grouped_linear_mxfp4_fwd: weight: expected the \d+ bytes of a packed \[3, 5, 64\], got"):
        ops.grouped_linear_mxfp4(x, packed, placed.tensor([0, 2, 4, 4], dtype=torch.int32))
    other = packed.data.clone()
    other[48] = 2  # the version
    with pytest.raises(ValueError, match="grouped_linear_mxfp4_fwd: weight.*: expected .*1.*, got 2"):
        ops.grouped_linear_mxfp4(x, packed._replace(data=other), offsets)
        tegula.check()
    with pytest.raises(ValueError, match=r"grouped_linear_mxfp4_fwd: offsets\[2\]: expected 2 to 4, got 5"):
        ops.grouped_linear_mxfp4(x, packed, placed.tensor([0, 2, 5], dtype=torch.int32))
        tegula.check()
    with pytest.raises(ValueError, match="grouped_linear_mxfp4: row: expected a tensor beside a gathered x"):
        slot = placed.tensor([3, 0, 2, 1], dtype=torch.int32)
        ops.grouped_linear_mxfp4(x.clone().requires_grad_(), packed, offsets, slot=slot)
