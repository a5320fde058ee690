"""Of docs/performance.md: products with quantised weights beside cuBLAS (gpu_ops.py --group quantised)."""

from pages.bars import number, ours_of
from pages.markdown_table import table
from quantised_cases import (DYNAMIC_SHAPE, FP8_FEW, FP8_SIZES, INT4, MXFP4_SHAPES, OTHERS, PREDECESSOR_SHAPES, ROWS, WEIGHTS,
                             int4_shape)

ABOUT = """\
us of a product, and in brackets how many times as fast it is as cuBLAS in bf16 on the widened weight, in the same run. \
Launches are plain, in a CUDA graph, and go through several weights, together larger than the caches. No weight is \
rounded: [how](kernels/quantised_products.md)."""

PREDECESSOR = """\
128 rows of f16, the shapes that cuda-triton-multiarch published. us, and in brackets times as fast as cuBLAS in f16 in the run \
of that time. `its`: the ratios to cuBLAS that it published, of an A100."""

FP8 = """\
e4m3 times e4m3 with scales of rows and columns, x given as codes. us, and in brackets times as fast as cuBLAS in bf16 and as \
PyTorch's product with such scales at its faster setting. `apart`: sums of every 128 of k leave the tensor core; `fast`: they do \
not."""

# rows x in x out -> its f16, int8 and int4 over cuBLAS, of its README
PUBLISHED = {"128x1024x1024": (0.81, 0.57, 0.43), "128x2048x2048": (0.74, 0.63, 0.36), "128x4096x4096": (0.83, 0.69, 0.46),
             "128x4096x11008": (1.03, 0.74, 0.82), "128x8192x8192": (0.81, 0.64, 0.52)}

MXFP4 = """\
GPT-OSS 20B: 32 experts, 4 a token, batches of 1 and 8, whose rows all have experts of their own. `of copy`: share of a \
copy of the bytes of the experts that have rows. `bf16`: PyTorch's time for the widened weights, one expert after another, and \
in brackets how many times as long it is."""

NAMES = {"linear_int4": "int4, groups of 128", "linear_int8": "int8", "linear_fp8": "fp8"}


def of_case(cases, op, shape, dtype="bf16"):
    return cases.get(("gpu", op, "fwd", dtype, shape), [])


def us(row):
    return 1e3 * number(row, "ms")


def compared(rows, impl):
    """Our us and the peer's, or None if it was not measured."""
    theirs = [us(row) for row in rows if row["impl"] == impl]
    return (us(ours_of(rows)), min(theirs)) if theirs else None


def cell(rows, impl="torch"):
    """Our time and the ratio, "15.6 (1.87)", or "" if the peer was not measured."""
    found = compared(rows, impl)
    return f"{found[0]:.1f} ({found[1] / found[0]:.2f})" if found else ""


def peer_cell(rows, impl="torch"):
    """The peer's time and the ratio, or "" if it was not measured."""
    found = compared(rows, impl)
    return f"{found[1]:.1f} ({found[1] / found[0]:.2f})" if found else ""


def weight_only(cases):
    for op, words in (("linear_int4", INT4), *((other, "") for other in OTHERS)):
        for weight in WEIGHTS:
            cells = [cell(of_case(cases, op, f"{rows}x{weight}{words}")) for rows in ROWS]
            if any(cells):
                yield (NAMES[op], weight, *cells)


def e4m3(cases):
    for size in FP8_SIZES + FP8_FEW:
        rows = [of_case(cases, "linear_fp8_fp8", f"{size}_xf8{words}") for words in ("", "_fast")]
        if all(rows):
            yield (size, *(f"{cell(found)}, {cell(found, 'rowwise_fast').split(' ')[-1]}" for found in rows))


def predecessors(cases):
    for shape in PREDECESSOR_SHAPES:
        dense = of_case(cases, "linear", shape, "f16")
        theirs = [f"{us(row):.1f}" for row in dense if row["impl"] == "torch"]
        if theirs:
            yield (shape, theirs[0], cell(dense), cell(of_case(cases, "linear_int8", shape, "f16")),
                   cell(of_case(cases, "linear_int4", shape + INT4, "f16")), *map(str, PUBLISHED[shape]))


def section(cases, card):
    lines = list(weight_only(cases))
    dynamic = of_case(cases, "linear_int8", DYNAMIC_SHAPE)
    published = list(predecessors(cases))
    experts = [(shape, rows) for shape in MXFP4_SHAPES if (rows := of_case(cases, "grouped_linear_mxfp4", shape))]
    codes = list(e4m3(cases))
    if not (lines or dynamic or published or experts or codes):
        return
    yield f"## Products with quantised weights{card}"
    yield ""
    yield ABOUT
    yield ""
    if lines:
        yield from table(("weight", "in x out", *(f"{rows} row{'s' * (rows > 1)}" for rows in ROWS)), lines)
    if dynamic:
        peers = [f"{name} {found}" for name, impl in (("cuBLAS's integer product alone", "cublas_int8"), ("cuBLAS in bf16", "torch"))
                 if (found := peer_cell(dynamic, impl))]
        yield (f"int8 times int8, with a scale for each token, 8192 x 8192 x 8192: {us(ours_of(dynamic)):.1f} us with quantising x. "
               f"Beside it, with how many times as long they take: {', '.join(peers)}.")
        yield ""
    if codes:
        yield FP8
        yield ""
        yield from table(("rows x in x out", "apart", "fast"), codes)
    if published:
        yield PREDECESSOR
        yield ""
        yield from table(("rows x in x out", "cuBLAS f16 us", "f16", "int8", "int4, groups of 128", "its f16", "its int8",
                          "its int4"), published)
    if experts:
        yield MXFP4
        yield ""
        yield from table(("rows x in x out", "us", "GB/s", "of copy", "bf16"),
                         [(shape, f"{us(ours_of(rows)):.1f}", f"{number(ours_of(rows), 'gbps'):.0f}",
                           f"{number(ours_of(rows), 'roof_share'):.1%}", peer_cell(rows)) for shape, rows in experts])
    seen = sorted({(mine["device"], mine["commit"]) for mine in map(ours_of, [
        *(rows for case, rows in cases.items() if case[0] == "gpu" and case[1] in (*NAMES, "linear_fp8_fp8", "grouped_linear_mxfp4"))])})
    yield "; ".join(f"{device}, commit `{commit}`" for device, commit in seen) + "."
    yield ""
