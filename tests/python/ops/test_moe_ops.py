"""The routing of a mixture of experts, against PyTorch: the routers of transformers, the plan, the weighted sum."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

BOUND = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}
SHAPES = [(37, 32, 4), (129, 128, 8), (5, 7, 7), (70, 3, 1)]


def apart(tokens, experts, dtype):
    """Logits of which no two of a row are equal, also after rounding to bf16."""
    torch.manual_seed(tokens)
    order = torch.argsort(torch.rand(tokens, experts), -1).to(placed.device)
    return (order / 16 - experts / 32).to(dtype)


def gpt_oss_router(logits, k):
    """GptOssTopKRouter."""
    values, indices = torch.topk(logits, k, dim=-1)
    return torch.softmax(values, dim=1, dtype=values.dtype), indices


def qwen3_moe_router(logits, k, norm):
    """Qwen3MoeTopKRouter; with norm Mixtral's, too."""
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    values, indices = torch.topk(probabilities, k, dim=-1)
    return (values / values.sum(-1, keepdim=True) if norm else values).to(logits.dtype), indices


ROUTERS = {
    "selected": gpt_oss_router, "all": lambda x, k: qwen3_moe_router(x, k, False),
    "renormalized": lambda x, k: qwen3_moe_router(x, k, True),
}  # fmt: skip


def auxiliary_loss(logits, indices, mask):
    """load_balancing_loss_func of one layer."""
    experts, n = logits.shape[-1], mask.sum()
    hits = torch.nn.functional.one_hot(indices, experts).to(logits.dtype).sum(1)
    share = (hits * mask[:, None]).sum(0) / n
    return experts * (share * (logits.softmax(-1) * mask[:, None]).sum(0) / n).sum()


def differ(a, b):
    scale = max(1e-30, b.detach().abs().max().item())
    return (a.detach().double() - b.detach().double()).abs().max().item() / scale


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scoring", ROUTERS)
def test_router(scoring, shape, dtype):
    placed.skip_f64(dtype)
    tokens, experts, k = shape
    logits = apart(tokens, experts, dtype)
    ours, theirs = logits.clone().requires_grad_(), logits.double().requires_grad_()
    weights, indices = ops.topk_router(ours, k, scoring=scoring)
    wanted, order = ROUTERS[scoring](theirs, k)
    assert weights.dtype == dtype and torch.equal(indices, order)
    assert differ(weights, wanted) < BOUND[dtype]
    if dtype != torch.float64:  # one rounding, as in transformers
        assert differ(weights, ROUTERS[scoring](logits, k)[0]) < BOUND[dtype]
    upstream = torch.randn(tokens, k, dtype=torch.float64).to(placed.device)
    weights.backward(upstream.to(dtype))
    wanted.backward(upstream.to(dtype).double())
    if wanted.requires_grad and theirs.grad.abs().max() > 1e-9:
        assert differ(ours.grad, theirs.grad) < 2 * BOUND[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("scoring", ROUTERS)
def test_auxiliary_loss(scoring, dtype):
    placed.skip_f64(dtype)
    tokens, experts, k = 141, 32, 4
    mask = (torch.arange(tokens) % 5 != 2).to(placed.device)
    ours = apart(tokens, experts, dtype).requires_grad_()
    theirs = ours.detach().double().requires_grad_()
    weights, indices, prob_sum, counts = ops.topk_router(ours, k, scoring=scoring, token_mask=mask, sums=True)
    n = mask.sum()
    assert counts.sum() == k * n and torch.equal(counts.long(), torch.bincount(indices[mask].view(-1), minlength=experts))
    loss = experts * (counts.to(dtype) / n * prob_sum / n).sum() + weights.square().sum()
    wanted = auxiliary_loss(theirs, indices, mask) + ROUTERS[scoring](theirs, k)[0].square().sum()
    assert differ(loss, wanted) < BOUND[dtype]
    loss.backward()
    wanted.backward()
    assert differ(ours.grad, theirs.grad) < 4 * BOUND[dtype]


def test_router_options():
    logits = apart(6, 8, torch.bfloat16).view(2, 3, 8)
    weights, indices = ops.topk_router(logits, 2, f32_weights=True)
    assert weights.dtype == torch.float32 and weights.shape == indices.shape == (2, 3, 2) and indices.dtype == torch.int64
    assert torch.equal(weights.bfloat16(), ops.topk_router(logits, 2)[0])
    ties = placed.zeros(1, 5)
    assert ops.topk_router(ties, 3)[1].tolist() == [[0, 1, 2]]
    for k in (0, 9):
        with pytest.raises(ValueError, match="topk_router: k: expected 1 to"):
            ops.topk_router(logits, k)
    with pytest.raises(ValueError, match="topk_router: scoring: expected selected or all or renormalized, got 'softmax'"):
        ops.topk_router(logits, 2, scoring="softmax")


def test_plan():
    torch.manual_seed(3)
    experts, indices = 9, torch.randint(0, 10, (700, 3)).to(placed.device)  # 9: dropped
    for given in (indices, indices.int(), indices.view(7, 100, 3)):
        offsets, slot, row = ops.moe_plan(given, experts)
        order = indices.view(-1).argsort(stable=True)
        kept = (indices < experts).sum()
        assert torch.equal(slot.long(), order)
        assert torch.equal(offsets.long(), torch.bincount(indices.view(-1), minlength=10).cumsum(0) - torch.bincount(indices.view(-1), minlength=10))
        assert offsets[-1] == kept and (row.view(-1)[slot[kept:].long()] == -1).all()
        assert torch.equal(row.view(-1)[slot[:kept].long()].long(), torch.arange(kept).to(placed.device))
    with pytest.raises(ValueError, match=r"moe_plan_fwd: indices\[(0, )?1\]: expected 0 to 9, got 10"):
        ops.moe_plan(placed.tensor([[0, 10]]), experts)
        tegula.check()


def block(x, logits, weights, k):
    """A block of linear experts: routed, planned and combined by tegula."""
    scores, indices = ops.topk_router(logits, k)
    offsets, slot, row = ops.moe_plan(indices, len(weights))
    rows = x[slot.long() // k]
    y = torch.cat([rows[offsets[e] : offsets[e + 1]] @ weights[e] for e in range(len(weights))])
    return ops.moe_combine(y, row, scores, x, slot=slot)


def dense(x, logits, weights, k):
    scores, indices = gpt_oss_router(logits, k)
    full = torch.zeros_like(logits).scatter(1, indices, scores)
    return torch.einsum("te,th,eho->to", full, x, weights) + x


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_block_of_experts(dtype):
    """A whole block, with experts without tokens, and all of its gradients."""
    placed.skip_f64(dtype)
    tokens, experts, hidden, k = 33, 16, 24, 2
    logits = apart(tokens, experts, dtype)
    logits[:, 3:6] -= 100
    inputs = [torch.randn(tokens, hidden, dtype=dtype).to(placed.device), logits, torch.randn(experts, hidden, hidden, dtype=dtype).to(placed.device)]
    ours, theirs = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
    out, wanted = block(*ours, k), dense(*theirs, k)
    upstream = torch.randn(tokens, hidden, dtype=torch.float64).to(placed.device)
    assert differ(out, wanted) < 10 * BOUND[dtype]
    for a, b in zip(torch.autograd.grad(out, ours, upstream.to(dtype)), torch.autograd.grad(wanted, theirs, upstream)):
        assert differ(a, b) < 10 * BOUND[dtype]


def test_combine_rounds_as_transformers():
    """grouped_mm: the product is rounded, then summed in f32 over the slots, then rounded."""
    torch.manual_seed(0)
    tokens, k, hidden = 50, 4, 96
    y, weights = placed.randn(tokens * k, hidden).bfloat16(), placed.rand(tokens, k).bfloat16()
    _, slot, row = ops.moe_plan(torch.randint(0, 8, (tokens, k)).to(placed.device), 8)
    wanted = (y[row.long()] * weights[..., None]).float()
    total = wanted[:, 0]
    for j in range(1, k):
        total = total + wanted[:, j]
    assert torch.equal(ops.moe_combine(y, row, weights), total.bfloat16())


def test_combine_without_weights_and_dropped_slots():
    y = placed.randn(6, 5).requires_grad_()
    _, slot, row = ops.moe_plan(placed.tensor([[2, 0], [3, 1], [3, 3]]), 3)
    out = ops.moe_combine(y, row, slot=slot)
    assert torch.equal(out[2], torch.zeros_like(out[2])) and torch.equal(out[1], y[1])
    out.sum().backward()
    assert torch.equal(y.grad, torch.tensor([1.0] * 3 + [0.0] * 3).to(placed.device)[:, None].expand(6, 5))
    with pytest.raises(ValueError, match="moe_combine: slot: expected a tensor beside a y that requires its gradient, got None"):
        ops.moe_combine(y, row)


def compiled_block(y, logits, row, slot):
    scores, indices = ops.topk_router(logits, 2)
    return ops.moe_combine(y, row, scores, slot=slot) + 0 * indices.sum()


def test_compiled():
    torch.manual_seed(0)
    y, logits = placed.randn(12, 5).requires_grad_(), apart(6, 8, torch.float32).requires_grad_()
    _, slot, row = ops.moe_plan(torch.randint(0, 3, (6, 2)).to(placed.device), 3)
    eager = torch.autograd.grad(compiled_block(y, logits, row, slot).square().sum(), [y, logits])
    compiled = torch.compile(compiled_block, fullgraph=True, backend="aot_eager")
    for a, b in zip(eager, torch.autograd.grad(compiled(y, logits, row, slot).square().sum(), [y, logits])):
        torch.testing.assert_close(a, b)


def grouped_reference(x, weight, bias, offsets, slot, k, in_first):
    """A loop over experts; rows of no expert are 0."""
    rows = x[slot.long() // k] if slot is not None else x
    bounds, parts = offsets.tolist(), []
    for e in range(len(weight)):
        product = rows[bounds[e] : bounds[e + 1]] @ (weight[e] if in_first else weight[e].T)
        parts.append(product if bias is None else product + bias[e])
    return torch.cat([*parts, 0 * (rows[bounds[-1] :] @ (weight[0] if in_first else weight[0].T))])


# tokens, in, out, experts, k; in that is out, one token, real widths
GROUPED = [(37, 19, 23, 5, 3), (16, 32, 32, 4, 2), (1, 48, 31, 8, 4), (9, 2880, 34, 6, 4), (70, 8, 5, 3, 1)]


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("shape", GROUPED, ids=str)
@pytest.mark.parametrize("in_first", [False, True], ids=["out_in", "in_out"])
@pytest.mark.parametrize("gathered", [False, True], ids=["rows", "gathered"])
def test_grouped_linear(gathered, in_first, shape, dtype):
    """Also with an expert without rows, with dropped slots, and with NaN in rows of no expert."""
    placed.skip_f64(dtype)
    tokens, wide, out, experts, k = shape
    torch.manual_seed(tokens)
    indices = torch.randint(0, experts + 1, (tokens, k)).to(placed.device)
    indices[indices == 1] = 0  # expert 1 has no rows
    offsets, slot, row = ops.moe_plan(indices, experts)
    if not gathered:
        slot, row, tokens = None, None, tokens * k
    inner = (wide, out) if in_first else (out, wide)
    ours = [placed.randn(tokens, wide), placed.randn(experts, *inner) / wide**0.5, placed.randn(experts, out)]
    ours = [t.to(dtype).requires_grad_() for t in ours]
    theirs = [t.detach().double().requires_grad_() for t in ours]
    y = ops.grouped_linear(*ours[:2], offsets, ours[2], slot=slot, row=row, in_first=in_first)
    wanted = grouped_reference(*theirs, offsets, slot, k, in_first)
    kept = int(offsets[-1])
    assert y.dtype == dtype and differ(y, wanted) < BOUND[dtype] and not y[kept:].any()
    upstream = torch.randn(*y.shape, dtype=torch.float64).to(placed.device).to(dtype)
    grads = torch.autograd.grad(wanted, theirs, upstream.double())
    poisoned = upstream.clone()
    poisoned[kept:] = float("nan")  # nobody reads it
    for a, b in zip(torch.autograd.grad(y, ours, poisoned), grads):
        assert a.dtype == dtype and differ(a, b) < 2 * BOUND[dtype]
    with torch.no_grad():  # gathered as it is read
        assert torch.equal(ops.grouped_linear(*ours[:2], offsets, ours[2], slot=slot, in_first=in_first), y)


def gpt_oss_activation(z, packing):
    """GptOssExperts, for either packing, with an alpha that f32 holds exactly."""
    gate, up = (z[..., ::2], z[..., 1::2]) if packing == "interleaved" else z.chunk(2, -1)
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * gate * torch.sigmoid(gate * 1.75)


def qwen3_activation(z, packing):
    gate, up = (z[..., ::2], z[..., 1::2]) if packing == "interleaved" else z.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


ACTIVATIONS = {"swiglu": qwen3_activation, "swiglu_clamped": gpt_oss_activation}


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("packing", ["halves", "interleaved"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_grouped_linear_activation(activation, packing, dtype):
    """Values beyond the clamp, with gradients; without gradients the bits are the same."""
    placed.skip_f64(dtype)
    torch.manual_seed(2)
    offsets, slot, row = ops.moe_plan(torch.randint(0, 5, (21, 2)).to(placed.device), 4)
    ours = [(t * s).to(dtype).requires_grad_() for t, s in ((placed.randn(21, 16), 1), (placed.randn(4, 16, 30), 2), (placed.randn(4, 30), 1))]
    theirs = [t.detach().double().requires_grad_() for t in ours]
    call = dict(slot=slot, row=row, in_first=True, activation=activation, alpha=1.75, packing=packing)
    y = ops.grouped_linear(*ours[:2], offsets, ours[2], **call)
    z = grouped_reference(*theirs, offsets, slot, 2, True)
    assert z.abs().max() > 14
    wanted = ACTIVATIONS[activation](z, packing)
    assert y.shape == (42, 15) and differ(y, wanted) < 2 * BOUND[dtype] and not y[int(offsets[-1]) :].any()
    with torch.no_grad():
        assert torch.equal(ops.grouped_linear(*ours[:2], offsets, ours[2], **call), y)
    if dtype != torch.bfloat16:  # where rounding z to bf16 crosses a limit, the gradients differ
        upstream = placed.randn(42, 15).to(dtype)
        for a, b in zip(torch.autograd.grad(y, ours, upstream), torch.autograd.grad(wanted, theirs, upstream.double())):
            assert differ(a, b) < 2 * BOUND[dtype]


def test_rows_do_not_depend_on_others():
    """A row has the same bits whichever rows its expert and others have."""
    torch.manual_seed(5)
    for dtype in (torch.float32, torch.bfloat16):
        x, weight = placed.randn(40, 800).to(dtype), placed.randn(3, 33, 800).to(dtype)
        for w, in_first in ((weight, False), (weight.transpose(1, 2).contiguous(), True)):
            whole = ops.grouped_linear(x, w, placed.tensor([0, 0, 33, 40], dtype=torch.int32), in_first=in_first)
            for r, e in ((0, 1), (32, 1), (33, 2), (39, 2)):
                alone = placed.tensor([0] * (e + 1) + [1] * (3 - e), dtype=torch.int32)
                assert torch.equal(ops.grouped_linear(x[r : r + 1], w, alone, in_first=in_first)[0], whole[r])


def experts_of(hidden, inter, experts, in_first, bias, dtype):
    """gate_up, down and their biases, as leaves."""
    shapes = [(experts, 2 * inter, hidden), (experts, hidden, inter)]
    if in_first:
        shapes = [(e, i, o) for e, o, i in shapes]
    tensors = [placed.randn(*shapes[0]) / hidden**0.5 * 4, placed.randn(*shapes[1]) / inter**0.5]
    tensors += [placed.randn(experts, 2 * inter), placed.randn(experts, hidden)] if bias else []
    return [t.to(dtype).requires_grad_() for t in tensors]


def experts_reference(x, weights, indices, gate_up, down, gate_up_bias, down_bias, activation, packing, in_first):
    """Every expert for every token, with weights of 0 for those that it has not."""
    e = len(gate_up)
    matrices = (gate_up, down) if in_first else (gate_up.mT, down.mT)
    share = torch.zeros(len(x), e + 1, dtype=x.dtype, device=x.device).scatter_add(1, indices, weights)[:, :e]
    h = torch.einsum("th,ehc->tec", x, matrices[0]) + (0 if gate_up_bias is None else gate_up_bias)
    z = torch.einsum("tec,ech->teh", ACTIVATIONS[activation](h, packing), matrices[1]) + (0 if down_bias is None else down_bias)
    return (z * share[..., None]).sum(1), h


# tokens, hidden, inter, experts, k; one token, hidden is inter
EXPERTS = [(23, 19, 13, 5, 3), (16, 32, 32, 4, 2), (1, 24, 31, 8, 4), (40, 8, 5, 3, 1)]


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("shape", EXPERTS, ids=str)
@pytest.mark.parametrize("in_first", [False, True], ids=["out_in", "in_out"])
@pytest.mark.parametrize("activation, packing, bias", [
    ("swiglu", "halves", False), ("swiglu_clamped", "interleaved", True), ("swiglu", "interleaved", True), ("swiglu_clamped", "halves", False),
])  # fmt: skip
def test_moe_mlp(activation, packing, bias, in_first, shape, dtype):
    """All gradients, with values beyond the clamp, dropped slots and an expert without rows."""
    placed.skip_f64(dtype)
    tokens, hidden, inter, experts, k = shape
    torch.manual_seed(tokens)
    indices = torch.rand(tokens, experts + 1).argsort(-1)[:, :k].to(placed.device)
    indices[indices == 1] = experts
    plan = ops.moe_plan(indices, experts)
    ours = [placed.randn(tokens, hidden).to(dtype).requires_grad_(), placed.rand(tokens, k).to(dtype).requires_grad_()]
    ours += experts_of(hidden, inter, experts, in_first, bias, dtype)
    theirs = [t.detach().double().requires_grad_() for t in ours]
    call = dict(activation=activation, packing=packing, in_first=in_first)
    y = ops.moe_mlp(*ours[:2], *plan, *ours[2:], alpha=1.75, **call)
    wanted, h = experts_reference(*theirs[:2], indices, *theirs[2:], *([] if bias else [None, None]), **call)
    assert y.dtype == dtype and differ(y, wanted) < 2 * BOUND[dtype]
    with torch.no_grad():
        assert torch.equal(ops.moe_mlp(*ours[:2], *plan, *ours[2:], alpha=1.75, **call), y)
    if activation == "swiglu_clamped" and dtype == torch.bfloat16:  # where rounding h crosses a limit, the gradients differ
        return
    upstream = placed.randn(tokens, hidden).to(dtype)
    grads = torch.autograd.grad(y, ours, upstream)
    for a, b in zip(grads, torch.autograd.grad(wanted, theirs, upstream.double())):
        assert a.dtype == dtype and differ(a, b) < 4 * BOUND[dtype]
    assert tokens == 1 or h.abs().max() > 7
    assert not grads[2][1].any() and not grads[3][1].any()  # the expert without rows


def test_moe_mlp_frozen():
    """Frozen experts have no gradients, and change none of the others' bits; nor does a frozen router."""
    torch.manual_seed(1)
    indices = torch.randint(0, 4, (9, 2)).to(placed.device)
    x, weights, plan = placed.randn(9, 16), placed.rand(9, 2), ops.moe_plan(indices, 4)
    experts = [t.detach() for t in experts_of(16, 12, 4, True, True, torch.float32)]

    def gradients(*needed):
        tensors = [t.clone().requires_grad_(i in needed) for i, t in enumerate((x, weights, *experts))]
        ops.moe_mlp(*tensors[:2], *plan, *tensors[2:], in_first=True).square().sum().backward()
        return [t.grad for t in tensors]

    full = gradients(*range(6))
    for needed in ((0,), (1,), (0, 1), (2,), (3,), (4,), (5,), (2, 3, 4, 5)):
        for i, (some, all_of_it) in enumerate(zip(gradients(*needed), full)):
            assert torch.equal(some, all_of_it) if i in needed else some is None


def test_moe_mlp_is_its_steps():
    """The bits of the ops that it is made of; f32 weights beside bf16 rows; leading axes of x."""
    torch.manual_seed(4)
    indices = torch.randint(0, 5, (2, 6, 2)).to(placed.device)
    x, weights = placed.randn(2, 6, 16).bfloat16(), placed.rand(2, 6, 2)
    offsets, slot, row = ops.moe_plan(indices, 4)
    gate_up, down, b, c = (t.detach() for t in experts_of(16, 12, 4, False, True, torch.bfloat16))
    a = ops.grouped_linear(x.view(12, 16), gate_up, offsets, b, slot=slot, activation="swiglu_clamped", packing="interleaved")
    wanted = ops.moe_combine(ops.grouped_linear(a, down, offsets, c), row, weights.view(12, 2), rounding="once")
    y = ops.moe_mlp(x, weights, offsets, slot, row, gate_up, down, b, c, activation="swiglu_clamped", packing="interleaved")
    assert y.shape == x.shape and torch.equal(y.view(12, 16), wanted)


def test_moe_mlp_refuses():
    x, weights = placed.randn(3, 8), placed.rand(3, 2)
    offsets, slot, row = ops.moe_plan(placed.tensor([[0, 1], [1, 2], [3, 0]]), 3)
    gate_up, down = placed.randn(3, 12, 8), placed.randn(3, 8, 6)
    bad = row.clone()
    bad[1, 1] = 6
    with pytest.raises(ValueError, match=r"moe_mlp_fwd: row\[(1, 1|3)\]: expected -1 to 5, got 6"):
        ops.moe_mlp(x, weights, offsets, slot, bad, gate_up, down)
        tegula.check()
    with pytest.raises(ValueError, match=r"moe_mlp_fwd: gate_up: expected f32 \[3, 8, 12\], got"):
        ops.moe_mlp(x, weights, offsets, slot, row, gate_up, down.mT.contiguous(), in_first=True)
    with pytest.raises(ValueError, match="moe_mlp: activation: expected swiglu or swiglu_clamped, got 'none'"):
        ops.moe_mlp(x, weights, offsets, slot, row, gate_up, down, activation="none")
    with pytest.raises(ValueError, match="moe_mlp_fwd: alpha: expected a finite number > 0, got -1"):
        ops.moe_mlp(x, weights, offsets, slot, row, gate_up, down, activation="swiglu_clamped", alpha=-1.0)


def test_grouped_linear_refuses():
    x, weight = placed.randn(4, 6), placed.randn(2, 5, 6)
    offsets = lambda *values: placed.tensor(values, dtype=torch.int32)  # noqa: E731
    slot = placed.tensor([3, 0, 8, 1], dtype=torch.int32)
    for bad, message in (
        (offsets(1, 2, 4), r"offsets\[0\]: expected 0 to 0, got 1"), (offsets(0, 3, 2), r"offsets\[2\]: expected 3 to 4, got 2"),
        (offsets(0, 2, 5), r"offsets\[2\]: expected 2 to 4, got 5"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="grouped_linear_fwd: " + message):
            ops.grouped_linear(x, weight, bad)
            tegula.check()
    with pytest.raises(ValueError, match=r"grouped_linear_fwd: slot\[2\]: expected 0 to 3, got 8"):
        ops.grouped_linear(x, weight, offsets(0, 2, 4), slot=slot)
        tegula.check()
    assert ops.grouped_linear(x, weight, offsets(0, 2, 2), slot=slot).shape == (4, 5)  # the slot of no expert is not read
    with pytest.raises(ValueError, match="grouped_linear: row: expected a tensor beside a gathered x"):
        ops.grouped_linear(x.requires_grad_(), weight, offsets(0, 2, 4), slot=slot)
    with pytest.raises(ValueError, match=r"grouped_linear_fwd: weight: expected f32 \[2, 6, 6\], got"):
        ops.grouped_linear(x.detach(), weight, offsets(0, 2, 4), in_first=True)
    with pytest.raises(ValueError, match="grouped_linear: activation: expected none or swiglu or swiglu_clamped, got 'silu'"):
        ops.grouped_linear(x, weight, offsets(0, 2, 4), activation="silu")
    with pytest.raises(ValueError, match="grouped_linear_fwd: weight: expected an even number of outputs, got 5"):
        ops.grouped_linear(x.detach(), weight, offsets(0, 2, 4), activation="swiglu")


def compiled_experts(x, weight, bias, offsets, slot, row):
    return ops.moe_combine(ops.grouped_linear(x, weight, offsets, bias, slot=slot, row=row), row, slot=slot)


def test_grouped_linear_compiled():
    torch.manual_seed(0)
    inputs = [placed.randn(6, 8).requires_grad_(), placed.randn(3, 5, 8).requires_grad_(), placed.randn(3, 5).requires_grad_()]
    plan = ops.moe_plan(torch.randint(0, 4, (6, 2)).to(placed.device), 3)
    compiled = torch.compile(compiled_experts, fullgraph=True, backend="aot_eager")
    eager = torch.autograd.grad(compiled_experts(*inputs, *plan).square().sum(), inputs)
    for a, b in zip(eager, torch.autograd.grad(compiled(*inputs, *plan).square().sum(), inputs)):
        torch.testing.assert_close(a, b)
