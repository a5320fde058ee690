"""The fast path in C for plain tensors: when it runs, that its bits are those of the general path, its host time."""

import gc
import inspect
import pickle
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tegula import ops  # noqa: E402
from tegula.ops import elementwise_ops, norm_ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

CASES = {
    "rms_norm": (2, lambda x, w, **m: ops.rms_norm(x, w, **m), norm_ops._rms_norm),
    "add_rms_norm": (2, lambda x, w, **m: ops.add_rms_norm(x, x + 1, w, **m), norm_ops._add_rms_norm),
    "layer_norm": (2, lambda x, w, **m: ops.layer_norm(x, w, w, **m), norm_ops._layer_norm),
    "layer_norm without bias": (2, lambda x, w, **m: ops.layer_norm(x, w, **m), norm_ops._layer_norm),
    "rms_norm_swiglu": (2, lambda x, w, **m: ops.rms_norm_swiglu(x, x - 1, w, **m), norm_ops._rms_norm_swiglu),
    "softmax": (1, lambda x, **m: ops.softmax(x, scale=0.5, **m), elementwise_ops._softmax),
    "silu": (1, lambda x, **m: ops.silu(x, **m), elementwise_ops._silu),
    "gelu": (1, lambda x, **m: ops.gelu(x, **m), elementwise_ops._gelu),
    "swiglu": (1, lambda x, **m: ops.swiglu(x, x + 1, **m), elementwise_ops._swiglu),
    "geglu": (1, lambda x, **m: ops.geglu(x, x + 1, **m), elementwise_ops._geglu),
    "swiglu_clamped": (1, lambda x, **m: ops.swiglu_clamped(x, x + 1, limit=0.5, **m), elementwise_ops._swiglu_clamped),
}
OPS = {name: op for name, (_, _, op) in CASES.items()}
SHAPES = [(8,), (3, 8), (2, 3, 8), (1, 2, 1, 3, 8), (2, 0, 8)]


def inputs_of(count, shape, dtype, grad=False):
    torch.manual_seed(0)
    return [t.to(dtype).requires_grad_(grad) for t in (placed.randn(shape), placed.rand(8) + 0.5)[:count]]


def listed(results):
    return [results] if isinstance(results, torch.Tensor) else list(results)


@pytest.fixture
def general_calls(monkeypatch):
    """Names of the ops that took the general path, in order."""
    seen = []
    for kind in {type(op) for _, _, op in CASES.values()}:
        general = kind.general
        monkeypatch.setattr(kind, "general", lambda self, *a, general=general: (seen.append(self.name), general(self, *a))[1])
    return seen


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_same_bits(name, shape, dtype, general_calls):
    placed.skip_f64(dtype)
    count, call, op = CASES[name]

    def results(grad):
        inputs = inputs_of(count, shape, dtype, grad)
        outs = listed(call(*inputs))
        return outs + (list(torch.autograd.grad(outs, inputs, [torch.full_like(o, 0.5) for o in outs])) if grad else [])

    plain, with_gradients = results(False), results(True)
    assert not general_calls
    quick, op.quick = op.quick, lambda *arguments: False
    try:
        others = results(False), results(True)
    finally:
        op.quick = quick
    assert general_calls
    for ours, theirs in zip((plain, with_gradients), others):
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    assert all(out.grad_fn is not None for out in with_gradients[: len(plain)])
    with torch.no_grad():
        assert not listed(call(*inputs_of(count, shape, dtype, True)))[0].requires_grad


ARGUMENTS = {
    "rms_norm": [
        ("xw", {}), ("xw", {"eps": 1e-3}), ("xw", {"policy": "gpt_oss", "weight_offset": 1.0}), ("", {"weight": "w", "x": "x"}),
        ("x", {}), ("xw", {"x": "x"}), ("xw", {"wait": 1}), ("xw", {"policy": "no"}), ("xw", {"policy": []}), ("xw", {"eps": "a"}),
        ("xwwx", {}), ("xx", {}), ("xw", {"weight_offset": None}), ("xw", {"out": "x"}),
    ],
    "layer_norm": [("xw", {}), ("xww", {}), ("xw", {"bias": None}), ("xw", {"bias": "w", "eps": 1e-3}), ("x", {"bias": "w"})],
    "gelu": [("x", {}), ("x", {"approximate": "tanh"}), ("x", {"approximate": None}), ("xx", {}), ("x", {"approximation": 1})],
    "swiglu": [
        ("xx", {}), ("x", {"up": "x"}), ("x", {}), ("x", {"up": None}), ("xx", {"packing": "interleaved"}), ("xx", {"packing": "a"}),
        ("x", {"packing": "interleaved"}), ("xx", {"rounding": "once"}), ("xx", {"rounding": "no"}), ("xw", {}),
    ],
    "geglu": [("xx", {}), ("xx", {"approximate": "tanh", "rounding": "once"}), ("x", {"approximate": "tanh"}), ("xx", {"packing": 1})],
    "swiglu_clamped": [("xx", {}), ("xx", {"alpha": 1.0, "limit": 0.1}), ("x", {"limit": 0.1}), ("xx", {"limit": None})],
    "softmax": [("x", {}), ("x", {"scale": 0.1}), ("x", {"scale": None}), ("xx", {}), ("", {}), ("", {"x": "x"})],
}  # fmt: skip


@pytest.mark.parametrize("name, given, named", [(name, *case) for name, cases in ARGUMENTS.items() for case in cases])
def test_arguments_are_those_of_the_function(name, given, named, monkeypatch):
    """Values, defaults and errors are the same on the fast and the general path."""
    said = []
    for quick in (OPS[name].quick, lambda *_: False):
        monkeypatch.setattr(OPS[name], "quick", quick)
        tensors = dict(zip("xw", inputs_of(2, (3, 8), torch.float32)))
        arguments = {k: tensors[v] if v in ("x", "w") else v for k, v in named.items()}
        try:
            said.append(getattr(ops, name)(*[tensors[letter] for letter in given], **arguments))
        except Exception as error:  # noqa: BLE001
            said.append((type(error), str(error)))
    assert torch.equal(*said) if isinstance(said[0], torch.Tensor) else said[0] == said[1], said


def test_functions_are_python_s():
    """pickle, inspect and Dynamo handle the functions, also if one is compiled by itself."""
    assert pickle.loads(pickle.dumps(ops.rms_norm)) is ops.rms_norm and inspect.isfunction(ops.rms_norm)
    graphs, (x, w) = [], inputs_of(2, (3, 8), torch.float32)

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    assert torch.equal(torch.compile(ops.rms_norm, backend=backend, fullgraph=True)(x, w), ops.rms_norm(x, w))
    assert len(graphs) == 1


def test_gradients_under_a_transform_that_wraps_none_of_the_inputs(general_calls):
    x, w = inputs_of(2, (3, 8), torch.float32, True)
    found = torch.func.grad(lambda t: (ops.rms_norm(x, w) * t).sum())(placed.ones(()))
    assert general_calls == ["rms_norm"]
    y = ops.rms_norm(x, w)
    assert torch.equal(found.detach(), y.detach().sum())
    with pytest.raises(RuntimeError, match="no such hook"):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: exec('raise RuntimeError("no such hook")'), list):
            ops.rms_norm(x, w)


def test_what_is_not_plain_goes_the_general_way(general_calls):
    x, w = inputs_of(2, (3, 8), torch.float32)

    class Other(torch.Tensor):
        pass

    calls = [
        lambda: ops.rms_norm(x.T.contiguous().T, w), lambda: ops.rms_norm(x[:, ::2], w[::2]),
        lambda: ops.silu(torch._neg_view(x)), lambda: ops.silu(x.as_subclass(Other)), lambda: ops.silu(x.expand(2, 3, 8)),
        lambda: ops.silu(x.to("meta")), lambda: ops.swiglu(x),
        lambda: torch.func.grad(lambda t: ops.silu(t).sum())(x),
    ]  # fmt: skip
    for count, call in enumerate(calls, 1):
        call()
        assert len(general_calls) == count
    assert torch.equal(ops.silu(torch._neg_view(x)), ops.silu(-x))
    ops.rms_norm(torch.nn.Parameter(x), torch.nn.Parameter(w))
    assert len(general_calls) == count + 1


@pytest.mark.parametrize("call, exception, message", [
    (lambda x, w: ops.rms_norm(x, w[:7]), ValueError, r"rms_norm_fwd: weight: expected f32 \[8\], got f32 \[7\]"),
    (lambda x, w: ops.rms_norm(x, x), ValueError, r"rms_norm_fwd: weight: expected rank 1, got rank 3"),
    (lambda x, w: ops.rms_norm(x, w, 0.0), ValueError, "rms_norm_fwd: eps: expected a finite number > 0, got 0"),
    (lambda x, w: ops.rms_norm(x, w, "a"), TypeError, "rms_norm_fwd: eps: expected a number, got 'a'"),
    (lambda x, w: ops.rms_norm(x, w, policy="no"), ValueError, "rms_norm: policy: expected llama or gpt_oss, got 'no'"),
    (lambda x, w: ops.silu(x.int()), TypeError, r"silu_fwd: x: expected f32\|f16\|bf16, got i32"),
    (lambda x, w: ops.silu(x.sum()), ValueError, r"silu: x: expected \[..., cols\], got \[\]"),
    (lambda x, w: ops.silu(3), TypeError, "silu: x: expected a tensor of PyTorch, got <class 'int'>"),
    (lambda x, w: ops.swiglu(x, x.view(3, 2, 8)), ValueError, r"swiglu: up: expected \[2, 3, \.\.\.\], got \[3, 2, 8\]"),
    (lambda x, w: ops.silu(x, out=placed.empty(3, 2, 8)), ValueError, r"silu: out: expected \[2, 3, \.\.\.\], got \[3, 2, 8\]"),
    (lambda x, w: ops.silu(x, out=placed.empty(2, 3, 7)), ValueError, r"silu_fwd: y: expected f32 \[6, 8\], got f32 \[6, 7\]"),
    (lambda x, w: ops.silu(x, out=placed.empty(2, 1, 8).expand(2, 3, 8)), (ValueError, RuntimeError), None),
    (lambda x, w: ops.silu(x, out=placed.empty(2, 3, 8, requires_grad=True)), RuntimeError, "silu: out: expected tensors without"),
])  # fmt: skip
def test_errors(call, exception, message):
    with pytest.raises(exception, match=message):
        call(*inputs_of(2, (2, 3, 8), torch.float32))


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8)], ids=str)
def test_out(shape, general_calls):
    x, w = inputs_of(2, shape, torch.float32)
    expected, out = ops.rms_norm(x, w), placed.empty(shape)
    version = out._version
    assert ops.rms_norm(x, w, out=out) is out and torch.equal(out, expected) and out._version == version + 1
    assert not general_calls
    h = x.clone().requires_grad_() * 1
    y = ops.silu(h)
    with torch.no_grad():
        ops.silu(x, out=h)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_out_with_strides(general_calls):
    x, w = inputs_of(2, (3, 8), torch.float32)
    wide = placed.zeros(3, 20)
    ops.rms_norm(x, w, out=wide[:, 4:12])
    assert torch.equal(wide[:, 4:12], ops.rms_norm(x, w)) and not wide[:, :4].any() and not wide[:, 12:].any()
    assert not general_calls


@pytest.mark.parametrize("name", CASES)
def test_gradients_with_strides(name):
    """A gradient that C leaves alone gives the bits that its copy gives there."""
    count, call, _ = CASES[name]
    inputs = inputs_of(count, (3, 8), torch.float32, True)
    outs = listed(call(*inputs))
    wide = [placed.randn(3, 16)[:, ::2] for _ in outs]
    results = [torch.autograd.grad(outs, inputs, g, retain_graph=True) for g in (wide, [g.contiguous() for g in wide])]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("call", [ops.rms_norm, lambda x, w: ops.linear(x, w[None]), lambda x, w: ops.silu(x) * w])
def test_tensors_that_outlive_a_transform(call):
    kept, (x, w) = [], inputs_of(2, (3, 8), torch.float32, True)
    torch.func.grad(lambda t: (kept.append(t * 1), t.sum())[1])(x.detach())
    ours, theirs = call(kept[0], w), call(x.detach(), w)
    assert torch.equal(ours, theirs)
    assert torch.equal(*[torch.autograd.grad(y.sum(), w)[0] for y in (ours, theirs)])


@pytest.mark.parametrize("asked", range(3))
def test_only_the_gradients_asked_for(asked):
    given = [placed.randn(3, 8), placed.rand(8), placed.rand(8)]
    whole = torch.autograd.grad(ops.layer_norm(*[t.requires_grad_() for t in given]).sum(), given)
    inputs = [t.detach().requires_grad_(i == asked) for i, t in enumerate(given)]
    ops.layer_norm(*inputs).sum().backward()
    assert [t.grad is not None for t in inputs] == [i == asked for i in range(3)]
    assert torch.equal(inputs[asked].grad, whole[asked])


def test_nothing_is_kept():
    x, w = inputs_of(2, (3, 8), torch.float32)
    out, xg = placed.empty(3, 8), x.clone().requires_grad_()

    def calls():
        ops.rms_norm(x, w)
        ops.rms_norm(x, w, out=out)
        ops.layer_norm(xg, w).sum().backward()
        ops.rms_norm(xg, w).backward(out)
        ops.rms_norm(x.T.contiguous().T, w)
        for bad in (lambda: ops.rms_norm(x, w[:7]), lambda: ops.rms_norm(x, w, "a"), lambda: ops.silu(x, out=x[:2])):
            with pytest.raises((ValueError, TypeError)):
                bad()

    watched = [x, w, out, torch.empty_like]
    calls()
    gc.collect()
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(50):
        calls()
    for _ in range(100):  # a GPU's backward runs in a thread of its own, which may still hold what it had
        gc.collect()
        after = [sys.getrefcount(o) for o in watched]
        if after == before:
            break
        time.sleep(0.01)
    assert after == before
    # From Python 3.12 on bool's two are immortal: some of those who borrow them count, others don't, and nothing is freed.
    kinds = (torch.Tensor, True, False) if sys.version_info < (3, 12) else (torch.Tensor,)
    before = [sys.getrefcount(o) for o in kinds]
    for _ in range(1000):
        norm_ops._rms_norm.quick(None, xg, w, 1e-6, 0.0, 1)
        norm_ops._rms_norm.quick(None, [x], w, 1e-6, 0.0, 1)
        norm_ops._rms_norm.quick(None, x, w, 1e-6, 0.0, 1)
    after = [sys.getrefcount(o) for o in kinds]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)


def test_binding_says_what_it_expects():
    core = tegula._core
    quick = core.bind("silu_fwd", ("y",))
    with pytest.raises(TypeError, match="silu_fwd: args: expected 2 arguments, got 1"):
        quick(placed.ones(2, 3))
    assert quick(None, [1.0]) is False and quick(None, placed.ones(2, 3, requires_grad=True)) is True
    for names in ((), ("x",), ("nope",), ("y",) * 9):
        with pytest.raises(ValueError, match="silu_fwd: results: expected"):
            core.bind("silu_fwd", names)
    with pytest.raises(ValueError, match="op: expected an entry or name"):
        core.bind("nope", ("y",))
    for kept in ((1,), (-2,), ("x",)):
        with pytest.raises(ValueError, match="silu_fwd: kept: expected 1 to 1 public results"):
            core.bind_forward("silu_fwd", ("y",), 1, kept, False)
    forward = core.bind_forward("silu_fwd", ("y",), 1, (0,), False)
    for arguments in ((), (None, placed.ones(2, 3)), (None, placed.ones(2, 3), None)):
        with pytest.raises((TypeError, ValueError)):
            forward(*arguments)
    for plan in (((0,), (0,), (), ((0,),), (0,)), ((-1, 0), (2,), (), ((0,),), (0,)), ((-1, 0), (1,), (0,), ((0,),), (0,))):
        with pytest.raises(ValueError, match="silu_bwd: plan: expected tensors, outputs and scalars of the entry"):
            core.bind_backward("silu_bwd", *plan)
    with pytest.raises(TypeError, match="use_torch: expected 17 arguments, got 0"):
        core.use_torch()
    code = "import tegula\ntry: tegula._core.bind('silu_fwd', ('y',))\nexcept RuntimeError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "silu_fwd: bind: expected use_torch before, got none\n"


def test_without_the_exchange_api(device):
    """As in PyTorch 2.9, whose tensors come through __dlpack__."""
    code = """
import sys, torch
torch.set_default_device(sys.argv[1])
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
import tegula
x, w = torch.ones(3, 8, requires_grad=True), torch.nn.Parameter(torch.ones(8))
tegula.ops.rms_norm(tegula.ops.silu(x), w).sum().backward()
tegula.fused_linear_cross_entropy(x, torch.nn.Parameter(torch.ones(5, 8)), torch.tensor([1, 2, 0])).backward()
tegula.ops.clip_grad_norm_([x, w], 1.0)
tegula.optim.AdamW([w]).step()
assert (w < 1).all() and tegula.ops.global_norm([w]) > 0
y = torch.empty(3, 8)
assert tegula.ops.silu(x.detach(), out=y) is y
"""
    subprocess.run([sys.executable, "-c", code, device], check=True)


def least_times(functions, rounds=60, calls=100):
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
    return best


@pytest.mark.cpu("the time on a GPU: bench/python_host.py")
@pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="PyTorch before 2.10 exports tensors by Python alone"
)
def test_the_host_time_of_rms_norm():
    """Shares of PyTorch's own time for the same call, in turn. What is measured is about 0.15 and 0.35."""
    x, w = placed.randn(1, 64).bfloat16(), placed.ones(64).bfloat16()
    xg, wg = (t.clone().requires_grad_() for t in (x, w))
    ours, theirs, ours_grad, theirs_grad = least_times([
        lambda: ops.rms_norm(x, w), lambda: F.rms_norm(x, (64,), w, 1e-6),
        lambda: ops.rms_norm(xg, wg), lambda: F.rms_norm(xg, (64,), wg, 1e-6),
    ])  # fmt: skip
    assert ours < 0.5 * theirs and ours_grad < theirs_grad, (ours, theirs, ours_grad, theirs_grad)
