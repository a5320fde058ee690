#!/usr/bin/env python3
"""Includes of src/ and bench/ run one way: a file includes files of its own ring or of rings below,
and no two files include each other, not even through others.

   include <- core <- {cpu, cuda, roof} <- ops <- files <- {text, chat} <- {model, data} <- {generation, training} <- cli
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^">]+)[">]', re.MULTILINE)
CODE = {".c", ".h", ".cu", ".cuh", ".def"}

# Which rings a ring may include, besides itself and the public headers.
KERNELS = {"core", "cpu", "cuda"}
RUNTIME = {"core", "files", "text", "chat"}
BELOW = {
    "include": set(),
    "core": set(),
    "cpu": {"core"},
    "cuda": {"core"},
    "roof": KERNELS,
    "ops": KERNELS,
    "files": {"core"},
    "text": {"core", "files"},
    "chat": {"core", "files"},
    "model": RUNTIME,
    "data": RUNTIME,
    "generation": RUNTIME | {"model"},
    "training": RUNTIME | {"model"},
    "cli": RUNTIME | {"data", "model", "generation", "training", "ops", "roof"},
}
# Expanded many times on purpose, within the file that includes it.
LISTS = {"src/ops/ops.def"}


def ring_of(path):
    return path.split("/")[1] if path.startswith("src/") else path.split("/")[0]


def project_path(includer, name):
    """The file of the project that an include means, or None for the system's."""
    for folder in (pathlib.PurePosixPath(includer).parent, "src", "include"):
        path = pathlib.Path(folder, name)
        if (ROOT / path).is_file():
            return str(path)
    return None


def read_includes():
    graph = {}
    for folder in ("include", "src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in CODE:
                name = str(path.relative_to(ROOT))
                found = (project_path(name, i) for i in INCLUDE.findall(path.read_text()))
                graph[name] = [i for i in found if i and i not in LISTS]
    return graph


def find_circle(graph):
    """The files of one circle, or None."""
    done = set()

    def visit(path, trail):
        if path in trail:
            return trail[trail.index(path):] + [path]
        if path in done:
            return None
        for name in graph[path]:
            circle = visit(name, trail + [path])
            if circle:
                return circle
        done.add(path)
        return None

    for path in graph:
        circle = visit(path, [])
        if circle:
            return circle
    return None


def main():
    graph = read_includes()
    problems = []
    for path, names in graph.items():
        ring = ring_of(path)
        allowed = BELOW[ring] | {ring, "include"} if ring in BELOW else set()
        for name in names:
            if ring_of(name) not in allowed:
                problems.append(f"{path}: expected includes of {', '.join(sorted(allowed))}, got {name}")
    circle = find_circle(graph)
    if circle:
        problems.append("expected no circle of includes, got " + " -> ".join(circle))
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
