"""Classifies kernels by their names, and gives the least work of each kind in a training step."""

import re

PRODUCTS, ATTENTION, OPTIMISER = "matrix products", "attention", "optimiser"
LOSS, NORMS, ROTATION, ACTIVATION = "loss", "norms", "rotation", "activation"
FUSED, EMBEDDING, COPIES, OTHER, IDLE = "compiled together", "embedding", "copies", "other element-wise", "idle"

# The first match counts. Names of CUDA libraries, PyTorch, Triton, Liger-Kernel and Tegula.
PATTERNS = [
    (COPIES, r"^mem(cpy|set)\b"),
    (OPTIMISER, r"adamw?|multi_tensor_apply"),
    (FUSED, r"^triton_"),
    (ATTENTION, r"attention|flash|fmha|sdpa"),
    (LOSS, r"cross_entropy|nll_loss|soft_?max"),
    (NORMS, r"(rms|layer)_?norm"),
    (ROTATION, r"qk_norm_rope|rope|rotary|rotate_heads"),
    (PRODUCTS, r"gemm_gated"),  # whose name also has its activation's
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
    """kind -> (flops, bytes), the least work of a step where it is known. Each pass reads or writes a tensor once; residual
    additions are fused with norms, and head norms with the rotation.

    A checkpointed layer recomputes what its gradients need: neither attention, whose outputs can be kept, nor the down
    projection, its last product. It passes on one tensor, so its last addition is not fused with a norm."""
    tokens, layers, again = case.tokens, size.layers, case.checkpointing
    once = size.parameters[1]
    twice = once - size.vocabulary * size.hidden - layers * size.hidden * size.intermediate if again else 0
    heads = size.heads + size.kv_heads
    half_products = size.attention_flops(case.batch, case.seq) / 6  # one of the forward's two
    wide = tokens * size.hidden * element_bytes
    # Tensors of a norm: forward 4 (2 read, 2 written), or 2 without the addition; backward 4 (3 read).
    # Checkpointed: the two norms of a layer forward, recomputed and backward; then the model's last norm.
    norms = layers * (6 + 6 + 8) + 2 + 4 if again else (2 * layers + 1) * 8
    return {
        PRODUCTS: ((6 * once + 2 * twice) * tokens, 0),
        ATTENTION: (7 * half_products, 0),  # the backward recomputes the scores
        OPTIMISER: (0, 7 * element_bytes * size.parameters[0]),  # weight, gradient and two moments are read; all but the gradient are written
        NORMS: (0, norms * wide),
        ROTATION: (0, layers * (7 if again else 5) * tokens * heads * size.head_dim * element_bytes),
        ACTIVATION: (0, layers * (11 if again else 8) * tokens * size.intermediate * element_bytes),
    }  # fmt: skip
