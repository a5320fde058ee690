"""tegula.ops with arguments that it cannot take, whose errors name them, and with tensors of two dtypes."""

import inspect
import re

import pytest

np = pytest.importorskip("numpy", reason="without NumPy: no arrays of others")
torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

GRAMMAR = re.compile(r"(tegula\.)?\w+: \w+(\[\d+(, \d+)*\])?: expected .*, got |(tegula\.)?\w+: expected tensors without gradients")


def good_arguments():
    """A right call of each function, by name."""
    torch.manual_seed(0)
    x, w, q, k = placed.randn(2, 3, 8), placed.rand(8), placed.randn(2, 4, 5, 6), placed.randn(2, 2, 5, 6)
    cos, sixes, ids, table, weight = placed.randn(1, 5, 6), placed.ones(6), placed.randint(0, 7, (2, 3)), placed.randn(7, 8), placed.randn(5, 8)
    q8, s8, _ = ops.quantize_int8(weight)
    wide = placed.randn(5, 64)
    q4, s4, _ = ops.quantize_int4(wide)
    f8, one = weight.to(torch.float8_e4m3fn), placed.ones(1, 1)
    chosen, weights = placed.tensor([[0, 2], [3, 1], [1, 0]]), placed.rand(3, 2)
    offsets, slot, row = ops.moe_plan(chosen, 4)
    blocks, scales = placed.ones(4, 5, 2, 16).to(torch.uint8), placed.full((4, 5, 2), 127).to(torch.uint8)
    counts = placed.full((2,), 5, dtype=torch.int32)
    gated = {"gate": x, "up": x}
    return {
        "rms_norm": {"x": x, "weight": w, "out": placed.empty(2, 3, 8)}, "add_rms_norm": {"x": x, "residual": x, "weight": w},
        "layer_norm": {"x": x, "weight": w, "bias": w}, "rms_norm_swiglu": {"x": x, "gate": x, "weight": w},
        "softmax": {"x": x}, "silu": {"x": x}, "gelu": {"x": x}, "swiglu": gated, "geglu": gated, "swiglu_clamped": gated,
        "rope": {"q": q, "k": k, "cos": cos, "sin": cos},
        "qk_norm_rope": {"q": q, "k": k, "q_weight": sixes, "k_weight": sixes, "cos": cos, "sin": cos},
        "embedding": {"ids": ids, "table": table, "positions": table, "position_ids": ids},
        "linear": {"x": x, "weight": weight, "bias": placed.ones(5), "residual": placed.ones(2, 3, 5)},
        "linear_swiglu": {"x": x, "gate_weight": weight, "up_weight": weight},
        "cross_entropy": {"logits": x, "targets": ids},
        "linear_cross_entropy": {"hidden": x, "weight": table, "targets": ids, "bias": placed.ones(7)},
        "fused_linear_cross_entropy": {"hidden": x, "weight": table, "target": ids},
        "attention": {"q": q, "k": k, "v": k, "sinks": placed.ones(4), "key_start": counts * 0, "key_count": counts},
        "attention_naive": {"q": q, "k": k, "v": k},
        "quantize_int8": {"x": x}, "dequantize_int8": {"q": q8, "scale": s8}, "quantize_int4": {"x": wide},
        "dequantize_int4": {"q": q4, "scale": s4}, "pack_int8": {"q": q8, "scale": s8}, "pack_int4": {"q": q4, "scale": s4},
        "dequantize_mxfp4": {"blocks": placed.ones(3, 2, 16).to(torch.uint8), "scales": placed.ones(3, 2).to(torch.uint8)},
        "pack_fp8": {"weight": f8, "scale": one}, "linear_int8": {"x": x, "weight": ops.pack_int8(q8, s8), "bias": placed.ones(5)},
        "linear_int4": {"x": wide, "weight": ops.pack_int4(q4, s4), "bias": placed.ones(5)},
        "linear_fp8": {"x": x, "weight": ops.pack_fp8(f8, one), "bias": placed.ones(5)},
        "linear_fp8_fp8": {"x": x, "weight": f8, "weight_scale": placed.ones(5), "bias": placed.ones(5)},
        "topk_router": {"logits": placed.randn(2, 3, 8), "token_mask": ids, "k": 2, "sums": True}, "moe_plan": {"indices": chosen, "experts": 4},
        "grouped_linear": {"x": placed.randn(3, 8), "weight": placed.randn(4, 5, 8), "offsets": offsets, "bias": placed.ones(4, 5), "slot": slot, "row": row},
        "pack_mxfp4": {"blocks": blocks, "scales": scales},
        "grouped_linear_mxfp4": {"x": placed.randn(3, 64), "weight": ops.pack_mxfp4(blocks, scales), "offsets": offsets, "bias": placed.ones(4, 5),
                                 "slot": slot, "row": row},
        "moe_combine": {"y": placed.randn(6, 8), "row": row, "weights": weights, "residual": placed.ones(3, 8), "slot": slot},
        "moe_mlp": {"x": placed.randn(3, 8), "weights": weights, "offsets": offsets, "slot": slot, "row": row, "gate_up": placed.randn(4, 10, 8),
                    "down": placed.randn(4, 8, 5), "gate_up_bias": placed.ones(4, 10), "down_bias": placed.ones(4, 8)},
        "sample": {"logits": placed.randn(2, 9), "history": ids, "history_lengths": placed.tensor([1, 2]), "seeds": placed.tensor([3, 4]), "seed": 1},
    }  # fmt: skip


def wrong_values():
    shapes = {f"rank {n}": placed.ones((1, 1, 1, 1, 2, 3, 8)[7 - n :]) for n in (0, 1, 2, 3, 4, 5, 7)}
    dtypes = {str(d): placed.ones(2, 3, 8).to(d) for d in (torch.complex64, torch.int32, torch.bool, torch.bfloat16)}
    others = {"ndarray": np.ones((2, 3, 8), "f4"), "list": [1.0], "float": 1.5, "str": "a", "None": None}
    return {**shapes, **dtypes, **others, "sparse": torch.eye(8).to_sparse().to(placed.device), "empty": placed.ones(0)}


FUNCTIONS = [name for name in ops.__all__ if name not in ("PackedWeight", "PackedExperts", "adamw_step", "clip_grad_norm_", "global_norm")]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_name_the_argument(name, grad):
    """A wrong argument is served (None where it is optional, a dtype that is promoted) or named by the error."""
    function, good = getattr(ops, name), good_arguments()[name]
    assert good.keys() <= inspect.signature(function).parameters.keys()
    function(**good)
    refused = 0
    for argument in good:
        for label, value in wrong_values().items():
            if argument in ("seed", "k", "sums", "experts") or (grad and not (isinstance(value, torch.Tensor) and value.is_floating_point())):
                continue
            call = {**good, argument: value}
            if grad:
                call = {key: tensor.clone().requires_grad_() if isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
                        and tensor.layout is torch.strided else tensor for key, tensor in call.items() if key != "out"}
            try:
                function(**call)
                tegula.check()
            except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
                assert GRAMMAR.match(str(error)), (argument, label, type(error), str(error))
                refused += 1
    assert refused >= (2 if grad else 10)


@pytest.mark.parametrize("call, kind, message", [
    (lambda: ops.attention(*[placed.ones(4, 8)] * 3), ValueError, r"attention: q: expected \[batch, heads, tokens, head_dim\], got \[4, 8\]"),
    (lambda: ops.attention(*[placed.ones(2, 4, 8)] * 3), ValueError, r"attention: q: expected .*, got \[2, 4, 8\]"),
    (lambda: ops.rms_norm(np.ones((2, 8), "f4"), placed.ones(8)), TypeError,
     "rms_norm: x: expected a tensor of PyTorch, got <class 'numpy.ndarray'>"),
    (lambda: ops.swiglu(placed.ones(4, 8), placed.ones(3, 8)), ValueError, r"swiglu: up: expected \[4, \.\.\.\], got \[3, 8\]"),
    (lambda: ops.silu(placed.ones(2, 8, dtype=torch.complex64)), TypeError, "silu_fwd: x: expected a dtype of the library, got complex64"),
    (lambda: ops.linear(placed.ones(2, 8), None), TypeError, "linear: weight: expected a tensor of PyTorch, got None"),
    (lambda: ops.linear_int8(placed.ones(2, 8), placed.ones(5, 8)), TypeError, "linear_int8: weight: expected a PackedWeight, got"),
    (lambda: ops.clip_grad_norm_([np.ones(2)], 1.0), TypeError, r"clip_grad_norm_: parameters\[0\]: expected a tensor of PyTorch"),
    (lambda: ops.global_norm([placed.ones(2), np.ones(2)]), TypeError, r"global_norm: tensors\[1\]: expected a tensor of PyTorch"),
])  # fmt: skip
def test_messages(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_weight_has_its_rank_with_gradients_too():
    """Only hidden states and logits may have any rank: a weight of three axes is no table of rows."""
    hidden, weight, targets = placed.randn(2, 8, requires_grad=True), placed.randn(2, 3, 8), placed.tensor([1, 2])
    with pytest.raises(ValueError, match="linear_cross_entropy_fwdbwd: weight: expected rank 2, got rank 3"):
        ops.linear_cross_entropy(hidden, weight, targets)


# ---- two dtypes ----


def clamped(gate, up):
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


GATED = {
    "swiglu": (ops.swiglu, lambda gate, up: F.silu(gate) * up),
    "geglu": (ops.geglu, lambda gate, up: F.gelu(gate) * up),
    "geglu tanh": (lambda g, u: ops.geglu(g, u, approximate="tanh"), lambda g, u: F.gelu(g, approximate="tanh") * u),
    "swiglu_clamped": (ops.swiglu_clamped, clamped),
}
PAIRS = [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16, torch.bfloat16), (torch.float16, torch.float32)]


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
@pytest.mark.parametrize("name", GATED)
def test_gates_of_two_dtypes(name, dtypes):
    """PyTorch's dtype, and its rounding: the activation has that of the gate."""
    torch.manual_seed(0)
    gate, up = (placed.randn(3, 8).to(dtype).requires_grad_() for dtype in dtypes)
    y, expected = (function(gate, up) for function in GATED[name])
    assert y.dtype == expected.dtype == torch.promote_types(*dtypes)
    near = {"rtol": 2**-7 if dtypes[0] != torch.float32 else 1e-6, "atol": 1e-6}
    torch.testing.assert_close(y, expected, **near)
    for ours, theirs in zip(*(torch.autograd.grad(out.float().sum(), (gate, up)) for out in (y, expected))):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=2**-7)
    with torch.no_grad():
        assert torch.equal(GATED[name][0](gate, up), y)
    compiled = torch.compile(GATED[name][0], fullgraph=True, backend="eager")
    assert torch.equal(compiled(gate, up), y)


def test_gates_of_two_dtypes_otherwise():
    gate, up = placed.randn(3, 8).bfloat16(), placed.randn(3, 8)
    once = ops.swiglu(gate, up, rounding="once")
    assert torch.equal(once, ops.swiglu(gate.float(), up))
    with pytest.raises(TypeError, match="swiglu: out: expected none beside two dtypes, torch.bfloat16 of gate and torch.float32"):
        ops.swiglu(gate, up, out=placed.empty(3, 8))


def norm(x, weight):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight.float()


def test_rows_and_weights_of_two_dtypes():
    torch.manual_seed(0)
    x, half = placed.randn(3, 8, requires_grad=True), placed.randn(3, 8).bfloat16()
    weight = placed.rand(8).bfloat16().requires_grad_()
    y = ops.rms_norm(x, weight)
    torch.testing.assert_close(y, norm(x, weight))
    assert [g.dtype for g in torch.autograd.grad(y.sum(), (x, weight))] == [torch.float32, torch.bfloat16]
    with torch.no_grad():
        assert torch.equal(ops.rms_norm(x, weight, out=torch.empty_like(x)), y)
    torch.testing.assert_close(ops.layer_norm(x, weight, weight), F.layer_norm(x, (8,), weight.float(), weight.float()))
    for first, second in ((x, half), (half, x)):
        y, total = ops.add_rms_norm(first, second, weight)
        torch.testing.assert_close(total, first + second)
        torch.testing.assert_close(y, norm(first + second, weight))
    torch.testing.assert_close(ops.rms_norm_swiglu(x, half, weight), norm(x, weight) * F.silu(half.float()))


def test_rotations_of_two_dtypes():
    """Each in its own dtype; tables narrower than the heads are widened."""
    torch.manual_seed(0)
    q, k, cos = placed.randn(1, 2, 5, 6), placed.randn(1, 1, 5, 6).bfloat16(), placed.randn(1, 5, 6).bfloat16()
    rotated = ops.rope(q, k, cos, cos)
    assert [t.dtype for t in rotated] == [torch.float32, torch.bfloat16]
    assert torch.equal(rotated[0], ops.rope(q, None, cos.float(), cos.float())[0])
    assert torch.equal(rotated[1], ops.rope(k, None, cos, cos)[0])
    ones = placed.ones(6).bfloat16()
    normed = ops.qk_norm_rope(q, q, ones, ones, cos, cos)[0]
    assert torch.equal(normed, ops.qk_norm_rope(q, q, ones.float(), ones.float(), cos.float(), cos.float())[0])


def test_an_autocast_hook_of_one_projection():
    """up_proj gives f32 although autocast is on; the patched MLP promotes as the stock one."""
    transformers = pytest.importorskip("transformers", reason="without transformers: no models to patch")
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2)
    torch.manual_seed(0)
    mlp = LlamaMLP(config).to(placed.device)
    mlp.up_proj.register_forward_hook(lambda module, given, y: y.float())
    x, results = placed.randn(3, 16), []
    for patched in (False, True):
        if patched:
            tegula.apply(model_type="llama")
        try:
            with torch.autocast(placed.device, dtype=torch.bfloat16):
                results.append(mlp(x))
        finally:
            tegula.reset()
    assert results[0].dtype == results[1].dtype
    torch.testing.assert_close(results[1], results[0], rtol=2**-7, atol=2**-8)
