"""The bars, and whether the recorded figures meet them."""

import dataclasses
import math

from gpu_cases import OVERLAP
from tegula_bench.results import newest_runs

number = newest_runs.number
newest, ours_of, peers_of = newest_runs.newest, newest_runs.ours_of, newest_runs.peers_of


# ---- kinds of bar: each judges to (text, required, measured, met), once or for several shapes ----

NOT_MEASURED = "not measured"
WORDS = {"fwd": "forward", "bwd": "backward", "step": "step", "decode": "decode", "fwdbwd": "forward and backward",
         "encode": "encoding", "load": "loading", "evaluation": "evaluation"}


def how_run(suite):
    """What the cases of a suite add to their names: an entry that is not the best one, launches that may overlap."""
    return "".join(", launches that may overlap" if word == OVERLAP else f" by {word}" for word in suite.split()[1:])


@dataclasses.dataclass
class Share:
    """Share of a roof. shape "": every shape recorded, largest arrays that benchmarks have."""
    op: str
    dir: str
    shape: str
    required: float
    roof: str
    dtype: str = "f32"
    suite: str = "ops"

    def judge(self, cases):
        found = []
        want = f"{self.required:.0%} of {self.roof}"
        for (suite, op, direction, dtype, shape), rows in sorted(cases.items()):
            if (suite, op, direction, dtype) != (self.suite, self.op, self.dir, self.dtype) or (
                    self.shape and shape != self.shape):
                continue
            mine = ours_of(rows)
            share = number(mine, "roof_share")
            found.append((self.text(shape), want, f"{share:.1%} of {mine['roof']}",
                          share >= self.required and mine["roof"] == self.roof))
        return found or [(self.text(self.shape), want, NOT_MEASURED, False)]

    def text(self, shape):
        return f"{self.op} {WORDS[self.dir]}, {self.dtype} {shape}".rstrip()


@dataclasses.dataclass
class Ratio:
    """Time of the best of the peers named `impl` (whose configuration ends so) over ours. `where`
    follows the direction's name in the bar's text."""
    suite: str
    op: str
    dir: str
    dtype: str
    shape: str
    impl: tuple
    required: float
    config: str = ""
    where: str = ""

    def judge(self, cases):
        rows = cases.get((self.suite, self.op, self.dir, self.dtype, self.shape), [])
        them = [row for row in rows if row["impl"] in self.impl and row["config"].endswith(self.config)]
        where = f" {self.where}" if self.where else how_run(self.suite)
        text = f"{self.op} {WORDS[self.dir]}{where}, {self.dtype} {self.shape}"
        want = f"{self.required:.3g}x {' or '.join(self.impl)} {self.config}".rstrip()
        if not them:
            return [(text, want, NOT_MEASURED, False)]
        ratio = min(number(row, "ms") for row in them) / number(ours_of(rows), "ms")
        return [(text, want, f"{ratio:.3f}x", ratio >= self.required)]


@dataclasses.dataclass
class Mean:
    """Geometric mean of the time of the best of the peers `impl` over ours, over the recorded
    shapes of these ops: all of them, or `shapes`; in all directions, or in `dir`."""
    ops: tuple
    required: float
    suite: str = "peers"
    dtype: str = "f32"
    impl: tuple = ("torch",)
    dir: str = ""
    shapes: tuple = ()
    name: str = "memory-bound ops"

    def judge(self, cases):
        ratios = []
        for (suite, op, direction, dtype, shape), rows in cases.items():
            them = [number(row, "ms") for row in rows if row["impl"] in self.impl]
            if (suite, dtype) == (self.suite, self.dtype) and op in self.ops and them and (
                    self.dir in ("", direction) and (not self.shapes or shape in self.shapes)):
                ratios.append(min(them) / number(ours_of(rows), "ms"))
        want = f"{self.required:.3g}x {' or '.join(self.impl)}"
        if not ratios:
            return [(f"{self.name}, geometric mean", want, NOT_MEASURED, False)]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        return [(f"{self.name}, geometric mean of {len(ratios)} cases, {self.dtype}", want,
                 f"{mean:.2f}x", mean >= self.required)]


@dataclasses.dataclass
class Memory:
    """Peak bytes, at most `required` times the least of the peers'."""
    suite: str
    op: str
    dir: str
    dtype: str
    shape: str
    impl: tuple
    required: float

    def judge(self, cases):
        rows = cases.get((self.suite, self.op, self.dir, self.dtype, self.shape), [])
        them = [number(row, "peak_bytes") for row in rows
                if row["impl"] in self.impl and number(row, "peak_bytes")]
        text = f"{self.op} {WORDS[self.dir]}, {self.dtype} {self.shape}: memory"
        want = f"at most {self.required:g}x {' and '.join(self.impl)}"
        mine = number(ours_of(rows), "peak_bytes") if rows else 0
        if not them or not mine:
            return [(text, want, NOT_MEASURED, False)]
        return [(text, want, f"{mine / 1e9:.2f} GB of {min(them) / 1e9:.2f}",
                 mine <= self.required * min(them))]


@dataclasses.dataclass
class Limit:
    """Seconds that ours may take: a wait that people notice, whatever peers do."""
    suite: str
    op: str
    dir: str
    dtype: str
    shape: str
    required: float

    def judge(self, cases):
        rows = cases.get((self.suite, self.op, self.dir, self.dtype, self.shape), [])
        text = f"{self.op} {WORDS[self.dir]}, {self.dtype} {self.shape}: time"
        want = f"at most {self.required:g} s"
        if not rows:
            return [(text, want, NOT_MEASURED, False)]
        seconds = 1e-3 * number(ours_of(rows), "ms")
        return [(text, want, f"{seconds:.3f} s", seconds <= self.required)]


# ---- the bars ----

MEMORY_BOUND = ("rms_norm", "add_rms_norm", "layer_norm", "rms_norm_swiglu", "softmax", "gelu",
                "silu", "swiglu", "geglu", "swiglu_clamped", "rope", "qk_norm_rope")


def training_bars():
    found = []
    for shape in ("b4_s64", "b4_s256"):
        case = ("model", "gpt2-124m", "step", "f32", shape)
        found += [Ratio(*case, ("torch",), 1.6, "malloc=tuned"), Ratio(*case, ("llm.c",), 4.0),
                  Memory(*case, ("llm.c", "torch"), 1.0)]
    found.append(Ratio("model", "gpt2-124m", "step", "bf16", "b4_s64", ("torch", "compile"), 1.0))
    found.append(Ratio("model", "gpt-bytes", "step", "f32", "b16_s128", ("torch",), 1.6, "eager"))
    return found


def thread_bars():
    """The pool of threads (busy_machine.py): all CPUs beside one thread, and beside libgomp's pool."""
    found = []
    for op in ("gpt2-124m", "gpt-nano"):
        for direction, shape in (("step", "b4_s64"), ("decode", "b1_s64")):
            found.append(Ratio("busy", op, direction, "f32", shape, ("one_thread",), 0.9,
                               where="on a busy machine"))
    for op, direction, shape in (("gpt2-124m", "step", "b4_s64"), ("gpt2-124m", "decode", "b1_s64"),
                                 ("rms_norm", "fwd", "16384x4096"), ("softmax", "bwd", "16384x4096"),
                                 ("swiglu", "fwd", "4096x12288")):
        found.append(Ratio("pool", op, direction, "f32", shape, ("libgomp",), 0.98,
                           where="on the pool of threads"))
    return found


def linear_bars():
    found = []
    for dtype in ("f32", "bf16"):
        for size in ("256x768x3072", "256x768x50257", "1024x768x3072", "1024x768x50257",
                     "512x1024x3072"):
            for direction, words in (("fwd", ""), ("bwd", "_nodweight_nodbias"),
                                     ("bwd", "_nodx_nodbias")):
                # oneDNN is what PyTorch itself calls for bf16
                found.append(Ratio("peers", "linear", direction, dtype, size + words,
                                   ("onednn",) if dtype == "f32" else ("onednn", "torch"), 0.9))
    return found


def attention_bars():
    found = []
    for shape in ("b1_h12_s1024_d64_causal", "b1_h16_kv8_s2048_d128_causal"):
        found.append(Share("attention", "fwd", shape, 0.45, "fma_f32"))
        found += [Ratio("peers", "attention", d, "f32", shape, ("torch",), 1.3)
                  for d in ("fwd", "bwd")]
    found += [Share("attention", "fwd", "b8_h32_kv8_s1_sk4096_d128_causal", 0.85, "read", dtype)
              for dtype in ("bf16", "f16")]
    return found


def quantised_bars():
    found = []
    for size in ("1x1024x3072", "1x14336x4096"):
        found += [Share("linear_int8", "fwd", size, 0.85, "read"),
                  *[Share("linear_int4", "fwd", f"{size}_{group}_sf16", 0.85, "read")
                    for group in ("g32", "g128")]]
    found.append(Ratio("peers", "linear_int8", "fwd", "bf16", "512x1024x3072_dynamic",
                       ("linear",), 1.3))
    return found


def tokenizer_bars():
    found = []
    for name in ("gpt2", "qwen3", "llama3", "o200k"):
        case = ("text", "tokenize", "encode", "utf8", f"{name}_english")
        found += [Ratio(*case, ("tiktoken",), 2.0), Ratio(*case, ("tokenizers",), 10.0)]
    case = ("text", "tokenize", "load", "utf8")
    return found + [Limit(*case, "qwen3", 0.25), Limit(*case, "o200k", 0.6)]


BARS = [
    *training_bars(),
    *thread_bars(),
    *linear_bars(),
    *[Share(op, d, "", 0.85, "copy") for op in MEMORY_BOUND for d in ("fwd", "bwd")],
    Share("adamw", "step", "", 0.85, "copy"),
    Mean(MEMORY_BOUND, 1.5),
    *attention_bars(),
    Ratio("peers", "linear_cross_entropy", "fwdbwd", "f32",
          "1024x768x50257_dwf32_nodbias_overwrite", ("torch",), 1.5),
    Memory("peers", "linear_cross_entropy", "fwdbwd", "f32",
           "1024x768x50257_dwf32_nodbias_overwrite", ("torch",), 0.3),
    *quantised_bars(),
    *tokenizer_bars(),
    Share("gpt-oss-20b", "decode", "b1_layers4", 0.6, "read", "mxfp4", "model"),
]


def judge(cases, bars=None):
    return [line for bar in (BARS if bars is None else bars) for line in bar.judge(cases)]


def date_of(rows, text):
    """When a card last measured what a bar is about: its op, in its shape where the text names one."""
    same_op = [row for row in rows if row["op"] == text.replace(",", " ").split()[0]]
    same_shape = [row for row in same_op if row["shape"] in text]
    return max((row["date"] for row in same_shape or same_op or rows), default="")


def judge_cards(rows, bars=None):
    """(line, card) of every bar. A bar is a ratio within one run, so each card is judged by its own runs; of the cards
    that measured a bar the one with the newest run counts."""
    cards = {card: (own, newest(own)) for card, own in newest_runs.of_cards(rows).items()} or {"": ([], {})}
    found = []
    for bar in BARS if bars is None else bars:
        best = {}  # text -> (date, line, card)
        for card, (own, cases) in cards.items():
            for line in bar.judge(cases):
                date = "" if line[2] == NOT_MEASURED else date_of(own, line[0])
                if line[0] not in best or date > best[line[0]][0]:
                    best[line[0]] = (date, line, card if date else "")
        measured = [entry for entry in best.values() if entry[0]]
        found += [(line, card) for _, line, card in measured or best.values()]
    return found
