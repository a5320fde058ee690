"""Small changes to C kernels, each of which a test should notice: what can change where.

Works on sources as clang-format writes them: binary operators stand between spaces, functions and
their braces begin in the first column."""
import dataclasses
import re

# What a change looks for (in code without comments and strings), and what it writes.
RULES = [
    ("sign", r"(?<= )\+(?= )", "-"),
    ("sign", r"(?<= )-(?= )", "+"),
    ("sign", r"(?<= )\+=(?= )", "-="),
    ("sign", r"(?<= )-=(?= )", "+="),
    ("sign", r"(?<=[(\[])-(?=[a-z(])|(?<=[=,?:] )-(?=[a-z(])|(?<=return )-(?=[a-z(])", ""),
    ("product", r"(?<= )\*(?= )", "+"),
    ("product", r"(?<= )/(?= )", "*"),
    ("product", r"(?<= )%(?= )", "/"),
    ("bound", r"(?<= )<(?= )", "<="),
    ("bound", r"(?<= )<=(?= )", "<"),
    ("bound", r"(?<= )>(?= )", ">="),
    ("bound", r"(?<= )>=(?= )", ">"),
    ("test", r"(?<= )==(?= )", "!="),
    ("test", r"(?<= )!=(?= )", "=="),
    ("test", r"(?<= )&&(?= )", "||"),
    ("test", r"(?<= )\|\|(?= )", "&&"),
    ("test", r"!(?=[a-z(])", ""),
    ("test", r"\btrue\b", "false"),
    ("test", r"\bfalse\b", "true"),
    ("test", r"(?<=_)min(?=_|\b)", "max"),
    ("test", r"(?<=_)max(?=_|\b)", "min"),
    ("index", r"(?<=\[)0(?=\](?! = \{))", "1"),
    ("index", r"(?<=\[)[1-9]\d*(?=\](?!;| = \{))", lambda m: str(int(m[0]) - 1)),
    ("index", r"(?<=, )\d+(?=\))|(?<=, )\d+(?=, )", lambda m: str(int(m[0]) + 1)),
    ("index", r"(?<=[-+] )1\b(?![.\w])", "2"),
    ("constant", r"(?<![\w.])\d+\.\d*(?:e-?\d+)?f?(?!\w)", lambda m: changed_float(m[0])),
    ("constant", r"(?<!\w)0x[\da-f]+\.[\da-f]*p[+-]\d+f?", lambda m: changed_hex(m[0])),
    ("constant", r"(?<== )0(?=;|,)", "1"),
    ("order", r"(?<=\? )([\w.>\[\]-]+) : ([\w.>\[\]-]+)", r"\2 : \1"),
    ("call", r"(?m)(?<=^  )( *)[a-z]\w*\([^{}]*?\);$", r"\1;"),
]


def changed_float(literal):
    number = literal.rstrip("f")
    if float(number) == 0:
        return "1.0" + literal[len(number):]
    return repr(float(number) * 1.1) + literal[len(number):]


def changed_hex(literal):
    return (float.fromhex(literal.rstrip("f")) * 1.1).hex() + "f" * literal.endswith("f")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str      # of the source, relative to the root
    function: str  # in which it lies
    kind: str      # first word of its rule
    line: int
    start: int     # the span of the source that `text` replaces
    end: int
    text: str
    before: str    # the line as it is, and as it becomes
    after: str

    def applied_to(self, source):
        return source[:self.start] + self.text + source[self.end:]


@dataclasses.dataclass
class Function:
    name: str
    start: int  # span of the body
    end: int
    calls: set  # identifiers of the body


def blank(source):
    """The source with comments and string literals replaced by spaces, at the same offsets."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?m:^#include[^\n]*)'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), source, flags=re.S)


def functions(code):
    """Functions and function-like macros of blanked code, in order."""
    found = []
    pattern = r"(?m)^(?P<head>[A-Za-z][^;{}#]*?)\n\{\n(?P<body>.*?)^\}"
    for match in re.finditer(pattern, code, re.S):
        name = re.search(r"(TGI_[A-Z]+\(\w+\)|\w+)\s*\(", match["head"])
        if name:
            found.append((name[1].split("(")[0] if not name[1].startswith("TGI_") else name[1],
                          match.span("body")))
    for match in re.finditer(r"(?m)^#define (?P<name>\w+)\((?P<body>(?:.*\\\n)+.*)$", code):
        found.append((match["name"], match.span("body")))
    return [Function(name, *span, set(re.findall(r"TGI_[A-Z]+\(\w+\)|\w+", code[slice(*span)])))
            for name, span in sorted(found, key=lambda f: f[1])]


def reachable(roots, known):
    """Names among `known` (functions by name) that the roots call, directly or not."""
    seen, todo = set(), [r for r in roots if r in known]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [c for f in known[name] for c in f.calls if c in known]
    return seen


def mutants(path, source):
    """All changes to a source's functions, in order."""
    code = blank(source)
    found = {}
    for function in functions(code):
        if function.name.startswith("TGI_PLAN") or function.name.endswith("_explain"):
            continue  # text for people
        for kind, pattern, replacement in RULES:
            for match in re.compile(pattern).finditer(code, function.start, function.end):
                text = match.expand(replacement) if isinstance(replacement, str) else replacement(match)
                start, end = match.span()
                begin_line = source.rfind("\n", 0, start) + 1
                end_line = source.find("\n", end)
                after = source[begin_line:start] + text + source[end:end_line]
                found[start, text] = Mutant(
                    path, function.name, kind, source.count("\n", 0, start) + 1, start, end, text,
                    " ".join(source[begin_line:end_line].split()), " ".join(after.split()))
    return [found[key] for key in sorted(found)]
