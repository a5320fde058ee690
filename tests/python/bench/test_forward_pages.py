"""Sections and bars of docs/performance.md for attention over lengths and for whole forward passes."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench")]

from pages import forward_bars, forward_page  # noqa: E402
from pages.bars import NOT_MEASURED, judge  # noqa: E402
from tegula_bench.results import results_file  # noqa: E402
from tegula_bench.results.newest_runs import newest  # noqa: E402

NOTE = "mean 0.21 ms; std 0.01 ms; p95 0.22 ms; p99 0.23 ms"


def row(op, shape, impl, ms, config="", dtype="f32", **more):
    return dict(op=op, dir="fwd", dtype=dtype, shape=shape, impl=impl, config=config, ms=ms, note=NOTE, tokens_per_s=1000.0, **more)


@pytest.fixture
def cases(tmp_path):
    def make(*rows, suite="forward", card="NVIDIA H200"):
        run = results_file.Run(tmp_path / "rows.csv", "abc", suite, device=card, driver="d")
        run.append(rows)
        return newest(results_file.read(tmp_path / "rows.csv"))

    return make


def test_attention_over_lengths(cases):
    shapes = ("b4_h8_s256_d64", "b4_h8_s128_d64_causal", "b4_h8_s128_d128", "b4_h8_s128_d64")
    rows = []
    for place, shape in enumerate(shapes):
        common = dict(op="attention", dir="fwd", dtype="f16", shape=shape, flops=5e8 * (place + 1))
        rows += [{**common, "impl": "tegula:sm90", "ms": 0.01, "roof_share": 0.05}, {**common, "impl": "cudnn", "ms": 0.02, "roof_share": 0.025}]
    lines = list(forward_page.attention_section(cases(*rows, suite="attention_sizes")))
    assert lines[0] == "## Attention over lengths" and any("NVIDIA H200, commit `abc`" in line for line in lines)
    table = [line for line in lines if line.startswith("| attention")]
    assert [line.split(" | ")[1:4] for line in table] == [["64", "all", "128"], ["64", "all", "256"], ["64", "causal", "128"], ["128", "all", "128"]]
    assert "| 0.01 | 200.0 | 5.0 | 0.02 | 2.5 | 2.00 |" in table[0]
    assert list(forward_page.attention_section({})) == [] == list(forward_page.forward_section({}))


def test_forward_passes(cases):
    found = cases(
        row("gpt_nano", "b4_s64", "tegula", 0.1, "tegula bench forward"),
        row("gpt-3x48", "b1_s64", "tegula", 0.1), row("gpt-3x48", "b1_s64", "compile", 0.25),
    )  # fmt: skip
    text = "\n".join(forward_page.forward_section(found))
    assert "| gpt_nano | f32 | b4_s64 | tegula | tegula bench forward | 0.1 | 0.21 | 0.01 | 0.22 | 0.23 | 1,000 |" in text
    assert "| gpt-3x48 | b1_s64 | 0.100 | 0.250 | 2.50 |" in text


@pytest.mark.parametrize(
    "card, ours, peer, met",
    [("NVIDIA H200", 0.19, 0.3, True), ("NVIDIA H200", 0.21, 0.3, False), ("NVIDIA H200", 0.19, 0.18, False), ("NVIDIA H100", 0.21, 0.3, True)],
)
def test_headline_bar(cases, card, ours, peer, met):
    rows = [row("gpt_tile_medium", "b8_s128", "tegula", ours, "tegula bench forward", "bf16"),
            row("gpt_tile_medium", "b8_s128", "tegula", 9.0, "from Python", "bf16"),
            row("gpt_tile_medium", "b8_s128", "reduce-overhead", 0.4, "from Python", "bf16"),
            row("gpt_tile_medium", "b8_s128", "compile+graph", peer, "from Python", "bf16")]  # fmt: skip
    ((_, _, got, is_met),) = forward_bars.BARS[0].judge(cases(*rows, card=card))
    assert is_met is met and got.startswith(f"{ours:.3f} ms, ")


def test_other_bars(cases):
    assert all(line[2] == NOT_MEASURED and not line[3] for line in judge({}, forward_bars.BARS))
    found = cases(
        row("gpt-3x48", "b1_s64", "tegula", 0.1), row("gpt-3x48", "b1_s64", "compile", 0.25),
        row("gpt-3x48", "b16_s256", "tegula", 2.0), row("gpt-3x48", "b16_s256", "compile", 1.9),
        row("gpt-6x384", "b1_s8_n256", "tegula", 101.0, "cuda"), row("gpt-6x384", "b1_s8_n256", "tegula generate", 100.0, "cuda"),
        row("gpt-6x384", "b1_s8_n256", "tegula", 103.0, "cpu"), row("gpt-6x384", "b1_s8_n256", "tegula generate", 100.0, "cpu"),
    )  # fmt: skip
    judged = {text: (got, met) for text, _, got, met in judge(found, forward_bars.BARS)}
    assert judged["gpt-3x48 forward, f32, every shape"] == ("0.95x at the least (b16_s256; 2 of 12 measured)", False)
    assert judged["gpt-6x384 256 tokens from Python, f32 b1_s8_n256, cuda"] == ("1.010x", True)
    assert judged["gpt-6x384 256 tokens from Python, f32 b1_s8_n256, cpu"] == ("1.030x", False)
    shapes = [f"b{batch}_s{seq}" for batch in (1, 4, 8, 16) for seq in (64, 128, 256)]
    whole = cases(*(row("gpt-8x512", shape, impl, ms) for shape in shapes for impl, ms in (("tegula", 1.0), ("compile", 1.5))))
    judged = {text: (got, met) for text, _, got, met in judge(whole, forward_bars.BARS)}
    assert judged["gpt-8x512 forward, f32, every shape"][1]
