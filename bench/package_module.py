"""Modules of python/tegula/bench that stand alone, for the programs here: they need no built
package."""

import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "python/tegula/bench"


def load(name):
    key = f"tegula_bench_{name}"  # not the package's own, which may be imported beside it
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        spec.loader.exec_module(module)
    return sys.modules[key]
