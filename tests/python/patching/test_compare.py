"""python -m tegula.compare: what it says, and its exit code."""

import json
import os
import subprocess
import sys

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tegula", reason="built without Python.h: no extension")
from tegula import compare  # noqa: E402

SMALL = ["--vocab-size", "100", "--json", "--seq-len", "16"]


@pytest.mark.parametrize("model", ["nano", "tile-medium", "qwen3_nano", "gpt2-tiny", "gpt_oss-tiny", "mixtral-tiny"])
def test_models_agree(capsys, model):
    assert compare.main(["--model", model, "--grad", *SMALL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model"] == model and said["agrees"] and said["difference"] < 1e-5 == said["bound"]
    assert said["top1"] == 1 and said["top5"] > 0.9 and len(said["gradients"]) >= 21 and max(said["gradients"].values()) < 1e-5


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_16_bits(capsys, dtype):
    assert compare.main(["--model", "micro", "--dtype", dtype, *SMALL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert 1e-5 < said["difference"] <= said["bound"] < 0.05


def test_times_and_pages(capsys, tmp_path, monkeypatch):
    from tegula_bench.dashboard import chart_page

    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    pages = ["--output-dir", str(tmp_path)]
    assert compare.main(["--model", "tile-small", "--benchmark", "--peers", "eager", "--iterations", "3", *pages, *SMALL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["milliseconds"]) == {"tegula", "eager"} and min(said["milliseconds"].values()) > 0
    for times in said["times"].values():
        assert times["min"] <= times["median"] <= times["p95"] <= times["p99"] <= times["max"] and times["std"] >= 0
    assert said["config"] == {"n_layer": 4, "n_head": 4, "n_embd": 64, "vocab_size": 100}
    assert json.loads((tmp_path / "comparison_data.json").read_text())["comparisons"]["tile-small"]["times"] == said["times"]
    assert "tile-small" in (tmp_path / "comparison_dashboard.html").read_text()


def test_names_of_all():
    names = compare._names(compare.options_of(["--all"]))
    assert names == compare._names(compare.options_of(["--model", "all"]))
    small = names[: names.index("gpt2")]
    assert {"gpt_nano", "gpt_micro", "gpt_mini", "gpt_tile_small", "gpt_tile_medium", "gpt_tile_large", "qwen3_nano"} <= set(small)
    assert set(small) == {preset["name"] for preset in compare.tegula.presets() if preset["hidden_size"] <= 256}
    assert names[len(small) :] == ["gpt2", *(f"{family}-tiny" for family in ("gpt2", "qwen3", "qwen2", "llama", "gpt_oss", "qwen3_moe", "mixtral"))]


@pytest.mark.nightly
def test_all(capsys):
    assert compare.main(["--all", "--grad", *SMALL]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(compare._names(compare.options_of(["--all"]))) and all(line["agrees"] for line in lines)


def test_a_disagreement(capsys, monkeypatch):
    monkeypatch.setattr(compare, "_F32_BOUND", 1e-12)
    assert compare.main(["--model", "nano", *SMALL[:2]]) == 1
    assert "DISAGREES" in capsys.readouterr().out


def test_wrong_arguments(capsys):
    assert compare.main(["--model", "nono"]) == 2 and "got nono" in capsys.readouterr().err
    assert compare.main(["--model", "tile-small", "--seq-len", "100000", "--vocab-size", "50"]) == 2
    assert "--seq-len: expected at most 128 (the positions of tile-small), got 100000" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert compare.main(["--model", "tile-small", "--vocab-size", "50", "--device", "cuda"]) == 2
        assert "--device: expected a GPU that PyTorch has, got cuda" in capsys.readouterr().err
    for wrong in (["--iterations", "0"], ["--peers", "jit"], ["--grad", "--dtype", "bf16"]):
        with pytest.raises(SystemExit) as left:
            compare.main(wrong)
        assert left.value.code == 2


def test_not_a_number(capsys, monkeypatch):
    """NaN agrees with nothing, wherever it stands, and is no JSON."""
    monkeypatch.setattr(compare.Pair, "gradients", lambda self: {"a": 1e-9, "b": float("nan")})
    assert compare.main(["--model", "nano", "--grad", *SMALL]) == 1
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert not said["agrees"] and said["gradients"] == {"a": 1e-9, "b": None}
    assert compare.main(["--model", "nano", "--grad", *SMALL[:2]]) == 1
    assert "2 gradients: largest difference nan (b)" in capsys.readouterr().out
    assert not compare._within([1.0], float("inf")) and not compare._within([float("nan")], 1.0) and compare._within([1.0, 0.5], 1.0)


def test_what_is_wrong_is_said_first(capsys, monkeypatch, tmp_path):
    from tegula_bench.dashboard import chart_page

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compare, "compare", lambda name, options: pytest.fail("measured"))
    monkeypatch.setattr(compare, "_names", lambda options: ["gpt2", options.model])
    for words, message in (
        (["--model", "nono"], "got nono"), (["--model", "./none"], "none"), (["--model", "nano", "--output-dir", str(tmp_path / "file")], "file"),
        (["--model", "llama-tiny", "--seq-len", "129"], "(the positions of llama-tiny), got 129"),
    ):  # fmt: skip
        assert compare.main(words) == 2 and message in capsys.readouterr().err

    def no_plotly():
        raise ModuleNotFoundError("expected the package plotly")

    monkeypatch.setattr(chart_page, "plotly_source", no_plotly)
    assert compare.main(["--model", "nano", "--output-dir", str(tmp_path)]) == 2 and "plotly" in capsys.readouterr().err


def test_an_error_leaves_the_other_models(capsys, monkeypatch, tmp_path):
    from tegula_bench.dashboard import chart_page

    whole = compare.compare

    def one_fails(name, options):
        return whole(name, options) if name == "nano" else (_ for _ in ()).throw(RuntimeError("out of memory"))

    monkeypatch.setattr(chart_page, "plotly_source", lambda: "")
    monkeypatch.setattr(compare, "compare", one_fails)
    monkeypatch.setattr(compare, "_names", lambda options: ["micro", "nano", "tile-small"])
    assert compare.main([*SMALL, "--output-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("out of memory") == 2
    assert list(json.loads((tmp_path / "comparison_data.json").read_text())["comparisons"]) == ["nano"]


def test_as_a_program():
    done = subprocess.run([sys.executable, "-m", "tegula.compare", *SMALL[:2]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("nano, f32, cpu: agrees\n"), done.stderr
