"""Texts for tokenizers: English, code, and short ones of many scripts."""

import random

import tokenizer_graphs as graphs

RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x897, 0x8FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F),
    (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x10400, 0x104FF), (0x10D40, 0x10D8F), (0x11900, 0x11A50),
    (0x1E4D0, 0x1E4FF), (0x1F300, 0x1FAFF),
]  # fmt: skip
WORDS = [
    "'s", "'S", "'\u017f", "'LL", "don't", " ", "  ", "\n", "\r\n", "\n\n  x", "\t", "\u0085", "\u001c", "\u2028", "\u180e",
    "\u3000", "\u00bd", "\u01c5", "e\u0301", "123", "12345", "/\n", "<|im_start|>", "<think>", "<|endoftext|>", "<|im_",
]  # fmt: skip


def segments(count, seed):
    """Short texts of many scripts, with what patterns look at in between."""
    chance = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(chance.randint(1, 14)):
            first, last = chance.choice(RANGES)
            run = (chr(chance.randint(first, last)) for _ in range(chance.randint(1, 5)))
            parts.append(chance.choice(WORDS) if chance.random() < 0.35 else "".join(run))
        yield "".join(parts)


def english():
    """A megabyte of plays, where it is there, else the project's pages."""
    plays = graphs.DATA / "text" / "tinyshakespeare.txt"
    pages = [plays] if plays.exists() else sorted(graphs.ROOT.glob("docs/**/*.md"))
    return "".join(path.read_text(encoding="utf-8") for path in pages)


def code():
    root = graphs.ROOT
    return "".join(path.read_text(encoding="utf-8") for path in sorted(root.glob("src/text/**/*.c")))
