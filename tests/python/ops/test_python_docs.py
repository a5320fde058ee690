"""Docstrings hold the headers' contracts; stubs hold the signatures."""

import ast
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import tegula._runtime  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "python" / "tegula"
FUNCTIONS = [name for name in tegula.ops.__all__ if name not in ("PackedWeight", "PackedExperts")]


def test_up_to_date():
    script = [sys.executable, str(ROOT / "scripts" / "python_stubs.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_notices(monkeypatch):
    """A signature that changes makes another stub; a contract that lacks a slot of the table is reported."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import python_contracts
    import python_stubs

    before = python_stubs.stub_of("silu", tegula.ops.silu)
    assert before in (PACKAGE / "ops" / "__init__.pyi").read_text() and "out: torch.Tensor | None = None" in before
    assert python_stubs.stub_of("silu", tegula.ops.softmax) != before
    comments = python_contracts.header_comments()
    documented = {python_contracts.contract_name(function) for function in FUNCTIONS}
    entries = [entry for entry in tegula._core.ops() if entry["name"] in documented]
    assert len(entries) > 20 and not list(python_contracts.missing_slots(entries, comments))
    header, lines = comments["silu_fwd"]
    comments["silu_fwd"] = header, [line.replace("y ", "z ") for line in lines]
    missing = list(python_contracts.missing_slots(entries, comments))
    assert missing == ["silu_fwd: y: expected a line with its role out in the contract"]


def test_stubs_are_signatures_alone():
    tree = ast.parse((PACKAGE / "ops" / "__init__.pyi").read_text())
    assert not [node.name for node in tree.body if hasattr(node, "name") and ast.get_docstring(node)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_are_complete(name):
    function = getattr(tegula.ops, name)
    assert all(p.annotation is not p.empty for p in inspect.signature(function).parameters.values())
    for word in ("The contract of tegula/", "Errors ", "i32" if name == "moe_plan" else "f32"):
        assert word in function.__doc__
    if not name.startswith("pack_"):
        assert "Source " in function.__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_speak_python(name):
    """Exceptions instead of C's codes; enumerated values by their names, with the default of the signature."""
    function = getattr(tegula.ops, name)
    contract = function.__doc__.partition("The contract of tegula/")[2]
    assert not re.search(r"BAD_[A-Z]+|UNSUPPORTED|tg_context_check|workspace missing|required$|required[;, ]", contract, re.M)
    assert re.search(r"^Errors     ValueError \(shapes[;)]", contract, re.M) and "TypeError (dtypes)" in contract.replace("\n           ", " ")
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.default, str) and not name.endswith("linear_cross_entropy"):  # "those of cross_entropy"
            line = re.search(rf"^  {parameter.name} +(.*)$", contract, re.M)
            assert line and f'default "{parameter.default}"' in line.group(1), parameter.name
            assert f'"{parameter.default}" or ' in line.group(1) or f' or "{parameter.default}"' in line.group(1)


def test_an_error_of_another_form_stops_the_build(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import python_contracts

    said = python_contracts.errors_of_python("a.h", "Errors BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (eps; workspace missing or\n too small), UNSUPPORTED.")
    assert said == "Errors     ValueError (shapes; eps), TypeError (dtypes), NotImplementedError (device)."
    with pytest.raises(ValueError, match="a.h: expected Errors BAD_SHAPE"):
        python_contracts.errors_of_python("a.h", "Errors IO, BAD_SHAPE.")


def test_every_op_of_the_table_is_a_function():
    assert {row["op"] for row in tegula._core.ops()} - {"adamw"} <= set(FUNCTIONS) and "adamw_step" in FUNCTIONS


def test_stubs_name_what_there_is():
    stubs = {node.name for node in ast.parse((PACKAGE / "ops" / "__init__.pyi").read_text()).body if hasattr(node, "name")}
    assert stubs == set(tegula.ops.__all__)
    stubs = {n.name for n in ast.parse((PACKAGE / "arrays" / "__init__.pyi").read_text()).body if hasattr(n, "name")}
    assert stubs == set(tegula.arrays.__all__)
    for module in (tegula._core, tegula._runtime):
        stubs = {n.name: n for n in ast.parse((PACKAGE / f"{module.__name__[7:]}.pyi").read_text()).body if hasattr(n, "name")}
        functions = {name for name, node in stubs.items() if isinstance(node, ast.FunctionDef)}
        types = {"Array"} if module is tegula._core else set()
        assert functions | types == {n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("_")}
    assert (PACKAGE / "py.typed").exists()
    checked = {n for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If)
               for line in node.body for n in (alias.name for alias in line.names)}  # fmt: skip
    assert checked >= {"ops", "optim", "TegulaRMSNorm"} and checked <= set(tegula.__all__)
    for name in tegula.__all__:
        assert getattr(tegula, name) is not None and name in dir(tegula)
    with pytest.raises(AttributeError, match="module 'tegula' has no attribute 'nope'"):
        tegula.nope  # noqa: B018
