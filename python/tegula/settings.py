"""What holds for every call of the process."""

_nondeterministic = False


def allow_nondeterministic(allow: bool = True) -> None:
    """Lets backwards add in any order where that is faster. The default is no, and
    torch.use_deterministic_algorithms(True) overrides it."""
    global _nondeterministic
    _nondeterministic = bool(allow)


def nondeterministic_allowed() -> bool:
    import torch

    return _nondeterministic and not torch.are_deterministic_algorithms_enabled()


def tf32_allowed() -> bool:
    """torch.backends.cuda.matmul.allow_tf32, which takes a microsecond to say so, and raises where precisions were set
    by their newer names. Those Dynamo does not read."""
    import torch

    if torch.compiler.is_compiling():
        return torch._C._get_cublas_allow_tf32()
    return torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
