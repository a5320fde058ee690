"""The CUTLASS DSL, in which several peers' kernels are written: a package of its own."""

import importlib.metadata
import importlib.util
import sys


def find(what, *packages):
    """True if the packages and the DSL can be imported; imports nothing. `what` is said to be left
    out otherwise."""
    missing = [name for name in (*packages, "cutlass") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"# {what} is left out: no package {', '.join(missing)}", file=sys.stderr)
    return not missing


def with_version(peer):
    """A peer's version with that of the DSL, which compiles its kernels."""
    return f"{peer} cutlass-dsl {importlib.metadata.version('nvidia-cutlass-dsl')}"
