"""llm.c's training for timing, on the CPU and on a GPU: random weights, random tokens, no sampling."""

import pathlib
import subprocess
import sys

LAYERS, WIDTH, VOCAB, PADDED, CONTEXT = 12, 768, 50257, 50304, 1024


def write_blocks(f, count, make):
    """`count` values in pieces, so that the file need not fit in memory twice."""
    while count > 0:
        piece = min(count, 1 << 22)
        f.write(make(piece))
        count -= piece


def write_checkpoint(path):
    """llm.c's format, version 3: 256 int32, then every parameter in f32; random weights."""
    from array import array
    from random import Random
    random = Random(1)
    normal = array("f", (random.gauss(0, 0.02) for _ in range(65521)))  # prime: rows differ
    ones = array("f", [1.0]) * WIDTH
    header = array("i", [20240326, 3, CONTEXT, VOCAB, LAYERS, HEADS, WIDTH, PADDED] + [0] * 248)

    def weights(n):
        return (normal * (n // len(normal) + 1))[:n].tobytes()

    def gains(n):
        return (ones * (n // WIDTH))[:n].tobytes()

    def zeros(n):
        return bytes(4 * n)

    w, deep = WIDTH, LAYERS
    parts = [(PADDED * w, weights), (CONTEXT * w, weights), (deep * w, gains), (deep * w, zeros),
             (deep * 3 * w * w, weights), (deep * 3 * w, zeros), (deep * w * w, weights),
             (deep * w, zeros), (deep * w, gains), (deep * w, zeros), (deep * 4 * w * w, weights),
             (deep * 4 * w, zeros), (deep * 4 * w * w, weights), (deep * w, zeros), (w, gains),
             (w, zeros)]
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as f:
        f.write(header.tobytes())
        for count, make in parts:
            write_blocks(f, count, make)
    unfinished.rename(path)


def write_tokens(path, count, seed):
    """llm.c's format, version 1: 256 int32, then the ids in uint16."""
    from array import array
    from random import Random
    random = Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = array("i", [20240520, 1, count] + [0] * 253)
    ids = array("H", (random.randrange(VOCAB) for _ in range(count)))
    path.write_bytes(header.tobytes() + ids.tobytes())


# In main() of train_gpt2.c: how often it validates and samples, how many steps it takes, and of how
# many tokens a sequence is.
CHANGES = [("if (step % 10 == 0)", "if (0)"), ("if (step > 0 && step % 20 == 0)", "if (0)"),
           ("step <= 40", "step < TIMED_STEPS"), ("int T = 64;", "int T = TIMED_LENGTH;")]


def build_llmc(source, work, steps, length):
    """Builds in `work` for sequences of `length` tokens; returns the command."""
    text = (source / "train_gpt2.c").read_text()
    for old, new in CHANGES:
        if text.count(old) != 1:
            sys.exit(f"{source}/train_gpt2.c: expected `{old}` once; another version of llm.c?")
        text = text.replace(old, new)
    work.mkdir(parents=True, exist_ok=True)
    (work / "train_gpt2.c").write_text(text)
    flags = ["-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", f"-DTIMED_STEPS={steps + 1}",
             f"-DTIMED_LENGTH={length}"]
    subprocess.run(["gcc", *flags, "-I", source, "train_gpt2.c", "-o", f"train_gpt2_{length}", "-lm"],
                   cwd=work, check=True)
    if not (work / "gpt2_124M.bin").exists():
        print("# writing a random checkpoint for llm.c", file=sys.stderr)
        write_checkpoint(work / "gpt2_124M.bin")
    for name, count, seed in (("train", 200000, 1), ("val", 20000, 2)):
        write_tokens(work / f"dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", count, seed)
    return [f"./train_gpt2_{length}"]


def cuda_command(binary, work, steps, batch, length):
    """The command that times `steps` steps and one before; llm.c's train_gpt2cu is given a model of
    12 layers by its own start, which has the padded vocabulary, and keeps all activations."""
    files = [work / "train_tokens.bin", work / "val_tokens.bin"]
    for path, seed in zip(files, (1, 2)):
        write_tokens(path, 2 * batch * length + 1, seed)
    flags = {"-i": files[0], "-j": files[1], "-e": "d12", "-b": batch, "-t": length, "-x": steps + 1,
             "-r": 0, "-s": 0, "-v": 1000000, "-m": 1}
    return [binary, *(str(word) for pair in flags.items() for word in pair)]


def llmc_version(source):
    for command in (["git", "-C", source, "rev-parse", "--short", "HEAD"],):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        top = subprocess.run(["git", "-C", source, "rev-parse", "--show-toplevel"],
                             capture_output=True, text=True, check=False)
        if done.returncode == 0 and pathlib.Path(top.stdout.strip()) == source.resolve():
            return done.stdout.strip()
    return ""
