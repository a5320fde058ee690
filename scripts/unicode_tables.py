#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_tables.c: what Hugging Face's tokenizers know of Unicode, where that differs from what
PCRE2 and utf8proc know.

   scripts/unicode_tables.py [--check]      needs `tokenizers`, and a Python whose unicodedata is that of Unicode 14 (3.11)

--check compares instead, and says what a newer `tokenizers` changed. Classes of code points are read out of the engine:
a Split with the pattern \\p{..} returns the code points that it matches. So are combining classes and compositions, by
normalising short texts.
"""
import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "src" / "text" / "unicode" / "unicode_tables.c"
BASE = "14.0.0"  # the Unicode that every PCRE2 from 10.40 on knows at least
CLASSES = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "Nd", "N", "P", "S"]
CONVERT, HEAD = "CONVERT", "HEAD"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(name, points):
    """The code points of class `name`."""
    split = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True)
    found = set()
    for start in range(0, len(points), 0x2000):
        text = "".join(map(chr, points[start : start + 0x2000]))
        found.update(ord(c) for piece, _ in split.pre_tokenize_str(text) for c in piece)
    return found


def late_points():
    """Code points that Unicode 14 does not assign, with the class that the engine gives them (None: none of CLASSES)."""
    points = [c for c in POINTS if unicodedata.category(chr(c)) == "Cn"]
    kinds = dict.fromkeys(points)
    for name in reversed(CLASSES):  # Nd is part of N
        kinds.update(dict.fromkeys(matching(name, points), name))
    return kinds


nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str


def moves(mark):
    """Whether the engine puts the mark into another order: its combining class there is not 0."""
    return any(nfd(text) != text for text in (f"a\u0345{mark}", f"a{mark}\u0334"))


def nfc_points():
    """CONVERT: may change, move or join what stands before it. HEAD: may join, or is taken apart for, what follows."""
    kinds = {}
    for c in map(chr, POINTS):
        parts = unicodedata.decomposition(c)
        if parts and not parts.startswith("<"):
            if nfd(c) != c:
                kinds[ord(c)] = HEAD
            pair = [chr(int(p, 16)) for p in parts.split()]
            if len(pair) == 2 and nfc("".join(pair)) == c:
                kinds[ord(pair[0])] = HEAD
    kinds.update(dict.fromkeys(list(range(0x1100, 0x1113)) + list(range(0xAC00, 0xD7A4)), HEAD))  # Hangul
    for c in map(chr, POINTS):
        parts = unicodedata.decomposition(c)
        if parts and not parts.startswith("<"):
            pair = [chr(int(p, 16)) for p in parts.split()]
            if len(pair) == 2 and nfc("".join(pair)) == c:
                kinds[ord(pair[1])] = CONVERT
        if nfc(c) != c or unicodedata.combining(c) and moves(c):
            kinds[ord(c)] = CONVERT
    kinds.update(dict.fromkeys(list(range(0x1161, 0x1176)) + list(range(0x11A8, 0x11C3)), CONVERT))
    return kinds


def ranges(kinds):
    """[first, last, kind] of each run; surrogates, which no text holds, join what stands around them."""
    rows = []
    for point in sorted(kinds):
        if rows and rows[-1][2] == kinds[point] and rows[-1][1] == (0xD7FF if point == 0xE000 else point - 1):
            rows[-1][1] = point
        else:
            rows.append([point, point, kinds[point]])
    return rows


def table(name, kinds, prefix):
    cells = [f"{{0x{a:x}, 0x{b:x}, {prefix}{(kind or 'OTHER').upper()}}}," for a, b, kind in ranges(kinds)]
    lines, line = [], " "
    for cell in cells:
        if len(line) + 1 + len(cell) > 100:
            lines.append(line)
            line = " "
        line += " " + cell
    lines.append(line)
    return (f"const tgi_point_range {name}[] = {{\n" + "\n".join(lines) + "\n};\n"
            f"const size_t {name}_count = sizeof {name} / sizeof {name}[0];\n")  # fmt: skip


def text():
    return (
        "/* Written by scripts/unicode_tables.py from the Hugging Face library `tokenizers` "
        f"{tokenizers.__version__}. */\n"
        '#include "unicode_tables.h"\n\n/* clang-format off */\n'
        + table("tgi_late_points", late_points(), "TGI_POINT_")
        + "\n"
        + table("tgi_nfc_points", nfc_points(), "TGI_POINT_")
        + "/* clang-format on */\n"
    )


def body(content):
    """All but the line that names the version."""
    return content.split("\n", 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    check = parser.parse_args().check
    if unicodedata.unidata_version != BASE:
        sys.exit(f"unicode_tables: expected a Python with Unicode {BASE}, got {unicodedata.unidata_version}")
    wanted = text()
    if not check:
        FILE.write_text(wanted)
    elif body(FILE.read_text()) != body(wanted):
        sys.exit(f"unicode_tables: {FILE.name} differs from what tokenizers {tokenizers.__version__} know: run this script")


if __name__ == "__main__":
    main()
