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
