#!/usr/bin/env python3
"""Public structs and enums are as docs/abi.txt records them, and ops.def lists every field of
every args struct.
   scripts/check/check_layout.py            compares
   scripts/check/check_layout.py --write    records: right only together with a new SONAME, or when
                                      something was added"""
import difflib
import pathlib
import re
import sys

import dwarf_layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/abi.txt"
HEAD = """\
# Public structs (bytes; offset, type and name of each field) and enums, on 64-bit Linux.
# `make check` compares; `make abi` writes. A change here, other than an addition, needs a new SONAME.
"""


def public_types():
    headers = sorted(p.name for p in (ROOT / "include/tegula").glob("*.h"))
    source = "".join(f'#include "tegula/{h}"\n' for h in headers)
    entries, by_offset = dwarf_layout.read(source, ROOT / "include")
    structs, enums = {}, {}
    for entry in entries:
        if not entry.name.startswith("tg_"):
            continue
        if entry.tag == "structure_type" and "declaration" not in entry.attributes:
            structs[entry.name] = (entry.number("byte_size"), [
                (m.number("data_member_location"), dwarf_layout.type_name(m, by_offset), m.name)
                for m in entry.children])
        elif entry.tag == "enumeration_type":
            enums[entry.name] = [(c.number("const_value"), c.name) for c in entry.children]
    return structs, enums


def table(structs, enums):
    lines = [HEAD]
    for name, (size, fields) in sorted(structs.items()):
        lines.append(f"struct {name} {size}\n")
        lines += [f"  {offset:4} {kind} {field}\n" for offset, kind, field in fields]
    for name, values in sorted(enums.items()):
        lines.append(f"enum {name}\n")
        lines += [f"  {value:4} {constant}\n" for value, constant in values]
    return "".join(lines)


def listed_fields():
    """Fields of each args struct according to ops.def."""
    fields, name = {}, None
    for line in (ROOT / "src/ops/ops.def").read_text().splitlines():
        match = re.match(r"\s*([A-Z_]+)\((\w*)(?:, (\w+))?", line)
        if line.startswith("#") or line.startswith(" *") or not match:
            continue
        word, first, second = match.groups()
        if word == "OP":
            name = f"tg_{first}_{second}_args"
            fields[name] = set()
        elif word == "WORKSPACE":
            fields[name] |= {"workspace", "workspace_bytes"}
        elif word.endswith("LIST"):
            fields[name] |= {first, "num_tensors"}
        elif word != "END":
            fields[name].add(first)
    return fields


def unlisted(structs):
    listed, problems = listed_fields(), []
    args = {name for name in structs if name.endswith("_args")}
    for name in sorted(args ^ listed.keys()):
        problems.append(f"layout: {name} is {'not in ops.def' if name in args else 'no struct'}")
    for name in sorted(args & listed.keys()):
        have = {field for _, _, field in structs[name][1]}
        for field in sorted(have ^ listed[name]):
            where = "not listed in ops.def" if field in have else "listed but no field"
            problems.append(f"layout: {name}.{field} is {where}")
    return problems


def main():
    structs, enums = public_types()
    text = table(structs, enums)
    if sys.argv[1:] == ["--write"]:
        TABLE.write_text(text)
        return 0
    problems = unlisted(structs)
    old = TABLE.read_text() if TABLE.exists() else ""
    problems += difflib.unified_diff(old.splitlines(), text.splitlines(), "docs/abi.txt",
                                     "the headers", lineterm="")
    if problems:
        print("\n".join(problems))
        if old != text:
            print("layout: run 'make abi' if this was meant (see the head of docs/abi.txt)")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
