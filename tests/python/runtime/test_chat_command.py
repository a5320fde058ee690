"""`tegula chat` as a person meets it, in a terminal, and as a script does, without one."""

import json
import os
import re
import signal
import pathlib
import subprocess

import chat_model
import pytest
from chat_model import ANSWER, SECONDS, THOUGHT, Terminal, load_messages, run

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    directory = tmp_path_factory.mktemp("chat") / "learnt"
    loss = chat_model.learn(directory)
    assert run(directory, "-p", "hi").stdout == ANSWER + "\n", loss
    return directory


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    directory = tmp_path_factory.mktemp("chat") / "endless"
    chat_model.never_end(directory)
    return directory


def answer(terminal, question):
    terminal.send(question + "\r")
    terminal.expect(ANSWER)
    terminal.prompt()


# ---- without a terminal ----


def test_one_question(learnt):
    done = run(learnt, "-p", "hi", stdin=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER + "\n", "")
    done = run("-m", learnt, "--prompt", "hi", "--stats", "--system", "s", "--seed", "3")
    assert done.stdout == ANSWER + "\n"
    assert re.fullmatch(r"prompt: 0 tokens kept, \d+ in .* \| generated: 8 in .* \| ended: end of turn\n", done.stderr)
    assert run(learnt, "-p", "-", stdin="hi\n").stdout == ANSWER + "\n"


def test_standard_input_is_one_question(learnt):
    """It never waits for a person, and no line of it is a command."""
    done = run(learnt, stdin="/quit\nhi\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER + "\n", "")
    for nothing in ("", "\n"):
        done = run(learnt, stdin=nothing)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "tegula chat: standard input: expected a question, got none\n"
    done = subprocess.run([chat_model.CLI, "chat", learnt], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    assert done.returncode == 1 and b"expected a question" in done.stderr
    done = subprocess.run([chat_model.CLI, "chat", learnt], input=b"a\xff", capture_output=True, timeout=SECONDS)
    assert done.returncode == 1 and b"byte 1: expected UTF-8, got 0xff" in done.stderr


@pytest.mark.skipif(not pathlib.Path("/dev/full").is_char_device(), reason="expected the device /dev/full")
def test_a_full_disk_is_named(learnt):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([chat_model.CLI, "chat", learnt, "-p", "hi"], stdout=full, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 1 and b"standard output: expected to write, got an error" in done.stderr


def test_thoughts_without_a_terminal(learnt):
    assert run(learnt, "-p", "hi", "--thinking").stdout == f"<think>{THOUGHT}</think>{ANSWER}\n"
    assert run(learnt, "-p", "hi", "--thinking", "--hide-thinking").stdout == ANSWER + "\n"
    assert run(learnt, "-p", "hi", "--template-arg", "enable_thinking=true").stdout.startswith("<think>")
    assert run(learnt, "-p", "hi", "--no-thinking").stdout == ANSWER + "\n"


def test_what_is_refused(learnt, tmp_path):
    def expect(code, text, *arguments):
        done = run(*arguments)
        assert done.returncode == code and text in done.stderr and done.stdout == "", done

    expect(2, "expected DIR or --model DIR, got neither")
    expect(2, 'got an extra "x"', "-m", learnt, "x")
    expect(2, "got both", learnt, "--thinking", "--no-thinking")
    expect(2, "--ctx", learnt, "--ctx", "0")
    expect(2, "KEY=JSON, got x", learnt, "-p", "hi", "--template-arg", "x")
    expect(1, "expected a template with enable_thinking", learnt, "-p", "hi", "--thinking", "--template", "chatml")
    expect(1, "expected one of the templates", learnt, "-p", "hi", "--template-name", "other")
    expect(2, "--date: expected a date such as", learnt, "-p", "hi", "--date", "2020-02-30")
    expect(2, "--logit-bias: byte 0: expected ID=VALUE", learnt, "-p", "hi", "--logit-bias", "x")
    expect(1, "--ctx: expected at most 128 (the model's positions), got 200", learnt, "-p", "hi", "--ctx", 200)
    expect(1, "in all; the model has no more positions", learnt, "-p", "h" * 300)
    expect(1, "[0].role", learnt, "-p", "hi", "--load", write(tmp_path / "bad.json", "[{}]"))
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        os.link(learnt / name, bare / name)
    expect(1, "expected a chat template in chat_template.jinja or tokenizer_config.json, got none", bare, "-p", "hi")
    # The template's own end is known: the directory names none.
    assert run(bare, "-p", "hi", "--template", learnt / "chat_template.jinja").stdout == ANSWER + "\n"
    assert run(learnt, "-p", "hi", "--template", learnt / "chat_template.jinja", "--stop", "OK").stdout == "YES, \n"


def write(path, text):
    path.write_text(text)
    return path


def test_an_answer_that_is_cut(endless):
    done = run(endless, "-p", "hi", "-n", 3)
    assert done.returncode == 0 and done.stderr == "(cut after 3 tokens; --max-tokens changes that)\n"
    done = run(endless, "-p", "hi", "--ctx", 40)
    assert done.returncode == 0 and "(cut: the context of 40 tokens is full; a larger --ctx makes room)" in done.stderr


def test_signals_without_a_terminal(endless):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [chat_model.CLI, "chat", endless, "-p", "hi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert process.stdout.read(1)
        process.send_signal(number)
        _, notes = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + number and notes == b"(interrupted)\n"


# ---- in a terminal ----


def test_turns_and_commands(learnt, tmp_path):
    saved = tmp_path / "a b.json"
    with Terminal(learnt, "--stats", "--system", "Be kind.") as terminal:
        terminal.expect("context: 128 tokens (the model's positions); /help lists commands, Ctrl-D ends")
        terminal.prompt()
        terminal.send("hello\r")
        terminal.expect(ANSWER)
        first = int(re.search(r"0 tokens kept, (\d+) in", terminal.prompt())[1])
        terminal.send("again\r")
        terminal.expect(ANSWER)
        kept, new = map(int, re.search(r"(\d+) tokens kept, (\d+) in", terminal.prompt()).groups())
        # All of the first turn but its end token, for which no pass was run; then that and the question.
        assert kept == first + len(ANSWER)
        assert new == len("EUagainEA")
        for command, reply in {
            "/undo": "the last question and its answer are taken back",
            "/nonsense": "expected a command of /help, got /nonsense",
            "/help": "/system TEXT",
            "   ": "",
            f"/save {saved}": "saved 3 messages to",
            "/system Be brief.": "the system message is set",
            "/save": "/save: expected FILE, got none",
        }.items():
            terminal.send(command + "\r")
            assert reply in terminal.prompt()
        assert load_messages(saved) == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": ANSWER},
        ]
        terminal.send("/reset\r")
        terminal.prompt()
        terminal.send(f"/save {saved}\r")
        terminal.prompt()
        assert load_messages(saved) == [{"role": "system", "content": "Be brief."}]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a b.json"]
        answer(terminal, " /quit")  # a question, with a space before it
        answer(terminal, "\x1b[A")  # the same again
        terminal.send("/quit\r")
        assert terminal.end() == 0


def test_the_next_turn_answers_as_a_fresh_program(learnt, endless, tmp_path):
    """What was kept of the turn before changes no token."""
    saved = tmp_path / "chat.json"
    for directory in (learnt, endless):
        options = ["-n", 12, "--temperature", 0, "--ctx", 120]
        with Terminal(directory, *options) as terminal:
            for question in ("hello", "and again", "once more"):
                terminal.prompt()
                terminal.send(question + "\r")
            terminal.prompt()
            terminal.send(f"/save {saved}\r")
            terminal.prompt()
            terminal.send("\x04")
            assert terminal.end() == 0
        messages = load_messages(saved)
        assert [m["role"] for m in messages] == ["user", "assistant"] * 3
        before = write(tmp_path / "before.json", json.dumps(messages[:4]))
        assert run(directory, *options, "--load", before, "-p", "once more").stdout.rstrip("\n") == messages[5]["content"].rstrip("\n")


def test_thoughts_in_a_terminal(learnt, tmp_path):
    saved = tmp_path / "chat.json"
    with Terminal(learnt, "--thinking") as terminal:
        terminal.prompt()
        terminal.send("hello\r")
        terminal.expect(f"{DIM}<think>{THOUGHT}</think>{PLAIN}{ANSWER}")
        terminal.prompt()
        terminal.send(f"/save {saved}\r")
        terminal.prompt()
        terminal.send("\x04")
        assert terminal.end() == 0
    assert load_messages(saved)[1] == {"role": "assistant", "reasoning_content": THOUGHT, "content": ANSWER}
    with Terminal(learnt, "--thinking", "--hide-thinking") as terminal:
        terminal.prompt()
        answer(terminal, "hello")
        assert b"think" not in terminal.all
        terminal.send("\x04")
        assert terminal.end() == 0
    with Terminal(learnt, "--thinking", NO_COLOR="1") as terminal:
        terminal.prompt()
        answer(terminal, "hello")
        assert DIM.encode() not in terminal.all and b"<think>" in terminal.all
        terminal.send("\x04")
        assert terminal.end() == 0


def test_ctrl_c(endless):
    with Terminal(endless) as terminal:
        terminal.prompt()
        terminal.send("hello\r")
        terminal.expect("\r\n")
        while not terminal.seen:
            terminal.read(1)
        terminal.send("\x03")
        terminal.expect("(interrupted)")
        terminal.prompt()
        terminal.send("typed by mistake")
        terminal.expect("mistake")
        terminal.send("\x03")  # forgets that
        terminal.prompt()
        terminal.send("more\r")
        terminal.expect("\r\n")
        while not terminal.seen:
            terminal.read(1)
        terminal.send("\x03")
        terminal.expect("(interrupted)")
        terminal.prompt()
        terminal.send("\x03")  # with nothing typed: ends
        assert terminal.end() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_other_signals_leave_the_terminal_as_it_was(endless, number):
    for answers in (False, True):
        with Terminal(endless) as terminal:
            terminal.prompt()
            if answers:
                terminal.send("hello\r")
                terminal.expect("\r\n")
            terminal.process.send_signal(number)
            assert terminal.end() == 128 + number


def test_stopped_and_continued(learnt):
    with Terminal(learnt) as terminal:
        terminal.prompt()
        terminal.send("hel")
        terminal.expect("hel")
        terminal.process.send_signal(signal.SIGTSTP)
        pid, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert pid and os.WIFSTOPPED(status)
        assert chat_model.termios.tcgetattr(terminal.slave) == terminal.modes
        terminal.process.send_signal(signal.SIGCONT)
        terminal.prompt()
        terminal.expect("hel")
        answer(terminal, "lo")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_pasted_lines_stay_together(learnt, tmp_path):
    saved = tmp_path / "chat.json"
    with Terminal(learnt) as terminal:
        terminal.prompt()
        assert b"\x1b[?2004h" in terminal.all
        terminal.send("\x1b[200~/quit\rtwo\r\nthr\u00e4e\r\x1b[31m\x1b[201~ end\x1b[D\x1b[D\x7fA\r")
        terminal.prompt()
        answer(terminal, "\x1b[200~" + "long " * 3 + "\x1b[201~")
        terminal.send(f"/save {saved}\r")
        terminal.prompt()
        terminal.send("\x04")
        assert terminal.end() == 0
        assert b"^[[31m" in terminal.all  # shown, not sent to the terminal
    # The pasted command is one of too many words, and no question.
    assert [m["content"] for m in load_messages(saved)] == ["long " * 3, ANSWER]


def test_a_pasted_question_has_lines(learnt, tmp_path):
    saved = tmp_path / "chat.json"
    with Terminal(learnt) as terminal:
        terminal.prompt()
        terminal.send("\x1b[200~one\rtwo\r\nthr\u00e4e\x1b[201~ four\x1b\rfive\r")
        terminal.expect(ANSWER)
        terminal.prompt()
        terminal.send(f"/save {saved}\r")
        terminal.prompt()
        terminal.send("\x04")
        assert terminal.end() == 0
    assert load_messages(saved)[0]["content"] == "one\ntwo\nthr\u00e4e four\nfive"


def test_keys_while_an_answer_is_written(endless, tmp_path):
    """They are not mixed into it, and wait for the prompt."""
    with Terminal(endless, "-n", 300) as terminal:
        terminal.prompt()
        terminal.send("hello\r")
        terminal.expect("\r\n")
        terminal.send("zqx\x1b[D\x7f")
        terminal.expect("(cut after 300 tokens")
        terminal.prompt()
        terminal.expect("zx")
        assert b"zqx" not in terminal.all
        terminal.send("\x05\x15\x04")
        assert terminal.end() == 0


def test_window_changes(endless, learnt):
    with Terminal(endless, "-n", 300) as terminal:
        terminal.prompt()
        terminal.send("a question that is longer than a row")
        terminal.expect("row")
        for columns in (10, 3, 200, 1, 80):
            terminal.resize(columns)
            terminal.expect("\x1b[J> ")
        terminal.send("\r")
        terminal.expect("\r\n")
        for columns in (20, 5, 100):
            terminal.resize(columns)
            terminal.read(0.1)
        terminal.expect("(cut after 300 tokens")
        terminal.prompt()
        terminal.send("\x04")
        assert terminal.end() == 0


def test_a_full_context(learnt):
    with Terminal(learnt, "--ctx", 50) as terminal:
        terminal.prompt()
        answer(terminal, "hello")
        terminal.send("h" * 60 + "\r")
        terminal.expect("context: expected room for a conversation of")
        terminal.expect("/reset, /undo or a larger --ctx make room")
        terminal.prompt()
        answer(terminal, "hi")  # the long question was not kept
        terminal.send("h" * 30 + "\r")
        terminal.expect("context")
        terminal.prompt()
        terminal.send("/reset\r")
        terminal.prompt()
        answer(terminal, "hello")
        terminal.send("\x04")
        assert terminal.end() == 0


def test_a_dumb_terminal(learnt):
    """Lines come whole, and no sequence is sent."""
    with Terminal(learnt, "--thinking", term="dumb") as terminal:
        terminal.prompt()
        terminal.send("hello\n")
        terminal.expect(f"<think>{THOUGHT}</think>{ANSWER}")
        terminal.prompt()
        terminal.send("/nonsense\n")
        terminal.expect("expected a command")
        terminal.prompt()
        terminal.send("\x04")
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.all


def test_questions_cannot_write_special_tokens(learnt, tmp_path):
    """A question that spells them is longer by their letters; with --trust-content they are tokens."""
    text = "<|end|>"
    counts = [
        int(re.search(r"kept, (\d+) in", run(learnt, "-p", question, "--stats", *more).stderr)[1])
        for question, *more in [("x",), (text,), (text, "--trust-content")]
    ]
    assert counts[1] - counts[0] == len(text) - 1 and counts[2] == counts[0]
