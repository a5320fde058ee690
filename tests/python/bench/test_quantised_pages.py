"""Products with quantised weights on a GPU: cases, bars, a section of docs/performance.md; and the peers' problems."""

import pathlib
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench")]

import gpu_cases  # noqa: E402
import quantised_cases  # noqa: E402
from pages import gpu_bars, performance, quantised_bars, quantised_page  # noqa: E402
from pages.bars import NOT_MEASURED, judge  # noqa: E402
from quantised_cases import DYNAMIC_SHAPE, MXFP4_SHAPES, PREDECESSOR_SHAPES, WEIGHTS, int4_shape  # noqa: E402
from tegula_bench.results import results_file  # noqa: E402
from tegula_bench.results.newest_runs import newest  # noqa: E402


@pytest.fixture
def recorded(tmp_path):
    def make(*rows, overlap=False):
        run = results_file.Run(
            tmp_path / "rows.csv", "abcdef01", gpu_cases.suite_of(None, overlap), device="NVIDIA H200", driver="d"
        )
        run.append([{"config": "graph", "version": "0", "dir": "fwd", "dtype": "bf16", **row} for row in rows])
        return newest(results_file.read(tmp_path / "rows.csv"))

    return make


def beside(op, shape, ms, peer=1.0, impl="torch", **more):
    return [dict(op=op, shape=shape, impl="tegula:sm90", ms=ms, **more), dict(op=op, shape=shape, impl=impl, ms=peer, **more)]


def int4(ratio, rows=quantised_cases.ROWS, weights=WEIGHTS):
    return [row for weight in weights for n in rows for row in beside("linear_int4", int4_shape(n, weight), 1 / ratio)]


def judged(cases, text):
    return [line for line in judge(cases, quantised_bars.BARS) if line[0].startswith(text)]


def test_every_bar_has_its_cases():
    cases = {(case.op, case.shape) for case in gpu_cases.CASES if case.group == "quantised"}
    for bar in quantised_bars.BARS:
        shapes = [bar.shape] if isinstance(bar.shape, str) else [bar.shape(n, w) for n in bar.rows for w in WEIGHTS]
        assert all((bar.op, shape) in cases for shape in shapes)
    assert all(bar in gpu_bars.BARS for bar in quantised_bars.BARS)
    assert {("linear_int4", shape + "_g128_sf16") for shape in PREDECESSOR_SHAPES} <= cases
    assert all(line[2] == NOT_MEASURED and not line[3] for line in judge({}, quantised_bars.BARS))


def test_a_group_is_timed_when_it_is_asked_for(monkeypatch):
    pytest.importorskip("torch")
    gpu_ops = pytest.importorskip("gpu_ops")
    none = dict(op=None, dir=None, brief=False, entry=None, overlap=False, shape=None, group="")

    def groups(**options):
        return {case.group for case in gpu_ops.cases_of(types.SimpleNamespace(**{**none, **options}))}

    assert groups() == {""} == groups(brief=True)
    assert groups(group="quantised") == {"quantised"} == groups(op="linear_fp8")
    assert groups(op="linear") == {"", "products", "quantised"} and groups(op="linear", group="quantised") == {"quantised"}
    quantised = {**none, "group": "quantised"}
    assert len(gpu_ops.cases_of(types.SimpleNamespace(**quantised))) == 21 + 18 + 1 + 10 + 15 + 4
    assert len(gpu_ops.cases_of(types.SimpleNamespace(**{**quantised, "overlap": True}))) == 21 + 18 + 1 + 10


@pytest.mark.parametrize("ratio, plain, overlapping", [
    (2.31, [True] * 4, [False, True, True, True, True]), (2.0, [False, True, True, True], [False, False, True, True, True]),
    (0.85, [False, False, False, True], [False] * 5)])  # fmt: skip
def test_int4_is_judged_by_its_rows(recorded, ratio, plain, overlapping):
    lines = judged(recorded(*int4(ratio)), "linear_int4")
    assert [line[0] for line in lines] == [
        *(f"linear_int4 forward, bf16, {rows} rows, plain launches" for rows in ("1 to 8", "16", "64", "128")),
        *(f"linear_int4 forward, bf16, {rows} rows, launches that may overlap" for rows in ("1 to 8", "16", "32", "64", "128"))]  # fmt: skip
    assert [line[3] for line in lines[:4]] == plain
    assert all(line[2:] == (NOT_MEASURED, False) for line in lines[4:])
    lines = judged(recorded(*int4(ratio), overlap=True), "linear_int4")
    assert [line[3] for line in lines] == plain + overlapping


@pytest.mark.parametrize("plain, overlapping", [(3.0, 0.5), (0.5, 3.0)])
@pytest.mark.parametrize("last", [True, False])
def test_each_kind_of_launch_is_judged_by_its_own_rows(recorded, plain, overlapping, last):
    for overlap in (not last, last):
        cases = recorded(*int4(overlapping if overlap else plain), overlap=overlap)
    assert [line[3] for line in judged(cases, "linear_int4")] == [plain > 1] * 4 + [overlapping > 1] * 5


def test_launches_that_may_overlap_replace_no_plain_ones(recorded, tmp_path):
    """Neither on the pages nor in the record."""
    shape = int4_shape(8, WEIGHTS[0])
    before = "\n".join(quantised_page.section(recorded(*beside("linear_int4", shape, 0.02)), ""))
    cases = recorded(*beside("linear_int4", shape, 0.01), overlap=True)
    assert "\n".join(quantised_page.section(cases, "")) == before
    rows = results_file.read(tmp_path / "rows.csv")
    text = "\n".join(performance.document([], rows))
    assert f"| linear_int4 fwd | bf16 | {shape} | 20.0 |" in text
    assert f"| linear_int4 fwd, launches that may overlap | bf16 | {shape} | 10.0 |" in text
    plain = [row for row in rows if row["suite"] == "gpu"]
    for held, overlap, found in ((plain, False, True), (plain, True, False), (rows, True, True)):
        identity = dict(op="linear_int4", shape=shape, suite=gpu_cases.suite_of("", overlap))
        assert results_file.recorded(held, "abcdef01", identity, ["torch"]) == found


def test_the_programs_allow_overlap():
    pytest.importorskip("torch")
    from model_library import BUILD
    from tegula_call import Library

    Library(next(BUILD.rglob("libtegula.so")), ROOT / "include", 1).allow_overlap()


def test_the_least_ratio_counts_and_every_weight(recorded):
    rows = int4(3.0, weights=WEIGHTS[:2])
    (line,) = judged(recorded(*rows), "linear_int4 forward, bf16, 16 rows, plain")
    assert line[2:] == (f"3.00x at the least ({min(int4_shape(16, w) for w in WEIGHTS[:2])}; 2 of 3 measured)", False)
    (line,) = judged(recorded(*int4(1.5, weights=WEIGHTS[2:])), "linear_int4 forward, bf16, 16 rows, plain")
    assert line[2:] == (f"1.50x at the least ({int4_shape(16, WEIGHTS[2])}; 3 of 3 measured)", False)


@pytest.mark.parametrize("ms, met", [(1.0, True), (1.06, False)])
def test_int8_times_int8_stands_beside_cublas_int8(recorded, ms, met):
    cases = recorded(*beside("linear_int8", DYNAMIC_SHAPE, ms, impl="cublas_int8"), dict(op="linear_int8", shape=DYNAMIC_SHAPE, impl="torch", ms=2.0))
    (line,) = judged(cases, "linear_int8 forward, bf16 8192")
    assert line[3] == met


@pytest.mark.parametrize("ms, met", [(0.5, [True, True, True]), (0.56, [True, False, False]), (0.7, [False, False, False])])
def test_e4m3_is_judged_with_and_without_sums_in_order(recorded, ms, met):
    size = quantised_cases.FP8_SIZES[0]
    shape = size + "_xf8"
    cases = recorded(*beside("linear_fp8_fp8", shape + "_fast", ms), dict(op="linear_fp8_fp8", shape=shape + "_fast", impl="rowwise_fast", ms=0.5),
                     *beside("linear_fp8_fp8", shape, ms), dict(op="linear_fp8_fp8", shape=shape, impl="rowwise_fast", ms=0.5))  # fmt: skip
    lines = {line[0] + line[1]: line[3] for line in judged(cases, f"linear_fp8_fp8 forward, bf16 {shape}")}
    assert list(lines.values()) == met
    cell = f"{1e3 * ms:.1f} ({1 / ms:.2f}), ({0.5 / ms:.2f})"
    assert f"| {size} | {cell} | {cell} |" in "\n".join(quantised_page.section(cases, ""))


def test_mxfp4_is_a_share_of_a_copy(recorded):
    rows = [row for shape, share in zip(MXFP4_SHAPES, (0.61, 0.59, 0.8, 0.6))
            for row in beside("grouped_linear_mxfp4", shape, 0.02, 0.1, roof="copy", roof_share=share)]  # fmt: skip
    assert [line[3] for line in judged(recorded(*rows), "grouped_linear_mxfp4")] == [True, False, True, True]


def test_the_section_shows_times_and_ratios(recorded, tmp_path):
    mixed = beside("grouped_linear_mxfp4", MXFP4_SHAPES[0], 0.0172, 0.1, roof="copy", roof_share=0.5, bytes=3.5e7)
    recorded(*int4(2.0, rows=(1, 16)), *beside("linear_fp8", "8x8192x8192", 0.02, 0.03),
             *beside("linear_int8", DYNAMIC_SHAPE, 1.0, 0.9, impl="cublas_int8"), dict(op="linear_int8", shape=DYNAMIC_SHAPE, impl="torch", ms=2.0), *mixed,
             *[row for op, words in (("linear", ""), ("linear_int8", ""), ("linear_int4", "_g128_sf16"))
               for row in beside(op, PREDECESSOR_SHAPES[0] + words, 0.01, 0.012, dtype="f16")])  # fmt: skip
    text = "\n".join(performance.document([], results_file.read(tmp_path / "rows.csv")))
    assert "| int4, groups of 128 | 4096x14336 | 500.0 (2.00) |  |  | 500.0 (2.00) |  |  |  |" in text
    assert "| fp8 | 8192x8192 |  |  | 20.0 (1.50) |" in text
    assert "8192 x 8192 x 8192: 1000.0 us" in text
    assert "cuBLAS's integer product alone 900.0 (0.90), cuBLAS in bf16 2000.0 (2.00)." in text
    assert "| 128x1024x1024 | 12.0 | 10.0 (1.20) | 10.0 (1.20) | 10.0 (1.20) | 0.81 | 0.57 | 0.43 |" in text
    assert f"| {MXFP4_SHAPES[0]} | 17.2 | 2035 | 50.0% | 100.0 (5.81) |" in text
    assert "NVIDIA H200, commit `abcdef01`." in text
    assert list(quantised_page.section({}, "")) == []


def test_codes_of_mxfp4_come_low_first():
    torch = pytest.importorskip("torch")
    from peers import mxfp4_peers

    values = mxfp4_peers.widen(torch.tensor([[[0x21, 0x9F]]], dtype=torch.uint8), torch.tensor([[128]], dtype=torch.uint8), torch.float32)
    assert values.tolist() == [[1.0, 2.0, -12.0, -1.0]]
