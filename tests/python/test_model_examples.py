"""The examples of README.md and docs/models.md print what stands below them, without any other library."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
ROOT = pathlib.Path(__file__).resolve().parents[2]


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
