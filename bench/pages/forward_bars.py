"""The bars of whole forward passes and of generation on a GPU (bench/forward_passes.py)."""

import dataclasses

from pages.bars import NOT_MEASURED, number

PROGRAM = "tegula bench forward"
GRAPHS = ("reduce-overhead", "compile+graph")  # called from Python, and its kernels in a graph alone
SHAPES = 12  # of a model in the predecessor's comparison


def rows_of(cases, model, dtype, shape):
    return cases.get(("forward", model, "fwd", dtype, shape), [])


@dataclasses.dataclass
class Headline:
    """A pass by the C library, at most `most` ms on an H200, and on every card faster than each peer in the same run."""
    model: str
    shape: str
    most: float

    def judge(self, cases):
        rows = rows_of(cases, self.model, "bf16", self.shape)
        text = f"{self.model} forward, bf16 {self.shape}"
        want = f"at most {self.most:.3g} ms on an H200, and 1x compile with reduced overhead or in a graph"
        ours = [number(row, "ms") for row in rows if row["impl"] == "tegula" and row["config"] == PROGRAM]
        peers = [number(row, "ms") for row in rows if row["impl"] in GRAPHS]
        if not ours or not peers:
            return [(text, want, NOT_MEASURED, False)]
        on_h200 = "H200" in rows[0]["device"]
        met = min(peers) >= max(ours) and (max(ours) <= self.most or not on_h200)
        return [(text, want, f"{max(ours):.3f} ms, {min(peers) / max(ours):.2f}x", met)]


@dataclasses.dataclass
class EverySize:
    """Of a model's f32 cases the least ratio to compiled PyTorch; met when all of them are measured."""
    model: str

    def judge(self, cases):
        found = []
        for case, rows in cases.items():
            times = {row["impl"]: number(row, "ms") for row in rows}
            if case[:4] == ("forward", self.model, "fwd", "f32") and "compile" in times:
                found.append((times["compile"] / times["tegula"], case[4]))
        text, want = f"{self.model} forward, f32, every shape", "1x compile, no TF32 on either side"
        if not found:
            return [(text, want, NOT_MEASURED, False)]
        ratio, shape = min(found)
        return [(text, want, f"{ratio:.2f}x at the least ({shape}; {len(found)} of {SHAPES} measured)", ratio >= 1 and len(found) == SHAPES)]


@dataclasses.dataclass
class SamePace:
    """Tokens by tegula.Model beside `tegula generate`."""
    device: str

    def judge(self, cases):
        rows = [row for row in rows_of(cases, "gpt-6x384", "f32", "b1_s8_n256") if row["config"] == self.device]
        times = {row["impl"]: number(row, "ms") for row in rows}
        text, want = f"gpt-6x384 256 tokens from Python, f32 b1_s8_n256, {self.device}", "at most 1.02x `tegula generate`'s time"
        if len(times) < 2:
            return [(text, want, NOT_MEASURED, False)]
        ratio = times["tegula"] / times["tegula generate"]
        return [(text, want, f"{ratio:.3f}x", ratio <= 1.02)]


BARS = [
    Headline("gpt_tile_medium", "b8_s128", 0.2),
    *[EverySize(model) for model in ("gpt-3x48", "gpt-6x384", "gpt-8x512")],
    SamePace("cuda"),
    SamePace("cpu"),
]
