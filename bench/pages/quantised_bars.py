"""The bars of products with quantised weights on a GPU (gpu_ops.py --group quantised): times beside cuBLAS in
16 bits, and for MXFP4 a share of a copy of the same bytes."""

import dataclasses

from gpu_cases import suite_of
from pages.bars import NOT_MEASURED, Ratio, Share, how_run, number, ours_of
from quantised_cases import DYNAMIC_SHAPE, FEW_ROWS, FP8_SIZES, MXFP4_SHAPES, OTHERS, WEIGHTS, int4_shape


@dataclasses.dataclass
class Least:
    """The least ratio of the peer's time to ours over some numbers of rows and all weights."""
    op: str
    rows: tuple
    required: float
    shape: object  # of rows and a weight -> the case's
    how: str = ""
    suite: str = "gpu"

    def judge(self, cases):
        found = []
        for weight in WEIGHTS:
            for rows in self.rows:
                shape = self.shape(rows, weight)
                measured = cases.get((self.suite, self.op, "fwd", "bf16", shape), [])
                theirs = [number(row, "ms") for row in measured if row["impl"] == "torch"]
                if theirs:
                    found.append((min(theirs) / number(ours_of(measured), "ms"), shape))
        few = " and ".join(map(str, self.rows)) if len(self.rows) < 3 else f"{self.rows[0]} to {self.rows[-1]}"
        text = f"{self.op} forward, bf16, {few} rows{self.how}{how_run(self.suite)}"
        want, cases_of = f"{self.required:.3g}x cuBLAS bf16", len(WEIGHTS) * len(self.rows)
        if not found:
            return [(text, want, NOT_MEASURED, False)]
        ratio, shape = min(found)
        return [(text, want, f"{ratio:.2f}x at the least ({shape}; {len(found)} of {cases_of} measured)",
                 ratio >= self.required and len(found) == cases_of)]


def plain_shape(rows, weight):
    return f"{rows}x{weight}"


# Where our launches may overlap (gpu_ops.py --overlap, a suite of its own), more is required.
PLAIN = (((1, 4, 8), 2.3), ((16,), 1.9), ((64,), 1.1), ((128,), 0.84))
OVERLAPPING = (((1, 4, 8), 2.6), ((16,), 2.1), ((32,), 1.6), ((64,), 1.2), ((128,), 0.9))

BARS = [
    *[Least("linear_int4", rows, least, int4_shape, ", plain launches") for rows, least in PLAIN],
    *[Least("linear_int4", rows, least, int4_shape, suite=suite_of("", overlap=True)) for rows, least in OVERLAPPING],
    *[Least(op, FEW_ROWS, 1.5, plain_shape, ", plain launches") for op in OTHERS],
    Ratio("gpu", "linear_int8", "fwd", "bf16", DYNAMIC_SHAPE, ("cublas_int8",), 0.95),
    *[Ratio("gpu", "linear_fp8_fp8", "fwd", "bf16", f"{size}_xf8{words}", peers, least) for size in FP8_SIZES
      for words, peers, least in (("", ("torch",), 1.55), ("_fast", ("torch",), 1.8),
                                  ("_fast", ("rowwise", "rowwise_fast"), 0.95))],
    *[Share("grouped_linear_mxfp4", "fwd", shape, 0.6, "copy", "bf16", "gpu") for shape in MXFP4_SHAPES],
]
