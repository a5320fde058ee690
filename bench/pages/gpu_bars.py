"""The bars of the ops on a GPU: shares of a copy of the same bytes, and times beside peers'."""

import dataclasses

from gpu_cases import (ANY_ORDER, ANY_ORDER_SHAPES, ATTENTION_SHAPES, BOTH, DECODE_SHAPES, GATED,
                       GATED_SHAPE, HEAD_SHAPES, HEADS_SHAPE, LOSS_SHAPES, MASKS, NORM_SHAPES,
                       EVEN_SHAPE, LENGTH_SHAPES, OLDER_ENTRY, OLDER_SHAPES, PACKED_SHAPE,
                       PARAMETERS, PLANNED_SHAPES, ROUTED_SHAPES, SHORT_WINDOW_SHAPE, SINK_SHAPE,
                       SMALL_GATED_SHAPE, SMALL_NORM_SHAPES, SOFTMAX_SHAPES, TINY_SHAPES,
                       UNMASKED_SHAPE, WINDOW_SHAPE, suite_of)
from pages import forward_bars, product_bars, quantised_bars, sequence_bars, training_bars
from pages.bars import NOT_MEASURED, WORDS, Mean, Ratio, Share, number, ours_of
from shape_words import Words

PEERS = ("torch", "compile", "liger", "liger_cutedsl", "quack")
NORMS = ("rms_norm", "layer_norm")
LARGE = 256 << 20  # bytes of traffic from which on a norm's backward must be nearer to a copy
AS_FAST = 1 / 1.05  # small shapes may take 5 % longer than the best peer


def share(op, direction, shape, required):
    return Share(op, direction, shape, required, "copy", "bf16", "gpu")


def ratio(op, direction, shape, required):
    return Ratio("gpu", op, direction, "bf16", shape, PEERS, required)


@dataclasses.dataclass
class Beside:
    """Our time for an op, at most `most` times ours for another one of the same shape."""
    op: str
    other: str
    dir: str
    shape: str
    most: float

    def judge(self, cases):
        found = [cases.get(("gpu", op, self.dir, "bf16", self.shape))
                 for op in (self.op, self.other)]
        text = f"{self.op} {self.dir} beside {self.other}, bf16 {self.shape}"
        want = f"at most {self.most:.3g}x its time"
        if not all(found):
            return [(text, want, NOT_MEASURED, False)]
        mine, other = (number(ours_of(rows), "ms") for rows in found)
        return [(text, want, f"{mine / other:.2f}x", mine <= self.most * other)]


@dataclasses.dataclass
class WindowBlocks:
    """Our time for attention with a window of a block, at most `most` times that of the two blocks
    of keys that a block of queries sees part of, at the rate of the same heads without a mask."""
    dir: str
    most: float
    block: int = 128

    def judge(self, cases):
        window, whole = [cases.get(("gpu", "attention", self.dir, "bf16", shape))
                         for shape in (WINDOW_SHAPE, UNMASKED_SHAPE)]
        text = f"attention {WORDS[self.dir]}, bf16 {WINDOW_SHAPE}"
        want = f"at most {self.most:.3g}x two blocks of {self.block} keys at the full rate"
        if not window or not whole:
            return [(text, want, NOT_MEASURED, False)]
        tokens = Words(UNMASKED_SHAPE).number("s", 0)
        two = number(ours_of(whole), "ms") * 2 * self.block / tokens
        mine = number(ours_of(window), "ms")
        return [(text, want, f"{mine / two:.2f}x", mine <= self.most * two)]


@dataclasses.dataclass
class InOrder:
    """Rate of attention's backward in order, at least `least` times that in any order."""
    shape: str
    least: float
    dir: str = "bwd"

    def judge(self, cases):
        found = [cases.get(("gpu", "attention", self.dir, "bf16", shape))
                 for shape in (self.shape, self.shape + ANY_ORDER)]
        text = f"attention {WORDS[self.dir]} in order, bf16 {self.shape}"
        want = f"{self.least:.3g}x any order"
        if not all(found):
            return [(text, want, NOT_MEASURED, False)]
        mine, free = (number(ours_of(rows), "ms") for rows in found)
        return [(text, want, f"{free / mine:.2f}x", free >= self.least * mine)]


@dataclasses.dataclass
class PackedRate:
    """Flops a second of sequences of uneven lengths, at least `least` times those of even ones."""
    dir: str
    least: float = 0.9

    def judge(self, cases):
        found = [cases.get(("gpu", "attention", self.dir, "bf16", shape))
                 for shape in (PACKED_SHAPE, EVEN_SHAPE)]
        text = f"attention {WORDS[self.dir]}, bf16 {PACKED_SHAPE}"
        want = f"{self.least:.3g}x the rate of {EVEN_SHAPE}"
        if not all(found):
            return [(text, want, NOT_MEASURED, False)]
        packed, even = (number(ours_of(rows), "tflops") for rows in found)
        return [(text, want, f"{packed / even:.2f}x", packed >= self.least * even)]


@dataclasses.dataclass
class Together:
    """Time of the best peers named `impl` over ours, of several rows that a model runs together."""
    text: str
    rows: tuple  # (op, dir, shape)
    impl: tuple
    required: float

    def judge(self, cases):
        found = [cases.get(("gpu", op, direction, "bf16", shape), [])
                 for op, direction, shape in self.rows]
        want = f"{self.required:.3g}x {' or '.join(self.impl)}"
        theirs = [[number(row, "ms") for row in rows if row["impl"] in self.impl] for rows in found]
        if not all(theirs):
            return [(self.text, want, NOT_MEASURED, False)]
        ratio = sum(map(min, theirs)) / sum(number(ours_of(rows), "ms") for rows in found)
        return [(self.text, want, f"{ratio:.3f}x", ratio >= self.required)]


@dataclasses.dataclass
class HeadMemory:
    """Bytes that linear_cross_entropy takes over its inputs: the workspace and both gradients."""
    shape: str
    most: float

    def judge(self, cases):
        rows = cases.get(("gpu", "linear_cross_entropy", "fwdbwd", "bf16", self.shape))
        text = f"linear_cross_entropy forward and backward, bf16 {self.shape}: memory"
        want = f"at most {self.most / 2**30:.1f} GiB"
        if not rows:
            return [(text, want, NOT_MEASURED, False)]
        tokens, hidden, vocab = map(int, self.shape.split("_", 1)[0].split("x"))
        taken = number(ours_of(rows), "peak_bytes") + 2 * hidden * (vocab + tokens)
        return [(text, want, f"{taken / 2**30:.2f} GiB", taken <= self.most)]


@dataclasses.dataclass
class HostTime:
    """Host time of rms_norm called from Python (python_host.py): without a gradient over the same
    call from C, with one as a ratio to PyTorch's F.rms_norm."""
    shape: str = "1x4096"

    def judge(self, cases):
        calls, first = [cases.get(("host", "rms_norm", kind, "bf16", self.shape), [])
                        for kind in ("call", "first")]
        us = {row["config"]: 1e3 * number(row, "ms") for row in [*calls, *first]}
        over = [(f"{name}, over C", us[name] - us["C"], most, " us") if us else
                (f"{name}, over C", None, most, " us")
                for name, most in (("out=", 1.5), ("allocated", 3.2))]
        over.append(("with gradient, of PyTorch's",
                     us["with gradient"] / us["PyTorch with gradient"] if us else None, 1.15, "x"))
        over.append(("first call", us["first call"] / 1e3 if us else None, 50.0, " ms"))
        return [(f"rms_norm from Python, bf16 {self.shape}: {text}", f"at most {most:g}{unit}",
                 NOT_MEASURED if value is None else f"{value:.2f}{unit}",
                 value is not None and value <= most) for text, value, most, unit in over]


def norm_bars():
    found = []
    for op in NORMS:
        for shape in NORM_SHAPES:
            rows, cols = map(int, shape.split("x"))
            backward = 0.8 if 3 * 2 * rows * cols >= LARGE else 0.72  # dy, x and dx
            found += [share(op, "fwd", shape, 0.95), ratio(op, "fwd", shape, 0.97),
                      share(op, "bwd", shape, backward), ratio(op, "bwd", shape, 1.15)]
    found.append(Mean(NORMS, 1.0, "gpu", "bf16", PEERS, "fwd", tuple(NORM_SHAPES),
                      "norms forward"))
    return found + [share("add_rms_norm", "fwd", "8192x4096", 0.95),
                    share("add_rms_norm", "bwd", "8192x4096", 0.82)]


def softmax_bars():
    found = []
    for shape in SOFTMAX_SHAPES:
        wide = shape.endswith("x131072")
        found += [share("softmax", "fwd", shape, 0.9),
                  share("softmax", "bwd", shape, 0.75 if wide else 0.85)]
    return found


def small_bars():
    cases = [(op, shape) for op in NORMS for shape in SMALL_NORM_SHAPES]
    cases += [("rms_norm_swiglu", "2048x2048")] + [(op, SMALL_GATED_SHAPE) for op in GATED]
    return [ratio(op, direction, shape, AS_FAST) for op, shape in cases for direction in BOTH] + [
        ratio(op, "fwd", shape, AS_FAST) for op, shapes in TINY_SHAPES.items() for shape in shapes]


# times cuDNN: forward full, causal; backward full, causal
ATTENTION_RATIOS = {128: (1.04, 1.15, 1.1, 1.1), 64: (1.02, 1.0, 1.1, 1.1),
                    96: (0.95, 1.0, 0.9, 0.9), 192: (0.95, 1.0, 0.9, 0.9),
                    256: (0.95, 1.0, 0.9, 0.9)}


def decode_bars():
    """Below 64 MiB of keys and values the start of a kernel counts, below 8 MiB it is most of it."""
    return [share("attention", "fwd", shape,
                  0.4 if size < 8 << 20 else 0.6 if size < 64 << 20 else 0.85)
            for shape, size in DECODE_SHAPES.items()]


def attention_bars():
    """The backward beside cuDNN: in any order, as cuDNN's is, where it has another one."""
    found = [Ratio("gpu", "attention", direction, "bf16",
                   shape + mask + ANY_ORDER * (direction == "bwd" and dim <= 128), ("cudnn",),
                   ATTENTION_RATIOS[dim][2 * d + m])
             for dim, shapes in ATTENTION_SHAPES.items() for shape in shapes
             for d, direction in enumerate(BOTH) for m, mask in enumerate(MASKS)]
    found += [InOrder(shape, 0.8) for shape in ANY_ORDER_SHAPES]
    found += [Ratio(suite_of(OLDER_ENTRY), "attention", direction, "bf16",
                    shape + ANY_ORDER * (direction == "bwd"), ("fa2",), 1.0)
              for shape in OLDER_SHAPES for direction in BOTH]
    found += [Ratio("gpu", "attention", "fwd", "f16", shape, ("torch", "cudnn", "fa2", "efficient"),
                    AS_FAST) for shape in LENGTH_SHAPES]
    return found + [WindowBlocks("fwd", 1.6), WindowBlocks("bwd", 1.8), PackedRate("fwd"),
                    PackedRate("bwd"), *decode_bars()]


BARS = [
    *norm_bars(),
    *[bar for op in GATED for d in BOTH
      for bar in (share(op, d, GATED_SHAPE, 0.97), ratio(op, d, GATED_SHAPE, 0.99))],
    *[share("rope", d, HEADS_SHAPE, 0.95) for d in BOTH],
    share("qk_norm_rope", "fwd", HEADS_SHAPE, 0.95),
    share("qk_norm_rope", "bwd", HEADS_SHAPE, 0.8),
    Beside("qk_norm_rope", "rope", "fwd", HEADS_SHAPE, 1.1),
    *softmax_bars(),
    *[share("cross_entropy", "fwdbwd", shape, 0.8) for shape in LOSS_SHAPES[:2]],
    *[bar for shape in HEAD_SHAPES
      for bar in (Ratio("gpu", "linear_cross_entropy", "fwdbwd", "bf16", shape, ("compile",),
                        1 / 1.04),
                  HeadMemory(shape, 4 << 30))],
    *attention_bars(),
    *[Together(f"attention forward and backward, bf16 {shape}",
               tuple(("attention", d, shape) for d in BOTH), ("flex",), 1.5)
      for shape in (SHORT_WINDOW_SHAPE, SINK_SHAPE)],
    *[Together(f"topk_router and moe_plan, bf16 {routed}",
               (("topk_router", "fwd", routed + "_i64"), ("moe_plan", "fwd", planned)),
               ("torch",), 3)
      for routed, planned in zip(ROUTED_SHAPES, PLANNED_SHAPES)],
    share("adamw", "step", PARAMETERS, 0.9),
    HostTime(),
    *small_bars(),
    *training_bars.BARS,
    *forward_bars.BARS,
    *sequence_bars.BARS,
    *quantised_bars.BARS,
    *product_bars.BARS,
]
