"""The record of the benchmarks and what is made of it: columns, resuming, bars."""

import importlib.util
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))

from pages import accuracy_page  # noqa: E402
from pages import bars  # noqa: E402
import busy_machine  # noqa: E402
from pages import gpu_bars  # noqa: E402
import gpu_cases  # noqa: E402
from pages import kernel_pages  # noqa: E402
from pages import performance  # noqa: E402
import results_csv  # noqa: E402
from shape_words import NotServed, Words  # noqa: E402

try:
    import gpu_providers
    from peers.peer_problem import Peer, Problem
except ImportError:
    gpu_providers = None
needs_torch = pytest.mark.skipif(gpu_providers is None, reason="without PyTorch")

ATTENTION = dict(op="attention", dir="fwd", dtype="f32", shape="b1_h12_s1024_d64_causal")
SHARE = "attention forward, f32 b1_h12_s1024_d64_causal: 45% of fma_f32"


def append(path, suite, rows, commit="c0ffee", date="2026-01-01T00:00:00Z"):
    run = results_csv.Run(path, commit, suite)
    run.common["date"] = date
    run.common["run"] += date
    run.append([dict(dict(config="threads=2", version="0", ms=1.0), **row) for row in rows])


def attention_share(path, share, roof="fma_f32", date="2026-01-01T00:00:00Z"):
    append(path, "ops", [dict(ATTENTION, impl="tegula:avx512", roof=roof, roof_share=share)],
           date=date)


def judged(path, text):
    cases = performance.newest(results_csv.read(path))
    return [line for line in performance.judge(cases)
            if text in f"{line[0]}: {line[1]}"]


def test_both_writers_have_the_same_columns():
    header = (ROOT / "bench/programs/record.h").read_text()
    macro = re.search(r"#define RECORD_COLUMNS(.*?)\n\n", header, re.S).group(1)
    assert "".join(re.findall(r'"(.*?)"', macro)).split(",") == results_csv.COLUMNS


def test_rates_follow_from_the_time(tmp_path):
    path = tmp_path / "cpu.csv"
    append(path, "ops", [dict(ATTENTION, impl="tegula:avx512", bytes=2e6, flops=3e9)])
    row = results_csv.read(path)[0]
    assert (float(row["gbps"]), float(row["tflops"])) == (2.0, 3.0)


@pytest.mark.parametrize(("share", "roof", "met"), [
    (0.46, "fma_f32", True), (0.44, "fma_f32", False), (0.99, "copy", False)])
def test_a_bar_wants_its_share_of_its_roof(tmp_path, share, roof, met):
    path = tmp_path / "cpu.csv"
    attention_share(path, share, roof)
    assert [line[3] for line in judged(path, SHARE)] == [met]


def test_the_newest_run_decides(tmp_path):
    path = tmp_path / "cpu.csv"
    attention_share(path, 0.3, date="2026-01-02T00:00:00Z")
    attention_share(path, 0.9, date="2026-01-01T00:00:00Z")
    assert [line[3] for line in judged(path, SHARE)] == [False]


def pair(ours, peer):
    case = dict(op="linear", dir="fwd", dtype="bf16", shape="8x8x8", config="graph")
    return [dict(case, impl="tegula:sm90", ms=ours), dict(case, impl="torch", ms=peer)]


def test_a_case_measured_twice_keeps_ours_with_its_peers(tmp_path):
    path = tmp_path / "h200.csv"
    append(path, "gpu", [*pair(0.2006, 0.2004), *pair(0.1752, 0.1753)])
    (rows,) = performance.newest(results_csv.read(path)).values()
    assert [row["ms"] for row in rows] == ["0.2006", "0.2004"]
    assert performance.beside(rows) == "torch 200.4 (1.00)"


def test_ours_timed_again_behind_its_peers_is_one_measurement(tmp_path):
    path = tmp_path / "h200.csv"
    append(path, "gpu", [*pair(0.25, 0.26), pair(0.24, 0)[0]])
    (rows,) = performance.newest(results_csv.read(path)).values()
    assert [row["ms"] for row in rows] == ["0.25", "0.26", "0.24"]


def test_a_peer_in_two_settings_is_named_with_them(tmp_path):
    path = tmp_path / "h200.csv"
    ours, peer = pair(0.1, 0.2)
    append(path, "gpu", [ours, dict(peer, config="sets=2 events"), dict(peer, config="sets=2 events sums in f32", ms=0.3)])
    (rows,) = performance.newest(results_csv.read(path)).values()
    assert performance.beside(rows) == "torch 200.0 (2.00), torch (sums in f32) 300.0 (3.00)"


@pytest.mark.parametrize(("op", "shape", "floor"), [
    ("linear", "8x8x8", 1000.0), ("linear_int8", "8x8x8", 1000.0), ("linear_int8", "8x8x8_dynamic", 568.3),
    ("linear_fp8_fp8", "8x8x8_xf8", 568.3)])
def test_products_of_8_bits_have_a_rate_of_their_own(op, shape, floor):
    row = dict(op=op, shape=shape, device="NVIDIA H200", bytes="1", flops="790e9")
    assert round(kernel_pages.floor_us(row), 1) == floor


def test_every_recorded_shape_counts(tmp_path):
    path = tmp_path / "cpu.csv"
    rows = [dict(op="gelu", dir="fwd", dtype="f32", shape=shape, impl="tegula:avx512", roof="copy",
                 roof_share=share) for shape, share in (("8x8", 0.9), ("9x9", 0.8))]
    append(path, "ops", rows)
    assert [line[3] for line in judged(path, "gelu forward")] == [True, False]


def test_what_was_not_measured_is_open(tmp_path):
    lines = performance.judge(performance.newest(results_csv.read(tmp_path / "none.csv")))
    assert lines and not any(line[3] for line in lines)


# Against PyTorch, against llm.c, memory below both.
@pytest.mark.parametrize(("ms", "peak", "met"), [
    (1000.0, 2e9, [True, True, True]), (1100.0, 2e9, [False, True, True]),
    (1600.0, 2e9, [False, False, True]), (1000.0, 2.5e9, [True, True, False])])
def test_the_training_step_is_a_ratio(tmp_path, ms, peak, met):
    path = tmp_path / "cpu.csv"
    case = dict(op="gpt2-124m", dir="step", dtype="f32", shape="b4_s64")
    run = results_csv.Run(path, "c0ffee", "model")
    run.append([dict(case, config="threads=2", impl="tegula", ms=ms, peak_bytes=peak),
                dict(case, config="threads=2", impl="llm.c", ms=4400.0, peak_bytes=2.6e9),
                dict(case, config="threads=2 eager malloc=tuned", impl="torch", ms=1700.0,
                     peak_bytes=2.4e9),
                dict(case, config="threads=2 eager", impl="torch", ms=100.0, peak_bytes=2.4e9)])
    assert [line[3] for line in judged(path, "gpt2-124m step, f32 b4_s64")] == met


@pytest.mark.parametrize(("suite", "peer", "where", "ms", "met"), [
    ("busy", "one_thread", "on a busy machine", 1.1, True), ("busy", "one_thread", "on a busy machine", 1.2, False),
    ("pool", "libgomp", "on the pool of threads", 1.02, True), ("pool", "libgomp", "on the pool of threads", 1.03, False)])
def test_threads_are_a_ratio(tmp_path, suite, peer, where, ms, met):
    """Beside the steps of the same name on an idle machine, which have bars of their own."""
    path, case = tmp_path / "cpu.csv", dict(op="gpt2-124m", dir="decode", dtype="f32", shape="b1_s64")
    append(path, suite, [dict(case, impl="tegula", ms=ms), dict(case, impl=peer, ms=1.0)])
    assert [line[3] for line in judged(path, f"gpt2-124m decode {where}, f32 b1_s64")] == [met]
    assert "decode" not in "\n".join(performance.step_section(performance.newest(results_csv.read(path))))


@pytest.fixture
def sides(monkeypatch):
    """Two sides whose figures and whose load of others are told in advance; (sides, figures, loads)."""
    found = [busy_machine.Side(name, pathlib.Path(name), 2) for name in ("tegula", "libgomp")]
    figures, loads = {"tegula": 1.0, "libgomp": 1.0}, []
    monkeypatch.setattr(busy_machine, "seconds_of", lambda case, side, key: figures[side.impl])
    monkeypatch.setattr(busy_machine.quiet.Load, "others", lambda self: loads.pop(0) if loads else 0.0)
    return found, figures, loads


@pytest.mark.parametrize(("theirs", "status", "said"), [(0.99, 0, "0.990x of 0.98x"), (0.97, 1, "NOT MET")])
def test_both_sides_take_turns(sides, capsys, theirs, status, said):
    found, figures, _ = sides
    figures["libgomp"] = theirs
    samples, load = busy_machine.take_turns(busy_machine.IDLE, found, "ms", 0, 0.1)
    assert {len(taken) for taken in samples.values()} == {busy_machine.LEAST_ROUNDS} and load == 0
    assert busy_machine.report("Idle", busy_machine.IDLE, found, samples) == status
    assert said in capsys.readouterr().out


def test_rounds_that_others_disturb_do_not_count(sides, capsys):
    found, _, loads = sides
    loads += [0.05, 0.5, 0.04]
    samples, load = busy_machine.take_turns(busy_machine.IDLE[:1], found, "ms", 0, 0.1)
    assert {len(taken) for taken in samples.values()} == {2} and load == 0.05
    assert busy_machine.report("Idle", busy_machine.IDLE[:1], found, samples) == 3
    assert "2 quiet rounds of 3" in capsys.readouterr().out
    loads += [0.5] * 3
    samples, load = busy_machine.take_turns(busy_machine.BUSY[:1], found, "ms", 0, None)
    assert {len(taken) for taken in samples.values()} == {3} and load == 0.5


def test_every_bar_of_threads_has_a_case():
    cases = {(case.op, case.dir, case.shape, case.required) for case in busy_machine.BUSY + busy_machine.IDLE}
    assert cases == {(bar.op, bar.dir, bar.shape, bar.required) for bar in bars.thread_bars()}
    for case in busy_machine.BUSY + busy_machine.IDLE:
        bar = next(bar for bar in bars.thread_bars() if (bar.op, bar.dir, bar.required) == (case.op, case.dir, case.required))
        assert bar.suite == ("busy" if case in busy_machine.BUSY else "pool")


def test_tokenizers_have_ratios_and_limits(tmp_path):
    path = tmp_path / "cpu.csv"
    case = dict(op="tokenize", dtype="utf8", config="threads=1")
    append(path, "text", [dict(case, dir="encode", shape="qwen3_english", impl=impl, ms=ms, bytes=1e6)
                          for impl, ms in (("tegula", 40.0), ("tiktoken", 79.0), ("tokenizers", 800.0))])
    append(path, "text", [dict(case, dir="load", shape=shape, impl="tegula", ms=ms)
                          for shape, ms in (("qwen3", 250.0), ("o200k", 601.0))])
    found = {line[0] + ", " + line[1]: line[2:] for line in judged(path, "tokenize ")}
    assert len(found) == 10
    assert found["tokenize encoding, utf8 qwen3_english, 2x tiktoken"] == ("1.975x", False)
    assert found["tokenize encoding, utf8 qwen3_english, 10x tokenizers"] == ("20.000x", True)
    assert found["tokenize loading, utf8 qwen3: time, at most 0.25 s"] == ("0.250 s", True)
    assert found["tokenize loading, utf8 o200k: time, at most 0.6 s"] == ("0.601 s", False)
    text = "\n".join(performance.document(results_csv.read(path), []))
    assert "## Tokenizers" in text
    assert "| encoding qwen3_english | tiktoken 0 | 79.0 | 12.7 | 1.98 |" in text


def test_resuming_wants_one_run_with_everyone(tmp_path):
    path = tmp_path / "cpu.csv"
    impls = ["tegula:avx512", "torch"]
    append(path, "peers", [dict(ATTENTION, impl=impls[0])], date="2026-01-01T00:00:00Z")
    append(path, "peers", [dict(ATTENTION, impl=impls[1])], date="2026-01-02T00:00:00Z")
    case = dict(ATTENTION, suite="peers")
    assert not results_csv.recorded(results_csv.read(path), "c0ffee", case, impls)
    append(path, "peers", [dict(ATTENTION, impl=i) for i in impls], date="2026-01-03T00:00:00Z")
    assert results_csv.recorded(results_csv.read(path), "c0ffee", case, impls)
    assert not results_csv.recorded(results_csv.read(path), "another", case, impls)


def test_the_document_lists_open_bars(tmp_path):
    path = tmp_path / "cpu.csv"
    attention_share(path, 0.1)
    text = "\n".join(performance.bars_document(results_csv.read(path), []))
    assert "- attention forward, f32 b1_h12_s1024_d64_causal: 45% of fma_f32 required, " \
           "10.0% of fma_f32." in text
    assert "GPU" not in text


def test_the_document_judges_a_gpu_beside_its_copy(tmp_path):
    path = tmp_path / "h200.csv"
    case = dict(op="add_rms_norm", dir="fwd", dtype="bf16", shape="8192x4096", config="graph")
    append(path, "gpu", [dict(case, impl="tegula:sm80", ms=0.1, roof="copy", roof_share=0.94),
                         dict(case, impl="copy", ms=0.094)])
    text = "\n".join(performance.bars_document([], results_csv.read(path)))
    assert "- add_rms_norm forward, bf16 8192x4096: 95% of copy required, 94.0% of copy." in text


def on_card(path, device, date, **more):
    case = dict(op="add_rms_norm", dir="fwd", dtype="bf16", shape="8192x4096", config="graph", device=device)
    append(path, "gpu", [dict(case, impl="tegula:sm80", roof="copy", **more),
                         dict(case, impl="liger", ms=0.2, version="0.8.5"), dict(case, impl="copy", ms=0.094)], date=date)


def test_the_newest_run_of_any_card_judges_a_bar(tmp_path):
    paths = results_csv.cards(tmp_path)
    on_card(paths[0], "NVIDIA H200", "2026-01-01T00:00:00Z", ms=0.1, roof_share=0.94)
    on_card(paths[1], "NVIDIA H100 80GB HBM3", "2026-01-02T00:00:00Z", ms=0.125, roof_share=0.96)
    rows = [row for path in paths for row in results_csv.read(path)]
    text = "\n".join(performance.bars_document([], rows))
    assert "| add_rms_norm forward, bf16 8192x4096 | 95% of copy | 96.0% of copy | NVIDIA H100 80GB HBM3 | yes |" in text
    on_card(paths[0], "NVIDIA H200", "2026-01-03T00:00:00Z", ms=0.1, roof_share=0.94)
    rows = [row for path in paths for row in results_csv.read(path)]
    text = "\n".join(performance.bars_document([], rows))
    assert "| add_rms_norm forward, bf16 8192x4096 | 95% of copy | 94.0% of copy | NVIDIA H200 | **no** |" in text
    assert "not measured |  | **no** |" in text


def test_figures_stand_card_by_card(tmp_path):
    paths = results_csv.cards(tmp_path)
    on_card(paths[0], "NVIDIA H200", "2026-01-01T00:00:00Z", ms=0.1, roof_share=0.94, bytes=210e6)
    on_card(paths[1], "NVIDIA H100 80GB HBM3", "2026-01-02T00:00:00Z", ms=0.125, roof_share=0.96, bytes=210e6)
    rows = [row for path in paths for row in results_csv.read(path)]
    text = "\n".join(performance.document([], rows))
    first, second = text.split("## Ops on a GPU beside a copy and their peers: NVIDIA H100 80GB HBM3")
    assert "8192x4096 | 100.0 |" in first and "8192x4096 | 125.0 |" in second
    assert "liger 0.8.5 200.0 (2.00)" in first and "`h200.csv`, `h100.csv`" in text
    cards = [performance.newest(own) for own in performance.newest_runs.of_cards(rows).values()]
    page = "<!-- figures: add_rms_norm -->\n<!-- end of figures -->\n"
    page = kernel_pages.page_with_figures(page, *cards)
    assert "| 210 | 0 | 50.0 | 100.0 | 50% | 94.0% |" in page and "| 210 | 0 |  | 125.0 |  | 96.0% |" in page


@needs_torch
def test_every_set_of_arrays_is_timed_with_its_peers_own_function(monkeypatch):
    """Calls for further sets are made when all kinds are known."""
    variants = [(name, (lambda name: lambda: f"liger {name}")(name), True) for name in "ab"]
    monkeypatch.setattr(gpu_providers.liger_peers, "variants", lambda *_: variants)
    monkeypatch.setattr(gpu_providers.liger_peers, "version", lambda: "0")
    monkeypatch.setattr(gpu_providers, "own_copy", lambda formula: formula)

    class Formula:
        def __init__(self, number):
            self.number = number

        def caller(self, function):
            return lambda: f"{function()} {self.number}"

    def problem(number):
        peers = [Peer(impl, lambda impl=impl: f"{impl} {number}") for impl in ("torch", "x", "y")]
        return Problem({}, peers, formula=Formula(number))

    case = gpu_cases.Case("gelu", "fwd", "8x8", compiled=False, libraries=("x", "y"))
    kinds = list(gpu_providers.kinds(case, problem(1), ("torch", "liger"),
                                     {"liger": object()}))
    assert [(kind[0], kind[1]) for kind in kinds] == [
        ("torch", ""), ("x", ""), ("y", ""), ("liger", "a"), ("liger", "b")]
    for number in (1, 2):
        assert [make(problem(number))() for _, _, _, make, _ in kinds] == [
            f"{name} {number}" for name in ("torch", "x", "y", "liger a", "liger b")]


@needs_torch
def test_libraries_that_a_case_does_not_name_are_not_timed():
    problem = Problem({}, [Peer("torch", None), Peer("onednn", None)])
    case = gpu_cases.Case("linear", "fwd", "8x8x8", compiled=False)
    assert [kind[0] for kind in gpu_providers.kinds(case, problem, ("torch",), {})] == ["torch"]


@needs_torch
def test_a_peer_beside_pytorch_is_wanted_by_its_own_name(monkeypatch):
    monkeypatch.setattr(gpu_providers.fa4_peer, "load", lambda: True)
    problem = Problem({}, [Peer("torch", None), Peer("fa2", None), Peer("fa4", None)])
    case = gpu_cases.Case("attention", "fwd", "s8", compiled=False, libraries=("fa2", "fa4"))
    for wanted, impls in ((("torch",), ["torch", "fa2"]), (("fa4",), ["fa4"]),
                          (gpu_providers.PEERS, ["torch", "fa2", "fa4"])):
        assert [kind[0] for kind in gpu_providers.kinds(case, problem, wanted, {})] == impls


@needs_torch
def test_a_library_that_is_not_installed_is_left_out_and_said_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "quack", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert gpu_providers.load_libraries(("torch", "quack")) == {}
    assert "quack is left out: no package quack, cutlass" in capsys.readouterr().err


def test_every_brief_case_is_a_case():
    assert set(gpu_cases.BRIEF) <= {(case.op, case.dir, case.shape) for case in gpu_cases.CASES}


@pytest.mark.parametrize(("us", "met"), [(49.0, True), (51.0, False)])
def test_a_window_is_judged_by_whole_blocks(tmp_path, us, met):
    path = tmp_path / "h200.csv"
    for shape, ms in ((gpu_cases.UNMASKED_SHAPE, 1.0), (gpu_cases.WINDOW_SHAPE, us / 1e3)):
        append(path, "gpu", [dict(op="attention", dir="fwd", dtype="bf16", shape=shape, ms=ms,
                                  impl="tegula:sm90", flops=4e11, config="graph")])
    rows = results_csv.read(path)
    lines = performance.judge(performance.newest(rows), gpu_bars.BARS)
    assert [line[3] for line in lines if line[0].endswith(gpu_cases.WINDOW_SHAPE)] == [met, False]
    assert f"{gpu_cases.UNMASKED_SHAPE} | 1000.0 | 0 | 400 |" in "\n".join(
        performance.document([], rows))


def test_every_bar_of_attention_has_a_case():
    cases = {(case.op, case.dir, case.shape) for case in gpu_cases.CASES}
    for bar in gpu_bars.attention_bars():
        shape = getattr(bar, "shape", gpu_cases.WINDOW_SHAPE)
        assert ("attention", bar.dir, shape) in cases
    judged_at = {(case.dir, case.shape) for case in gpu_cases.CASES
                 if gpu_cases.OLDER_ENTRY in case.entries}
    assert judged_at == {(bar.dir, bar.shape) for bar in gpu_bars.attention_bars()
                         if getattr(bar, "suite", "") == gpu_cases.suite_of(gpu_cases.OLDER_ENTRY)}


@pytest.mark.parametrize(("ms", "met"), [(1.1, True), (1.2, False)])
def test_uneven_sequences_are_judged_by_their_rate(tmp_path, ms, met):
    path = tmp_path / "h200.csv"
    case = dict(op="attention", dir="fwd", dtype="bf16", impl="tegula:sm90", config="graph")
    append(path, "gpu", [dict(case, shape=gpu_cases.EVEN_SHAPE, ms=1.0, flops=1e12)])
    append(path, "gpu", [dict(case, shape=gpu_cases.PACKED_SHAPE, ms=ms, flops=1e12)])
    lines = performance.judge(performance.newest(results_csv.read(path)), gpu_bars.BARS)
    assert [line[3] for line in lines if line[0].endswith(gpu_cases.PACKED_SHAPE)] == [met, False]


def test_an_older_entry_is_judged_by_its_own_figures(tmp_path):
    path = tmp_path / "h200.csv"
    case = dict(op="attention", dir="fwd", dtype="bf16", shape=gpu_cases.OLDER_SHAPES[0],
                config="graph")
    append(path, "gpu", [dict(case, impl="tegula:sm90", ms=0.4), dict(case, impl="fa2", ms=0.8)])
    append(path, gpu_cases.suite_of("sm80"), [dict(case, impl="tegula:sm80", ms=0.9),
                                              dict(case, impl="fa2", ms=0.8)])
    rows = results_csv.read(path)
    lines = {line[0]: line[2:] for line in performance.judge(performance.newest(rows),
                                                             gpu_bars.BARS)}
    assert lines[f"attention forward by sm80, bf16 {case['shape']}"] == ("0.889x", False)
    assert f"attention fwd by sm80 | bf16 | {case['shape']} | 900.0" in "\n".join(
        performance.document([], rows))


@needs_torch
def test_uneven_lengths_are_those_whose_flops_are_known():
    from peers.attention_peers import uneven_lengths

    words = Words(gpu_cases.PACKED_SHAPE)
    lengths = uneven_lengths(words.number("b", 0), words.number("s", 0))
    assert (min(lengths), max(lengths), sum(lengths)) == (64, 4096, 32768)
    pairs = sum(n * (n + 1) // 2 for n in lengths)
    assert gpu_cases.PACKED_FLOPS == 4 * words.number("h", 0) * words.number("d", 0) * pairs


def test_a_word_that_nobody_read_is_refused():
    words = Words("16x32_offset_t3")
    assert words.extents == [16, 32] and words.number("t", 1) == 3
    with pytest.raises(NotServed, match="offset"):
        words.done()


def test_the_geometric_mean_takes_each_case_once(tmp_path):
    path = tmp_path / "cpu.csv"
    for shape, ms in (("8x8", 1.0), ("9x9", 4.0)):
        case = dict(op="gelu", dir="fwd", dtype="f32", shape=shape)
        append(path, "peers", [dict(case, impl="tegula:avx512"), dict(case, impl="torch", ms=ms)])
    (line,) = judged(path, "geometric mean")
    assert line[2:] == ("2.00x", True)


def test_pages_of_kernels_get_their_figures(tmp_path):
    path = tmp_path / "h200.csv"
    case = dict(op="softmax", dir="fwd", dtype="bf16", shape="8x8", config="graph", bytes=4.2e8,
                flops=1e9)
    append(path, "gpu", [dict(case, impl="tegula:sm90", ms=0.2, roof="copy", roof_share=0.5),
                         dict(case, impl="copy", ms=0.1), dict(case, impl="torch", ms=0.4)])
    append(path, "host", [dict(case, dir="call", impl="tegula", ms=0.001)])
    cases = performance.newest(results_csv.read(path))
    page = ("# softmax\n\n<!-- figures: softmax gelu -->\nof before\n<!-- end of figures -->\n\n"
            "## Tried\n")
    text = kernel_pages.page_with_figures(page, cases)
    assert "| softmax fwd bf16 8x8 | 420 | 1 | 100.0 | 200.0 | 50% | 50.0% | torch 400.0 (2.00) |" \
        in text
    assert "Of `gelu` the record holds nothing on a GPU." in text and "softmax call" not in text
    assert "of before" not in text and text.endswith("<!-- end of figures -->\n\n## Tried\n")
    assert kernel_pages.page_with_figures(text, cases) == text


def errors(impl, worst, median, dtype="f32", **more):
    return dict(dict(commit="c0ffee", device="NVIDIA H200", op="rope_fwd", dtype=dtype, shape="s8",
                     output="q_out", impl=impl, config="", version="1", draws=3, worst=worst,
                     median=median), **more)


def test_errors_on_a_gpu_stand_beside_both_peers(tmp_path):
    path = tmp_path / "accuracy_h200.csv"
    record = accuracy_page.Record(path)
    record.put([errors("tegula:sm90", 1e-6, 2e-8), errors("torch", 1e-6, 1e-8)])
    record.put([errors("tegula:sm90", 1e-3, 2e-5, "bf16"), errors("torch", 1e-3, 2e-5, "bf16"),
                errors("liger", 3e-3, 4e-5, "bf16"),
                errors("liger", 2e-3, 3e-5, "bf16", config="wide")])
    text = "\n".join(accuracy_page.document([], results_csv.read(path)))
    assert "1 of 2 outputs that PyTorch has meet it." in text
    assert "| rope_fwd | f32 | s8 | q_out | 1.00x | 2.00x |" in text
    assert "| rope_fwd | f32 | s8 | q_out | 1e-06 | 1e-06 |  | 2e-08 | 1e-08 |  |" in text
    assert "| rope_fwd | bf16 | s8 | q_out | 0.001 | 0.001 | 0.003, 0.002 (wide) |" in text
    assert "on a CPU" not in text


def test_a_case_measured_again_replaces_its_errors(tmp_path):
    path = tmp_path / "accuracy_cpu.csv"
    accuracy_page.Record(path).put([errors("tegula:avx512", 1e-6, 1e-8), errors("torch", 0, 0)])
    record = accuracy_page.Record(path)
    record.put([errors("tegula:avx512", 4e-6, 1e-8, "bf16")])
    record.put([errors("tegula:avx512", 2e-6, 0)])
    found = [(row["dtype"], float(row["worst"])) for row in results_csv.read(path)]
    assert found == [("f32", 2e-6), ("bf16", 4e-6)]


def test_the_page_of_accuracy_is_what_was_recorded(tmp_path):
    page = tmp_path / "accuracy.md"
    accuracy_page.write_page(out=page)
    assert page.read_text(encoding="utf-8") == accuracy_page.PAGE.read_text(encoding="utf-8")
