"""The losses that make their gradients in the forward, and the modules, against PyTorch in f64."""

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tegula import fused_linear_cross_entropy, ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

ROWS, HIDDEN, VOCAB = (3, 7), 16, 37
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def problem(dtype=torch.float32, bias=True):
    torch.manual_seed(3)
    tensors = [placed.randn(*ROWS, HIDDEN), placed.randn(VOCAB, HIDDEN) / 4, placed.randn(VOCAB)][: 2 + bias]
    target = placed.randint(0, VOCAB, ROWS)
    target[0, 1] = target[2, 6] = -100
    return [t.to(dtype).requires_grad_() for t in tensors], target


def peer(hidden, weight, bias, target, *, softcap=0.0, z_loss=0.0, num_items=None, reduction="mean", smoothing=0.0):
    logits = F.linear(hidden, weight, bias)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    losses = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none", label_smoothing=smoothing)
    losses = losses + z_loss * torch.where(target.flatten() >= 0, logits.logsumexp(-1).flatten().square(), 0)
    if reduction == "none":
        return losses.view(target.shape)
    if num_items is not None:
        return losses.sum() / num_items
    return losses.sum() if reduction == "sum" else losses.sum() / (target >= 0).sum()


FORMS = {
    "mean": ({}, {}),
    "sum": ({"reduction": "sum"}, {"reduction": "sum"}),
    "each": ({"reduction": "none"}, {"reduction": "none"}),
    "items": ({"num_items_in_batch": 50}, {"num_items": 50}),
    "items as a tensor": ({"num_items_in_batch": torch.tensor(50)}, {"num_items": 50}),
    "smooth, capped, z": ({"label_smoothing": 0.125, "softcap": 5.0, "z_loss": 2**-7}, {"smoothing": 0.125, "softcap": 5.0, "z_loss": 2**-7}),
    "in pieces": ({"chunk_size": 4, "v_chunk_size": 10}, {}),
}  # fmt: skip


def within_twice(ours, exact, naive):
    """An error at most twice that of PyTorch's own operations in the same dtype, or what a correctly rounded result may
    have; of f32 and f64, 8 units in the last place of the largest value."""
    for a, b, c in zip(ours, exact, naive, strict=True):
        floor = torch.finfo(a.dtype).eps * b.abs().max() * (0.5 if a.dtype.itemsize == 2 else 8)
        error, allowed = (a.double() - b).abs().max(), 2 * (c.double() - b).abs().max()
        assert error <= torch.maximum(allowed, floor), (error, allowed, floor)


@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_against_pytorch(dtype, form, factor):
    placed.skip_f64(dtype)
    ours, theirs = FORMS[form]
    inputs, target = problem(dtype)

    def run(function, tensors, more):
        hidden, weight, bias = tensors
        loss = function(hidden, weight, bias, more)
        weights = placed.linspace(0.5, 1.5, loss.numel()).view(loss.shape) if loss.dim() else placed.ones(())
        gradients = torch.autograd.grad((loss * (factor * weights).to(loss)).sum(), tensors)
        return [loss.detach(), *gradients]

    exact = run(lambda h, w, b, m: peer(h, w, b, target, **m), [t.detach().double().requires_grad_() for t in inputs], theirs)
    naive = run(lambda h, w, b, m: peer(h, w, b, target, **m), inputs, theirs)
    got = run(lambda h, w, b, m: fused_linear_cross_entropy(h, w, target, b, **m), inputs, ours)
    assert got[0].shape == exact[0].shape and got[0].dtype == (dtype if dtype == torch.float64 else torch.float32)
    assert [g.dtype for g in got[1:]] == [dtype] * 3
    within_twice(got, exact, naive)


def seen_entries(function):
    """The table entries that a call runs."""
    names = [row["name"] for row in tegula._core.ops()]
    seen = []
    from tegula.autograd import table_entry

    class Watched:
        def __getattr__(self, name):
            return getattr(tegula._core, name)

        def run(self, index, *arguments):
            seen.append(names[index])
            return tegula._core.run(index, *arguments)

    kept, table_entry._core = table_entry._core, Watched()
    try:
        function()
    finally:
        table_entry._core = kept
    return seen


def test_logits_are_made_once():
    (hidden, weight, bias), target = problem()
    assert seen_entries(lambda: fused_linear_cross_entropy(hidden, weight, target, bias).backward()) == ["linear_cross_entropy_fwdbwd"]
    logits = placed.randn(*ROWS, VOCAB, requires_grad=True)
    assert seen_entries(lambda: ops.cross_entropy(logits, target).backward()) == ["cross_entropy_fwdbwd"]
    with torch.no_grad():
        assert seen_entries(lambda: fused_linear_cross_entropy(hidden, weight, target, bias)) == ["linear_cross_entropy_fwd"]
    plain = [t.detach() for t in (hidden, weight)]
    assert seen_entries(lambda: fused_linear_cross_entropy(*plain, target)) == ["linear_cross_entropy_fwd"]
    each = lambda: fused_linear_cross_entropy(hidden, weight, target, reduction="none").sum().backward()  # noqa: E731
    assert seen_entries(each) == ["linear_cross_entropy_fwd", "linear_cross_entropy_bwd"]


def test_a_second_backward_and_retained_graphs():
    (hidden, weight, bias), target = problem(torch.bfloat16)
    loss = fused_linear_cross_entropy(hidden, weight, target, bias)
    first = torch.autograd.grad(loss, (hidden, weight, bias), retain_graph=True)
    third = torch.autograd.grad(loss * 0.5, (hidden, weight, bias), retain_graph=True)
    loss.backward(retain_graph=True)
    hidden.grad.zero_()  # a copy: what is kept for the next backward does not change
    loss.backward()
    assert torch.equal(hidden.grad, first[0]) and torch.equal(weight.grad, first[1] * 2)
    assert all(torch.equal(a * 0.5, b) for a, b in zip(first, third))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_frozen_tensors_cost_nothing():
    inputs, target = problem()
    whole = torch.autograd.grad(fused_linear_cross_entropy(inputs[0], inputs[1], target, inputs[2]), inputs)
    for index in range(3):
        alone = [t.detach().requires_grad_(i == index) for i, t in enumerate(inputs)]
        asked = []

        class Names(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                if getattr(function, "__name__", "") == "new_empty":
                    asked.append(tuple(args[1]))
                return function(*args, **(kwargs or {}))

        with Names():
            loss = fused_linear_cross_entropy(alone[0], alone[1], target, alone[2])
        assert asked.count((VOCAB, HIDDEN)) == (index == 1) and asked.count((VOCAB,)) == (index == 2)
        (gradient,) = torch.autograd.grad(loss, alone[index])
        assert torch.equal(gradient, whole[index])


def test_scaled_losses_do_not_underflow_in_f16():
    """Gradients below f16's smallest number, scaled up by the factor that comes with the backward."""
    (hidden, weight, bias), target = problem()
    hidden, weight, bias = ((t.detach() / 256).half().requires_grad_() for t in (hidden, weight, bias))

    def gradients(tensors, function):
        return torch.autograd.grad(function(*tensors) * (2.0**16), tensors)

    names = {"num_items_in_batch": 10**6}
    exact = gradients([t.detach().double().requires_grad_() for t in (hidden, weight, bias)],
                      lambda h, w, b: peer(h, w, b, target, num_items=10**6))  # fmt: skip
    ours = gradients((hidden, weight, bias), lambda h, w, b: fused_linear_cross_entropy(h, w, target, b, **names))
    for a, b in zip(ours, exact):
        assert (b.abs() / 2**16 < torch.finfo(torch.float16).tiny).any()
        assert (a.double() - b).abs().max() <= torch.finfo(torch.float16).eps * b.abs().max()
    logits = placed.randn(4, VOCAB).half().requires_grad_()
    assert seen_entries(lambda: ops.cross_entropy(logits, target[0, :4]).backward()) == ["cross_entropy_fwd", "cross_entropy_bwd"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    inputs, target = problem()

    def loss(hidden, weight, bias):
        return fused_linear_cross_entropy(hidden * 2, weight, target, bias)

    whole = torch.autograd.grad(loss(*inputs), inputs)
    torch.utils.checkpoint.checkpoint(loss, *inputs, use_reentrant=reentrant).backward()
    assert all(torch.equal(t.grad, g) for t, g in zip(inputs, whole))


def test_compiled():
    inputs, target = problem(torch.bfloat16)

    def loss(hidden, weight, bias):
        return fused_linear_cross_entropy(hidden, weight, target, bias, label_smoothing=0.1) * 0.5

    whole = torch.autograd.grad(loss(*inputs), inputs)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(compiled(*inputs), inputs), whole))
    frozen = [inputs[0], inputs[1].detach(), None]
    (gradient,) = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(*frozen), inputs[0])
    (expected,) = torch.autograd.grad(loss(*frozen), inputs[0])
    assert torch.equal(gradient, expected)


def test_nothing_counts_and_second_derivatives():
    (hidden, weight, bias), target = problem()
    assert fused_linear_cross_entropy(hidden, weight, torch.full_like(target, -100), bias).isnan()
    loss = fused_linear_cross_entropy(hidden, weight, target, bias)
    with pytest.raises(RuntimeError, match="expected a first derivative"):
        torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(ValueError, match="reduction: expected none or sum or mean, got 'average'"):
        fused_linear_cross_entropy(hidden, weight, target, reduction="average")
    with pytest.raises(ValueError, match="num_items_in_batch: expected None with reduction none"):
        fused_linear_cross_entropy(hidden, weight, target, reduction="none", num_items_in_batch=4)


def test_the_modules():
    (hidden, weight, bias), target = problem()
    module = tegula.TegulaLinearCrossEntropyLoss(reduction="sum", label_smoothing=0.1)
    expected = fused_linear_cross_entropy(hidden, weight, target, bias, reduction="sum", label_smoothing=0.1)
    assert torch.equal(module(hidden, weight, target, bias), expected) and not list(module.parameters())
    assert "label_smoothing=0.1" in repr(module)
    with pytest.raises(ValueError, match="reduction: expected none or sum or mean, got 'average'"):
        tegula.TegulaLinearCrossEntropyLoss(reduction="average")


def test_the_modules_stand_in_for_those_of_transformers():
    qwen3 = pytest.importorskip("transformers.models.qwen3.modeling_qwen3", reason="without transformers")
    config = qwen3.Qwen3Config(hidden_size=32, intermediate_size=48)
    torch.manual_seed(0)
    pairs = [(qwen3.Qwen3RMSNorm(32, 1e-5), tegula.TegulaRMSNorm(32, 1e-5)), (qwen3.Qwen3MLP(config), tegula.TegulaSwiGLUMLP(config))]
    pairs = [tuple(map(placed.to_device, pair)) for pair in pairs]
    for theirs, ours in pairs:
        for parameter in theirs.parameters():
            torch.nn.init.normal_(parameter)
        assert ours.load_state_dict(theirs.state_dict()) and str(ours).split("(", 1)[1] == str(theirs).split("(", 1)[1].replace("SiLUActivation", "SiLU")
        for dtype in (torch.float32, torch.bfloat16):
            theirs, ours = theirs.to(dtype), ours.to(dtype)
            x, y = (placed.randn(2, 5, 32, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_() for _ in range(2))
            exact = theirs.double()(x.double())
            theirs.to(dtype)
            a, b = ours(x), theirs(y)
            assert a.dtype == b.dtype
            within_twice([a.detach()], [exact.detach()], [b.detach()])
            a.sum().backward()
            b.sum().backward()
            torch.testing.assert_close(x.grad, y.grad, rtol=0.02, atol=torch.finfo(dtype).eps * 8 * float(y.grad.abs().max()))
    mixed = placed.to_device(tegula.TegulaRMSNorm(32).bfloat16())(placed.randn(3, 32))
    assert mixed.dtype == torch.float32
    with pytest.raises(ValueError, match="hidden_act: expected silu or swish, got 'gelu'"):
        tegula.TegulaSwiGLUMLP(qwen3.Qwen3Config(hidden_size=32, intermediate_size=48, hidden_act="gelu"))
