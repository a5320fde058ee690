"""Shapes of the products with quantised weights that gpu_ops.py times beside cuBLAS in 16 bits: rows x in x
out."""

WEIGHTS = ("4096x14336", "14336x4096", "8192x8192")  # in x out
ROWS = (1, 4, 8, 16, 32, 64, 128)
FEW_ROWS = (1, 8, 16)
INT4 = "_g128_sf16"
OTHERS = ("linear_int8", "linear_fp8")  # weight only
MAY_OVERLAP = ("linear_int4", *OTHERS)  # ops whose launches may, where the caller allows it
DYNAMIC_SHAPE = "8192x8192x8192_dynamic"  # int8 times int8, a scale for each token

# e4m3 times e4m3, of codes: sums of every 128 of k, and ("_fast") of all, in the tensor core.
FP8_SIZES = ("2048x8192x8192", "4096x4096x4096", "8192x8192x8192")
FP8_FEW = ("16x14336x4096", "128x8192x8192")

# What the second predecessor published: rows of f16, int4 in groups of 128.
PREDECESSOR_SHAPES = tuple(f"128x{size}" for size in
                           ("1024x1024", "2048x2048", "4096x4096", "4096x11008", "8192x8192"))

# GPT-OSS 20B: 32 experts, 4 a token. Gate and up of one token and of eight, then down.
MXFP4_SHAPES = ("1x2880x5760_e32_k4_bias", "8x2880x5760_e32_k4_bias",
                "4x2880x2880_e32_bias", "32x2880x2880_e32_bias")


def int4_shape(rows, weight):
    return f"{rows}x{weight}{INT4}"


def listed():
    """(op, dtype, shape, whether beside a copy, libraries), those of one weight one after another."""
    found = [("grouped_linear_mxfp4", "bf16", shape, True, ()) for shape in MXFP4_SHAPES]
    found.append(("linear_int8", "bf16", DYNAMIC_SHAPE, False, ("cublas_int8",)))
    found += [("linear_int4", "bf16", int4_shape(rows, weight), False, ())
              for weight in WEIGHTS for rows in ROWS]
    found += [(op, "bf16", f"{rows}x{weight}", False, ())
              for op in OTHERS for weight in WEIGHTS for rows in FEW_ROWS]
    found += [("linear_fp8_fp8", "bf16", f"{size}_xf8{words}", False, ("rowwise", "rowwise_fast"))
              for size in FP8_SIZES + FP8_FEW for words in ("", "_fast")]
    for shape in PREDECESSOR_SHAPES:
        found += [(op, "f16", shape + words, False, ())
                  for op, words in (("linear", ""), ("linear_int8", ""), ("linear_int4", INT4))]
    return found
