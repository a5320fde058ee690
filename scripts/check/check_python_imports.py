#!/usr/bin/env python3
"""Imports of the Python packages, as their modules make them when they are loaded: no circle; tegula_bench imports
nothing of tegula, and of tegula the commands tegula.bench and tegula.profile alone import tegula_bench. --levels lists
each module below the ones it imports."""

import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2] / "python"
PACKAGES = ("tegula", "tegula_bench")


def modules():
    """name -> file; of packages their __init__.py."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(body):
    """Import statements outside of functions and of `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            yield from statements(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from statements(getattr(node, field, []))


def targets(name, path, known):
    """Names that the module's import statements load, packages around them included."""
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            base = base[: len(base) - node.level + 1] if node.level else []
            base = ".".join(base + ([node.module] if node.module else []))
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
        for target in names:
            parts = target.split(".")
            for end in range(1, len(parts) + 1):
                around = ".".join(parts[:end])
                # A module is in its own packages, which have begun to load before it.
                if around in known and not f"{name}.".startswith(f"{around}."):
                    yield around


def imports_of(known):
    return {name: set(targets(name, path, known)) for name, path in known.items()}


def circle(imports):
    """Modules of a circle in their order, or None."""
    done = set()

    def visit(name, trail):
        if name in trail:
            return trail[trail.index(name) :] + [name]
        if name in done:
            return None
        found = next(filter(None, (visit(target, trail + [name]) for target in sorted(imports[name]))), None)
        done.add(name)
        return found

    return next(filter(None, (visit(name, []) for name in imports)), None)


def levels(imports):
    """name -> the number of modules below it, one importing the next."""
    found = {}

    def level(name):
        if name not in found:
            found[name] = 1 + max((level(target) for target in imports[name]), default=-1)
        return found[name]

    for name in imports:
        level(name)
    return found


def problems(imports):
    found = circle(imports)
    if found:
        yield f"{' -> '.join(found)}: expected imports without a circle"
    for name, loaded in imports.items():
        package = name.split(".")[0]
        for target in sorted(loaded):
            if target.split(".")[0] != package and name not in ("tegula.bench", "tegula.profile"):
                yield f"{name}: expected no import of {target.split('.')[0]} when the module is loaded, got {target}"


def main():
    imports = imports_of(modules())
    found = list(problems(imports))
    print("\n".join(found), end="\n" if found else "")
    if sys.argv[1:] == ["--levels"] and not found:
        for name, level in sorted(levels(imports).items(), key=lambda item: (item[1], item[0])):
            print(level, name)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
