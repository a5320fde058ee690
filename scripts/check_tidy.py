#!/usr/bin/env python3
"""clang-tidy finds nothing; .clang-tidy says what it looks for.
   scripts/check_tidy.py [FILE...]      default: all C files
Each file is read once, as clang would compile it for one entry of the chain."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/check-clang"
ONCE = ROOT / "build/tidy"


def tidy(path):
    command = ["clang-tidy-14", "--quiet", "-p", str(ONCE), path]
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main():
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
    wanted = {str(pathlib.Path(p).resolve()) for p in sys.argv[1:]} or commands.keys()
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
