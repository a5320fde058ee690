#!/usr/bin/env python3
"""clang-tidy finds nothing; .clang-tidy says what it looks for.
   scripts/check/check_tidy.py [--units all|changed] [FILE...]
changed: those of scripts/check/changed_units.py; default: all C files. Each file is read once, as clang
would compile it for one entry of the chain. With `changed`, clang's analyzer, which follows paths,
leaves out kernels: one takes it half a minute, and every other check together a second."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import changed_units

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/check-clang"
ONCE = ROOT / "build/tidy"


def tidy(path, analyzed):
    command = ["clang-tidy-14", "--quiet", "-p", str(ONCE), path]
    if not analyzed:
        command.append("--checks=-clang-analyzer-*")
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def wanted_files(arguments):
    """The files to read, or None: all."""
    if arguments.files:
        return {str(pathlib.Path(p).resolve()) for p in arguments.files}
    if arguments.units == "changed":
        chosen, why = changed_units.units_to_check([".clang-tidy", "scripts/check/check_tidy.py"])
        print(f"units: {why}")
        return {str(ROOT / p) for p in chosen}
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", choices=("all", "changed"), default="all")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    wanted = wanted_files(arguments)
    subprocess.run(["cmake", "--preset", "check-clang"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "--target", "build_commit"], check=True,
                   stdout=subprocess.DEVNULL)
    commands, kernels = {}, set()
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        # The entries differ only in flags; the last one listed is the richest.
        commands[entry["file"]] = entry
        if "-DTGI_ENTRY=" in entry["command"] and "TGI_ENTRY_IS_REFERENCE" not in entry["command"]:
            kernels.add(entry["file"])
    left_out = kernels if arguments.units == "changed" else set()
    ONCE.mkdir(parents=True, exist_ok=True)
    (ONCE / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    wanted = commands.keys() if wanted is None else wanted
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        order = sorted(wanted & commands.keys(), key=os.path.getsize, reverse=True)
        for result in pool.map(lambda path: tidy(path, path not in left_out), order):
            if result.returncode != 0:
                failed = True
                print(result.stdout)
    return failed


if __name__ == "__main__":
    sys.exit(main())
