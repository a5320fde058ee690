"""Tools of PyTorch around tegula.ops and patched models: torch.vmap, FlopCounterMode; and rotations in place."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
from test_torch_ops import CASES, close, inputs_of, listed  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tegula import ops  # noqa: E402
from tegula.ops import position_ops  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("device"), pytest.mark.filterwarnings("ignore:There is a performance drop"),
]  # fmt: skip


# ---- vmap ----


def stacked(results):
    return [torch.stack(parts) for parts in zip(*results)]


@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name):
    """Over the first input or over all; the gradients inside, of each element, and outside, of all."""
    ours, inputs = CASES[name][1], [x.detach() for x in inputs_of(name)]
    batches = [torch.stack([x, 0.5 * x, x + 1]) for x in inputs]

    def total(*x):
        return sum((out * (i + 1)).square().sum() for i, out in enumerate(listed(ours(*x))))

    gradients = torch.func.grad(total, argnums=tuple(range(len(inputs))))
    for batched in range(1, len(inputs) + 1, max(1, len(inputs) - 1)):
        places = tuple(0 if i < batched else None for i in range(len(inputs)))
        given = [b if i < batched else x for i, (b, x) in enumerate(zip(batches, inputs))]
        calls = [[b[n] if i < batched else b for i, b in enumerate(given)] for n in range(3)]
        close(listed(torch.vmap(lambda *x: tuple(listed(ours(*x))), places)(*given)), stacked([listed(ours(*x)) for x in calls]), 1e-6)
        inside = stacked([gradients(*x) for x in calls])
        close(torch.vmap(gradients, places)(*given), inside, 1e-6)
        leaves = [x.clone().requires_grad_() for x in given]
        outside = torch.autograd.grad(torch.vmap(total, places)(*leaves).sum(), leaves)
        close(outside, [g if i < batched else g.sum(0) for i, g in enumerate(inside)], 1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gradients_of_each_sample_of_a_patched_model(family):
    transformers = pytest.importorskip("transformers", reason="without transformers: no models to patch")
    cls = {"llama": transformers.LlamaForCausalLM, "qwen3": transformers.Qwen3ForCausalLM}[family]
    torch.manual_seed(0)
    model = cls(cls.config_class(
        vocab_size=31, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, attn_implementation="sdpa",
    )).to(placed.device)  # fmt: skip
    ids, parameters = placed.randint(31, (3, 6)), {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, row):
        batch = {"input_ids": row[None], "labels": row[None], "use_cache": False}
        return torch.func.functional_call(model, parameters, (), batch).loss

    results = []
    for patched in (False, True):
        if patched:
            tegula.apply_to_model(model)
        try:
            results.append(torch.vmap(torch.func.grad(loss), (None, 0))(parameters, ids))
        finally:
            tegula.reset()
    for name, theirs in results[0].items():
        torch.testing.assert_close(results[1][name], theirs, rtol=1e-3, atol=1e-5)


# ---- FlopCounterMode ----


def flops(function, *inputs):
    """(forward, backward), operator by operator of Tegula, and all."""
    with FlopCounterMode(display=False) as counter:
        y = listed(function(*inputs))[0]
        forward = counter.get_total_flops()
        if y.requires_grad:
            y.sum().backward()
    return forward, counter.get_total_flops() - forward


def leaves(*shapes):
    return [placed.randn(shape, requires_grad=True) for shape in shapes]


def test_flops_of_linear_layers():
    x, w, b = leaves((2, 3, 8), (5, 8), (5,))
    assert flops(ops.linear, x, w, b) == flops(F.linear, x, w, b) == (2 * 6 * 8 * 5, 4 * 6 * 8 * 5)
    frozen = w.detach()
    assert flops(ops.linear, x, frozen, b) == flops(F.linear, x, frozen, b) == (480, 480)
    packed = ops.pack_int8(*ops.quantize_int8(frozen)[:2])
    assert flops(lambda x: ops.linear_int8(x, packed), x.detach()) == (480, 0)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_flops_of_a_fused_loss(reduction):
    x, w = leaves((2, 3, 8), (5, 8))
    targets = placed.randint(0, 5, (2, 3))
    ours = flops(lambda x, w: ops.linear_cross_entropy(x, w, targets, reduction=reduction), x, w)
    theirs = flops(lambda x, w: F.cross_entropy(F.linear(x, w).flatten(0, 1), targets.flatten(), reduction=reduction), x, w)
    # A scalar loss has its gradients in the forward; others compute the logits again.
    assert sum(ours) == sum(theirs) + (480 if reduction == "none" else 0)


def test_flops_of_attention():
    q, k, v = leaves((2, 4, 16, 32), (2, 2, 12, 32), (2, 2, 12, 24))
    pairs = 2 * 4 * 16 * 12
    assert flops(ops.attention, q, k, v) == (2 * pairs * (32 + 24), 2 * pairs * (3 * 32 + 2 * 24))
    assert flops(ops.attention_naive, q, k, v) == (2 * pairs * (32 + 24), 4 * pairs * (32 + 24))
    bounds = placed.tensor([0, 4, 16], dtype=torch.int32)
    packed = lambda q, k, v: ops.attention(q[:1], k[:1], v[:1], cu_seqlens_q=bounds, cu_seqlens_k=bounds, causal=True)  # noqa: E731
    q, k, v = leaves((1, 4, 16, 32), (1, 2, 16, 32), (1, 2, 16, 32))
    assert flops(packed, q, k, v)[0] == 2 * 4 * (4 * 4 + 12 * 12) * 64
    blocks, table = placed.randn(3, 2, 4, 32), placed.zeros(1, 3, dtype=torch.int32)
    count = placed.tensor([9], dtype=torch.int32)
    paged = lambda q: ops.attention(q, blocks, blocks, block_table=table, key_count=count)  # noqa: E731
    assert flops(paged, q.detach()) == (2 * 4 * 16 * 12 * 64, 0)


@pytest.mark.parametrize("frozen", [False, True])
def test_flops_of_experts(frozen):
    """Three products forward and six backward; with frozen experts three."""
    x, weights, gate_up, down = leaves((6, 8), (6, 2), (3, 10, 8), (3, 8, 5))
    plan = ops.moe_plan(placed.tensor([[0, 1], [1, 2], [2, 2], [0, 0], [1, 0], [3, 3]]), 3)
    experts = [t.detach() if frozen else t for t in (gate_up, down)]
    forward, backward = flops(lambda x, w: ops.moe_mlp(x, w, *plan, *experts), x, weights)
    assert forward == 3 * 2 * 12 * 8 * 5 and backward == (3 if frozen else 6) * 2 * 12 * 8 * 5


def test_flops_of_every_product():
    """The ops that multiply matrices, by their names; a new one needs a formula."""
    counted = {str(packet).removeprefix("tegula.") for packet in FlopCounterMode().flop_registry if str(packet).startswith("tegula.")}
    assert counted == {row["name"] for row in tegula._core.ops() if row["op"].startswith(("linear", "attention", "grouped_linear", "moe_mlp"))}


# ---- in place ----


def tables(width=6):
    angles = placed.arange(5)[:, None] * placed.linspace(1, 0.1, width)
    return angles.cos()[None], angles.sin()[None]


def rotations():
    weight = placed.rand(6) + 0.5
    return {
        "rope": lambda q, k, **more: ops.rope(q, k, *tables(), **more),
        "qk_norm_rope": lambda q, k, **more: ops.qk_norm_rope(q, k, weight, weight, *tables(), **more),
    }


@pytest.mark.parametrize("layout", ["heads first", "tokens first", "packed", "head_dim strided"])
@pytest.mark.parametrize("name", ["rope", "qk_norm_rope"])
def test_rotations_in_place(name, layout):
    rotate = rotations()[name]
    torch.manual_seed(0)
    made = {
        "heads first": lambda: (placed.randn(2, 4, 5, 6), placed.randn(2, 2, 5, 6)),
        "tokens first": lambda: (placed.randn(2, 5, 4, 6).transpose(1, 2), placed.randn(2, 5, 2, 6).transpose(1, 2)),
        "packed": lambda: placed.randn(2, 5, 6, 6).transpose(1, 2).split((4, 2), 1),
        "head_dim strided": lambda: (placed.randn(2, 4, 6, 5).mT, placed.randn(2, 2, 5, 12)[..., ::2]),
    }[layout]
    q, k = made()
    expected, memory, versions = rotate(q, k), (q.data_ptr(), k.data_ptr()), (q._version, k._version)
    found = rotate(q, k, inplace=True)
    assert found[0] is q and found[1] is k and (q.data_ptr(), k.data_ptr()) == memory
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1])
    assert q._version > versions[0] and k._version > versions[1]


def test_rotations_in_place_of_one_tensor_and_in_compiled_code():
    q, k = placed.randn(2, 4, 5, 6), placed.randn(2, 2, 5, 6)
    expected = ops.rope(q, k, *tables())
    alone = q.clone()
    assert ops.rope(alone, None, *tables(), inplace=True)[1] is None and torch.equal(alone, expected[0])
    compiled = torch.compile(lambda q, k: ops.rope(q, k, *tables(), inplace=True)[0] + 1, fullgraph=True, backend="aot_eager")
    a, b = q.clone(), k.clone()
    assert torch.equal(compiled(a, b), expected[0] + 1) and torch.equal(a, expected[0]) and torch.equal(b, expected[1])
    with torch.inference_mode():
        a = q.clone()
        ops.rope(a, None, *tables(), inplace=True)
    assert torch.equal(a, expected[0])


@pytest.mark.parametrize("name", ["rope", "qk_norm_rope"])
def test_rotations_in_place_are_refused_where_gradients_are_recorded(name):
    rotate = rotations()[name]
    q, k = (placed.randn(shape, requires_grad=True) for shape in ((2, 4, 5, 6), (2, 2, 5, 6)))
    for a, b in ((q, k.detach()), (q.detach(), k), (q * 1, k * 1)):
        kept = a.detach().clone()
        with pytest.raises(RuntimeError, match=f"tegula.{name}: inplace: expected tensors without gradients, got one that requires"):
            rotate(a, b, inplace=True)
        assert torch.equal(a.detach(), kept)
    with torch.no_grad():
        rotate(q, k, inplace=True)
    saved = placed.randn(2, 4, 5, 6)
    y = torch.nn.Parameter(placed.ones(())) * saved
    ops.rope(saved, None, *tables(), inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_rotations_in_place_take_no_more_memory(monkeypatch):
    """No result is allocated, and no statistic that only the backward reads."""
    op, calls = position_ops._qk_norm_rope, []
    q, k, weight = placed.randn(2, 4, 5, 6), placed.randn(2, 2, 5, 6), placed.ones(6)
    allocate = op.allocate
    monkeypatch.setattr(op, "allocate", lambda *arguments: calls.append(1) or allocate(*arguments))
    ops.qk_norm_rope(q, k, weight, weight, *tables(), inplace=True)
    assert not calls
    ops.qk_norm_rope(q, k, weight, weight, *tables())
    assert calls
