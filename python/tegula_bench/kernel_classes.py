"""Kernels by what they compute, from their names; and the least time that each kind can take in a training step."""

import re

PRODUCTS, ATTENTION, OPTIMISER = "matrix products", "attention", "optimiser"
LOSS, NORMS, ROTATION, ACTIVATION = "loss", "norms", "rotation", "activation"
FUSED, EMBEDDING, COPIES, OTHER, IDLE = "compiled together", "embedding", "copies", "other element-wise", "idle"

# The first that matches. Names are those of CUDA libraries, PyTorch, Triton, Liger-Kernel and Tegula.
PATTERNS = [
    (COPIES, r"^mem(cpy|set)\b"),
    (OPTIMISER, r"adamw?|multi_tensor_apply"),
    (FUSED, r"^triton_"),
    (ATTENTION, r"attention|flash|fmha|sdpa"),
    (LOSS, r"cross_entropy|nll_loss|soft_?max"),
    (NORMS, r"(rms|layer)_?norm"),
    (ROTATION, r"qk_norm_rope|rope|rotary|rotate_heads"),
    (ACTIVATION, r"swiglu|geglu|silu|gelu|gated_(fwd|bwd)"),
    (EMBEDDING, r"embedding|indexselect|compute_grad_weight"),
    (PRODUCTS, r"gemm|nvjet|cutlass|xmma|splitk|wgmma|cublas|aten::(addmm|mm|bmm)\b|linear_fwd|mkldnn_linear"),
]
KINDS = [PRODUCTS, ATTENTION, OPTIMISER, LOSS, NORMS, ROTATION, ACTIVATION, FUSED, EMBEDDING, COPIES, OTHER, IDLE]


def kind_of(name):
    return next((kind for kind, pattern in PATTERNS if re.search(pattern, name.lower())), OTHER)


def by_kind(kernels):
    """kind -> (ms, [(ms, name), the longest first]) of [(name, ms)]."""
    found = {}
    for name, ms in kernels:
        found.setdefault(kind_of(name), []).append((ms, name))
    return {kind: (sum(ms for ms, _ in found[kind]), sorted(found[kind], reverse=True)) for kind in KINDS if kind in found}


def floors(case, size, element_bytes=2):
    """kind -> (flops, bytes) that a step needs at least, where that is known: each tensor read or written once by each
    pass that must, with the additions to the residual inside the norms and the norms of heads inside the rotation.

    A checkpointed layer computes again what its gradients need: not attention, whose outputs may be kept, nor the down
    projection, its last product. It takes and gives one tensor, so the addition at its end is outside the norms."""
    tokens, layers, again = case.tokens, size.layers, case.checkpointing
    once = size.parameters[1]
    twice = once - size.vocabulary * size.hidden - layers * size.hidden * size.intermediate if again else 0
    heads = size.heads + size.kv_heads
    half_products = size.attention_flops(case.batch, case.seq) / 6  # one of the forward's two
    wide = tokens * size.hidden * element_bytes
    # A norm's tensors: forward 4, two read and two written, or 2 without the addition; backward 4, of which 3 are read.
    # Checkpointed: a layer's two forward, again and backward; then the model's last.
    norms = layers * (6 + 6 + 8) + 2 + 4 if again else (2 * layers + 1) * 8
    return {
        PRODUCTS: ((6 * once + 2 * twice) * tokens, 0),
        ATTENTION: (7 * half_products, 0),  # the backward makes the scores again
        OPTIMISER: (0, 7 * element_bytes * size.parameters[0]),  # weight, gradient, two moments; all but one written, too
        NORMS: (0, norms * wide),
        ROTATION: (0, layers * (7 if again else 5) * tokens * heads * size.head_dim * element_bytes),
        ACTIVATION: (0, layers * (11 if again else 8) * tokens * size.intermediate * element_bytes),
    }  # fmt: skip
