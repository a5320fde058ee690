"""Decoding and prefill on a GPU: bars, a section of docs/performance.md, README's sentence."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench")]

from pages import decode_page, gpu_bars, headline, performance, sequence_bars  # noqa: E402
from pages.bars import NOT_MEASURED, judge  # noqa: E402
from tegula_bench.results import results_file  # noqa: E402
from tegula_bench.results.newest_runs import newest  # noqa: E402

ONE, MANY, PROMPT = "b1_tg128@d512", "b32_tg128@d512", "b1_pp2048"


def row(op, shape, impl, rate, config=""):
    batch = int(shape[1:].partition("_")[0])
    return dict(op=op, dir="prefill" if "pp" in shape else "decode", dtype="bf16", shape=shape, impl=impl, config=config,
                version="torch 2.11.0 transformers 5.17.0" if impl == "hf" else "0.1.0", ms=1e3 * batch / rate,
                tokens_per_s=rate)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.csv"


@pytest.fixture
def recorded(path):
    def make(*rows, card="NVIDIA H200"):
        run = results_file.Run(path, "abcdef01", "engine", device=card, driver="d")
        run.append(rows)
        return newest(results_file.read(path))

    return make


def judged(cases, text):
    return [line for line in judge(cases, sequence_bars.BARS) if line[0].startswith(text)]


def test_every_row_of_the_table_has_its_bar(recorded):
    lines = judge(recorded(), sequence_bars.BARS)
    assert [line[0] for line in lines] == [
        f"gpt2 decode, bf16 {ONE}", f"qwen3-0.6b decode, bf16 {ONE}", f"qwen3-8b decode, bf16 {ONE}",
        f"qwen3-8b decode, bf16 {MANY}", f"qwen3-0.6b prefill, bf16 {PROMPT}", f"qwen3-8b prefill, bf16 {PROMPT}"]
    assert all(line[2] == NOT_MEASURED and not line[3] for line in lines)
    assert all(bar in gpu_bars.BARS for bar in sequence_bars.BARS)


@pytest.mark.parametrize(
    "card, ours, peer, met",
    [("NVIDIA H200", 260, 100, True), ("NVIDIA H200", 259, 100, False), ("NVIDIA H200", 270, 271, False), ("NVIDIA H100", 200, 100, True)],
)
def test_one_sequence_has_a_rate_and_a_peer(recorded, card, ours, peer, met):
    cases = recorded(row("qwen3-8b", ONE, "tegula", ours), row("qwen3-8b", ONE, "hf", peer), card=card)
    (line,) = judged(cases, f"qwen3-8b decode, bf16 {ONE}")
    assert line[2:] == (f"{ours} tok/s, {ours / peer:.2f}x", met)


def test_one_sequence_without_its_peer_is_open(recorded):
    (line,) = judged(recorded(row("gpt2", ONE, "tegula", 6000)), "gpt2 decode")
    assert line[2:] == (NOT_MEASURED, False)


@pytest.mark.parametrize("many, met", [(5200, True), (5199, False)])
def test_many_sequences_are_a_multiple_of_one(recorded, many, met):
    (line,) = judged(recorded(row("qwen3-8b", ONE, "tegula", 260), row("qwen3-8b", MANY, "tegula", many)), f"qwen3-8b decode, bf16 {MANY}")
    assert line[3] == met


@pytest.mark.parametrize("rate, met", [(27000, True), (26990, False)])
def test_a_prompt_is_a_share_of_the_training_forward(recorded, rate, met):
    cases = recorded(row("qwen3-8b", PROMPT, "tegula", rate), row("qwen3-8b", PROMPT, "training_forward", 30000))
    (line,) = judged(cases, "qwen3-8b prefill")
    assert line[2:] == (f"0.90x, {rate} tok/s", met)


ROWS = [
    row("qwen3-8b", PROMPT, "tegula", 27000, "one kernel"), row("qwen3-8b", PROMPT, "training_forward", 30000),
    row("qwen3-8b", ONE, "tegula", 260, "one kernel (qwen3-8b; 128 blocks)"), row("qwen3-8b", ONE, "hf", 130),
    row("gpt2", ONE, "tegula", 6000, "one kernel (gpt2-124m; 96 blocks)"), row("gpt2", ONE, "hf", 2000),
]  # fmt: skip


def test_the_section_names_plans_and_peers(recorded, path):
    recorded(*ROWS)
    text = "\n".join(performance.document([], results_file.read(path)))
    assert text.index("| GPT-2 124M | one sequence | 6000 |") < text.index("| Qwen3-8B | one sequence | 260 |")
    assert "| one kernel (qwen3-8b; 128 blocks) | transformers, static cache and torch.compile 130 (2.00) |" in text
    assert "| Qwen3-8B | a prompt of 2048 | 27000 | 0.037 | one kernel | our forward pass in training 30000 (0.90) |" in text
    assert list(decode_page.section({}, "")) == []


def test_the_readme_says_it_beside_training(recorded):
    cases = recorded(*ROWS)
    said = ("With 512 tokens in the cache it decodes one sequence in bf16 at 6000 tokens/s (GPT-2 124M) and 260 tokens/s (Qwen3-8B): "
            "3.00 and 2.00 times transformers with a static cache and torch.compile.")  # fmt: skip
    assert decode_page.sentence(cases) == said and decode_page.sentence({}) == ""
    assert said not in "\n".join(headline.lines(cases))  # a caption needs its chart
    step = dict(op="qwen3-8b", dir="step", dtype="bf16", shape="b1_s4096", config="", version="0.1.0", ms=300.0, tokens_per_s=11000.0,
                peak_bytes=7e10, impl="tegula", device="NVIDIA H200", commit="0123456789", suite="model")  # fmt: skip
    peer = {**step, "impl": "hf", "ms": 400.0, "version": "torch 2.11.0 transformers 5.17.0"}
    cases["model", "qwen3-8b", "step", "bf16", "b1_s4096"] = [{key: str(value) for key, value in found.items()} for found in (step, peer)]
    text = "\n".join(headline.lines(cases))
    assert said in text and "one NVIDIA H200 at commits 0123456 and abcdef0," in text
    found = [line[:3] for line in headline.main_figures({}, cases)]
    assert ("GPT-2 124M, decoding one sequence behind 512 tokens, bf16", "6000 tokens/s",
            "transformers, static cache and torch.compile 2000 tokens/s") in found
