"""Shapes of the products in 16 bits that gpu_ops.py --group products times beside cuBLAS and torch's grouped_mm: rows x in
x out."""

LAYERS = ("4096x4096", "4096x1024", "4096x12288", "12288x4096")  # Qwen3-8B's: in x out
LAYER_ROWS = (4096, 8192)
CUBES = tuple(f"{n}x{n}x{n}" for n in (1024, 2048, 4096, 8192))
WANTED = ("", "_nodweight_nodbias", "_nodx_nodbias")  # y, dx, dweight
FEW_ROWS = (1, 8, 64)
FEW_WEIGHTS = {"4096x14336": 0.97, "14336x4096": 0.97, "8192x8192": 0.97, "4096x4096": 1.1}  # in x out: what is required
GATE_AND_UP = tuple(f"{rows}x{size}_save" for size in ("1024x3072", "4096x12288") for rows in (4096, 8192))


def dense_of(shapes):
    """(direction, shape) of all three products."""
    return [("bwd" if words else "fwd", shape + words) for shape in shapes for words in WANTED]


LAYER_CASES = dense_of(f"{rows}x{layer}" for rows in LAYER_ROWS for layer in LAYERS)
CUBE_CASES = dense_of(CUBES)

# Experts' products: name -> (experts, k, hidden, inner, layout of weights, activation).
SPARSE = {"GPT-OSS 20B": (32, 4, 2880, 2880, "_infirst", "_bias_clamped_interleaved_pre"),
          "Qwen3-30B-A3B": (128, 8, 2048, 768, "", "_swiglu_pre")}
SPARSE_TOKENS = (4096, 16384)


def first_product(model, tokens):
    """With slots, activation and saved values."""
    experts, k, hidden, inner, layout, activation = SPARSE[model]
    return "fwd", f"{tokens}x{hidden}x{2 * inner}_e{experts}_k{k}{layout}{activation}"


def other_products(model, tokens):
    """The second product, dx of both, dweight of both."""
    experts, k, hidden, inner, layout, _ = SPARSE[model]
    first = f"{tokens}x{hidden}x{2 * inner}_e{experts}_k{k}{layout}"
    second = f"{tokens * k}x{inner}x{hidden}_e{experts}{layout}"
    return [("fwd", second + "_bias" * (model == "GPT-OSS 20B")),
            *[("bwd", shape + words) for words in ("_nodweight_nodbias", "_nodx_nodbias_overwrite") for shape in (first, second)]]


def listed():
    """(op, direction, shape, libraries beside PyTorch)."""
    found = [("linear", *case, ()) for case in (*LAYER_CASES, *CUBE_CASES)]
    found += [("linear", "fwd", f"{rows}x{weight}", ()) for weight in FEW_WEIGHTS for rows in FEW_ROWS]
    found += [("linear_swiglu", "fwd", shape, ("cublas_swiglu",)) for shape in GATE_AND_UP]
    for model in SPARSE:
        for tokens in SPARSE_TOKENS:
            found += [("grouped_linear", *case, ()) for case in (first_product(model, tokens), *other_products(model, tokens))]
    return found
