"""Functions of tegula.ops and their equivalents in PyTorch and Liger-Kernel: shapes, inputs, implementations."""

import dataclasses
import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from . import liger_package, model_formulas
from .qwen3_sizes import VOCABULARY
from .steps.step_cases import DTYPES

EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class FunctionCase:
    op: str
    dir: str  # fwd, or fwdbwd: with the gradients of all inputs that have one
    dtype: str
    extents: tuple

    @property
    def shape(self):
        if self.op in HEADS:
            batch, heads, kv_heads, tokens, dim = self.extents
            return f"b{batch}_h{heads}_kv{kv_heads}_s{tokens}_d{dim}" + "_causal" * (self.op == "attention")
        return "x".join(map(str, self.extents))

    @property
    def identity(self):
        return dict(op=self.op, dir=self.dir, dtype=self.dtype, shape=self.shape)

    @property
    def name(self):
        return f"{self.op} {self.dir} {self.dtype} {self.shape}"


@dataclasses.dataclass(frozen=True)
class Function:
    inputs: Callable  # (draw, *extents) -> (tensors that have gradients, tensors that have none)
    torch: Callable  # (*tensors), as the models' own code computes it
    tegula: Callable  # (tegula.ops) -> function
    liger: Callable | None = None  # (liger_kernel.transformers.functional) -> function
    flops: Callable = lambda *extents: 0  # of the forward, if it is bound by arithmetic


# ---- in PyTorch ----


def llama_norm(x, weight):
    return model_formulas.llama_norm(x, weight, EPS)


def add_norm(x, residual, weight):
    return model_formulas.llama_add_norm(x, residual, weight, EPS)


def rope(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return model_formulas.rotated(q, cos, sin), model_formulas.rotated(k, cos, sin)


def qk_norm_rope(q, k, q_weight, k_weight, cos, sin):
    return rope(llama_norm(q, q_weight), llama_norm(k, k_weight), cos, sin)


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


# ---- inputs; draw(*shape) is random, draw.ids(n, below) too ----


def row_and_weight(draw, rows, cols):
    return (draw(rows, cols), draw(cols)), ()


def heads_of(draw, batch, heads, tokens, dim):
    """The memory layout of a projection's output: tokens before heads."""
    return draw(batch, tokens, heads, dim).transpose(1, 2)


def q_and_k(draw, batch, heads, kv_heads, tokens, dim):
    return heads_of(draw, batch, heads, tokens, dim), heads_of(draw, batch, kv_heads, tokens, dim)


def tables(draw, tokens, dim):
    angle = draw(1, tokens, dim)
    return angle.cos(), angle.sin()


HEADS = ("rope", "qk_norm_rope", "attention")
FUNCTIONS = {
    "rms_norm": Function(row_and_weight, llama_norm, lambda ops: lambda x, w: ops.rms_norm(x, w, EPS),
                         lambda liger: lambda x, w: liger.liger_rms_norm(x, w, EPS)),
    "add_rms_norm": Function(
        lambda draw, rows, cols: ((draw(rows, cols), draw(rows, cols), draw(cols)), ()), add_norm,
        lambda ops: lambda x, r, w: ops.add_rms_norm(x, r, w, EPS),
        lambda liger: lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, EPS)),
    "layer_norm": Function(
        lambda draw, rows, cols: ((draw(rows, cols), draw(cols), draw(cols)), ()),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        lambda ops: ops.layer_norm, lambda liger: lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5)),
    "silu": Function(lambda draw, rows, cols: ((draw(rows, cols),), ()), F.silu, lambda ops: ops.silu),
    "gelu": Function(lambda draw, rows, cols: ((draw(rows, cols),), ()), F.gelu, lambda ops: ops.gelu),
    "swiglu": Function(lambda draw, rows, cols: ((draw(rows, cols), draw(rows, cols)), ()), model_formulas.swiglu,
                       lambda ops: ops.swiglu, lambda liger: liger.liger_swiglu),
    "geglu": Function(lambda draw, rows, cols: ((draw(rows, cols), draw(rows, cols)), ()), model_formulas.geglu,
                      lambda ops: lambda gate, up: ops.geglu(gate, up, approximate="tanh"), lambda liger: liger.liger_geglu),
    "softmax": Function(lambda draw, rows, cols: ((draw(rows, cols),), ()), functools.partial(F.softmax, dim=-1),
                        lambda ops: ops.softmax, lambda liger: liger.liger_softmax),
    "rope": Function(lambda draw, *e: (q_and_k(draw, *e), tables(draw, *e[3:])), rope,
                     lambda ops: ops.rope, lambda liger: liger.liger_rope),
    "qk_norm_rope": Function(
        lambda draw, *e: ((*q_and_k(draw, *e), draw(e[4]), draw(e[4])), tables(draw, *e[3:])), qk_norm_rope,
        lambda ops: lambda *tensors: ops.qk_norm_rope(*tensors, EPS)),
    "attention": Function(
        lambda draw, *e: ((*q_and_k(draw, *e), heads_of(draw, e[0], e[2], *e[3:])), ()), causal,
        lambda ops: lambda q, k, v: ops.attention(q, k, v, causal=True),
        flops=lambda batch, heads, kv_heads, tokens, dim: 2 * batch * heads * tokens * tokens * dim),
    "cross_entropy": Function(
        lambda draw, rows, cols: ((draw(rows, cols),), (draw.ids(rows, cols),)), model_formulas.loss_of_logits,
        lambda ops: ops.cross_entropy, lambda liger: liger.liger_cross_entropy),
    "linear_cross_entropy": Function(
        lambda draw, rows, hidden, vocab: ((draw(rows, hidden), draw(vocab, hidden) * 0.02), (draw.ids(rows, vocab),)),
        model_formulas.loss_of_hidden, lambda ops: ops.linear_cross_entropy, lambda liger: liger.liger_fused_linear_cross_entropy,
        flops=lambda rows, hidden, vocab: 2 * rows * hidden * vocab),
}  # fmt: skip


# ---- cases ----

BOTH = ("fwd", "fwdbwd")
NORMS = {  # rows x cols that other projects measure, from [8, 256] tokens on
    "f16": [(2048, 2048), (8192, 2048), (2048, 4096), (16384, 2048), (16384, 4096)],
    "bf16": [(1024, 2048), (1024, 4096), (16384, 2048), (16384, 4096), (32768, 4096)],
    "f32": [(1024, 2048), (1024, 4096), (16384, 2048), (16384, 4096)],
}
HEAD_ROWS = [256 << power for power in range(8)]
EVERY = {
    "rms_norm": (8192, 4096), "add_rms_norm": (8192, 4096), "layer_norm": (8192, 4096), "silu": (8192, 12288),
    "gelu": (8192, 12288), "swiglu": (8192, 12288), "geglu": (8192, 12288), "softmax": (4096, 32768),
    "rope": (1, 32, 8, 4096, 128), "qk_norm_rope": (1, 32, 8, 4096, 128), "attention": (1, 32, 8, 4096, 128),
    "cross_entropy": (4096, VOCABULARY), "linear_cross_entropy": (4096, 4096, VOCABULARY),
}  # fmt: skip
COMMANDS = {
    "rmsnorm": [FunctionCase("rms_norm", direction, dtype, extents)
                for dtype in DTYPES for extents in NORMS[dtype] for direction in BOTH],
    "lce": [FunctionCase("linear_cross_entropy", "fwdbwd", "bf16", (rows, 4096, VOCABULARY)) for rows in HEAD_ROWS],
    "ops": [FunctionCase(op, direction, "bf16", extents) for op, extents in EVERY.items() for direction in BOTH],
}  # fmt: skip
SMALL = {  # for a CPU
    "rmsnorm": [FunctionCase("rms_norm", "fwdbwd", "f32", (64, 128))],
    "lce": [FunctionCase("linear_cross_entropy", "fwdbwd", "f32", (16, 32, 320))],
    "ops": [FunctionCase(op, direction, "f32", (1, 4, 2, 16, 32) if op in HEADS else (16, 32, 320)[: len(extents)])
            for op, extents in EVERY.items() for direction in BOTH],
}  # fmt: skip


def functions_of(case, wanted):
    """impl -> function, for the wanted implementations that have the op."""
    from tegula import ops

    function, found = FUNCTIONS[case.op], {}
    if "torch" in wanted:
        found["torch"] = function.torch
    if "compile" in wanted:
        found["compile"] = torch.compile(function.torch, dynamic=False)
    if "liger" in wanted and function.liger and liger_package.find():
        liger_package.use_triton()
        from liger_kernel.transformers import functional

        found["liger"] = function.liger(functional)
    if "tegula" in wanted:
        found["tegula"] = function.tegula(ops)
    return found
