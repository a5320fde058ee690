"""Plain tensors reach an op unchecked, to save time. What is no dense tensor is reported all the same, whatever step it
makes fail, and on the ways that other tensors take: under vmap, in fake mode, compiled."""

import traceback

import pytest

np = pytest.importorskip("numpy", reason="without NumPy: no arrays of others")
torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import placed  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")


def good_inputs():
    """Inputs of each function whose op allocates, reads or saves them before the library sees them; required ones alone."""
    x, weight, heads, tables = placed.randn(2, 8), placed.randn(5, 8), placed.randn(1, 2, 3, 4), placed.randn(1, 3, 4)
    ids = placed.tensor([1, 2])
    return {
        "linear": (ops.linear, {"x": x, "weight": weight}),
        "embedding": (ops.embedding, {"ids": ids, "table": weight}),
        "cross_entropy": (ops.cross_entropy, {"logits": x, "targets": ids}),
        "linear_cross_entropy": (ops.linear_cross_entropy, {"hidden": x, "weight": weight, "targets": ids}),
        "attention": (ops.attention, {"q": heads, "k": heads, "v": heads}),
        "rope": (lambda q, cos, sin: ops.rope(q, None, cos, sin), {"q": heads, "cos": tables, "sin": tables}),
        "rope inplace": (lambda cos, sin: ops.rope(heads.clone(), None, cos, sin, inplace=True), {"cos": tables, "sin": tables}),
        "dequantize_int4": (ops.dequantize_int4, {"q": x.to(torch.uint8), "scale": placed.ones(2, 1)}),
        "dequantize_mxfp4": (ops.dequantize_mxfp4, {"blocks": placed.ones(2, 16).to(torch.uint8), "scales": placed.ones(2).to(torch.uint8)}),
    }


def bad_values():
    return {
        "None": None, "a list": [1.0, 2.0], "an array": np.ones((2, 8), "f4"), "a number": 1.5,
        "a sparse tensor": torch.eye(8).to_sparse().to(placed.device),
        "a compressed tensor": torch.eye(8).to_sparse_csr().to(placed.device),
    }  # fmt: skip


def said_by(call):
    """(kind, message) of the error."""
    with pytest.raises((TypeError, ValueError, RuntimeError, NotImplementedError)) as raised:
        call()
    return raised.value


def expected(label):
    dense = "expected a dense tensor, got one of layout torch.sparse_"
    return dense if label.endswith("tensor") else "expected a tensor of PyTorch, got "


CASES = [(name, argument) for name, (_, inputs) in good_inputs().items() for argument in inputs]


@pytest.mark.parametrize("label", bad_values())
@pytest.mark.parametrize("name, argument", CASES)
def test_what_is_no_dense_tensor_is_named(name, argument, label):
    """Without a gradient, with one, and under vmap, where nothing is plain."""
    function, inputs = good_inputs()[name]
    function(**inputs)
    message = f"{name.split()[0]}: {argument}: {expected(label)}"
    for grad in (False, True) if "inplace" not in name else (False,):
        given = {k: t.clone().requires_grad_(grad) if t.is_floating_point() else t for k, t in inputs.items()}
        error = said_by(lambda: function(**{**given, argument: bad_values()[label]}))
        assert isinstance(error, TypeError) and str(error).startswith(message), (grad, error)
        assert "During handling" not in "".join(traceback.format_exception(error))
    other = next(key for key in inputs if key != argument)
    one = inputs[other].unsqueeze(0)
    error = said_by(lambda: torch.vmap(lambda t: function(**{**inputs, other: t, argument: bad_values()[label]}))(one))
    assert isinstance(error, TypeError) and str(error).startswith(message), error


@pytest.mark.parametrize("label", ["None", "a list", "an array"])
def test_in_fake_mode(label):
    value = bad_values()[label]
    with FakeTensorMode():
        x = torch.empty(2, 8)
        assert ops.linear(x, torch.empty(5, 8)).shape == (2, 5)
        error = said_by(lambda: ops.linear(x, value))
    assert isinstance(error, TypeError) and str(error).startswith("linear: weight: expected a tensor of PyTorch, got ")


def test_meta_tensors():
    x, weight = torch.empty(2, 8, device="meta"), torch.empty(5, 8, device="meta")
    assert ops.linear(x, weight).shape == (2, 5)
    error = said_by(lambda: ops.linear(x, None))
    assert str(error) == "linear: weight: expected a tensor of PyTorch, got None"


def test_tensors_of_another_kind_are_reported_as_by_the_library():
    """Dense tensors that do not fit: the library's own message comes through."""
    x, weight = placed.randn(2, 8), placed.randn(5, 8)
    for bad, kind, message in (
        (weight[:, :7].contiguous(), ValueError, r"linear_fwd: weight: expected f32 \[5, 8\], got f32 \[5, 7\]"),
        (weight.int(), TypeError, "linear_fwd: weight: expected .*, got i32"),
        (weight.bool(), TypeError, "linear_fwd: weight: expected a dtype of the library, got bool"),
        (weight[0], ValueError, "linear_fwd: weight: expected .*rank 2, got .*"),
    ):
        for given in (x, x.clone().requires_grad_()):
            with pytest.raises(kind, match=message):
                ops.linear(given, bad)


def test_compiled():
    """A compiled function has what an eager one has, but Dynamo's own words for what it cannot trace."""
    x = placed.randn(2, 8)
    compiled = torch.compile(lambda x, weight: ops.linear(x, weight), backend="eager", fullgraph=True)
    weight = placed.randn(5, 8)
    assert torch.equal(compiled(x, weight), ops.linear(x, weight))
    with pytest.raises(Exception, match="weight|None"):
        compiled(x, None)


def test_no_gradient_is_recorded_for_an_op_without_one():
    q, scale = placed.ones(2, 8).to(torch.int8), placed.ones(2).requires_grad_()
    with pytest.raises(NotImplementedError, match="tegula.dequantize_int8: expected tensors without gradients"):
        ops.dequantize_int8(q, scale)
