"""The bars of products in 16 bits on a GPU (gpu_ops.py --group products): times beside cuBLAS and torch's grouped_mm."""

import dataclasses
import math

import product_cases as shapes
from pages.bars import NOT_MEASURED, Ratio, number, ours_of


@dataclasses.dataclass
class WithoutCublasLt:
    """The rate of a training step where no cublasLt is, as a share of the rate with it (without_cublaslt.py)."""
    model: str
    shape: str
    required: float

    def judge(self, measured):
        rows = measured.get(("runtime", self.model, "step", "bf16", self.shape), [])
        ms = {row["impl"]: number(row, "ms") for row in rows}
        text, want = f"{self.model} step of the runtime, bf16 {self.shape}, without cublasLt", f"{self.required:.3g} of the rate with it"
        if not {"tegula", "no_cublaslt"} <= ms.keys():
            return [(text, want, NOT_MEASURED, False)]
        share = ms["tegula"] / ms["no_cublaslt"]
        return [(text, want, f"{share:.3f}", share >= self.required)]


@dataclasses.dataclass
class MeanOf:
    """Geometric mean of the peer's time over ours, over cases that must all have been measured."""
    name: str
    op: str
    cases: list  # (direction, shape)
    required: float
    peer: str  # as a page names it
    impl: str = "torch"

    def judge(self, measured):
        ratios = []
        for direction, shape in self.cases:
            rows = measured.get(("gpu", self.op, direction, "bf16", shape), [])
            theirs = [number(row, "ms") for row in rows if row["impl"] == self.impl and number(row, "ms")]
            if theirs:
                ratios.append(min(theirs) / number(ours_of(rows), "ms"))
        text, want = f"{self.name}, bf16", f"{self.required:.3g}x {self.peer}"
        if not ratios:
            return [(text, want, NOT_MEASURED, False)]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        return [(text, want, f"{mean:.3f}x in the geometric mean ({min(ratios):.2f}x to {max(ratios):.2f}x; {len(ratios)} of {len(self.cases)} measured)",
                 mean >= self.required and len(ratios) == len(self.cases))]


def sparse_bars():
    for model, first, others in (("GPT-OSS 20B", 1.05, 1.15), ("Qwen3-30B-A3B", 1.0, 1.2)):
        yield MeanOf(f"experts' first product of {model}, activation and saved values with it", "grouped_linear",
                     [shapes.first_product(model, tokens) for tokens in shapes.SPARSE_TOKENS], first, "torch's grouped_mm")
        yield MeanOf(f"experts' other products of {model}", "grouped_linear",
                     [case for tokens in shapes.SPARSE_TOKENS for case in shapes.other_products(model, tokens)], others,
                     "torch's grouped_mm")


BARS = [
    MeanOf("products of Qwen3-8B's layers", "linear", shapes.LAYER_CASES, 0.99, "cuBLAS"),
    MeanOf("products of cubes", "linear", shapes.CUBE_CASES, 0.99, "cuBLAS"),
    *[Ratio("gpu", "linear", "fwd", "bf16", f"{rows}x{weight}", ("torch",), required)
      for weight, required in shapes.FEW_WEIGHTS.items() for rows in shapes.FEW_ROWS],
    MeanOf("gate and up with SwiGLU, both saved", "linear_swiglu", [("fwd", shape) for shape in shapes.GATE_AND_UP], 1.05,
           "cuBLAS and our kernel", "cublas_swiglu"),
    *sparse_bars(),
    WithoutCublasLt("qwen3-0.6b", "b4_s1024", 0.9),
]
