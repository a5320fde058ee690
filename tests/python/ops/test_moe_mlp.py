"""`ops.moe_mlp` against a loop over experts in PyTorch: every gradient, what is kept, what is frozen."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("device"), pytest.mark.filterwarnings("ignore:There is a performance drop"),
]  # fmt: skip
BOUND = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 3e-2}
# GPT-OSS: in_first, interleaved, biases, a clamp. Qwen3-MoE and Mixtral: none of these.
GPT_OSS = dict(activation="swiglu_clamped", alpha=1.75, limit=7.0, packing="interleaved", in_first=True)
LAYOUTS = {"gpt_oss": GPT_OSS, "qwen3_moe": dict()}
ALL_ON_ONE, SPARSE, DROPPED = "all on one", "an expert without tokens", "dropped slots"


def reference(x, scores, indices, gate_up, gate_up_bias, down, down_bias, activation="", alpha=0.0, limit=0.0, packing="halves", in_first=False):
    out = torch.zeros(x.shape[0], down.shape[2 if in_first else 1], dtype=x.dtype, device=x.device)
    for e in range(len(gate_up)):
        tokens, slots = torch.where(indices == e)
        first, second = (gate_up[e], down[e]) if in_first else (gate_up[e].T, down[e].T)
        h = x[tokens] @ first + (0 if gate_up_bias is None else gate_up_bias[e])
        gate, up = (h[:, ::2], h[:, 1::2]) if packing == "interleaved" else h.chunk(2, -1)
        if alpha:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            a = (up + 1) * gate * torch.sigmoid(alpha * gate)
        else:
            a = F.silu(gate) * up
        y = a @ second + (0 if down_bias is None else down_bias[e])
        out = out.index_add(0, tokens, y * scores[tokens, slots, None])
    return out


def tensors(layout, dtype, routes=SPARSE, tokens=13, hidden=10, inter=6, experts=5, k=3):
    """(x, scores, gate_up, gate_up_bias, down, down_bias), indices. Integers: many are exactly at the clamp's limits."""
    generator = torch.Generator().manual_seed(tokens)
    whole = lambda *shape: torch.randint(-2, 3, shape, generator=generator).to(dtype)  # noqa: E731
    first = layout == "gpt_oss"
    gate_up, down = (hidden, 2 * inter), (inter, hidden)
    made = [
        whole(tokens, hidden), torch.rand(tokens, k, generator=generator).to(dtype),
        whole(experts, *(gate_up if first else gate_up[::-1])), whole(experts, 2 * inter) if first else None,
        whole(experts, *(down if first else down[::-1])), whole(experts, hidden) if first else None,
    ]  # fmt: skip
    indices = torch.rand(tokens, experts, generator=generator).argsort(1)[:, :k]
    indices[indices == 2] = {SPARSE: 3, DROPPED: experts}.get(routes, 2)
    if routes == ALL_ON_ONE:
        indices[:] = 1
    return [t if t is None else placed.to_device(t).requires_grad_() for t in made], indices.to(placed.device)


def differ(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30)).item()


def ours(inputs, indices, layout):
    x, scores, gate_up, gate_up_bias, down, down_bias = inputs
    plan = ops.moe_plan(indices, len(gate_up))
    return ops.moe_mlp(x, scores, *plan, gate_up, down, gate_up_bias, down_bias, **LAYOUTS[layout])


def given(tensors):
    return [t for t in tensors if t is not None]


def test_a_residual_is_added_and_gets_the_gradient():
    inputs, indices = tensors("qwen3_moe", torch.float32)
    residual = placed.to_device(torch.randn(13, 10)).requires_grad_()
    x, scores, gate_up, _, down, _ = inputs
    y = ops.moe_mlp(x, scores, *ops.moe_plan(indices, len(gate_up)), gate_up, down, residual=residual)
    torch.testing.assert_close(y, residual + ours(inputs, indices, "qwen3_moe"), rtol=1e-6, atol=1e-5)
    (dresidual,) = torch.autograd.grad(y, residual, torch.ones_like(y))
    assert torch.equal(dresidual, torch.ones_like(y))


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("routes", [SPARSE, ALL_ON_ONE, DROPPED])
@pytest.mark.parametrize("hidden", [10, 6], ids=["H is not I", "H is I"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_and_every_gradient(layout, hidden, routes, dtype):
    placed.skip_f64(dtype)
    inputs, indices = tensors(layout, dtype, routes, hidden=hidden)
    exact = [t if t is None else t.detach().double().requires_grad_() for t in inputs]
    out, wanted = ours(inputs, indices, layout), reference(*exact[:2], indices, *exact[2:], **LAYOUTS[layout])
    assert out.dtype == dtype and differ(out, wanted) < BOUND[dtype]
    upstream = placed.randn(*out.shape).to(dtype)
    gradients = torch.autograd.grad(out, given(inputs), upstream)
    for mine, theirs, of in zip(gradients, torch.autograd.grad(wanted, given(exact), upstream.double()), given(inputs)):
        assert mine.dtype == dtype and differ(mine, theirs) < 2 * BOUND[dtype], of.shape
    if routes == SPARSE:
        for gradient in gradients[2:]:
            assert not gradient[2].any()  # zeros, not what the memory held
    again = ours(inputs, indices, layout)
    assert torch.equal(again, out)
    for first, second in zip(gradients, torch.autograd.grad(again, given(inputs), upstream)):
        assert torch.equal(first, second)


def test_no_tokens():
    inputs, indices = tensors("gpt_oss", torch.float32, tokens=0)
    out = ours(inputs, indices, "gpt_oss")
    assert out.shape == (0, 10)
    gradients = torch.autograd.grad(out.sum(), inputs)
    assert [g.shape for g in gradients] == [t.shape for t in inputs] and not any(g.any() for g in gradients)


@pytest.mark.parametrize("trained", [(0, 1), (0,), (1,), (2,), (3,), (4,), (5,), (2, 3, 4, 5)], ids=str)
def test_frozen_inputs_get_no_gradient(trained):
    """And what is trained gets the same bits as beside the others."""
    inputs, indices = tensors("gpt_oss", torch.float32)
    every = torch.autograd.grad(ours(inputs, indices, "gpt_oss").square().sum(), inputs)
    for place, tensor in enumerate(inputs):
        tensor.requires_grad_(place in trained)
    wanted = torch.ops.tegula.moe_mlp_bwd.default
    asked = []

    class Asked(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is wanted:
                asked.append(tuple(place for place, one in enumerate(args[-1]) if one))
            return function(*args, **(kwargs or {}))

    with Asked():
        ours(inputs, indices, "gpt_oss").square().sum().backward()
    assert asked == [trained]
    for place, tensor in enumerate(inputs):
        assert (tensor.grad is None) if place not in trained else torch.equal(tensor.grad, every[place])


def test_scores_of_another_dtype():
    """f32 scores beside bf16 experts, as Mixtral's; bf16 scores beside f32 experts, as under autocast."""
    for x_dtype, dtype in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
        inputs, indices = tensors("qwen3_moe", x_dtype)
        scores = inputs[1].detach().to(dtype).requires_grad_()
        exact = [t if t is None else t.detach().double().requires_grad_() for t in (inputs[0], scores, *inputs[2:])]
        out = ours([inputs[0], scores, *inputs[2:]], indices, "qwen3_moe")
        wanted = reference(*exact[:2], indices, *exact[2:])
        assert out.dtype == x_dtype and differ(out, wanted) < BOUND[x_dtype]
        out.sum().backward()
        wanted.sum().backward()
        assert scores.grad.dtype == dtype and differ(scores.grad, exact[1].grad) < 2 * BOUND[torch.bfloat16]


def test_what_is_kept_for_the_backward():
    """x, the first product and the parameters, whatever the routes; of 16-bit tensors 2 inter a row and the plan."""
    inputs, indices = tensors("gpt_oss", torch.bfloat16, tokens=64, hidden=96, inter=64, experts=4, k=2)
    kept = {}

    def pack(tensor):
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ours(inputs, indices, "gpt_oss")
    rows, own = 64 * 2, sum(t.numel() * t.element_size() for t in inputs)
    assert sum(kept.values()) <= own + rows * 2 * 64 * 2 + indices.numel() * 8 + (2 * rows + 5) * 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled(layout):
    inputs, indices = tensors(layout, torch.float32, DROPPED)
    run = torch.compile(lambda *given: ours(given, indices, layout), fullgraph=True, backend="aot_eager")
    eager = torch.autograd.grad(ours(inputs, indices, layout).square().sum(), given(inputs))
    for a, b in zip(torch.autograd.grad(run(*inputs).square().sum(), given(inputs)), eager):
        assert torch.equal(a, b)
    with torch.no_grad():
        assert torch.equal(run(*inputs), ours(inputs, indices, layout))


def test_gradients_of_each_sample():
    inputs, indices = tensors("gpt_oss", torch.float32)
    one = [t.detach() for t in inputs]

    def loss(x):
        return ours([x, *one[1:]], indices, "gpt_oss").square().sum()

    batch = torch.stack([one[0], 2 * one[0]])
    found = torch.vmap(torch.func.grad(loss))(batch)
    for x, gradient in zip(batch, found):
        assert differ(gradient, torch.func.grad(loss)(x)) < 1e-6


def test_flops():
    """Three products of both weights: the result, the gradient of x and those of the weights."""
    inputs, indices = tensors("gpt_oss", torch.float32)
    with FlopCounterMode(display=False) as counter:
        ours(inputs, indices, "gpt_oss").sum().backward()
    assert counter.get_total_flops() == 3 * 2 * indices.numel() * (10 * 12 + 6 * 10)
