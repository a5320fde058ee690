"""The tables of docs/python.md for users of the three predecessors: every line of the right column runs."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: the tables are about PyTorch", allow_module_level=True)
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"


def rows():
    text = PAGE.read_text(encoding="utf-8").split("## Coming from Bastile")[1].split("\n## ")[0]
    found, package = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r" \| |^\| | \|$", line) if cell.strip()]
        if len(cells) == 2 and cells[1] == "Tegula":
            package = cells[0]
        elif len(cells) == 2 and package and not cells[0].startswith("|--") and not cells[0].startswith("---"):
            found.append((package, cells[0], cells[1].strip("`")))
    return found


ROWS = rows()


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the lines speak of; those of one table share their variables."""
    torch.manual_seed(0)
    directory = str(tmp_path_factory.mktemp("gpt2") / "model")
    tegula.Model(tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=64, vocab_size=100), seed=3).save_pretrained(directory)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(directory).state_dict()
    matrices = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    mingpt = {name: value.T if name.endswith(matrices) else value for name, value in theirs.items()}
    q, k, v = (torch.randn(2, 4, 6, 16) for _ in range(3))
    config = transformers.Qwen3Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16
    )
    yield {
        "tegula": tegula, "x": torch.randn(2, 5, 8), "gate": torch.randn(2, 5, 8), "w": torch.randn(8), "table": torch.randn(12, 8),
        "back": torch.randn(8, 12), "bias": torch.randn(12), "target": torch.randint(12, (2, 5)), "wide": torch.randn(4, 128),
        "q": q, "k": k, "v": v, "idx": torch.randint(100, (2, 9)), "wte": torch.randn(100, 8), "wpe": torch.randn(9, 8),
        "directory": directory, "mingpt_model": mingpt, "model": transformers.Qwen3ForCausalLM(config),
    }  # fmt: skip
    tegula.reset()


def test_the_tables_are_whole():
    assert {package for package, _, _ in ROWS} == {"Bastile", "cuda-triton-multiarch", "cutileGPT"} and len(ROWS) > 35
    assert all("tegula" in line or line.startswith("out = ") or "mingpt" in line or line == "logits = model(idx)" for _, _, line in ROWS)


@pytest.mark.parametrize(("package", "before", "line"), ROWS)
def test_line(names, package, before, line):
    exec(line, names)


@pytest.mark.parametrize(
    ("function", "layout"),
    [
        ("flash_attention_full_triton", "[batch, heads, tokens, d]"), ("mha_fwd", "[batch, tokens, heads, d]"),
        ("cutile_causal_attention", "[batch, heads, tokens, d]"),
    ],
)  # fmt: skip
def test_attention_keeps_the_layout(function, layout):
    """The line takes and gives what the predecessor's function did, whose layouts these are."""
    ((before, line),) = [(before, line) for _, before, line in ROWS if function in before]
    assert before.endswith(": " + layout)
    first = (lambda x: x) if layout.index("heads") < layout.index("tokens") else (lambda x: x.transpose(1, 2))
    q, k, v = (torch.randn(2, 3, 5, 8) for _ in range(3))
    got = eval(line, {"tegula": tegula, "q": q, "k": k, "v": v})
    out, lse = got if '"lse"' in line else (got, None)
    wanted = torch.nn.functional.scaled_dot_product_attention(first(q), first(k), first(v), is_causal=True)
    torch.testing.assert_close(out, first(wanted), rtol=1e-5, atol=1e-5)
    if lse is not None:  # [batch, heads, tokens]
        scores = first(q) @ first(k).mT / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        torch.testing.assert_close(lse, scores.masked_fill(hidden, -torch.inf).logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_what_the_lines_left(names):
    """After all of them: the model is the one of the directory, and what it gave has the shapes of the README."""
    for _, _, line in ROWS[-15:]:
        exec(line, names)
    assert names["logits"].shape == (2, 9, 100) and names["out"].shape == (2, 25)
    again = tegula.Model(tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=64, vocab_size=100)).load_from_mingpt(names["mingpt_model"])
    assert (again(names["idx"]) == names["model"](names["idx"])).all()


def test_the_patch_of_the_examples():
    """examples/patch_model.py prints what stands at its end."""
    source = PAGE.parents[1] / "examples" / "patch_model.py"
    code, _, printed = source.read_text(encoding="utf-8").partition("# Prints:\n")
    done = subprocess.run([sys.executable, str(source)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [line.removeprefix("# ") for line in printed.splitlines()], done.stderr
    assert len(code.splitlines()) <= 27
