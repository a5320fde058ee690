#!/usr/bin/env python3
"""Mutation test of the CPU kernels: changes one token, builds the file for one entry of the chain,
runs the tests of its op, and reports the changes that no test noticed.

   scripts/mutation/mutate.py [--op NAME]... [--headers] [--max N] [--seed N] [--jobs N] [--no-write] [-v]
   scripts/mutation/mutate.py --part K/N --save FILE    every N-th row from the K-th on, on some machine; what
                                               FILE holds of the same sources is not tried again
   scripts/mutation/mutate.py --merge FILE...           the report of all parts

Sources: src/ops/<op>/ without checks, reference, shape and spec, what they call in src/cpu/, and the
headers of both that they include (the words of simd*.h are test_half_lanes' and test_lanes'); with
--headers those of src/cpu/, by themselves, with the tests of ops that use them. Each direction
of an op gets --max mutants, drawn by the seed; a mutant that does not compile, or compiles to the
same code, does not count. scripts/mutation/mutate_equivalent.txt names what cannot be noticed, with reasons.
Results go to docs/lab/mutation.md."""
import argparse
import collections
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import threading
import time

import mutations
from mutate_build import BUILD, Toolbox, notices
from mutate_report import (COUNTS, REPORT, ROOT, list_of_ops, load, merged, read_equivalents,
                           reason_for, report)

MATH = ROOT / "tests/cpu/math_lanes.c"  # the vector words, which these check:
MATH_TESTS = ("test_math", "test_half_lanes", "test_lanes")


@functools.cache
def kernel_sources(op):
    not_kernels = {f"{op}.c", f"{op}_ref.c", f"{op}_shape.c", f"{op}_spec.c"}
    folder = ROOT / "src/ops" / op
    return sorted(p for p in folder.glob("*.[ch]") if p.name not in not_kernels)


@functools.cache
def included(path):
    """Project files that a source includes, directly or not."""
    seen = set()
    for name in re.findall(r'^#include "([\w/.]+)"', path.read_text(), re.M):
        target = ROOT / "src" / name
        if target.exists():
            seen |= {target} | included(target)
    return seen


def shared_headers(sources):
    """Headers with kernels, of other ops or of src/cpu, that the sources include."""
    found = set().union(*(included(s) for s in sources))
    return sorted(p for p in found - set(sources) if p.suffix == ".h" and (
        p.parent.parent == ROOT / "src/ops"
        or p.parent == ROOT / "src/cpu" and not p.name.startswith("simd")))


@functools.cache
def called_sources(op):
    """Files of src/cpu that implement headers which the op's sources include, and what these call."""
    sources = kernel_sources(op)
    headers, found = set().union(*(included(s) for s in sources)), set()
    for _ in range(3):
        for path in (ROOT / "src/cpu").glob("*.c"):
            # gemm_micro.c implements a part of gemm.h
            stems = {path.stem, path.stem.split("_")[0]}
            if any(path.with_name(f"{stem}.h") in headers for stem in stems):
                found.add(path)
                headers |= included(path)
    return sorted(found)


@functools.cache
def mentioned(test):
    return re.findall(r"tg_[a-z_]+", test.read_text())


class Campaign:
    def __init__(self, options):
        self.options = options
        self.ops = list_of_ops()
        self.rules = read_equivalents()
        self.tools = Toolbox(options.entry)
        self.seconds, self.timings = {}, {}
        self.rows = []
        self.verdicts = load(options.save)["verdicts"] if options.save else {}

    def groups(self):
        """[(title, op, mutants in random order, source users, test ops)]: what is sampled."""
        found = []
        for op, directions in self.ops.items():
            sources = kernel_sources(op) + called_sources(op)
            sources += shared_headers(sources)
            functions, everything = collections.defaultdict(list), []
            for path in sources:
                text = path.read_text()
                for function in mutations.functions(mutations.blank(text)):
                    functions[function.name].append(function)
                everything += mutations.mutants(str(path.relative_to(ROOT)), text)
            for direction in directions:
                roots = [f"TGI_{k}({op}_{direction})" for k in ("KERNEL", "WORKSPACE")]
                names = mutations.reachable(roots, functions)
                # Products are called through tables of functions: all of src/cpu/*.c counts.
                found.append((f"{op} {direction}", [op],
                              [m for m in everything if m.function in names
                               or re.fullmatch(r"src/cpu/\w+\.c", m.path)]))
        for path in sorted((ROOT / "src/cpu").glob("*.h")):
            if not self.options.headers and f"cpu/{path.name}" not in (self.options.op or []):
                continue
            users = self.users(path)
            if re.fullmatch(r"simd_(?!%s\b)\w+" % self.options.entry, path.stem):
                continue  # another entry's
            found.append((f"cpu/{path.name}", users,
                          mutations.mutants(str(path.relative_to(ROOT)), path.read_text())))
        if self.options.op:
            found = [g for g in found if g[0].split()[0] in self.options.op]
        first, step = self.options.part
        return found[first - 1::step]

    def users(self, path):
        """Ops whose kernels include a file of src/cpu, or its header; the cheapest tests first."""
        header = path.with_suffix(".h")
        ops = [op for op in self.ops
               if any({path, header} & included(s) for s in kernel_sources(op))]
        return ops[:3]

    def tests_of(self, mutant, ops):
        """[(test program, arguments)]; files of src/cpu serve several ops, and all of them notice"""
        if mutant.path.startswith("src/cpu/") and mutant.path.endswith(".c"):
            path = ROOT / mutant.path
            ops = [*ops, *(op for op in self.ops if op not in ops
                           and path in called_sources(op))]
        tests = [("test_ops", ["--op", op, "--entry", self.options.entry]) for op in ops]
        if mutant.path.endswith(".h") and ROOT / mutant.path in included(MATH):
            tests = [*((name, []) for name in MATH_TESTS), *tests]
        names = [f"tg_{op}_" for op in ops]
        for source in sorted((ROOT / "tests").rglob("test_*.c")):
            words = mentioned(source)
            mentions = source.stem[5:] in ops or any(w.startswith(n) for w in words for n in names)
            if source.stem != "test_ops" and mentions and (BUILD / "tests" / source.stem).exists():
                tests.append((source.stem, []))
        return tests if ("test_errors", []) in tests else [*tests, ("test_errors", [])]

    def time_limit(self, program, arguments):
        key = (program, *arguments)
        with self.tools.lock:
            timing = self.timings.setdefault(key, threading.Lock())
        with timing:  # one test's, for others need not wait for it
            if key not in self.seconds:
                start = time.monotonic()
                if notices([BUILD / "tests" / program, *arguments], 600):
                    sys.exit(f"mutate: {program} {' '.join(arguments)} fails without a mutation")
                self.seconds[key] = time.monotonic() - start
            return 10 + 5 * self.seconds[key]

    def objects(self, mutant, ops, folder):
        """Compiles what the mutant changes; None when that fails or changes nothing."""
        source = ROOT / mutant.path
        text = mutant.applied_to(source.read_text())
        if source.suffix == ".c":
            changed = folder / source.name
            changed.write_text(text)
            jobs = [(source, changed, None)]
        else:
            overlay = folder / "overlay"
            target = overlay / source.relative_to(ROOT / "src")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            users = [s for op in ops for s in kernel_sources(op) if s.suffix == ".c"]
            users += [*(ROOT / "src/cpu").glob("*.c"), MATH]
            jobs = [(s, None, overlay) for s in users if source in included(s)]
        made, differs = [], False
        for path, changed, overlay in jobs:
            if path not in self.tools.compile:
                continue
            target = folder / (path.stem + ".o")
            if not self.tools.compile_object(path, target, changed, overlay):
                return None
            differs = differs or target.read_bytes() != self.base_object(path, changed is not None)
            made.append(target)
        return made if differs else None

    def base_object(self, path, moved):
        """The unchanged file, compiled from a place of the same kind."""
        with self.tools.lock:
            if (path, moved) not in self.tools.baseline:
                folder = BUILD / "mutant/base"
                folder.mkdir(parents=True, exist_ok=True)
                changed = folder / path.name if moved else None
                if moved:
                    changed.write_text(path.read_text())
                target = folder / (path.stem + ".o")
                self.tools.compile_object(path, target, changed, folder if not moved else None)
                self.tools.baseline[path, moved] = target.read_bytes()
            return self.tools.baseline[path, moved]

    def verdict(self, mutant, ops):
        """What was found before, or is found now, and kept."""
        source = (ROOT / mutant.path).read_bytes()
        key = (*ops, mutant.path, mutant.start, mutant.text, hashlib.sha256(source).hexdigest())
        if key not in self.verdicts:
            found = self.find_verdict(mutant, ops)
            with self.tools.lock:
                self.verdicts[key] = found
                self.save()
        return self.verdicts[key]

    def save(self):
        """Whatever stops the run, the file is whole."""
        if self.options.save:
            new = self.options.save.with_suffix(".new")
            new.write_bytes(pickle.dumps({"rows": self.rows, "verdicts": self.verdicts}))
            new.replace(self.options.save)

    def find_verdict(self, mutant, ops):
        """"failed", "crashed", "hung"; "survived"; or None: it does not count."""
        folder = BUILD / "mutant" / str(threading.get_ident())
        subprocess.run(["rm", "-rf", folder], check=True)
        folder.mkdir(parents=True)
        objects = self.objects(mutant, ops, folder)
        if not objects:
            return None
        for program, arguments in self.tests_of(mutant, ops):
            limit = self.time_limit(program, arguments)
            linked = self.tools.link_test(program, objects, folder / program)
            if linked.returncode != 0:
                return None
            how = notices([folder / program, *arguments], limit)
            if how:
                return how
        return "survived"

    def run_group(self, pool, title, ops, candidates):
        """[(mutant, verdict)] of `--max` mutants that count, and the excluded with reasons."""
        order = list(candidates)
        random.Random(f"{self.options.seed} {title}").shuffle(order)
        reasons = {m: reason_for(m, self.rules) for m in order}
        excluded = [(m, r) for m, r in reasons.items() if r and not r.startswith(COUNTS)]
        left_out = {m for m, _ in excluded}
        queue = collections.deque(m for m in order if m not in left_out)
        results = []
        while queue and len(results) < self.options.max:
            count = min(len(queue), self.options.max - len(results))
            batch = [queue.popleft() for _ in range(count)]
            for mutant, verdict in zip(batch, pool.map(lambda m: self.verdict(m, ops), batch)):
                if verdict:
                    results.append((mutant, verdict))
                if self.options.verbose:
                    print(f"{verdict or '-':9} {mutant.path}:{mutant.line} {mutant.before}"
                          f" => {mutant.after}", flush=True)
        return results, excluded

    def run(self):
        """Several rows at a time: the last mutants of one leave processors idle. Many first."""
        groups = self.groups()
        titles = [title for title, _, _ in groups]

        def run_row(group):
            title, ops, candidates = group
            start = time.monotonic()
            results, excluded = self.run_group(pool, title, ops, candidates)
            with self.tools.lock:
                self.note(title, results, time.monotonic() - start)
                self.rows.append((title, results, excluded, len(candidates)))
                self.rows.sort(key=lambda row: titles.index(row[0]))
                self.save()
                if not (self.options.save or self.options.op or self.options.no_write):
                    REPORT.write_text(report(self.rows, self.options))

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool, \
                concurrent.futures.ThreadPoolExecutor(1 + self.options.jobs // 5) as lanes:
            list(lanes.map(run_row, sorted(groups, key=lambda g: -len(g[2]))))
        return self.rows

    def note(self, title, results, seconds):
        killed = sum(v != "survived" for _, v in results)
        print(f"{title:24} {killed:3} of {len(results):3} noticed  {seconds:5.0f} s", flush=True)
        for mutant, verdict in results:
            if verdict == "survived" and not self.options.verbose:
                print(f"    {mutant.path}:{mutant.line} {mutant.before} => {mutant.after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", help="an op, or cpu/<file>; may be repeated")
    parser.add_argument("--headers", action="store_true", help="the headers of src/cpu/, too")
    parser.add_argument("--max", type=int, default=20, help="mutants per op and direction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--entry", default=best_entry(), help="entry of the chain that is changed")
    parser.add_argument("--no-write", action="store_true", help="leave docs/lab/mutation.md alone")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE",
                        help="keep the results here instead of writing docs/lab/mutation.md")
    parser.add_argument("--merge", type=pathlib.Path, nargs="+", metavar="FILE",
                        help="write docs/lab/mutation.md from saved parts")
    options = parser.parse_args()
    if options.part != (1, 1) and not options.save:
        parser.error("--part: expected --save FILE with it")
    if options.merge:
        rows = merged(options.merge)
        REPORT.write_text(report(rows, options))
    else:
        rows = Campaign(options).run()
    if not rows:
        parser.error("--op: expected an op of ops.def or cpu/<file>")
    tried = sum(len(results) for _, results, _, _ in rows)
    survived = sum(v == "survived" for _, results, _, _ in rows for _, v in results)
    print(f"{tried - survived} of {tried} mutants noticed"
          f" ({100 * (tried - survived) / max(1, tried):.1f} %)")
    return tried == 0 or survived > tried / 10


def part(text):
    """(K, N) of "K/N"."""
    first, count = map(int, text.split("/"))
    if not 1 <= first <= count:
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, got {text}")
    return first, count


def best_entry():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    if "avx512bw" in flags and "avx512vl" in flags:
        return "avx512"
    return "avx2" if "avx2" in flags else "generic"


if __name__ == "__main__":
    sys.exit(main())
