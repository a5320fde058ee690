"""tegula.ops against PyTorch in f64: results and gradients of every op, and what PyTorch does with functions."""

import math
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


def uniform(*shape):
    return placed.rand(shape, dtype=torch.float64) * 2 - 1


IDS = torch.tensor([[3, 0, 6, 3, -100], [1, 1, 2, 5, 4]])


def ids(beside):
    return IDS.to(beside.device)


def slots(y):
    """Row r of y is slot r."""
    return torch.arange(y.shape[0], dtype=torch.int32, device=y.device)


def every_expert(x):
    """The plan in which each token of x has expert 0, then expert 1: offsets, slot, row."""
    rows = slots(x)
    offsets = len(rows) * torch.arange(3, dtype=torch.int32, device=x.device)
    return offsets, torch.cat([2 * rows, 2 * rows + 1]), torch.stack([rows, rows + len(rows)], 1)


def feed_forward(x, w, up, down, b, c):
    gate, linear = (F.linear(x[:, None], up.flatten(0, 1)).unflatten(-1, (2, -1)) + b).chunk(2, -1)
    return (w[..., None] * ((F.silu(gate) * linear)[:, 0, :, None, :] @ down.mT + c[:, None])[:, :, 0]).sum(1)


def norm(x, w, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rotate(x, cos, sin):
    half = torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)
    return x * cos.unsqueeze(1) + half * sin.unsqueeze(1)


def clamped(x):
    gate, up = x[..., ::2].clamp(max=0.5), x[..., 1::2].clamp(-0.5, 0.5)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


def attend(q, k, v, sinks=None):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(scores.shape[-1] - scores.shape[-2])
    scores = scores.masked_fill(~mask, -math.inf)
    if sinks is None:
        return scores.softmax(-1) @ v
    column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ v


ANGLES = torch.arange(5, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.3, 0.1, 1.0, 0.3, 0.1], dtype=torch.float64)
COS, SIN = ANGLES.cos()[None], ANGLES.sin()[None]
Q, K, V = (2, 4, 5, 6), (2, 2, 5, 6), (2, 2, 5, 6)
# name: (shapes of what has gradients, ours, PyTorch's); ours gets tensors of the tested dtype.
CASES = {
    "rms_norm": ([(2, 3, 8), (8,)], lambda x, w: ops.rms_norm(x, w), norm),
    "rms_norm of Gemma": ([(3, 8), (8,)], lambda x, w: ops.rms_norm(x, w, weight_offset=1.0, policy="gpt_oss"), lambda x, w: norm(x, 1 + w)),
    "add_rms_norm": ([(2, 3, 8), (2, 3, 8), (8,)], ops.add_rms_norm, lambda x, r, w: (norm(x + r, w), x + r)),
    "layer_norm": ([(2, 3, 8), (8,), (8,)], ops.layer_norm, lambda x, w, b: F.layer_norm(x, (8,), w, b)),
    "layer_norm without bias": ([(3, 8), (8,)], ops.layer_norm, lambda x, w: F.layer_norm(x, (8,), w)),
    "rms_norm_swiglu": ([(2, 3, 8), (2, 3, 8), (8,)], ops.rms_norm_swiglu, lambda x, g, w: norm(x, w) * F.silu(g)),
    "softmax": ([(2, 3, 8)], lambda x: ops.softmax(x, scale=0.5), lambda x: (0.5 * x).softmax(-1)),
    "softmax of a vector": ([(8,)], ops.softmax, lambda x: x.softmax(-1)),
    "silu": ([(2, 3, 8)], ops.silu, F.silu),
    "gelu": ([(2, 3, 8)], ops.gelu, F.gelu),
    "gelu tanh": ([(2, 3, 8)], lambda x: ops.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "swiglu": ([(2, 3, 8), (2, 3, 8)], ops.swiglu, lambda g, u: F.silu(g) * u),
    "swiglu of halves": ([(2, 3, 8)], ops.swiglu, lambda x: F.silu(x[..., :4]) * x[..., 4:]),
    "swiglu interleaved": ([(3, 8)], lambda x: ops.swiglu(x, packing="interleaved"), lambda x: F.silu(x[..., ::2]) * x[..., 1::2]),
    "geglu": ([(3, 8), (3, 8)], lambda g, u: ops.geglu(g, u, approximate="tanh"), lambda g, u: F.gelu(g, approximate="tanh") * u),
    "swiglu_clamped": ([(2, 3, 8)], lambda x: ops.swiglu_clamped(x, limit=0.5), clamped),
    "rope": ([Q, K], lambda q, k: ops.rope(q, k, COS.to(q), SIN.to(q)), lambda q, k: (rotate(q, COS.to(q), SIN.to(q)), rotate(k, COS.to(k), SIN.to(k)))),
    "rope of q": ([Q], lambda q: ops.rope(q, None, COS.to(q), SIN.to(q))[0], lambda q: rotate(q, COS.to(q), SIN.to(q))),
    "qk_norm_rope": (
        [Q, K, (6,), (6,)], lambda q, k, v, w: ops.qk_norm_rope(q, k, v, w, COS.to(q), SIN.to(q)),
        lambda q, k, v, w: (rotate(norm(q, v), COS.to(q), SIN.to(q)), rotate(norm(k, w), COS.to(k), SIN.to(k))),
    ),
    "embedding": ([(7, 6)], lambda t: ops.embedding(ids(t).clamp(0), t), lambda t: F.embedding(ids(t).clamp(0), t)),
    "embedding with positions": (
        [(7, 6), (9, 6)], lambda t, p: ops.embedding(ids(t).clamp(0), t, p, position_offset=2),
        lambda t, p: F.embedding(ids(t).clamp(0), t) + p[2:7],
    ),
    "linear": ([(2, 3, 8), (5, 8), (5,)], ops.linear, F.linear),
    "linear with gelu and residual": (
        [(2, 3, 8), (5, 8), (5,), (2, 3, 5)], lambda x, w, b, r: ops.linear(x, w, b, residual=r, activation="gelu"),
        lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r,
    ),
    "linear_swiglu": (
        [(2, 3, 8), (5, 8), (5, 8)], ops.linear_swiglu, lambda x, g, u: F.silu(F.linear(x, g)) * F.linear(x, u),
    ),
    "cross_entropy": (
        [(2, 5, 7)], lambda x: ops.cross_entropy(x, ids(x), label_smoothing=0.1),
        lambda x: F.cross_entropy(x.flatten(0, 1), ids(x).flatten(), label_smoothing=0.1),
    ),
    "cross_entropy of each": (
        [(2, 5, 7)], lambda x: ops.cross_entropy(x, ids(x), reduction="none"),
        lambda x: F.cross_entropy(x.transpose(1, 2), ids(x), reduction="none"),
    ),
    "cross_entropy by items": (
        [(2, 5, 7)], lambda x: ops.cross_entropy(x, ids(x), num_items_in_batch=torch.tensor(20)),
        lambda x: F.cross_entropy(x.flatten(0, 1), ids(x).flatten(), reduction="sum") / 20,
    ),
    "linear_cross_entropy": (
        [(2, 5, 8), (7, 8), (7,)], lambda x, w, b: ops.linear_cross_entropy(x, w, ids(x), b),
        lambda x, w, b: F.cross_entropy(F.linear(x, w, b).flatten(0, 1), ids(x).flatten()),
    ),
    "topk_router": ([(2, 3, 8)], lambda x: ops.topk_router(x, 3)[0], lambda x: x.topk(3).values.softmax(-1)),
    "topk_router with sums": (
        [(4, 8)], lambda x: ops.topk_router(x, 3, scoring="all", sums=True)[::2],
        lambda x: (x.softmax(-1).topk(3).values, x.float().softmax(-1).sum(0) if x.dtype == torch.bfloat16 else x.softmax(-1).sum(0)),
    ),
    "grouped_linear": (
        [(7, 8), (2, 5, 8), (2, 5)], lambda x, w, b: ops.grouped_linear(x, w, slots(x)[::3][:3], b),
        lambda x, w, b: torch.cat([F.linear(x[:3], w[0], b[0]), F.linear(x[3:6], w[1], b[1]), 0 * x[6:, :5]]),
    ),
    "moe_combine": (
        [(6, 8), (3, 2), (3, 8)], lambda y, w, r: ops.moe_combine(y, slots(y).view(3, 2), w, r, slot=slots(y)),
        lambda y, w, r: (y.view(3, 2, 8) * w[..., None]).sum(1) + r,
    ),
    "moe_mlp": (
        [(3, 8), (3, 2), (2, 12, 8), (2, 8, 6), (2, 12), (2, 8)], lambda x, w, *rest: ops.moe_mlp(x, w, *every_expert(x), *rest), feed_forward,
    ),
    "attention": ([Q, K, V], lambda q, k, v: ops.attention(q, k, v, causal=True), attend),
    "attention with sinks": ([(2, 4, 3, 6), K, V, (4,)], lambda q, k, v, s: ops.attention(q, k, v, causal=True, sinks=s), attend),
    "attention_naive": ([Q, K, V], lambda q, k, v: ops.attention_naive(q, k, v, causal=True), attend),
}  # fmt: skip
BOUND = {torch.float64: 1e-6, torch.float32: 1e-5, torch.bfloat16: 0.05}


def listed(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


def inputs_of(name, dtype=torch.float32, grad=True):
    torch.manual_seed(1)
    return [uniform(*shape).to(dtype).requires_grad_(grad) for shape in CASES[name][0]]


def results_and_gradients(function, inputs, seed=2, **more):
    outs = listed(function(*inputs))
    torch.manual_seed(seed)
    weights = [uniform(*out.shape).to(out.dtype) for out in outs]
    return outs + list(torch.autograd.grad(outs, inputs, weights, **more))


def close(ours, theirs, bound):
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.device == b.device
        error = (a.detach().double() - b.detach().double()).abs().max() if a.numel() else 0
        assert error <= bound * max(1, b.detach().abs().max()), (error, bound)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_like_pytorch(name, dtype):
    placed.skip_f64(dtype)
    inputs = inputs_of(name, dtype)
    theirs = results_and_gradients(CASES[name][2], [x.detach().double().requires_grad_() for x in inputs])
    ours = results_and_gradients(CASES[name][1], inputs)
    close(ours, theirs, BOUND[dtype])
    for gradient, x in zip(ours[-len(inputs) :], inputs):
        assert gradient.dtype == x.dtype


@pytest.mark.parametrize("name", CASES)
def test_the_dispatcher_gives_the_same_bits(name):
    inputs = inputs_of(name)
    ours = results_and_gradients(CASES[name][1], inputs)

    class Same(torch.utils._python_dispatch.TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(function.namespace)
            return function(*args, **(kwargs or {}))

    with Same():
        other = results_and_gradients(CASES[name][1], inputs)
    assert "tegula" in Same.seen
    assert all(torch.equal(a, b) for a, b in zip(ours, other, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_strides_graphs_and_subsets(name):
    """Views give what copies give; a second backward gives the first's bits; each gradient alone, too."""
    inputs = inputs_of(name)
    ours = CASES[name][1]
    whole = results_and_gradients(ours, inputs)

    def expect_whole(results):
        # cublasLt may take another algorithm for other strides: sums of up to 8 products below 1, in f32 in another order.
        if placed.device == "cuda" and name.startswith("linear"):
            close(results, whole, BOUND[torch.float32])
        else:
            assert all(torch.equal(a, b) for a, b in zip(whole, results, strict=True))

    wide = [torch.stack((x.detach(), x.detach()), 0 if x.dim() < 2 else x.dim() - 2) for x in inputs]
    views = [w.select(0 if x.dim() < 2 else x.dim() - 2, 1).requires_grad_() for w, x in zip(wide, inputs)]
    expect_whole(results_and_gradients(ours, views))
    transposed = [x.detach().mT.contiguous().mT.requires_grad_() if x.dim() > 1 else x for x in inputs]
    expect_whole(results_and_gradients(ours, transposed))
    outs = listed(ours(*inputs))
    weights = [torch.ones_like(out) for out in outs]
    first = torch.autograd.grad(outs, inputs, weights, retain_graph=True)
    expanded = [out.new_ones(()).expand(out.shape) for out in outs]  # what sum() sends
    second = torch.autograd.grad(outs, inputs, expanded)
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    for index in range(len(inputs)):
        alone = [x.detach().requires_grad_(i == index) for i, x in enumerate(inputs)]
        (gradient,) = torch.autograd.grad([o for o in listed(ours(*alone)) if o.requires_grad], alone[index],
                                          [w for o, w in zip(listed(ours(*alone)), weights) if o.requires_grad])
        assert torch.equal(gradient, first[index])
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(listed(ours(*inputs)), whole))


@pytest.mark.parametrize("name", CASES)
def test_compiles(name):
    inputs = inputs_of(name)
    torch._dynamo.reset()
    compiled = torch.compile(CASES[name][1], fullgraph=True, backend="aot_eager")
    whole = results_and_gradients(CASES[name][1], inputs)
    assert all(torch.equal(a, b) for a, b in zip(results_and_gradients(compiled, inputs), whole, strict=True))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_compiles_without_gradients(name, grad):
    """Nothing requires them, or nobody wants them."""
    inputs = inputs_of(name, grad=not grad)
    torch._dynamo.reset()
    compiled = torch.compile(CASES[name][1], fullgraph=True, backend="eager")
    with torch.set_grad_enabled(grad):
        assert all(torch.equal(a, b) for a, b in zip(listed(compiled(*inputs)), listed(CASES[name][1](*inputs)), strict=True))


@pytest.mark.nightly  # a minute of g++
def test_inductor_knows_the_operators(monkeypatch):
    """Those it does not know it describes in words, which PyTorch 2.11 does not end at the end of a long graph."""
    from torch._inductor import config, graph

    monkeypatch.setattr(config, "force_disable_caches", True)
    monkeypatch.setattr(graph, "MissingOperatorWithoutDecomp", None)
    torch._dynamo.reset()
    inputs = [placed.randn(shape, requires_grad=True) for shape in (Q, K, V)] + [placed.ones(6, requires_grad=True)]

    def normed(q, k, v, w):
        return ops.attention(ops.rms_norm(q, w), k, v, causal=True)

    whole = results_and_gradients(normed, inputs)
    compiled = torch.compile(normed, fullgraph=True)
    assert all(torch.equal(a, b) for a, b in zip(results_and_gradients(compiled, inputs), whole, strict=True))


def test_compiles_for_any_shape():
    compiled = torch.compile(lambda x, w: ops.rms_norm(ops.silu(x), w).sum(), fullgraph=True, dynamic=True, backend="aot_eager")
    w = placed.ones(8, requires_grad=True)
    for count in (2, 3, 7):
        x = placed.randn(count, 5, 8, requires_grad=True)
        close(torch.autograd.grad(compiled(x, w), (x, w)), torch.autograd.grad(norm(F.silu(x), w).sum(), (x, w)), 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_and_forward_mode_raise(name):
    ours, inputs = CASES[name][1], inputs_of(name)
    with pytest.raises(RuntimeError, match="expected a first derivative, got a request for the second"):
        results_and_gradients(ours, inputs, create_graph=True)
    inputs = inputs_of(name, grad=False)
    with pytest.raises(RuntimeError, match="jvp"):
        torch.func.jvp(lambda *x: listed(ours(*x))[0], tuple(inputs), tuple(torch.ones_like(x) for x in inputs))


@pytest.mark.parametrize("name", CASES)
def test_torch_func_and_checkpoints(name):
    ours, inputs = CASES[name][1], inputs_of(name)

    def total(*x):
        return sum(out.square().sum() for out in listed(ours(*x)))

    whole = torch.autograd.grad(total(*inputs), inputs)
    detached = tuple(x.detach() for x in inputs)
    close(torch.func.grad(total, argnums=tuple(range(len(inputs))))(*detached), whole, 1e-6)
    for reentrant in (False, True):
        y = torch.utils.checkpoint.checkpoint(total, *inputs, use_reentrant=reentrant)
        close(torch.autograd.grad(y, inputs) if not reentrant else backward(y, inputs), whole, 1e-6)


def backward(y, inputs):
    for x in inputs:
        x.grad = None
    y.backward()
    return [x.grad for x in inputs]


def test_opcheck():
    x, w, r = placed.randn(3, 8), placed.randn(8), placed.rand(3)
    names = torch.ops.tegula
    torch.library.opcheck(names.rms_norm_fwd.default, (x, w, 1e-6, 0.0, 1))
    torch.library.opcheck(names.rms_norm_bwd.default, (x, x, w, r, 0.0, [True, False]))
    torch.library.opcheck(names.swiglu_fwd.default, (None, None, x, 1, 1))
    torch.library.opcheck(names.softmax_bwd.default, (x, x.softmax(-1), 1.0, [True]))
    torch.library.opcheck(names.linear_fwd.default, (x, placed.randn(5, 8), None, None, 0, False))


def test_negated_fake_and_other_tensors():
    x, w = placed.randn(3, 8), placed.ones(8)
    negated = torch._neg_view(x)
    assert torch.equal(ops.silu(negated), ops.silu(-x))
    assert ops.rms_norm(x.to("meta"), w.to("meta")).device.type == "meta"
    with torch._subclasses.FakeTensorMode() as mode:
        assert ops.silu(mode.from_tensor(x)).shape == x.shape
        with pytest.raises(ValueError, match="silu_fwd: x: expected a tensor with memory, got one without"):
            tegula._core.run("silu_fwd", mode.from_tensor(x), x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match="jvp"):
            ops.silu(dual)
    for bad in (x.to_sparse(), placed.zeros(3, 8, dtype=torch.complex64).conj(), x.to("meta")):
        with pytest.raises((RuntimeError, TypeError, ValueError, NotImplementedError, BufferError)):  # PyTorch's own kinds
            tegula._core.run("silu_fwd", bad, x)


@pytest.mark.parametrize("call, exception, message", [
    (lambda x: ops.rms_norm(x, x[0, :7]), ValueError, r"rms_norm_fwd: weight: expected f32 \[8\], got f32 \[7\]"),
    (lambda x: ops.silu(x.int()), TypeError, r"silu_fwd: x: expected f32\|f16\|bf16, got i32"),
    (lambda x: ops.gelu(x, approximate="no"), ValueError, "gelu: approximate: expected tanh or none, got 'no'"),
    (lambda x: ops.cross_entropy(x, placed.tensor([0, 8, 1])), ValueError, r"cross_entropy_fwd: targets\[1\]: expected 0 to 7, got 8"),
    (lambda x: ops.silu(x, out=placed.empty(3, 7)), ValueError, r"silu_fwd: y: expected f32 \[3, 8\], got f32 \[3, 7\]"),
    (lambda x: ops.silu(x, out=x.bfloat16()), TypeError, "silu_fwd: y: expected f32, got bf16"),
    (lambda x: ops.silu(x.requires_grad_(), out=placed.empty(3, 8)), RuntimeError, "silu: out: expected tensors without"),
])  # fmt: skip
def test_errors(call, exception, message):
    with pytest.raises(exception, match=message):
        call(placed.rand(3, 8))
        tegula.check()  # where a GPU finds an id out of range


def test_out():
    x = placed.randn(2, 3, 8)
    out = placed.empty(2, 3, 8)
    version = out._version
    assert ops.silu(x, out=out) is out and out._version > version
    assert torch.equal(out, ops.silu(x))
    assert torch.equal(ops.silu(out, out=out), ops.silu(ops.silu(x)))


def test_in_place_changes_are_noticed():
    x = placed.randn(3, 8, requires_grad=True)
    h = x * 1
    y = ops.silu(h)
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_adamw(dtype):
    placed.skip_f64(dtype)
    torch.manual_seed(0)
    ours = [placed.randn(3, 4, dtype=dtype), placed.randn(5, dtype=dtype)]
    theirs = [p.clone().requires_grad_() for p in ours]
    peer = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    state = [[torch.zeros_like(p) for p in ours] for _ in range(2)]
    for step in range(1, 4):
        grads = [torch.randn_like(p) for p in ours]
        for p, g in zip(theirs, grads):
            p.grad = g.clone()
        peer.step()
        version = ours[0]._version
        ops.adamw_step(ours, grads, *state, step=step, lr=0.01, weight_decay=0.1)
        assert ours[0]._version > version
    close(ours, theirs, 1e-6)


def test_nondeterminism_is_asked_for():
    from tegula.settings import nondeterministic_allowed

    assert not nondeterministic_allowed()
    tegula.allow_nondeterministic(True)
    try:
        assert nondeterministic_allowed()
        torch.use_deterministic_algorithms(True)
        assert not nondeterministic_allowed()
    finally:
        torch.use_deterministic_algorithms(False)
        tegula.allow_nondeterministic(False)


def test_tf32_is_what_pytorch_says():
    from tegula.settings import tf32_allowed

    compiled = torch.compile(lambda x: x + tf32_allowed(), fullgraph=True, backend="eager")
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    assert not tf32_allowed()
    try:
        for allowed in (True, False):
            matmul.allow_tf32 = allowed
            assert tf32_allowed() == allowed
            assert compiled(torch.zeros(1)) == allowed
        matmul.fp32_precision = "tf32"
        assert tf32_allowed()
    finally:
        matmul.fp32_precision = before


def test_a_cpu_has_no_tf32():
    x, w = torch.randn(3, 40), torch.randn(5, 40)
    assert torch.equal(ops.linear(x, w, allow_tf32=True), ops.linear(x, w, allow_tf32=False))


def test_the_example_of_the_python_guide():
    text = (pathlib.Path(__file__).resolve().parents[3] / "docs/python.md").read_text()
    names = {}
    exec(next(part for part in text.split("```python\n") if part.startswith("import torch\nfrom tegula")).split("```")[0], names)
    assert names["x"].grad.shape == (4, 8)
