"""The examples of README.md and docs/models.md print what stands below them, without any other library."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from chat_model import CLI

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
ROOT = pathlib.Path(__file__).resolve().parents[3]


def examples(page, heading):
    """(code, output) of the section's blocks; a block without output behind it is part of the next one."""
    text = (ROOT / page).read_text(encoding="utf-8").split(f"\n{heading}\n")[1].split("\n## ")[0]
    code, found = "", []
    for kind, block in re.findall(r"```(python|text)\n(.*?)```", text, re.S):
        if kind == "python":
            code += block
        else:
            found.append((code, block))
            code = ""
    assert found and not code
    return found


@pytest.mark.parametrize(("page", "heading"), [("README.md", "## From Python, without PyTorch"), ("docs/models.md", "## Start")])
def test_example(page, heading, tmp_path):
    path = {**os.environ, "PYTHONPATH": str(pathlib.Path(tegula.__file__).parents[1])}
    for code, output in examples(page, heading):
        # -S: no site-packages, and so neither NumPy nor PyTorch
        done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=path)
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        assert lines == [line.rstrip() for line in output.splitlines()], done.stderr


def test_the_conversations_of_the_readme(tmp_path):
    """They lie where it says, begin as it shows, and are as much as it prints; a small model learns them by heart."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## From the command line\n")[1].split("\n## ")[0]
    path = ROOT / re.search(r"\$ head -n 2 (\S+)", section)[1]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 10 and "\n".join(lines[:2]) in section
    data, rows = (re.search(rf"^{word}: .*(?:conversations|rows).*$", section, re.M)[0] for word in ("data", "train"))
    words = [CLI, "train", "--preset", "gpt_nano", "--train-file", path.relative_to(ROOT), "--template", "chatml", "--out", tmp_path / "out",
             "--steps", "200", "--lr", "0.004", "--seq", "128", "--val-fraction", "0", "--no-cache"]  # fmt: skip
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {data, rows} <= set(done.stderr.splitlines())
    for question, answer in re.findall(r'\$ tegula chat answers -p "(.*)" --temperature 0\n(.*)\n', section):
        assert tegula.Model.from_pretrained(tmp_path / "out").chat(
            tegula.Tokenizer.from_pretrained(tmp_path / "out"), [{"role": "user", "content": question}], temperature=0
        ) == {"role": "assistant", "content": answer}  # fmt: skip


@pytest.mark.nightly
def test_the_wheel_alone(tmp_path):
    """A fresh environment, with nothing but the wheel: it brings its libraries."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["TEGULA_CUDA_ARCHS"] = "none"

    def run(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(ROOT / "scripts" / "build_wheel.sh", tmp_path)
    wheel = next(tmp_path.glob("tegula-*.whl"))
    assert wheel.stat().st_size < 6e6 and "manylinux" in wheel.name
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-index", wheel)
    for code, output in examples("README.md", "## From Python, without PyTorch"):
        lines = run(python, "-c", code).splitlines()
        assert [line.rstrip() for line in lines] == [line.rstrip() for line in output.splitlines()]
    loaded = run(python, "-c", "import tegula; tegula.Model; print(open('/proc/self/maps').read())")
    ours = {line.split()[-1] for line in loaded.splitlines() if re.search(r"jansson|pcre2|utf8proc", line)}
    assert len(ours) == 3 and all("site-packages/tegula.libs" in path for path in ours)
