"""What holds for every call of the process."""

_nondeterministic = False
_recomputes_attention = False


def allow_nondeterministic(allow: bool = True) -> None:
    """Lets backwards add in any order where that is faster. The default is no, and
    torch.use_deterministic_algorithms(True) overrides it."""
    global _nondeterministic
    _nondeterministic = bool(allow)


def nondeterministic_allowed() -> bool:
    import torch

    return _nondeterministic and not torch.are_deterministic_algorithms_enabled()


def recompute_attention(recompute: bool = True) -> None:
    """Has layers under gradient checkpointing compute attention again in the backward, as transformers does. The default
    is no: patched models keep its outputs, [batch, tokens, heads, head_dim] in the model's dtype and a float for each
    token and head, in every such layer, which at long sequences saves a tenth of a step."""
    global _recomputes_attention
    _recomputes_attention = bool(recompute)


def recomputes_attention() -> bool:
    return _recomputes_attention


def tf32_allowed() -> bool:
    """torch.backends.cuda.matmul.allow_tf32, which takes a microsecond to say so, and raises where precisions were set
    by their newer names. Those Dynamo does not read."""
    import torch

    if torch.compiler.is_compiling():
        return torch._C._get_cublas_allow_tf32()
    return torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
