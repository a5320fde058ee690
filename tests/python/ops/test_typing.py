"""mypy --strict: the typed parts of the package, and a program that uses them."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="without mypy")
pytest.importorskip("numpy")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
PACKAGE = pathlib.Path(tegula.__file__).parent

PROGRAM = """
import numpy as np
import tegula

config = tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32)
model = tegula.Model(config, seed=1)
logits = model(np.zeros((1, 3), np.int64), last_only=True)
out = model.generate([1, 2], 5, temperature=0.8, top_k=40, seed=[1])
for token in model.stream([1, 2], max_new_tokens=3):
    print(token)
tokenizer = tegula.Tokenizer.of_bytes()
text: str = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], chat_template="chatml")
ids: list[int] = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], chat_template="chatml", tokenize=True)
with tegula.Trainer(model, batch_size=1, sequence_length=2, num_steps=3, learning_rate=1e-3) as trainer:
    loss: float = trainer.step([[1, 2]], [[2, 3]]).loss
views: dict[str, tegula.Array] = model.parameters()
y = tegula.arrays.rms_norm(np.ones((2, 4), np.float32), np.ones(4, np.float32), eps=1e-6, results=("y", "rstd"))
"""
WRONG = {
    "model.generate([1], 5, temprature=0.8)": "temprature", "tokenizer.encode(7)": "incompatible type",
    "tegula.arrays.rms_norm()": "Missing positional arguments", "tegula.Trainer(model)": "Missing named argument",
}  # fmt: skip


def check(*arguments, cwd):
    """Lines about the files in question, and about nothing that they import. The big packages are not read."""
    big = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\nignore_missing_imports = True\n" for name in ("torch", "transformers"))
    (cwd / "mypy.ini").write_text(f"[mypy]\nstrict = True\nfollow_imports = silent\ncache_dir = {cwd / 'cache'}\n{big}")
    command = [sys.executable, "-m", "mypy", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
    return done.stdout + done.stderr


def test_the_package(tmp_path):
    parts = [PACKAGE / "_core.pyi", PACKAGE / "_runtime.pyi", PACKAGE / "caller_arrays.py", PACKAGE / "enumerations.py"]
    parts += [path for folder in ("runtime", "arrays") for path in sorted((PACKAGE / folder).glob("*.py")) if path.name != "__init__.py"]
    said = check(*parts, cwd=tmp_path)
    assert said.startswith("Success"), said


def test_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = check(program, cwd=tmp_path)
    assert said.startswith("Success"), said
    for line, message in WRONG.items():
        program.write_text(PROGRAM + line)
        assert message in check(program, cwd=tmp_path), line
