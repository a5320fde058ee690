#!/usr/bin/env python3
"""Times the runtime's tokenizers beside Hugging Face's `tokenizers` and tiktoken: encoding on one thread, and loading.

  tokenizer_speed.py [--build DIR] [--only NAME] [--pairs N] [--csv FILE] [--again] [--busy]

All take turns in one process, in an order that changes; figures are medians. Ids are compared before anything is timed.
Vocabularies are those of tests/python/tokenizer_graphs.py; the English text is tinyshakespeare.txt beside them. With --csv the
figures are recorded, on a quiet machine only, or with --busy on any, which their configuration then says.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python" / "text"))

import pytest  # noqa: E402
import tiktoken  # noqa: E402
import tokenizers  # noqa: E402
from tiktoken_ext import openai_public  # noqa: E402

import quiet  # noqa: E402
import results_csv  # noqa: E402
import tokenizer_graphs as graphs  # noqa: E402
import tokenizer_texts as texts_of  # noqa: E402

# Name -> its graph, and the pattern that tiktoken has for it.
FAMILIES = {
    "gpt2": (graphs.gpt2, openai_public.r50k_pat_str),
    "qwen3": (graphs.qwen3, graphs.QWEN2),
    "llama3": (graphs.llama3, graphs.LLAMA3),
    "o200k": (graphs.o200k, graphs.O200K),
}
BYTES = {c: byte for byte, c in graphs.ALPHABET.items()}
TRIES = 3


class Ours:
    """The public C functions."""

    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))

    def load(self, directory):
        handle, error = ctypes.c_void_p(), ctypes.create_string_buffer(512)
        if self.library.tg_tokenizer_load(os.fsencode(directory), ctypes.byref(handle), error):
            raise RuntimeError(error.raw[4:].split(b"\0")[0].decode())
        return handle

    def close(self, handle):
        self.library.tg_tokenizer_destroy(handle)

    def encoder(self, handle, text):
        """A function that encodes the text, whose added tokens are found as tokenizers finds them, and returns the number of ids;
        and the array that it fills."""
        data, count = text.encode(), ctypes.c_size_t()
        ids = (ctypes.c_int32 * (3 * len(data)))()
        arguments = (handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(0), ids, ctypes.c_size_t(len(ids)),
                     ctypes.byref(count), None)  # fmt: skip

        def encode():
            if self.library.tg_tokenizer_encode(*arguments):
                raise RuntimeError("tg_tokenizer_encode failed")
            return count.value

        return encode, ids


def tiktoken_of(name, contents, pattern):
    ranks = {bytes(BYTES[c] for c in token): i for token, i in contents["model"]["vocab"].items()
             if set(token) <= set(BYTES) and token != "<|endoftext|>"}  # fmt: skip
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def take_turns(functions, pairs):
    """Seconds of each function, `pairs` times."""
    samples = [[] for _ in functions]
    for pair in range(pairs):
        for step in range(len(functions)):
            i = (pair + step) % len(functions)
            start = time.perf_counter()
            functions[i]()
            samples[i].append(time.perf_counter() - start)
    return samples


class Family:
    """One tokenizer in the three engines."""

    def __init__(self, name, ours, folder):
        self.name, self.ours = name, ours
        make, pattern = FAMILIES[name]
        contents = make()
        self.directory = folder / name
        self.directory.mkdir()
        graphs.write(self.directory, contents)
        self.file = str(self.directory / "tokenizer.json")
        self.handle = ours.load(self.directory)
        self.theirs = tokenizers.Tokenizer.from_file(self.file)
        self.tiktoken = tiktoken_of(name, contents, pattern)

    def encoders(self, text):
        encode, ids = self.ours.encoder(self.handle, text)
        wanted = self.theirs.encode(text, add_special_tokens=False).ids
        if ids[: encode()] != wanted:
            raise RuntimeError(f"{self.name}: ids differ from those of tokenizers {tokenizers.__version__}")
        return [encode, lambda: self.tiktoken.encode_ordinary(text),
                lambda: self.theirs.encode(text, add_special_tokens=False)]  # fmt: skip

    def loaders(self):
        return [lambda: self.ours.close(self.ours.load(self.directory)),
                lambda: tokenizers.Tokenizer.from_file(self.file)]  # fmt: skip


def cases_of(name):
    """(direction, shape, text) of a family."""
    english = graphs.data_file("text", "tinyshakespeare.txt").read_text(encoding="utf-8")
    mixed = english[:400_000] + texts_of.code() + "".join(texts_of.segments(8000, 9))
    yield "encode", f"{name}_english", english
    yield "encode", f"{name}_mixed", mixed
    yield "load", name, None


def measure(family, case, text, options, config):
    peers = [("tegula", "0.1.0"), ("tiktoken", tiktoken.__version__), ("tokenizers", tokenizers.__version__)]
    functions = family.encoders(text) if text else family.loaders()
    if not text:
        del peers[1]
    load = quiet.Load()
    samples = take_turns(functions, options.pairs)
    others = load.others()
    rows = [dict(results_csv.row_of(case, impl, version, config, taken), note=f"other load {others:.2f}")
            for (impl, version), taken in zip(peers, samples)]  # fmt: skip
    return rows, others


def report(case, rows):
    ours = rows[0]["ms"]
    for row in rows:
        rate = f"{case['bytes'] / row['ms'] * 1e-3:8.1f} MB/s" if case["dir"] == "encode" else ""
        print(f"{case['dir']:7} {case['shape']:16} {row['impl']:11} {row['ms']:10.2f} ms {rate:13} {row['ms'] / ours:7.2f}x")
    sys.stdout.flush()


def run_case(family, case, text, options, run):
    """False: the machine was busy, nothing was recorded."""
    config = "threads=1 busy" if options.busy else "threads=1"
    identity = {key: case[key] for key in ("op", "dir", "dtype", "shape")}
    impls = ["tegula", "tiktoken", "tokenizers"] if text else ["tegula", "tokenizers"]
    if options.csv and not options.again and results_csv.recorded(
            results_csv.read(options.csv), run.common["commit"], dict(identity, suite="text"), impls):  # fmt: skip
        print(f"{case['dir']} {case['shape']}: recorded already")
        return True
    for _ in range(TRIES):
        rows, others = measure(family, case, text, options, config)
        if not options.csv or options.busy or others <= quiet.LIMIT:
            report(case, rows)
            run.append(rows)
            return True
        if quiet.wait(20) > quiet.LIMIT:
            break
    print(f"{case['dir']} {case['shape']}: not recorded: other processes use {others:.2f} CPUs, more than {quiet.LIMIT}",
          file=sys.stderr)  # fmt: skip
    return False


def parse_options():
    parser = argparse.ArgumentParser(description="Times the runtime's tokenizers beside their peers.")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path, help="build folder (build/release)")
    parser.add_argument("--only", choices=FAMILIES, help="only this tokenizer")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    parser.add_argument("--again", action="store_true", help="measure recorded cases again, too")
    parser.add_argument("--busy", action="store_true", help="record also beside other processes")
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs: expected a number above 0")
    return options


def main():
    options = parse_options()
    ours = Ours(options.build / "src/libtegula_model.so")
    commit = subprocess.run([options.build / "bench/bench_ops", "--commit"], check=True, capture_output=True,
                            text=True).stdout.strip()  # fmt: skip
    run = results_csv.Run(options.csv, commit, "text")
    print(f"# {run.common['device']}; one thread; commit {commit}; other load {quiet.wait(0):.2f}")
    done = True
    with tempfile.TemporaryDirectory() as folder:
        for name in [options.only] if options.only else FAMILIES:
            try:
                family = Family(name, ours, pathlib.Path(folder))
                for direction, shape, text in cases_of(name):
                    size = float(len(text.encode())) if text else float(os.path.getsize(family.file))
                    case = dict(op="tokenize", dir=direction, dtype="utf8", shape=shape, bytes=size)
                    done = run_case(family, case, text, options, run) and done
            except pytest.skip.Exception as skipped:
                print(f"{name}: not measured: {skipped}", file=sys.stderr)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
