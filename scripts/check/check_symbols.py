#!/usr/bin/env python3
"""The shared libraries export exactly the functions that their public headers declare.
   scripts/check/check_symbols.py BUILD_DIR
The headers that tegula.h includes belong to libtegula, the others to libtegula_model. No function
is defined in both static libraries: a program that links both would call one for the other."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"


def declared(headers):
    """Names of the functions that the headers declare without defining them."""
    source = "".join(f'#include "tegula/{h}"\n' for h in headers)
    command = ["gcc", "-std=c17", f"-I{INCLUDE}", "-xc", "-", "-S", "-o", "/dev/null",
               "-aux-info", "/dev/stdout"]
    text = subprocess.run(command, input=source, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    names = {}
    for header, name in re.findall(
            r"^/\* .*/tegula/(\w+\.h):\d+:N\w \*/ extern .*?\b(\w+) \(", text, re.M):
        names[name] = header
    return names


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines()}


def twins(build):
    """Names that both static libraries define, where both were built."""
    defined = []
    for archive in ("libtegula_static.a", "libtegula_model_static.a"):
        path = build / "src" / archive
        text = subprocess.run(["nm", "--defined-only", path], text=True, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout if path.exists() else ""
        lines = (line.split() for line in text.splitlines())
        defined.append({line[2] for line in lines if len(line) == 3 and line[1] in "TDBR"})
    return sorted(defined[0] & defined[1])


def main():
    build = pathlib.Path(sys.argv[1])
    headers = sorted(p.name for p in (INCLUDE / "tegula").glob("*.h"))
    umbrella = set(re.findall(r'#include "(\w+\.h)"', (INCLUDE / "tegula/tegula.h").read_text()))
    names = declared(headers)
    failed = False
    for library in ("libtegula.so", "libtegula_model.so"):
        wanted = {n for n, h in names.items() if (h in umbrella) == (library == "libtegula.so")}
        found = [p for p in (build / "src").rglob(library)]
        if not found:
            if wanted:
                print(f"symbols: {library} is missing, but headers declare {sorted(wanted)}")
                failed = True
            continue
        have = exported(found[0])
        for name in sorted(have - wanted):
            print(f"symbols: {library} exports {name}, which no header of its declares")
        for name in sorted(wanted - have):
            print(f"symbols: {library} lacks {name} of {names[name]} (TG_API missing?)")
        for name in sorted(wanted):
            if not name.startswith("tg_"):
                print(f"symbols: {name} of {names[name]} does not start with tg_")
                failed = True
        failed = failed or have != wanted
    for name in twins(build):
        print(f"symbols: {name} is defined in libtegula_static.a and in libtegula_model_static.a")
        failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
