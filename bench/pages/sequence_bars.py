"""The bars of decoding and prefill on a GPU (bench/decode_speed.py): tokens a second on an H200, beside
the peer on every card."""

import dataclasses

from pages.bars import NOT_MEASURED, number


def rows_of(cases, model, shape, direction="decode"):
    return cases.get(("engine", model, direction, "bf16", shape), [])


def rate_of(rows, impl):
    found = [number(row, "tokens_per_s") for row in rows if row["impl"] == impl]
    return max(found) if found else 0


@dataclasses.dataclass
class OneSequence:
    """Tokens a second of one sequence, behind 512."""
    model: str
    least: float
    shape: str = "b1_tg128@d512"

    def judge(self, cases):
        rows = rows_of(cases, self.model, self.shape)
        text = f"{self.model} decode, bf16 {self.shape}"
        want = f"{self.least:.4g} tok/s on an H200, and 1x static cache with compile"
        ours, peer = rate_of(rows, "tegula"), rate_of(rows, "hf")
        if not ours or not peer:
            return [(text, want, NOT_MEASURED, False)]
        met = ours >= peer and (ours >= self.least or "H200" not in rows[0]["device"])
        return [(text, want, f"{ours:.0f} tok/s, {ours / peer:.2f}x", met)]


@dataclasses.dataclass
class ManySequences:
    """Tokens a second of 32 sequences over those of one."""
    model: str
    least: float

    def judge(self, cases):
        one, many = [rate_of(rows_of(cases, self.model, f"b{batch}_tg128@d512"), "tegula")
                     for batch in (1, 32)]
        text, want = f"{self.model} decode, bf16 b32_tg128@d512", f"{self.least:g}x one sequence"
        if not one or not many:
            return [(text, want, NOT_MEASURED, False)]
        return [(text, want, f"{many / one:.1f}x, {many:.0f} tok/s", many >= self.least * one)]


@dataclasses.dataclass
class Prompt:
    """Tokens a second of a prompt over those of our own forward pass in training."""
    model: str
    least: float = 0.9
    shape: str = "b1_pp2048"

    def judge(self, cases):
        rows = rows_of(cases, self.model, self.shape, "prefill")
        text = f"{self.model} prefill, bf16 {self.shape}"
        want = f"{self.least:g}x the rate of our training forward"
        ours, training = rate_of(rows, "tegula"), rate_of(rows, "training_forward")
        if not ours or not training:
            return [(text, want, NOT_MEASURED, False)]
        return [(text, want, f"{ours / training:.2f}x, {ours:.0f} tok/s", ours >= self.least * training)]


BARS = [
    OneSequence("gpt2", 5000),
    OneSequence("qwen3-0.6b", 2200),
    OneSequence("qwen3-8b", 260),
    ManySequences("qwen3-8b", 20),
    Prompt("qwen3-0.6b"),
    Prompt("qwen3-8b"),
]
