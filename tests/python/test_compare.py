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


@pytest.mark.parametrize("model", ["nano", "tile-medium", "qwen3_nano"])
def test_models_agree(capsys, model):
    assert compare.main(["--model", model, "--grad", *SMALL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model"] == model and said["agrees"] and said["difference"] < 1e-5 == said["bound"]
    assert said["top1"] == 1 and said["top5"] > 0.9 and len(said["gradients"]) >= 40 and max(said["gradients"].values()) < 1e-5


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_16_bits(capsys, dtype):
    assert compare.main(["--model", "micro", "--dtype", dtype, *SMALL]) == 0
    said = json.loads(capsys.readouterr().out)
    assert 1e-5 < said["difference"] <= said["bound"] < 0.05


def test_all_and_times(capsys):
    assert compare.main(["--model", "all", "--benchmark", "--peers", "eager", "--iterations", "2", *SMALL]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["model"] for line in lines] == ["gpt_nano", "gpt_micro", "gpt_mini", "gpt_tile_small", "gpt_tile_medium", "gpt_tile_large", "qwen3_nano"]
    assert all(line["agrees"] and min(line["milliseconds"].values()) > 0 and len(line["milliseconds"]) == 2 for line in lines)


def test_a_disagreement(capsys, monkeypatch):
    monkeypatch.setattr(compare, "_F32_BOUND", 1e-12)
    assert compare.main(["--model", "nano", *SMALL[:2]]) == 1
    assert "DISAGREES" in capsys.readouterr().out


def test_wrong_arguments(capsys):
    assert compare.main(["--model", "nono"]) == 2 and "got nono" in capsys.readouterr().err
    assert compare.main(["--model", "tile-small", "--seq-len", "100000", "--vocab-size", "50"]) == 2
    assert "--seq-len: expected at most 128 (the model's positions), got 100000" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert compare.main(["--model", "tile-small", "--vocab-size", "50", "--device", "cuda"]) == 2
        assert "--device: expected a GPU that PyTorch has, got cuda" in capsys.readouterr().err
    for wrong in (["--iterations", "0"], ["--peers", "jit"], ["--grad", "--dtype", "bf16"]):
        with pytest.raises(SystemExit) as left:
            compare.main(wrong)
        assert left.value.code == 2


def test_as_a_program():
    done = subprocess.run([sys.executable, "-m", "tegula.compare", *SMALL[:2]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("nano, f32, cpu: agrees\n"), done.stderr
