"""Peers of the products with quantised weights: PyTorch's packed and plain integer products, and its
linear layer on a weight that was widened beforehand.

Weights are packed by the library's own packing functions, whose args structs are written here field
by field: they take no context and are not in the op table."""

import ctypes
import functools
import math
import pathlib

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem
from tegula_call import Library, View, read_constants

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include"
CONSTANTS = read_constants(HEADERS)
DTYPES = {torch.int8: "I8", torch.uint8: "U8", torch.float32: "F32", torch.float16: "F16",
          torch.float8_e4m3fn: "F8_E4M3"}


class PackArgs(ctypes.Structure):
    """Of tg_linear_int4_pack; the others' are beginnings of it with fewer tensors."""
    _fields_ = [("weight", View), ("scale", View), ("zero_point", View), ("packed", View),
                ("columns", ctypes.c_int64), ("group_size", ctypes.c_int64)]


class Fp8PackArgs(ctypes.Structure):
    _fields_ = [("weight", View), ("scale", View), ("packed", View)]


def view(tensor):
    v = View(data=tensor.data_ptr(), dtype=CONSTANTS["TG_" + DTYPES[tensor.dtype]],
             ndim=tensor.dim())
    for axis in range(tensor.dim()):
        v.shape[axis] = tensor.shape[axis]
        v.stride[axis] = tensor.stride(axis)
    return v


def loaded_library():
    """The library that the caller has opened."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line.split()[-1] for line in maps if "libtegula.so" in line]
    return ctypes.CDLL(paths[0])


def pack(name, args, size, **tensors):
    """Calls tg_<name>_pack with these tensors, which may be on a GPU, in host memory; `size` gives
    the bytes that it wants."""
    host = {slot: tensor.cpu() for slot, tensor in tensors.items()}
    for slot, tensor in host.items():
        setattr(args, slot, view(tensor))
    lib = loaded_library()
    size_of = getattr(lib, f"tg_{name}_packed_bytes")
    size_of.restype = ctypes.c_int64
    packed = torch.empty(size(size_of), dtype=torch.uint8, device="cpu")
    args.packed = view(packed)
    status = getattr(lib, f"tg_{name}_pack")(ctypes.byref(args), None)
    if status:
        raise RuntimeError(f"tg_{name}_pack returned {status}")
    return packed.to(next(iter(tensors.values())).device)


KEPT = 8  # weights: cases of one weight follow each other, each with several sets


def device():
    """Where new tensors are."""
    return torch.empty(0).device


def seed():
    """That this problem is made from; a device other than the CPU has the same."""
    return torch.initial_seed()


@functools.lru_cache(KEPT)
def int8_weight(out, cols, of_device, of_seed):
    """(codes, scale, packed)"""
    weight = torch.randint(-127, 128, (out, cols), dtype=torch.int8)
    scale = (0.5 + torch.rand(out)) / 74 / math.sqrt(cols)
    return weight, scale, pack("linear_int8", PackArgs(),
                               lambda f: f(ctypes.c_int64(out), ctypes.c_int64(cols)),
                               weight=weight, scale=scale)


def linear_int8(words, backward, dtype):
    rows, cols, out = words.extents
    dynamic = words.flag("dynamic")
    words.done()
    x = torch.randn(rows, cols, dtype=dtype)
    weight, scale, packed = int8_weight(out, cols, device(), seed())
    fields = dict(x=x, weight=packed, y=torch.empty(rows, out, dtype=dtype),
                  mode="TG_INT8_DYNAMIC" if dynamic else "TG_INT8_WEIGHT_ONLY")
    if dynamic and x.device.type == "cpu":
        peers = dynamic_peers(x, weight, scale)
        if dtype == torch.bfloat16:
            peers.append(own_linear(x, widen_int8(weight, scale, dtype)))
        return Problem(fields, peers, tolerance=0.05)
    wide = widen_int8(weight, scale, dtype)
    peers = [widened_peer(x, wide)]
    if dynamic:
        peers.append(cublas_int8(x, weight))
        return Problem(fields, peers, tolerance=0.05)
    scales = scale.to(dtype)
    if dtype != torch.float32:
        peers.append(Peer("torch", lambda: {"y": torch._weight_int8pack_mm(x, weight, scales)},
                          "_weight_int8pack_mm"))
    return Problem(fields, peers, tolerance=0.05)


def widen_int8(weight, scale, dtype):
    return (weight.float() * scale[:, None]).to(dtype)


def widened_peer(x, wide):
    """On a GPU cuBLAS."""
    return Peer("torch", lambda: {"y": F.linear(x, wide)}, "weight widened beforehand")


def cublas_int8(x, weight):
    """The integer product alone, of rows that were quantised beforehand, to 32 bits: it has none of our
    results."""
    q = torch.randint(-127, 128, x.shape, dtype=torch.int8)
    transposed = weight.t()

    def run():
        torch._int_mm(q, transposed)
        return {}

    return Peer("cublas_int8", run, "_int_mm alone, of integers")


def own_linear(x, weight):
    """Our product without quantised operands."""
    library = Library(loaded_library()._name, HEADERS, torch.get_num_threads())
    y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype)
    call = library.call("linear_fwd", dict(x=x, weight=weight, y=y))

    def run():
        call()
        return {"y": y}

    return Peer("linear", run, "ours", library.version)


def dynamic_peers(x, weight, scale):
    """Quantises x each time, as a layer does; the integer product is oneDNN's."""
    transposed = weight.t()

    def int_mm():
        step = x.float().abs().amax(1, keepdim=True) / 127
        q = torch.round(x.float() / step).to(torch.int8)
        return {"y": (torch._int_mm(q, transposed) * step * scale).to(x.dtype)}

    return [Peer("torch", int_mm, "_int_mm")]


@functools.lru_cache(KEPT)
def int4_weight(out, cols, group_size, half, zero_points, dtype, of_device, of_seed):
    """(codes, scale, offset, packed, widened)"""
    groups = -(-cols // group_size)
    values = torch.randint(0, 16, (out, cols), dtype=torch.uint8)
    scale = (0.5 + torch.rand(out, groups)) / 5 / math.sqrt(cols)
    scale = scale.to(torch.float16 if half else torch.float32)
    zero = torch.randint(0, 16, (out, groups), dtype=torch.uint8)
    even = F.pad(values, (0, cols % 2))
    weight = (even[:, 0::2] | even[:, 1::2] << 4).contiguous()
    args = PackArgs(columns=cols, group_size=group_size)
    packed = pack("linear_int4", args, lambda f: f(ctypes.byref(args)), weight=weight, scale=scale,
                  **(dict(zero_point=zero) if zero_points else {}))
    offset = zero if zero_points else torch.full_like(zero, 8)

    def spread(t):
        return t.float().repeat_interleave(group_size, 1)[:, :cols]

    wide = ((values.float() - spread(offset)) * spread(scale)).to(dtype)
    return values, scale, offset, packed, wide


def linear_int4(words, backward, dtype):
    rows, cols, out = words.extents
    group_size = words.number("g", 128)
    half, zero_points = words.flag("sf16"), words.flag("zp")
    words.done()
    x = torch.randn(rows, cols, dtype=dtype)
    values, scale, offset, packed, wide = int4_weight(out, cols, group_size, half, zero_points,
                                                      dtype, device(), seed())
    peers = [widened_peer(x, wide)]
    if cols % group_size == 0 and out % 16 == 0 and x.device.type == "cpu":
        theirs = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values.int(), 1)
        # theirs: (value - 8) * scale + shift, groups first
        shift = (8 - offset.float()) * scale.float()
        pairs = torch.stack([scale.float(), shift], 2).transpose(0, 1).contiguous().to(dtype)
        peers.append(Peer("torch", lambda: {"y": torch.ops.aten._weight_int4pack_mm_for_cpu(
            x, theirs, group_size, pairs)}, "_weight_int4pack_mm_for_cpu"))
    return Problem(dict(x=x, weight=packed, y=torch.empty(rows, out, dtype=dtype)), peers,
                   tolerance=0.05)


@functools.lru_cache(KEPT)
def fp8_weight(out, cols, dtype, of_device, of_seed):
    """(packed, widened)"""
    blocks = -(-cols // 128)
    weight = torch.randn(out, cols).to(torch.float8_e4m3fn)
    scale = (0.5 + torch.rand(out, blocks)) / math.sqrt(cols)
    packed = pack("linear_fp8", Fp8PackArgs(),
                  lambda f: f(ctypes.c_int64(out), ctypes.c_int64(cols)), weight=weight, scale=scale)
    return packed, (weight.float() * scale.repeat_interleave(128, 1)[:, :cols]).to(dtype)


def linear_fp8(words, backward, dtype):
    rows, cols, out = words.extents
    words.done()
    x = torch.randn(rows, cols, dtype=dtype)
    packed, wide = fp8_weight(out, cols, dtype, device(), seed())
    return Problem(dict(x=x, weight=packed, y=torch.empty(rows, out, dtype=dtype)),
                   [widened_peer(x, wide)], tolerance=0.05)


def e4m3_rows(t):
    """(codes, a scale for each row)"""
    scale = (t.float().abs().amax(1) / 448).clamp(min=2.0**-126)
    return (t.float() / scale[:, None]).to(torch.float8_e4m3fn), scale


def linear_fp8_fp8(words, backward, dtype):
    """On a GPU beside cuBLAS in x's dtype and PyTorch's product with scales of rows and columns, whose sums
    stay in the tensor core (rowwise_fast) or leave it as ours do (rowwise)."""
    rows, cols, out = words.extents
    codes, fast = words.flag("xf8"), words.flag("fast")
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(out, cols) / math.sqrt(cols)
    (q, x_scale), (w, scale) = e4m3_rows(x), e4m3_rows(weight)
    fields = dict(x=q if codes else x, weight=w, weight_scale=scale, y=torch.empty(rows, out, dtype=dtype),
                  allow_fast_accum=fast, **(dict(x_scale=x_scale) if codes else {}))
    peers = [widened_peer((q.float() * x_scale[:, None]).to(dtype) if codes else x, (w.float() * scale[:, None]).to(dtype))]
    if dtype == torch.bfloat16 and x.device.type != "cpu":
        peers += [Peer(impl, lambda fast=fast: {"y": torch._scaled_mm(q, w.t(), scale_a=x_scale[:, None], scale_b=scale[None, :],
                                                                      out_dtype=dtype, use_fast_accum=fast)}, "_scaled_mm, of codes")
                  for impl, fast in (("rowwise", False), ("rowwise_fast", True))]
    return Problem(fields, peers, tolerance=0.05)


BUILDERS = dict(linear_int8=linear_int8, linear_int4=linear_int4, linear_fp8=linear_fp8, linear_fp8_fp8=linear_fp8_fp8)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "linear_int8": ["64x3072x768"],
    "linear_int4": ["64x3072x768_g32_sf16", "64x3072x768_g128_sf16_zp"],
    "linear_fp8": ["64x3072x768"],
    "linear_fp8_fp8": ["64x3072x768"],
}
