"""Settings of the process."""

from . import _core

_nondeterministic = False
_recomputes_attention = False


def allow_nondeterministic(allow: bool = True) -> None:
    """Allows backwards to add in any order if that is faster. Off by default; overridden by
    torch.use_deterministic_algorithms(True)."""
    global _nondeterministic
    _nondeterministic = bool(allow)


def nondeterministic_allowed() -> bool:
    import torch

    return _nondeterministic and not torch.are_deterministic_algorithms_enabled()


def allow_overlap(allow: bool = True) -> bool:
    """Allows kernels of later calls on GPUs, in all threads, to begin while the kernel ahead of them on the stream still
    runs (programmatic dependent launch). Off by default. Returns what held before.

    Until the kernel ahead has ended they read the packed weight and nothing else. So the caller promises that the kernel
    directly ahead of a call, also one of PyTorch's, does not write the call's packed weight, nor one of another stream for
    which the current stream waits there. Copies and sets of memory directly ahead are waited for in any case. So is all
    before the kernel ahead, unless that is a kernel of your own which lets others begin before its own wait. A CUDA graph
    keeps what held when it was captured.

    It concerns `linear_int4`, `linear_int8` (weight-only mode) and `linear_fp8` with 16-bit x, on GPUs of compute capability
    9.0. It has no effect elsewhere, or on the bits of results."""
    return _core.allow_overlap(allow)


def recompute_attention(recompute: bool = True) -> None:
    """Makes layers under gradient checkpointing recompute attention in the backward, as transformers does. Off by
    default: patched models keep attention's outputs in every such layer, [batch, tokens, heads, head_dim] in the
    model's dtype and an f32 for each token and head. At long sequences that saves a tenth of a step."""
    global _recomputes_attention
    _recomputes_attention = bool(recompute)


def recomputes_attention() -> bool:
    return _recomputes_attention


def tf32_allowed() -> bool:
    """torch.backends.cuda.matmul.allow_tf32 by a faster getter. The attribute costs a microsecond, and raises if the
    precision was set through PyTorch's newer names. Dynamo cannot trace the getter of those."""
    import torch

    if torch.compiler.is_compiling():
        return torch._C._get_cublas_allow_tf32()
    return torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
