"""Finds Liger-Kernel (installed, or its sources in LIGER_DIR) and chooses which of its kernels run."""

import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys


def sources():
    """The folder that holds the package below LIGER_DIR; None without LIGER_DIR."""
    folder = os.environ.get("LIGER_DIR")
    if not folder:
        return None
    found = [path for path in (pathlib.Path(folder), pathlib.Path(folder, "src")) if (path / "liger_kernel").is_dir()]
    if not found:
        raise FileNotFoundError(f"LIGER_DIR: expected liger_kernel or src/liger_kernel in {folder}")
    return found[0]


def find():
    """True if the package can be imported; imports nothing."""
    folder = sources()
    if folder and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.util.find_spec("liger_kernel") is not None


def use_triton():
    """Its Triton kernels, those of a plain install, whatever else is installed: its dispatcher prefers CuTe DSL kernels
    wherever nvidia-cutlass-dsl can be imported. Call it before anything imports the kernels."""
    os.environ.pop("LIGER_KERNEL_IMPL", None)
    if importlib.util.find_spec("liger_kernel.backends"):  # older packages have no dispatcher
        importlib.import_module("liger_kernel.backends").set_impl("nvidia-triton")


def version():
    try:
        return importlib.metadata.version("liger_kernel")
    except importlib.metadata.PackageNotFoundError:
        found = sources()
        for project in (folder / "pyproject.toml" for folder in ([found, found.parent] if found else [])):
            if project.exists():
                return re.search(r'^version = "(.*)"', project.read_text(), re.M).group(1)
        return ""
