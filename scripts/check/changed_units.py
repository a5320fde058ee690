#!/usr/bin/env python3
"""Lists the C files that must be checked again: those whose text changed since the newest commit that is
older than half a day, and units enough that each header that changed is read through one of them.
What is older was checked then, and `make nightly` checks everything.
   scripts/check/changed_units.py [FILE...]      FILE: a change to it means all units, as its head says
   scripts/check/changed_units.py --same-kernels [FILE...]   the other way: CUDA sources that neither
      changed nor include a .cuh that did, other than those all kernels share; none if FILE changed
Without such a commit, or in a shallow clone: all C files. Standard error says which case it is."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["src", "python", "tests", "bench", "fuzz", "examples", "lab"]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(tegula/[^>]+)>|([A-Za-z_]\w*))', re.M)
SEARCHED = ["include", "src", "tests", "bench"]
SHARED = re.compile(r"src/cuda/[^/]+\.cuh$")
LEADING_FOLDERS = re.compile(r"(?:[\w.-]+/)+(?=[\w-]+\.\w)")
OWN_PLACE = re.compile(r'__file__|dirname "\$0"')
MOVABLE = (".c", ".h", ".cu", ".cuh", ".py", ".sh")
AGE = "12 hours ago"


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return done.stdout.strip() if done.returncode == 0 else None


def base_commit():
    """The commit to compare with, and how a person calls it; or None and why there is none."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        return None, "no whole history here"
    base = git("rev-list", "-1", f"--before={AGE}", "HEAD")
    if not base:
        return None, "no commit is older than half a day"
    if base == git("rev-parse", "HEAD"):
        return None, "no commit is newer than half a day"
    return base, git("log", "-1", "--format=%h (%cs, %s)", base)


def content(text):
    """What says the same wherever files lie: those that are named without their folders, includes in any order, and
    without the lines by which a script finds the project."""
    lines = [LEADING_FOLDERS.sub("", line) for line in text.splitlines() if not OWN_PLACE.search(line)]
    return sorted(line for line in lines if "#include" in line), [
        line for line in lines if "#include" not in line]


def changed_files(base):
    """A file that only moved, names being unique, did not change."""
    names = git("diff", "--name-only", "--no-renames", base).splitlines()
    names += git("ls-files", "--others", "--exclude-standard").splitlines()
    before = {path.rpartition("/")[2]: path for path in git("ls-tree", "-r", "--name-only", base).splitlines()}

    def same(name):
        old = before.get(name.rpartition("/")[2])
        if old is None or not name.endswith(MOVABLE) or not (ROOT / name).is_file():
            return False
        return content(git("show", f"{base}:{old}")) == content((ROOT / name).read_text().strip())

    return {name for name in names if not same(name)}


def units(ending="c"):
    found = [p for folder in FOLDERS for p in (ROOT / folder).rglob(f"*.{ending}")]
    return sorted(str(p.relative_to(ROOT)) for p in found)


class Includes:
    """Files of the project that a file includes, and those that they include."""

    def __init__(self):
        self.direct = {}

    def resolve(self, path, name):
        for folder in [pathlib.Path(path).parent, *SEARCHED]:
            candidate = (ROOT / folder / name).resolve()
            if candidate.is_file() and candidate.is_relative_to(ROOT):
                return str(candidate.relative_to(ROOT))
        return None

    def of(self, path):
        """None among them: one that is made by the build, or named by a macro."""
        if path not in self.direct:
            text = (ROOT / path).read_text(errors="replace")
            self.direct[path] = {None if macro else self.resolve(path, quoted or angled)
                                 for quoted, angled, macro in INCLUDE.findall(text)}
        return self.direct[path]

    def all_of(self, path):
        seen, left = {path}, [path]
        while left:
            for name in self.of(left.pop()) - seen:
                seen.add(name)
                if name is not None:
                    left.append(name)
        return seen


def readers(headers, units_of):
    """Few units that include every one of the headers: again and again the one that adds most."""
    chosen, left = set(), set(headers)
    while left:
        most = max(sorted(units_of), key=lambda unit: len(units_of[unit] & left))
        read = units_of[most] & left
        if not read:
            break  # no unit reads what is left: kernels in CUDA C do, and the compiler checks those
        chosen.add(most)
        left -= read
    return chosen


def units_to_check(means_all=()):
    """The units, and one line that says why these."""
    every = units()
    base, text = base_commit()
    if base is None:
        return every, f"all {len(every)} units: {text}"
    changed = changed_files(base)
    rules = sorted(changed & {*means_all})
    if rules:
        return every, f"all {len(every)} units: {rules[0]} changed since {text}"
    includes = Includes()
    read_by = {unit: includes.all_of(unit) for unit in every}
    some = {unit for unit in every if unit in changed}
    headers = changed - {*every} - {name for unit in some for name in read_by[unit]}
    some |= readers(headers, {unit: read - {None} for unit, read in read_by.items()})
    return sorted(some), f"{len(some)} of {len(every)} units: what changed since {text}"


def same_kernels(means_none=()):
    every = units("cu")
    base, text = base_commit()
    if base is None:
        return [], f"no kernel is known to be as it was: {text}"
    changed = changed_files(base)
    rules = sorted(changed & {*means_none})
    changed = {name for name in changed if name.endswith((".cu", ".cuh")) and not SHARED.match(name)}
    if rules:
        return [], f"no kernel: {rules[0]} changed since {text}"
    includes = Includes()
    same = [unit for unit in every if not includes.all_of(unit) & changed]
    return same, f"{len(same)} of {len(every)} kernels are as they were in {text}"


def main():
    if sys.argv[1:2] == ["--same-kernels"]:
        chosen, why = same_kernels(sys.argv[2:])
    else:
        chosen, why = units_to_check(sys.argv[1:])
    print(f"units: {why}", file=sys.stderr)
    print("\n".join(chosen), end="\n" if chosen else "")


if __name__ == "__main__":
    main()
