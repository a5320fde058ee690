"""One-time costs: loading kernels, and tables of tuned values."""

import functools
import warnings

import torch

from . import _core, ops


def calls():
    """name: (shapes of the inputs with gradients, the op). Small calls of every op in both directions. Losses come twice:
    the gradient of a mean can be computed with the loss, that of per-token losses only afterwards."""
    table = lambda q: torch.ones((1, 16, 32), dtype=q.dtype, device=q.device)  # noqa: E731
    ids = lambda x: torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)  # noqa: E731
    rows = lambda w: torch.arange(w.numel(), dtype=torch.int32, device=w.device)  # noqa: E731
    heads = [(1, 2, 16, 32), (1, 2, 16, 32)]
    codes = lambda x, *shape: torch.zeros(shape, dtype=torch.uint8, device=x.device)  # noqa: E731
    packed = lambda x: ops.pack_mxfp4(codes(x, 1, 32, 2, 16), codes(x, 1, 32, 2))  # noqa: E731
    return {
        "rms_norm": ([(16, 64), (64,)], ops.rms_norm),
        "add_rms_norm": ([(16, 64), (16, 64), (64,)], ops.add_rms_norm),
        "layer_norm": ([(16, 64), (64,), (64,)], ops.layer_norm),
        "rms_norm_swiglu": ([(16, 64), (16, 64), (64,)], ops.rms_norm_swiglu),
        "softmax": ([(16, 64)], ops.softmax),
        "silu": ([(16, 64)], ops.silu),
        "gelu": ([(16, 64)], ops.gelu),
        "swiglu": ([(16, 64), (16, 64)], ops.swiglu),
        "geglu": ([(16, 64), (16, 64)], ops.geglu),
        "swiglu_clamped": ([(16, 64)], ops.swiglu_clamped),
        "rope": (heads, lambda q, k: ops.rope(q, k, table(q), table(q))),
        "qk_norm_rope": ([*heads, (32,), (32,)], lambda q, k, v, w: ops.qk_norm_rope(q, k, v, w, table(q), table(q))),
        "embedding": ([(16, 64)], lambda t: ops.embedding(ids(t), t)),
        "linear": ([(16, 64), (32, 64)], ops.linear),
        "linear_swiglu": ([(16, 64), (32, 64), (32, 64)], ops.linear_swiglu),
        "cross_entropy": ([(16, 64)], lambda x: ops.cross_entropy(x, ids(x))),
        "linear_cross_entropy": ([(16, 64), (32, 64)], lambda x, w: ops.linear_cross_entropy(x, w, ids(x))),
        "cross_entropy of each": ([(16, 64)], lambda x: ops.cross_entropy(x, ids(x), reduction="none")),
        "linear_cross_entropy of each": (
            [(16, 64), (32, 64)], lambda x, w: ops.linear_cross_entropy(x, w, ids(x), reduction="none"),
        ),
        "topk_router": ([(16, 64)], lambda x: ops.topk_router(x, 4)[0]),
        "grouped_linear": ([(8, 64), (1, 32, 64), (1, 32)], lambda x, w, b: ops.grouped_linear(x, w, rows(x)[:16:8], b)),
        "grouped_linear_mxfp4": ([(8, 64), (1, 32)], lambda x, b: ops.grouped_linear_mxfp4(x, packed(x), rows(x)[:16:8], b)),
        "moe_combine": (
            [(16, 64), (8, 2)], lambda y, w: ops.moe_combine(y, rows(w).view(8, 2), w, slot=rows(w)),
        ),
        "moe_mlp": (
            [(16, 64), (16, 1), (1, 64, 64), (1, 64, 32)],
            lambda x, w, up, down: ops.moe_mlp(x, w, rows(x)[:17:16], rows(x)[:16], rows(x)[:16].view(16, 1), up, down),
        ),
        "attention": ([*heads, heads[0]], lambda q, k, v: ops.attention(q, k, v, causal=True)),
        "attention_naive": ([*heads, heads[0]], lambda q, k, v: ops.attention_naive(q, k, v, causal=True)),
    }  # fmt: skip


def dtypes_of(device):
    return (torch.float32,) if device.type == "cpu" else (torch.float32, torch.bfloat16, torch.float16)


def load_kernels(index):
    try:
        _core.load_kernels(index)
    except NotImplementedError as error:  # the calls below load some of them
        warnings.warn(f"warmup_all_kernels: kernels are loaded when they are first needed: {error}", stacklevel=3)


ROWS = 4096
LAYERS = (
    (1024, 2048), (1024, 1024), (2048, 1024), (1024, 3072), (3072, 1024), (4096, 4096), (4096, 12288), (12288, 4096)
)  # fmt: skip


def measure_products(device, layers):
    """What `tegula tune` does: products of 16-bit linear layers (inputs, outputs), forward and backward."""
    stream = torch.cuda.current_stream(device).cuda_stream
    generator = torch.Generator(device).manual_seed(0)  # its own: the caller's random numbers stay what they are
    numbers = functools.partial(torch.randn, dtype=torch.bfloat16, device=device, generator=generator)
    for inputs, outputs in layers:
        x, w = (numbers(n, inputs).requires_grad_() for n in (ROWS, outputs))
        _core.tune(device.index, stream, True)
        try:
            y = ops.linear(x, w)
            torch.autograd.grad(y, (x, w), numbers(*y.shape))
        finally:
            _core.tune(device.index, stream, False)


def warmup_all_kernels(device: torch.device | str | None = None, tune: bool = False) -> list[str]:
    """Loads every kernel for the GPU. Then it runs, in each dtype, every op that has a backward, forward and backward,
    and AdamW's step, for the one-time work of PyTorch and cublasLt. `device` defaults to the current GPU, or to the CPU
    (where nothing is loaded) without one. With `tune` it first measures which kernels run the products of usual layers
    fastest on this GPU, as `tegula tune` does, and keeps the winners in the user's cache directory. Returns the names of
    the ops that ran. Errors are raised; a driver before CUDA 12.4, which cannot load kernels ahead of time, is a
    warning."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        load_kernels(device.index)
        if tune:
            measure_products(device, LAYERS)
    for dtype in dtypes_of(device):
        for shapes, op in calls().values():
            inputs = [torch.ones(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes]
            with torch.enable_grad():
                outs = op(*inputs)
                outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
                torch.autograd.grad(outs, inputs, [torch.ones_like(out) for out in outs])
        parameter = [torch.ones(64, dtype=dtype, device=device)]
        ops.adamw_step(*([x.clone() for x in parameter] for _ in range(4)), step=1, lr=1e-3)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return [name for name in calls() if " " not in name] + ["adamw_step"]


def clear_autotune_cache() -> int:
    """Deletes what `tegula tune` and `warmup_all_kernels(tune=True)` have measured, on whatever GPU, from the user's
    cache directory. Returns the number of tables. Processes that have read one keep it."""
    return _core.clear_tuned()
