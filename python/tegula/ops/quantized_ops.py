"""`tegula.ops`: quantisation to integers with scales and back, and linear layers with quantised weights. No gradients.

A weight is packed once, on the CPU, for one kind of product:

    q, scale, zero_point = ops.quantize_int8(linear.weight.detach())
    packed = ops.pack_int8(q, scale, zero_point)
    y = ops.linear_int8(x, packed, linear.bias.detach())
"""

from typing import NamedTuple

import torch

from .. import _core
from ..autograd.conventions import choose, expect_tensor, rows
from ..autograd.op_function import Op
from ..enumerations import GRANULARITY, MODE

Quantized = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def groups(cols, group_size):
    return -(-cols // group_size) if group_size > 0 else 0


def int8_outputs(x, granularity, asymmetric):
    count = {1: 1, 2: x.shape[0], 3: x.shape[1]}[granularity]
    zero_point = x.new_empty(count, dtype=torch.int8) if asymmetric else None
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty(count, dtype=torch.float32), zero_point


_quantize_int8 = Op("quantize_int8", ["q", "scale", "zero_point"], int8_outputs, public=3, more=["bool asymmetric"])


def quantize_int8(x: torch.Tensor, *, granularity: str = "row", asymmetric: bool = False) -> Quantized:
    """(q, scale, zero_point) of x [..., cols]; tegula/quantize_int8.h. One scale for the whole "tensor", for each "row"
    or for each "column". zero_point is None unless asymmetric. q has the shape of x; scale and zero_point have rank 1."""
    number = choose("quantize_int8", "granularity", GRANULARITY, granularity)
    q, scale, zero_point = _quantize_int8(rows(expect_tensor("quantize_int8", "x", x)), number, asymmetric)
    return q.view(x.shape), scale, zero_point if asymmetric else None


_dequantize_int8 = Op(
    "dequantize_int8", ["x"],
    lambda q, scale, zero_point, granularity, dtype: (q.new_empty(q.shape, dtype=dtype),),
    more=["ScalarType dtype"],
)  # fmt: skip


def dequantize_int8(
    q: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None = None, *, granularity: str = "row",
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    """(q - zero_point) * scale in `dtype`; tegula/quantize_int8.h."""
    number = choose("dequantize_int8", "granularity", GRANULARITY, granularity)
    (x,) = _dequantize_int8(rows(expect_tensor("dequantize_int8", "q", q)), scale, zero_point, number, dtype)
    return x.view(q.shape)


def int4_outputs(x, group_size, asymmetric, scale_dtype):
    shape = (x.shape[0], groups(x.shape[1], group_size))
    zero_point = x.new_empty(shape, dtype=torch.uint8) if asymmetric else None
    q = x.new_empty((x.shape[0], (x.shape[1] + 1) // 2), dtype=torch.uint8)
    return q, x.new_empty(shape, dtype=scale_dtype), zero_point


_quantize_int4 = Op(
    "quantize_int4", ["q", "scale", "zero_point"], int4_outputs, public=3,
    more=["bool asymmetric", "ScalarType scale_dtype"],
)  # fmt: skip


def quantize_int4(
    x: torch.Tensor, *, group_size: int = 32, asymmetric: bool = False, scale_dtype: torch.dtype = torch.float32
) -> Quantized:
    """(q, scale, zero_point) of x [rows, cols], two columns in a byte, in groups of 32, 64 or 128 columns;
    tegula/quantize_int4.h. scale_dtype: f32 or f16."""
    q, scale, zero_point = _quantize_int4(x, group_size, asymmetric, scale_dtype)
    return q, scale, zero_point if asymmetric else None


_dequantize_int4 = Op(
    "dequantize_int4", ["x"],
    lambda q, scale, zero_point, group_size, cols, dtype: (q.new_empty((q.shape[0], cols), dtype=dtype),),
    more=["SymInt cols", "ScalarType dtype"],
)  # fmt: skip


def dequantize_int4(
    q: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None = None, *, group_size: int = 32,
    cols: int | None = None, dtype: torch.dtype = torch.float32,
) -> torch.Tensor:  # fmt: skip
    """[rows, cols] in `dtype`; tegula/quantize_int4.h. cols defaults to two for each byte; an odd number must be given."""
    if expect_tensor("dequantize_int4", "q", q).dim() != 2:
        raise ValueError(f"dequantize_int4: q: expected [rows, bytes], got {list(q.shape)}")
    (x,) = _dequantize_int4(q, scale, zero_point, group_size, 2 * q.shape[1] if cols is None else cols, dtype)
    return x


_dequantize_mxfp4 = Op(
    "dequantize_mxfp4", ["x"], lambda blocks, scales, dtype: (scales.new_empty((scales.shape[0], 32 * scales.shape[1]), dtype=dtype),),
    more=["ScalarType dtype"],
)  # fmt: skip


def dequantize_mxfp4(blocks: torch.Tensor, scales: torch.Tensor, *, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """[..., 32 * groups] in `dtype`, of blocks [..., groups, 16] and scales [..., groups]; tegula/dequantize_mxfp4.h."""
    expect_tensor("dequantize_mxfp4", "blocks", blocks)
    expect_tensor("dequantize_mxfp4", "scales", scales)
    if scales.dim() < 1 or blocks.shape != (*scales.shape, 16):
        raise ValueError(f"dequantize_mxfp4: blocks: expected [{', '.join(map(str, scales.shape))}, 16], got {list(blocks.shape)}")
    groups = scales.shape[-1]
    (x,) = _dequantize_mxfp4(blocks.reshape(-1, groups, 16), scales.reshape(-1, groups), dtype)
    return x.view(*scales.shape[:-1], 32 * groups)


# ---- products ----


class PackedWeight(NamedTuple):
    """A weight [out_features, in_features] packed by a pack_* function. `data`, [bytes] u8, has the layout of one op.
    To move it: packed._replace(data=packed.data.cuda())."""

    data: torch.Tensor
    out_features: int
    in_features: int


def pack(op, weight, columns_each=1, columns=None, group_size=0, **more):
    """columns_each: how many columns an element of the weight holds; columns: their number, if that is not all."""
    tensors = {"weight": weight, **more}
    for name, tensor in tensors.items():
        if tensor is not None or name != "zero_point":
            expect_tensor(op, name, tensor)
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight: expected rank 2, got rank {weight.dim()}")
    in_features = columns_each * weight.shape[1] if columns is None else columns
    host = {name: None if tensor is None else tensor.detach().cpu() for name, tensor in tensors.items()}
    host["weight"] = host["weight"].contiguous()
    count = _core.packed_bytes(op, **host, columns=in_features, group_size=group_size)
    data = torch.empty(count, dtype=torch.uint8)
    _core.pack(op, **host, packed=data, columns=in_features, group_size=group_size)
    return PackedWeight(data.to(weight.device), weight.shape[0], in_features)


def pack_int8(q: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None = None) -> PackedWeight:
    """A weight for `linear_int8`, from quantize_int8 by "row" or "tensor"; tegula/linear_int8.h."""
    return pack("linear_int8", q, scale=scale, zero_point=zero_point)


def pack_int4(
    q: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None = None, *, group_size: int = 32,
    cols: int | None = None,
) -> PackedWeight:  # fmt: skip
    """A weight for `linear_int4`, from quantize_int4; tegula/linear_int4.h."""
    return pack("linear_int4", q, 2, cols, group_size, scale=scale, zero_point=zero_point)


def pack_fp8(weight: torch.Tensor, scale: torch.Tensor) -> PackedWeight:
    """A weight for `linear_fp8`: float8_e4m3fn [out, in], scale [1, 1], [out, 1] or [out, ceil(in / 128)] f32;
    tegula/linear_fp8.h."""
    return pack("linear_fp8", weight, scale=scale)


def product(x, out_features, dtype):
    return (x.new_empty((x.shape[0], out_features), dtype=dtype),)


MORE = ["SymInt out_features", "ScalarType dtype"]
_linear_int8 = Op("linear_int8", ["y"], lambda x, weight, bias, mode, *more: product(x, *more), more=MORE)
_linear_int4 = Op("linear_int4", ["y"], lambda x, weight, bias, *more: product(x, *more), more=MORE)
_linear_fp8 = Op("linear_fp8", ["y"], lambda x, weight, bias, *more: product(x, *more), more=MORE)


def multiply(op, x, weight, bias, scalars, dtype):
    if not isinstance(weight, PackedWeight):
        raise TypeError(f"{op.name}: weight: expected a PackedWeight, got {type(weight)}")
    if expect_tensor(op.name, "x", x).shape[-1:] != (weight.in_features,):
        raise ValueError(f"{op.name}: x: expected [..., {weight.in_features}], got {list(x.shape)}")
    dtype = x.dtype if dtype is None else dtype
    (y,) = op(rows(x), weight.data, bias, *scalars, weight.out_features, dtype)
    return y.view(*x.shape[:-1], weight.out_features)


def linear_int8(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None, *, mode: str = "weight_only",
    dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """x @ W.T + bias with 8-bit weights from `pack_int8`; tegula/linear_int8.h. mode "dynamic" also quantises x, with a
    scale for each row. The result has the dtype of x, or f32."""
    return multiply(_linear_int8, x, weight, bias, (choose("linear_int8", "mode", MODE, mode),), dtype)


def linear_int4(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """x @ W.T + bias with 4-bit weights from `pack_int4`; tegula/linear_int4.h. The result has the dtype of x, or
    f32."""
    return multiply(_linear_int4, x, weight, bias, (), dtype)


def linear_fp8(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """x @ W.T + bias with e4m3 weights from `pack_fp8`; tegula/linear_fp8.h. The result has the dtype of x, or f32."""
    return multiply(_linear_fp8, x, weight, bias, (), dtype)


_linear_fp8_fp8 = Op(
    "linear_fp8_fp8", ["y"],
    lambda x, x_scale, weight, weight_scale, bias, allow_fast_accum, dtype: (x.new_empty((x.shape[0], weight.shape[0]), dtype=dtype),),
    more=["ScalarType dtype"],
)  # fmt: skip


def linear_fp8_fp8(
    x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, bias: torch.Tensor | None = None, *,
    x_scale: torch.Tensor | None = None, allow_fast_accum: bool = False, dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    """(x @ W.T) * x_scale[:, None] * weight_scale + bias with e4m3 operands; tegula/linear_fp8_fp8.h. x is float8_e4m3fn
    with x_scale [rows], or is quantised in the call, row by row. weight: float8_e4m3fn [out, in]; weight_scale: [out] or
    [1]. The result has the dtype of x, or f32; of x in float8 `dtype`, or bfloat16."""
    codes = expect_tensor("linear_fp8_fp8", "x", x).dtype == torch.float8_e4m3fn
    expect_tensor("linear_fp8_fp8", "weight", weight)
    if weight.dim() != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"linear_fp8_fp8: weight: expected [out, {', '.join(map(str, x.shape[-1:]))}], got {list(weight.shape)}")
    dtype = dtype or (torch.bfloat16 if codes else x.dtype)
    scale = None if x_scale is None else x_scale.reshape(-1)
    (y,) = _linear_fp8_fp8(rows(x), scale, weight, weight_scale, bias, allow_fast_accum, dtype)
    return y.view(*x.shape[:-1], weight.shape[0])
