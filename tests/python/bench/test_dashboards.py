"""python -m tegula.profile and the pages: their data, their tables, and (nightly) what a real browser draws of them."""

import html.parser
import json
import os
import pathlib
import shutil

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
from tegula_bench import comparison_page, forward_profile  # noqa: E402
from tegula_bench.dashboard import chart_page, comparison_charts, performance_charts  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("TEGULA_BUILD", "build")) / "src" / "cli" / "tegula"
TWO = ["--models", "gpt_nano,gpt_tile_small", "--vocab-size", "100", "--iterations", "6", "--batch-size", "2", "--seq-len", "16"]
RESULTS = [
    {
        "model": name, "agrees": True, "difference": 3e-7 * (n + 1), "bound": 1e-5, "top1": 1.0, "top5": 0.96875, "dtype": "f32",
        "gradients": {"wte": 4e-7 * (n + 1)}, "batch_size": 2, "seq_len": 16,
        "times": {
            peer: {"mean": t, "std": t / 9, "min": t / 2, "max": 2 * t, "median": t * 1.01, "p95": t * 1.5, "p99": t * 1.9}
            for peer, t in (("tegula", 0.7 + n), ("eager", 2.5 + n), ("compile", 1.5))
        },
    }
    for n, name in enumerate(("gpt_nano", "qwen3-tiny"))
]  # fmt: skip


@pytest.fixture(scope="module")
def program():
    if not PROGRAM.exists():
        pytest.skip("the program tegula is not built")
    return str(PROGRAM)


@pytest.fixture(scope="module")
def profiled(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart_page, "plotly_source", lambda: "")
        assert forward_profile.main(["--run-profiling", *TWO, "--command", program, "--output-dir", str(folder)]) == 0
    return folder


class Tables(html.parser.HTMLParser):
    """The numbers in the table of each chart, and whatever could fetch something."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.now, self.links = {}, None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.links += [known[key] for key in ("src", "href") if key in known and not known[key].startswith("#")]
        if tag == "details":
            self.now = self.tables.setdefault(known.get("id"), [])
        if tag == "td" and self.now is not None and "data-value" in known:
            self.now.append(float(known["data-value"]))

    def handle_endtag(self, tag):
        self.now = None if tag == "details" else self.now


def test_profiling_data(profiled):
    data = json.loads((profiled / "profiling_data.json").read_text())
    assert set(data) == {"metadata", "benchmarks"} and {"timestamp", "gpu_name", "compute_capability", "cuda_version"} <= set(data["metadata"])
    assert {"device", "commit", "dtype", "clocks", "cpu"} <= set(data["metadata"])
    assert list(data["benchmarks"]) == ["gpt_nano", "gpt_tile_small"]
    for run in data["benchmarks"].values():
        assert set(run["config"]) == {"n_layer", "n_head", "n_embd", "vocab_size"} and run["config"]["vocab_size"] == 100
        timing = run["timing"]
        assert set(timing) == {"mean", "std", "min", "max", "median", "p95", "p99"}
        assert 0 < timing["min"] <= timing["median"] <= timing["p95"] <= timing["p99"] <= timing["max"]
        assert run["throughput_tokens_per_sec"] == pytest.approx(1e3 * 32 / timing["mean"])
        assert run["batch_size"] == 2 and run["seq_len"] == 16
        assert {row["op"] for row in run["ops"]} == {"embedding", "layer_norm", "linear", "attention"}
        assert sum(row["calls"] for row in run["ops"]) == 3 + 7 * run["config"]["n_layer"]
        assert run["share"] > 0 and run["peak_bytes"] > run["weight_bytes"] > 0
        assert [point["context"] for point in run["decode"]] == [16, 64, 127]


def test_pages_hold_the_numbers_and_fetch_nothing(profiled, tmp_path):
    data = json.loads((profiled / "profiling_data.json").read_text())
    text = (profiled / "performance_dashboard.html").read_text(encoding="utf-8")
    found = Tables(text)
    assert found.links == [] and "default-src 'none'" in text
    charts = performance_charts.charts_of(data)
    assert [chart.key for chart in charts] == ["latency", "throughput", "percentiles", "sizes", "efficiency", "roof", "ops", "decode", "memory"]
    for chart in charts:
        want = [value for row in chart.rows() for value in row[1:] if value is not None]
        assert found.tables[f"table-{chart.key}"] == want
        assert f'aria-describedby="about-{chart.key} table-{chart.key}"' in text
    nano = data["benchmarks"]["gpt_nano"]
    assert found.tables["table-latency"][:4] == [nano["timing"][key] for key in ("mean", "std", "min", "max")]
    assert found.tables["table-throughput"][0] == nano["throughput_tokens_per_sec"]
    # the data of another run makes the page again; drawn by matplotlib it is small
    pytest.importorskip("matplotlib")
    words = ["--data", str(profiled / "profiling_data.json"), "--svg", "--output", "small", "--output-dir", str(tmp_path)]
    assert forward_profile.main(words) == 0
    small = (tmp_path / "small.html").read_text(encoding="utf-8")
    assert small.count("<svg") == len(charts) and len(small) < 600_000 and "<script" not in small
    assert {key: Tables(small).tables[key] for key in found.tables} == found.tables
    ids = [part.split('"')[0] for part in small.split(' id="')[1:]]
    assert len(ids) == len(set(ids))  # those of one drawing are not another's


def test_profile_without_the_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    monkeypatch.setattr(forward_profile, "find_command", lambda: None)
    assert forward_profile.main(["--run-profiling", *TWO, "--output-dir", str(tmp_path)]) == 0
    assert "without the program tegula (--command), ops and decoding are left out" in capsys.readouterr().err
    data = json.loads((tmp_path / "profiling_data.json").read_text())
    assert [chart.key for chart in performance_charts.charts_of(data)] == ["latency", "throughput", "percentiles", "sizes", "efficiency", "memory"]


def test_wrong_arguments(tmp_path, capsys, monkeypatch, program):
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    for words in ([], ["--run-profiling", "--data", "x"], ["--run-profiling", "--iterations", "0"]):
        with pytest.raises(SystemExit) as left:
            forward_profile.main(words)
        assert left.value.code == 2
    for words, message in (
        (["--data", str(tmp_path / "none.json")], "none.json"),
        (["--run-profiling", "--models", "gpt_giant"], "--models: expected some of gpt_nano"),
        (["--run-profiling", "--models", "gpt_nano", "--seq-len", "129"], "--seq-len: expected at most 128 (the positions of gpt_nano), got 129"),
        (["--run-profiling", "--models", "gpt_nano", "--device", "tpu"], "expected cpu, cuda or cuda:N"),
    ):
        assert forward_profile.main([*words, "--command", program, "--output-dir", str(tmp_path)]) == 1
        assert message in capsys.readouterr().err


def test_comparison_page(tmp_path, monkeypatch):
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    path = comparison_page.write(tmp_path / "pages", RESULTS, "cpu")
    data = json.loads((tmp_path / "pages" / "comparison_data.json").read_text())
    assert list(data["comparisons"]) == ["gpt_nano", "qwen3-tiny"] and data["metadata"]["timestamp"]
    nano = data["comparisons"]["gpt_nano"]
    assert nano["speedup"] == nano["times"]["compile"]["median"] / nano["times"]["tegula"]["median"]
    found = Tables(path.read_text(encoding="utf-8"))
    for chart in comparison_charts.charts_of(data["comparisons"]):
        assert found.tables[f"table-{chart.key}"] == [value for row in chart.rows() for value in row[1:] if value is not None]
    assert found.links == [] and set(found.tables) == {"table-difference", "table-gradients", "table-agreement", "table-latency", "table-speed"}


def test_not_a_number_is_the_worst_and_no_json(tmp_path, monkeypatch):
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    nan = float("nan")
    broken = [dict(RESULTS[0], agrees=False, difference=nan, bound=float("inf"), gradients={"a": 1e-9, "b": nan, "c": 2e-9}), RESULTS[1]]
    path = comparison_page.write(tmp_path, broken, "cpu")
    data = json.loads((tmp_path / "comparison_data.json").read_text(), parse_constant=pytest.fail)
    assert data["comparisons"]["gpt_nano"]["difference"] is None and data["comparisons"]["gpt_nano"]["gradients"]["b"] is None
    page = path.read_text(encoding="utf-8")
    charts = json.loads(page.split('id="charts">')[1].split("</script>")[0], parse_constant=pytest.fail)
    assert [one["series"][0]["values"][0] for one in charts[:2]] == [None, None]
    assert page.count('<td class="number">NaN</td>') == 3 and page.count('<td class="number">inf</td>') == 2
    pytest.importorskip("matplotlib")
    assert comparison_page.write(tmp_path, broken, "cpu", svg=True).read_text(encoding="utf-8").count("<svg") == 5


def test_damaged_data_says_what_was_expected(profiled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    whole = json.loads((profiled / "profiling_data.json").read_text())
    file, words = tmp_path / "data.json", ["--data", str(tmp_path / "data.json"), "--output-dir", str(tmp_path)]
    for text in ("{", "[]", "7", "{}", '{"benchmarks": {}}', '{"benchmarks": {"a": 1}}', json.dumps({**whole, "metadata": 3}),
                 json.dumps({**whole, "benchmarks": {"a": {"timing": [1]}}})):  # fmt: skip
        file.write_text(text)
        assert forward_profile.main(words) == 1
        assert "data.json: expected a profiling_data.json that --run-profiling has left, got" in capsys.readouterr().err
    file.write_bytes(b"\xff")
    assert forward_profile.main(words) == 1
    file.write_text(json.dumps(whole))
    assert forward_profile.main([*words, "--output", "run.v2"]) == 0 and (tmp_path / "run.v2.html").exists()
    assert forward_profile.main([*words, "--output", "run.v3.html"]) == 0 and (tmp_path / "run.v3.html").exists()
    for name in ("a/b", "", "/"):
        with pytest.raises(SystemExit):
            forward_profile.main([*words, "--output", name])


def test_what_is_wrong_is_said_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(forward_profile, "find_command", lambda: None)
    monkeypatch.setattr(forward_profile, "by_model", lambda options, name: pytest.fail("measured"))
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    (tmp_path / "file").write_text("")
    for words, message in (
        (["--dtype", "bf16"], "--dtype: expected f32 without the program tegula (--command), got bf16"),
        (["--models", "gpt_nano,gpt_giant"], "got gpt_giant"), (["--models", "gpt_tile_small,gpt_nano", "--seq-len", "1000"], "got 1000"),
        (["--output-dir", str(tmp_path / "file")], "file"),
    ):  # fmt: skip
        assert forward_profile.main(["--run-profiling", "--models", "gpt_nano", "--output-dir", str(tmp_path), *words]) == 1
        assert message in capsys.readouterr().err


def test_an_error_leaves_the_other_models(tmp_path, monkeypatch, capsys):
    timing = {key: 1.0 for key in forward_profile.TIMING}
    run = {"config": {"n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 9}, "timing": timing, "parameters": 1, "weight_bytes": 4, "peak_bytes": None}

    def one_fails(options, name):
        if name == "gpt_nano":
            return dict(run)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(forward_profile, "find_command", lambda: None)
    monkeypatch.setattr(forward_profile, "by_model", one_fails)
    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    words = ["--run-profiling", "--models", "gpt_micro,gpt_nano,gpt_mini", "--output-dir", str(tmp_path)]
    assert forward_profile.main(words) == 1 and capsys.readouterr().err.count("out of memory") == 2
    assert list(json.loads((tmp_path / "profiling_data.json").read_text())["benchmarks"]) == ["gpt_nano"]
    assert (tmp_path / "performance_dashboard.html").exists()
    assert [forward_profile.number_of(text) for text in ("[N/A]", "", "1980")] == [None, None, 1980.0]


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if program is None:
        pytest.skip("no browser: expected chromium or google-chrome on the PATH")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


DRAWN = """() => charts.map((chart) => {
  const plot = document.getElementById("chart-" + chart.key), box = plot.getBoundingClientRect();
  const marks = plot.querySelectorAll(".bars .point path, .scatterlayer .point, .scatterlayer .js-line").length;
  return { key: chart.key, width: box.width, height: box.height, marks,
           series: plot.data.map((one) => [one.name, Array.from(one.y), one.error_y ? Array.from(one.error_y.array) : null]) };
})"""


def look_at(browser, path, charts, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    fetched, said = [], []
    page.on("request", lambda request: fetched.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function(f"document.body.dataset.drawn == {len(charts)}", timeout=60_000)
    assert fetched == [path.as_uri()] and said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart, drawn in zip(charts, page.evaluate(DRAWN), strict=True):
        assert drawn["key"] == chart.key and drawn["width"] > 200 and drawn["height"] > 100
        assert drawn["series"] == [[one.name, one.values, one.spread] for one in chart.series]
        known = sum(value is not None for one in chart.series for value in one.values)
        assert drawn["marks"] >= known, chart.key
    return page


def check_keys(page, chart):
    """What the arrow keys say is what the table has."""
    page.focus(f"#figure-{chart.key}")
    page.keyboard.press("ArrowRight")
    said = page.text_content(f"#said-{chart.key}")
    assert said.startswith(f"{chart.x[0]}, {chart.series[0].name}: ")
    page.keyboard.press("ArrowRight")
    assert page.text_content(f"#said-{chart.key}").startswith(f"{chart.x[1]}, ")
    assert page.get_attribute(f"#figure-{chart.key}", "aria-labelledby") == f"title-{chart.key}"


def colours(page):
    return page.evaluate("[getComputedStyle(document.body).backgroundColor, document.querySelector('.xtitle').style.fill]")


@pytest.mark.nightly
def test_pages_in_a_browser(browser, profiled, tmp_path):
    pytest.importorskip("plotly", reason="no plotly: pip install plotly")
    data = json.loads((profiled / "profiling_data.json").read_text())
    assert forward_profile.main(["--data", str(profiled / "profiling_data.json"), "--output-dir", str(tmp_path)]) == 0
    comparison = comparison_page.write(tmp_path, RESULTS, "cpu")
    compared = json.loads((tmp_path / "comparison_data.json").read_text())["comparisons"]
    pages = {
        tmp_path / "performance_dashboard.html": performance_charts.charts_of(data),
        comparison: comparison_charts.charts_of(compared),
    }
    for path, charts in pages.items():
        assert path.stat().st_size < 8 << 20
        for width, scheme in ((1200, "light"), (420, "dark")):
            page = look_at(browser, path, charts, width, scheme)
            for chart in charts:
                check_keys(page, chart)
            ink = colours(page)
            page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
            page.wait_for_timeout(300)
            assert all(one != other for one, other in zip(ink, colours(page)))  # page and charts follow
            page.emulate_media(media="print", color_scheme="light")
            assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
            page.close()
