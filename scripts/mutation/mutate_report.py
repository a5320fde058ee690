"""What mutate.py found: saved parts, the rules for what cannot be noticed, and docs/lab/mutation.md."""
import collections
import pathlib
import pickle
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EQUIVALENT = ROOT / "scripts/mutation/mutate_equivalent.txt"
REPORT = ROOT / "docs/lab/mutation.md"
COUNTS = "survives: "  # a reason that explains a survivor, but does not leave the mutant out


def list_of_ops():
    """{op: [directions]} from ops.def."""
    ops = collections.defaultdict(list)
    text = (ROOT / "src/ops/ops.def").read_text()
    for op, direction in re.findall(r"^OP\((\w+), (\w+),", text, re.M):
        ops[op].append(direction)
    return ops


def read_equivalents():
    """[(path pattern, function, line or /pattern/, reason)]"""
    rules = []
    for number, line in enumerate(EQUIVALENT.read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            parts = [p.strip() for p in line.split(" | ")]
            if len(parts) != 3:
                sys.exit(f"{EQUIVALENT}:{number}: expected FILE | WHAT | REASON, got: {line}")
            rules.append(parts)
    return rules


def reason_for(mutant, rules):
    for path, what, reason in rules:
        if pathlib.PurePath(mutant.path).match(path):
            change = f"{mutant.before} => {mutant.after}"
            if (what == f"function {mutant.function}"
                    or (what.startswith("/") and re.search(what.strip("/"), change))
                    or what in (mutant.before, change)):
                return reason
    return None


def load(path):
    """{"rows": ..., "verdicts": ...} of a saved part; empty if there is none."""
    return pickle.loads(path.read_bytes()) if path.exists() else {"rows": [], "verdicts": {}}


def merged(paths):
    """The rows of all parts, in the order of the list; a row missing or twice is an error."""
    rows = [row for path in paths for row in load(path)["rows"]]
    titles = [f"{op} {direction}" for op, dirs in list_of_ops().items() for direction in dirs]
    if sorted(titles) != sorted(row[0] for row in rows):
        sys.exit("mutate: --merge: expected every op and direction once")
    return sorted(rows, key=lambda row: titles.index(row[0]))


def report(rows, options):
    lines = ["# Laboratory notes: what the tests notice", "",
             f"`make mutate` changed one token of a kernel at a time (seed {options.seed}, at most "
             f"{options.max} mutants a row, entry `{options.entry}`) and ran the tests of its op. "
             "Mutants that do not compile, or compile to the same code, do not count.", "",
             "| kernel | possible | tried | failed | crashed | hung | survived | noticed |",
             "|---|---|---|---|---|---|---|---|"]
    total = collections.Counter()
    for title, results, _, candidates in rows:
        count = collections.Counter(v for _, v in results)
        total += count
        tried = len(results)
        share = f"{100 * (tried - count['survived']) / tried:.0f} %" if tried else ""
        lines.append(f"| `{title}` | {candidates} | {tried} | {count['failed']} | "
                     f"{count['crashed']} | {count['hung']} | {count['survived']} | {share} |")
    tried = sum(total.values())
    lines.append(f"| all | | {tried} | {total['failed']} | {total['crashed']} | {total['hung']} | "
                 f"{total['survived']} | {100 * (tried - total['survived']) / max(1, tried):.1f} % |")
    lines += ["", "## Survivors", ""]
    seen, rules = set(), read_equivalents()
    for _, results, _, _ in rows:
        for m, verdict in results:
            if verdict == "survived" and m not in seen:
                seen.add(m)
                reason = (reason_for(m, rules) or "").removeprefix(COUNTS) or "no reason: test it"
                lines.append(f"- `{m.path}:{m.line}` `{m.before}` becomes `{m.after}`: {reason}")
    if not seen:
        lines.append("None.")
    lines += ["", "## Left out, because no test could notice", ""]
    reasons = collections.Counter()
    for _, _, excluded, _ in rows:
        for m, reason in excluded:
            reasons[m.path, reason] += 1
    lines += [f"- `{path}`: {reason} ({n} mutants)" for (path, reason), n in sorted(reasons.items())]
    return "\n".join(lines) + "\n"
