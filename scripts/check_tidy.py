#!/usr/bin/env python3
"""clang-tidy finds nothing; .clang-tidy says what it looks for.
   scripts/check_tidy.py [--units all|changed] [FILE...]
changed: those of scripts/changed_units.py; default: all C files. Each file is read once, as clang
would compile it for one entry of the chain."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import changed_units

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/check-clang"
ONCE = ROOT / "build/tidy"


def tidy(path):
    command = ["clang-tidy-14", "--quiet", "-p", str(ONCE), path]
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wanted_files(arguments):
    """The files to read, or None: all."""
    if arguments.files:
        return {str(pathlib.Path(p).resolve()) for p in arguments.files}
    if arguments.units == "changed":
        chosen, why = changed_units.units_to_check([".clang-tidy", "scripts/check_tidy.py"])
        print(f"units: {why}")
        return {str(ROOT / p) for p in chosen}
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", choices=("all", "changed"), default="all")
    parser.add_argument("files", nargs="*")
    wanted = wanted_files(parser.parse_args())
    subprocess.run(["cmake", "--preset", "check-clang"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "--target", "build_commit"], check=True,
                   stdout=subprocess.DEVNULL)
    commands = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        # The entries differ only in flags; the last one listed is the richest.
        commands[entry["file"]] = entry
    ONCE.mkdir(parents=True, exist_ok=True)
    (ONCE / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    wanted = commands.keys() if wanted is None else wanted
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(tidy, sorted(wanted & commands.keys(), key=os.path.getsize,
                                            reverse=True)):
            if result.returncode != 0:
                failed = True
                print(result.stdout)
    return failed


if __name__ == "__main__":
    sys.exit(main())
