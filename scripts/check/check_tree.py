#!/usr/bin/env python3
"""File names are unique and lower snake case, and a few things stand only where they may:
getenv in src/core/machine/environment.c, no unfinished marks, no names that say nothing."""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["include", "src", "tests", "bench", "fuzz", "examples", "lab", "scripts", "cmake",
           "docs", "python"]
MAY_REPEAT = {"__init__.py", "__init__.pyi", "README.md", "CMakeLists.txt", "Dockerfile", "conftest.py", "main.c"}
# Checkpoints and broken files: named by their format, or by what is wrong with them.
GIVEN_NAMES = re.compile(r"^(tests/golden|fuzz/seeds)/")
EMPTY_WORDS = {"utils", "util", "common", "misc", "helpers", "helper", "old", "new", "stuff"}
CODE = {".c", ".h", ".cpp", ".cu", ".cuh", ".def", ".py", ".sh"}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")


def project_files():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.is_file() and not any(p == "__pycache__" or p.startswith(".") for p in parts):
                yield path.relative_to(ROOT)


def main():
    problems = []
    seen = collections.defaultdict(list)
    for path in project_files():
        given = GIVEN_NAMES.match(str(path))
        note = path.parts[:2] == ("docs", "lab")  # named as the guide that it belongs to
        if path.name not in MAY_REPEAT and not given and not note:
            seen[path.name].append(str(path))
        name_ok = re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9]+)*", path.name.replace("-", "_"))
        if path.suffix in CODE:
            name_ok = re.fullmatch(r"[a-z0-9_]+\.[a-z]+", path.name)
        if path.name not in MAY_REPEAT and not given and not name_ok:
            problems.append(f"{path}: expected a name in lower snake case")
        if not given and EMPTY_WORDS & set(path.stem.split("_")):
            problems.append(f"{path}: expected a name that says what is inside")
        if path.suffix not in CODE:
            continue
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if UNFINISHED.search(line):
                problems.append(f"{path}:{number}: expected finished work, got: {line.strip()}")
            if (re.search(r"\bgetenv\s*\(", line) and path.parts[0] == "src"
                    and str(path) != "src/core/machine/environment.c"):
                problems.append(f"{path}:{number}: only src/core/machine/environment.c calls getenv")
    for name, paths in seen.items():
        if len(paths) > 1:
            problems.append(f"{name}: expected one file of this name, got {', '.join(paths)}")
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
