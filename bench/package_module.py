"""Modules of python/tegula/bench for the programs here, under another package's name: those that
need nothing of tegula itself, which may not be built."""

import importlib
import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "python/tegula/bench"
PACKAGE = "tegula_bench"


def load(name):
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(PACKAGE, FOLDER / "__init__.py",
                                                      submodule_search_locations=[str(FOLDER)])
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    return importlib.import_module(f"{PACKAGE}.{name}")
