"""Tiny models to chat with, made without PyTorch: one that has learnt its answers by heart, and one that never ends; and a
terminal to chat in."""

import ctypes as c
import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import numpy as np
from model_library import BUILD, SaveOptions, Tokenizer, Trainer, check, lib

CLI = BUILD / "src" / "cli" / "tegula"
SPECIAL = ["<|user|>", "<|assistant|>", "<|end|>"]
ADDED = [*SPECIAL, "<think>", "</think>"]
TEMPLATE = """\
{%- for m in messages -%}
{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}
{%- if m.reasoning_content is defined and loop.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}{%- endif -%}
"""
# No letter comes twice, and none is a small one as in questions: each follows from the one before, and is soon learnt.
ANSWER, THOUGHT = "YES, OK.", "HM?"
SECONDS = 60  # far more than any step takes on a busy machine


def byte_name(byte):
    """The byte-level alphabet: printable bytes stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in plain else chr(256 + [b for b in range(256) if b not in plain].index(byte))


def write_tokenizer(directory):
    added = [
        {"id": 256 + i, "content": text, "special": text in SPECIAL, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, text in enumerate(ADDED)
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {byte_name(b): b for b in range(256)}, "merges": []},
    }  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


def name_no_end(directory, **changes):
    """A new model's config.json names its last id as the end of a text; here that is </think>."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    del config["eos_token_id"]
    path.write_text(json.dumps(config | changes))


class Created:
    """A model with random weights."""

    def __init__(self, preset, seed):
        self.handle = c.c_void_p()
        check(lib.tg_model_create, preset.encode(), 256 + len(ADDED), c.c_uint64(seed), c.byref(self.handle))


def conversation(rng):
    """Any questions; the answer is always the same, and now and then a thought precedes it."""
    text = ""
    for _ in range(16):
        question = "".join(chr(b) for b in rng.integers(97, 123, rng.integers(1, 9)))
        thought = f"<think>{THOUGHT}</think>" if rng.integers(4) == 0 else ""
        text += f"<|user|>{question}<|end|><|assistant|>{thought}{ANSWER}<|end|>"
    return text


def learn(directory, steps=80, batch=4, length=128):
    directory.mkdir()
    write_tokenizer(directory)
    tokenizer, rng, model = Tokenizer(directory), np.random.default_rng(1), Created("gpt_nano", 1)
    trainer = Trainer(
        model, batch_size=batch, sequence_length=length, num_threads=1, num_steps=steps, warmup_steps=5, learning_rate=4e-3,
        min_learning_rate=4e-4, beta1=0.9, beta2=0.95, eps=1e-8, max_grad_norm=1.0,
    )  # fmt: skip
    for step in range(steps):
        rows = np.array([tokenizer.encode(conversation(rng))[: length + 1] for _ in range(batch)])
        loss = trainer.step(rows[:, :-1], rows[:, 1:])
    trainer.save(directory)
    trainer.close()
    lib.tg_model_destroy(model.handle)
    write_tokenizer(directory)
    name_no_end(directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    (directory / "generation_config.json").write_text('{"do_sample": false}')
    return loss


def never_end(directory, positions=100000):
    """Random weights, no end token, and a template that writes none: text to the end of the context."""
    directory.mkdir()
    model = Created("qwen3_nano", 7)
    check(lib.tg_model_save, model.handle, c.byref(SaveOptions(0, 0, None)), os.fsencode(directory))
    lib.tg_model_destroy(model.handle)
    write_tokenizer(directory)
    name_no_end(directory, max_position_embeddings=positions)
    (directory / "generation_config.json").unlink(missing_ok=True)
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}")


def run(*arguments, stdin="", **environment):
    """Without a terminal."""
    return subprocess.run(
        [CLI, "chat", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=SECONDS,
        env=os.environ | environment,
    )  # fmt: skip


class Terminal:
    """`tegula chat` in a terminal of its own, as its session's leader: Ctrl-C and window changes reach it as signals."""

    def __init__(self, *arguments, columns=80, term="xterm", **environment):
        self.master, slave = pty.openpty()
        self.modes = termios.tcgetattr(slave)
        self.slave = slave  # stays open, so that the modes can be read afterwards
        self.resize(columns)
        self.dumb = term == "dumb"

        def begin():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)  # nohup's children ignore some

        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": term} | environment
        self.process = subprocess.Popen(
            [CLI, "chat", *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, preexec_fn=begin, env=environment
        )
        self.seen = ""  # since the last expect
        self.all = b""

    def read(self, seconds):
        ready, _, _ = select.select([self.master], [], [], seconds)
        data = os.read(self.master, 65536) if ready else b""
        self.all += data
        self.seen += data.decode(errors="replace")
        return bool(data)

    def expect(self, text):
        """Waits until the text was written; returns what came before it."""
        end = time.monotonic() + SECONDS
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"expected {text!r}, got {self.seen[-2000:]!r}"
            self.read(min(left, 0.2))
            assert text in self.seen or self.process.poll() is None, f"ended before {text!r}: {self.seen[-2000:]!r}"
        before, self.seen = self.seen.split(text, 1)
        return before

    def prompt(self):
        return self.expect("> " if self.dumb else "\x1b[J> ")  # no answer can write that sequence

    def send(self, keys):
        os.write(self.master, keys.encode())

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self):
        """The exit code, once the modes of the terminal are checked."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        code = self.process.wait(SECONDS)
        while self.read(0):
            pass
        assert termios.tcgetattr(self.slave) == self.modes
        assert self.all.count(b"\x1b[?2004h") == self.all.count(b"\x1b[?2004l")
        os.close(self.slave)
        os.close(self.master)
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def load_messages(path):
    return json.loads(pathlib.Path(path).read_text())
