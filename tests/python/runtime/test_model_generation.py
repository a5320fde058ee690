"""tegula.Model.generate, stream and chat: the same tokens alone, in a batch, by thread, by call; ends and interruptions."""

import gc
import subprocess
import sys
import threading
import time

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
numpy = pytest.importorskip("numpy")

FORMS = {
    "greedy": dict(temperature=0.0),
    "drawn": dict(temperature=0.9, top_k=20, top_p=0.9, min_p=0.01),
    "penalised": dict(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, penalty_window=6),
    "biased": dict(temperature=1.0, logit_bias={3: 4.0, 5: float("-inf")}),
}  # fmt: skip


@pytest.fixture(scope="module", params=["gpt", "qwen3"])
def model(request):
    if request.param == "gpt":
        config = tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, n_positions=64, vocab_size=50, initializer_range=0.3)
    else:
        config = tegula.ModelConfig(
            "qwen3", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, max_position_embeddings=64, vocab_size=50, initializer_range=0.3,
        )  # fmt: skip
    return tegula.Model(config, seed=2)


@pytest.fixture
def prompts():
    return numpy.random.default_rng(5).integers(0, 50, (4, 6))


@pytest.mark.parametrize("form", FORMS)
def test_alone_in_a_batch_and_streamed(model, prompts, form):
    batch = model.generate(prompts, 30, seed=11, **FORMS[form])
    assert type(batch) is numpy.ndarray and batch.dtype == numpy.int64 and batch.shape == (4, 36)
    assert (batch[:, :6] == prompts).all() and not ((batch < 0) | (batch >= 50)).any()
    for row in range(4):
        alone = model.generate(prompts[row], 30, seed=11 + row, **FORMS[form])
        assert alone.shape == (36,) and (alone == batch[row]).all()
        streamed = list(model.stream(prompts[row], 30, seed=11 + row, **FORMS[form]))
        assert streamed == batch[row, 6:].tolist()
    assert (model.generate(prompts, 30, seed=[14, 13, 12, 11], **FORMS[form])[3] == model.generate(prompts[3], 30, seed=11, **FORMS[form])).all()
    if form == "drawn":
        assert len({tuple(row[6:]) for row in model.generate(prompts[[0, 0, 0]], 30, seed=1, **FORMS[form]).tolist()}) == 3


@pytest.mark.parametrize("form", FORMS)
def test_threads_change_nothing(form, prompts):
    config = tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, n_positions=64, vocab_size=50, initializer_range=0.3)
    one, three = (tegula.Model(config, seed=2, num_threads=n) for n in (1, 3))
    assert (one.generate(prompts, 20, seed=4, **FORMS[form]) == three.generate(prompts, 20, seed=4, **FORMS[form])).all()
    assert (one(prompts) == three(prompts)).all()


def test_greedy_tokens_are_those_of_the_logits(model, prompts):
    row = prompts[0].tolist()
    out = model.generate(row, 12, temperature=0).tolist()
    for length in range(6, 18):
        assert out[length] == int(model(out[:length], last_only=True).argmax())


def test_biases_hold(model, prompts):
    banned = model.generate(prompts, 50, logit_bias={token: float("-inf") for token in range(25)}, seed=3)
    assert (banned[:, 6:] >= 25).all()


def test_ends(model, prompts):
    out = model.generate(prompts, 40, seed=1, stop=range(20), pad_id=49, return_dict=True)
    for row, reason in zip(out["sequences"][:, 6:].tolist(), out["finish_reason"]):
        first = next((i for i, token in enumerate(row) if token < 20), None)
        assert reason == ("length" if first is None else "stop")
        assert first is None or row[first + 1 :] == [49] * (len(row) - first - 1)
    assert "stop" in out["finish_reason"]
    stream = model.stream(prompts[0], 40, seed=1, stop=range(20))
    assert stream.finish_reason is None
    tokens = list(stream)
    assert tokens == [t for t in out["sequences"][0, 6 : 6 + len(tokens)]] and stream.finish_reason == out["finish_reason"][0]
    # the positions end: one token more than fits, and no crop
    full = model.generate(prompts[0], return_dict=True, stop=[])
    assert full["sequences"].shape == (65,) and full["finish_reason"] == ["length"]
    assert list(model.stream(prompts[0], stop=[])) == full["sequences"][6:].tolist()
    with pytest.raises(ValueError, match="expected at most 64 tokens"):
        model.generate(numpy.zeros(65, int), 1)
    with pytest.raises(ValueError, match="expected at most 64 tokens"):
        model.stream(numpy.zeros(65, int), 1)


def test_logprobs(model, prompts):
    out = model.generate(prompts[:2], 8, seed=5, logprobs=3, return_dict=True)
    for row in range(2):
        ids = out["sequences"][row]
        for n, (token, logprob, top) in enumerate(out["logprobs"][row]):
            z = model(ids[: 6 + n], last_only=True).astype(float)
            want = z - numpy.log(numpy.exp(z - z.max()).sum()) - z.max()
            assert token == ids[6 + n] and abs(logprob - want[token]) < 1e-4
            assert [i for i, _ in top] == numpy.argsort(-z, kind="stable")[:3].tolist()
    assert list(model.stream(prompts[0], 8, seed=5, logprobs=3)) == out["logprobs"][0]
    assert model.generate(prompts, 3, return_dict=True)["logprobs"] == [None] * 4
    assert all(t["tokens"] == 3 and t["token_seconds"] > 0 for t in model.generate(prompts, 3, return_dict=True)["timings"])


def test_batches_of_any_size(model):
    """More rows than an engine runs at a time, rows that end early, rows that the positions end."""
    many = numpy.random.default_rng(7).integers(0, 50, (70, 3))
    how = dict(temperature=1.0, stop=range(6), pad_id=49, logprobs=2, return_dict=True)
    together = model.generate(many, 90, seed=100, **how)
    assert set(together["finish_reason"]) == {"stop", "length"} or set(together["finish_reason"]) == {"stop"}
    for row in range(0, 70, 9):
        alone = model.generate(many[row], 90, seed=100 + row, **how)
        length = len(alone["sequences"])
        assert (together["sequences"][row, :length] == alone["sequences"]).all() and (together["sequences"][row, length:] == 49).all()
        assert together["finish_reason"][row] == alone["finish_reason"][0] and together["logprobs"][row] == alone["logprobs"][0]
    full = model.generate(many[:2], 90, seed=1, stop=[])
    assert full.shape == (2, 65) and (full[1] == model.generate(many[1], 90, seed=2, stop=[])).all()
    times = model.generate(many[:3], 5, return_dict=True)["timings"]
    assert all(t["tokens"] == 5 and t["prompt_seconds"] > 0 and t["token_seconds"] > 0 for t in times)


def test_prompts_of_different_lengths(model):
    ragged = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11]]
    for how in FORMS.values():
        out = model.generate(ragged, 12, seed=9, pad_id=49, stop=range(3), return_dict=True, **how)
        assert out["sequences"].shape[0] == 3
        for row, prompt in enumerate(ragged):
            alone = model.generate(prompt, 12, seed=9 + row, stop=range(3), return_dict=True, **how)
            length = len(alone["sequences"])
            assert (out["sequences"][row, :length] == alone["sequences"]).all()
            assert (out["sequences"][row, length:] == 49).all() and out["finish_reason"][row] == alone["finish_reason"][0]
    arrays = [numpy.array(row, numpy.int32) for row in ragged]
    same = model.generate(arrays, 12, seed=9, pad_id=49, stop=range(3), **how)
    assert same.dtype == numpy.int32 and (same == out["sequences"]).all()
    assert model.generate(ragged, seed=9, stop=[]).shape == (3, 65)  # without a limit: one after the other
    mixed = model.generate([arrays[0].tolist(), *arrays[1:]], 12, seed=9, pad_id=49, stop=range(3), **how)
    assert mixed.dtype == numpy.int32 and (mixed == same).all()
    equal = [[1, 2, 3], numpy.array([4, 5, 6], numpy.int32)]  # in either order
    assert model.generate(equal, 3).shape == model.generate(equal[::-1], 3).shape == (2, 6)
    for bad in ([[1, 2], [3, 4, 50]], [numpy.array([1, 2]), numpy.array([3, 4, 50])]):
        with pytest.raises(ValueError, match=r"generate: ids\[1\]\[2\]: expected 0 to 49, got 50"):
            model.generate(bad, 3)
    with pytest.raises(ValueError, match=r"ids\[1\]: expected one row, got 2"):
        model.generate([[1], [[2, 3], [4, 5]]], 3)
    with pytest.raises(ValueError, match="expected"):
        model.generate([[1, 2], []], 3)
    with pytest.raises(ValueError, match=r"expected at most 64 tokens"):
        model.generate([[1], [2] * 65], 3)


def test_lists_of_arrays_without_axes(model):
    want = model.generate([1, 2, 3], 5)
    assert (model.generate(list(numpy.array([1, 2, 3])), 5) == want).all()
    torch = pytest.importorskip("torch")
    got = model.generate(list(torch.tensor([1, 2, 3])), 5)
    assert got.tolist() == want.tolist()


def test_stop_texts():
    config = tegula.ModelConfig(n_layer=2, n_head=2, n_embd=32, n_positions=64, vocab_size=257, initializer_range=0.3)
    model, tokenizer = tegula.Model(config, seed=2), tegula.Tokenizer.of_bytes()
    # Only "a", "b" and "c" are drawn.
    how = dict(seed=3, temperature=9.0, logit_bias={n: float("-inf") for n in range(257) if n not in (97, 98, 99)})
    free = [model.generate([1], 40, **{**how, "seed": 3 + row}, stop=[])[1:].tolist() for row in range(3)]
    for stop in ("ab", ["cab", "bb"], ["acb", "ca", 98], [98]):
        texts = [one for one in ([stop] if isinstance(stop, str) else stop) if isinstance(one, str)]
        batch = model.generate([[1], [1], [1]], 40, stop=stop, tokenizer=tokenizer, return_dict=True, **how)
        for row, tokens in enumerate(free):
            ends = [bytes(tokens).find(text.encode()) + len(text) for text in texts if text.encode() in bytes(tokens)]
            ends += [tokens.index(98) + 1] if 98 in list(stop) and 98 in tokens else []
            want = tokens[: min(ends)] if ends else tokens
            out = model.generate([1], 40, stop=stop, tokenizer=tokenizer, return_dict=True, **{**how, "seed": 3 + row})
            assert out["sequences"][1:].tolist() == want and out["finish_reason"] == ["stop" if ends else "length"]
            assert batch["sequences"][row, 1 : 1 + len(want)].tolist() == want and batch["finish_reason"][row] == out["finish_reason"][0]
            stream = model.stream([1], 40, stop=stop, tokenizer=tokenizer, **{**how, "seed": 3 + row})
            assert list(stream) == want and stream.finish_reason == out["finish_reason"][0]
        assert set(batch["finish_reason"]) >= {"stop"}
    with pytest.raises(TypeError, match="stop: expected tokenizer="):
        model.generate([1], 3, stop="a")
    with pytest.raises(TypeError, match="tokenizer: expected a tegula.Tokenizer"):
        model.generate([1], 3, stop="a", tokenizer=model)
    for empty in ("", "a\0b"):
        with pytest.raises(ValueError, match="stop: expected a text that is not empty"):
            model.generate([1], 3, stop=empty, tokenizer=tokenizer)
    assert model._handle.num_sessions()[0] == 0


def test_wrong_keywords(model, prompts):
    cases = [
        (dict(max_new_tokens=0), ValueError, "max_new_tokens: expected 1 or more, got 0"), (dict(temperature=-1.0), ValueError, "temperature"),
        (dict(top_p=1.5), ValueError, "top_p"), (dict(top_k=-1), ValueError, "top_k"), (dict(seed=-1), ValueError, "seed: expected 0 to"),
        (dict(seed=[1]), ValueError, "seed: expected an int, or 4 of them, got 1"), (dict(stop=[1.5]), TypeError, "stop: expected an id, a text, or several"),
        (dict(stop=b"END"), TypeError, "stop: expected an id, a text, or several, got b'END'"), (dict(stop=[b"END"]), TypeError, "stop: expected an id"),
        (dict(logprobs=21), ValueError, "logprobs: expected 0 to 20, got 21"), (dict(logit_bias={50: 1.0}), ValueError, "bias"),
        (dict(topk=3), TypeError, "got topk"), (dict(temperature="hot"), TypeError, "temperature: expected a number, got 'hot'"),
        (dict(top_k=2**40), ValueError, "top_k: expected 0 to 2147483647, got 1099511627776"), (dict(top_k=1.5), TypeError, "top_k: expected an int, got 1.5"),
        (dict(penalty_window=2**40), ValueError, "penalty_window: expected 0 to"), (dict(logprobs=-1), ValueError, "logprobs: expected 0 to 20, got -1"),
        (dict(logit_bias=[1]), TypeError, "logit_bias: expected a dict"), (dict(logit_bias={1: "x"}), TypeError, "logit_bias: expected a number, got 'x'"),
        (dict(min_p=[1]), TypeError, r"min_p: expected a number, got \[1\]"), (dict(frequency_penalty=b"1"), TypeError, "frequency_penalty: expected a number"),
        (dict(logit_bias={1.7: 1.0}), TypeError, "logit_bias: expected an int, got 1.7"),
        (dict(logit_bias={2**40: 1.0}), ValueError, "logit_bias: expected"), (dict(seed="a"), TypeError, "seed: expected an int, got 'a'"),
        (dict(seed=[1, 2, 3, 2**64]), ValueError, "seed: expected 0 to"), (dict(pad_id="a"), TypeError, "pad_id: expected an int, got 'a'"),
        (dict(max_new_tokens=2**70), ValueError, "max_new_tokens: expected"), (dict(max_new_tokens=1.5), TypeError, "max_new_tokens: expected an int"),
        (dict(stop=[99]), ValueError, "stop: expected 0 to 49, got 99"), (dict(pad_id=77), ValueError, "pad_id: expected .* to 49, got 77"),
        (dict(logprobs=1), ValueError, "logprobs: expected return_dict=True"),
    ]  # fmt: skip
    for keywords, kind, message in cases:
        with pytest.raises(kind, match=message):
            model.generate(prompts, **{"max_new_tokens": 2, **keywords})
    assert model._handle.num_sessions()[0] == 0
    with pytest.raises(ValueError, match="expected one row, got 4"):
        model.stream(prompts)
    with pytest.raises(TypeError, match="chat: tokenizer: expected a tegula.Tokenizer, got <class 'str'>"):
        model.chat("out", [])
    with pytest.raises(TypeError, match="chat: template: expected a dict such as .*, got 'chatml'"):
        model.chat(tegula.Tokenizer.of_bytes(), [{"role": "user", "content": "x"}], template="chatml")
    numbers = model.generate(prompts, 3, seed=numpy.int64(7), stop=[], temperature=numpy.float32(0.5))
    assert (numbers == model.generate(prompts, 3, seed=7, stop=[], temperature=0.5)).all()


# ---- interruptions ----


def test_a_stream_that_is_left(model, prompts):
    busy = lambda: model._handle.num_sessions()[0]  # noqa: E731
    want = model.generate(prompts[0], 20, seed=1)
    stream = model.stream(prompts[0], 20, seed=1)
    assert next(stream) == want[6] and busy() == 1
    stream.close()
    assert busy() == 0 and list(stream) == [] and stream.finish_reason == "cancelled"
    with pytest.raises(ZeroDivisionError):
        for token in model.stream(prompts[0], 20, seed=1):
            token / 0
    gc.collect()
    assert busy() == 0
    streams = [model.stream(row, 20, seed=1) for row in prompts]
    for _ in range(20):  # interleaved: each has its own session
        together = [next(stream) for stream in streams]
    assert together[0] == want[-1] and busy() == 0
    all_, alone = model._handle.num_sessions()[1], [model.generate(row, 20, seed=1)[-1] for row in prompts]
    assert together == alone and all_ >= 4


INTERRUPTED = """
import os, signal, threading, time
import tegula
signal.signal(signal.SIGINT, signal.default_int_handler)
model = tegula.Model.from_preset("gpt_mini", vocab_size=257)
model([[1]])
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    while time.monotonic() - start < 60:
        model.generate(PROMPT, 200, stop=[])
except KeyboardInterrupt:
    print(model._handle.num_sessions()[0], len(model.generate([1], 3, stop=[])))
"""


@pytest.mark.parametrize("prompt", ["[1, 2, 3]", "[[1, 2, 3], [4, 5, 6]]"])
def test_an_interrupt_from_the_keyboard(prompt):
    done = subprocess.run([sys.executable, "-S", "-c", INTERRUPTED.replace("PROMPT", prompt)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "4"], done.stderr


LONG_STREAM = """
import os, signal, threading, time
import tegula
signal.signal(signal.SIGINT, signal.default_int_handler)
config = tegula.ModelConfig(n_layer=8, n_head=8, n_embd=512, n_positions=2048, vocab_size=257)
stream = tegula.Model(config).stream([1], 2000, stop=[])
next(stream)
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    list(stream)
except KeyboardInterrupt:
    print("left" if stream.finish_reason is None else stream.finish_reason)
"""


def test_an_interrupt_of_a_stream_that_a_list_takes():
    """list() runs no code of Python's between two tokens."""
    done = subprocess.run([sys.executable, "-S", "-c", LONG_STREAM], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["left"], done.stderr


def test_many_threads_read_one_model(model, prompts):
    want, logits, wrong = model.generate(prompts, 20, seed=2), model(prompts), []

    def read(row):
        for _ in range(15):
            if not (model.generate(prompts[row], 20, seed=2 + row) == want[row]).all():
                wrong.append(row)
            if not (model(prompts) == logits).all():
                wrong.append("logits")
            if list(model.stream(prompts[row], 20, seed=2 + row)) != want[row, 6:].tolist():
                wrong.append("stream")

    threads = [threading.Thread(target=read, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and model._handle.num_sessions()[0] == 0


def test_the_lock_is_free_in_a_pass():
    """While one thread computes, another counts."""
    model = tegula.Model.from_preset("gpt_mini", vocab_size=257, num_threads=1)
    model([[1]])
    counted = [0]
    done = threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    start = time.monotonic()
    while time.monotonic() - start < 0.5:
        model(numpy.zeros((8, 256), int))
    during = counted[0] - before
    done.set()
    thread.join()
    assert during > 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_nothing_leaks(prompts):
    model = tegula.Model(tegula.ModelConfig(n_layer=1, n_head=1, n_embd=8, n_positions=16, vocab_size=50))

    def work(times):
        for n in range(times):
            model(prompts)
            model.generate(prompts[0], 2, logprobs=1, logit_bias={1: 1.0}, return_dict=True)
            next(model.stream(prompts[0], 5))
            model.parameters(), memoryview(model.parameters()["transformer.wte.weight"])
            with pytest.raises(ValueError):
                model.generate([50], 1)

    work(300)
    before = resident()
    work(3000)
    assert resident() - before < 4 << 20


# ---- conversations ----


@pytest.fixture
def chatty():
    model = tegula.Model.from_preset("gpt_tile_small", vocab_size=257, seed=4)
    return model, tegula.Tokenizer.of_bytes()


def test_chat(chatty, tmp_path):
    model, tokenizer = chatty
    messages = [{"role": "user", "content": "Hi <|endoftext|> ü"}]
    how = dict(seed=3, max_new_tokens=12, template={"chat_template": "chatml"})
    answer = model.chat(tokenizer, messages, **how)
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, chat_template="chatml")
    assert 256 not in prompt  # what a user writes is no special token
    tokens = model.generate(prompt, 12, seed=3)[len(prompt) :].tolist()
    assert answer == {"role": "assistant", "content": tokenizer.decode(tokens, skip_special_tokens=True)}
    pieces = model.chat(tokenizer, messages, stream=True, **how)
    assert "".join(pieces) == answer["content"]
    letters = {n: float("-inf") for n in range(257) if n not in (97, 98, 99)}
    free = model.chat(tokenizer, messages, logit_bias=letters, **how)["content"]
    stopped = model.chat(tokenizer, messages, logit_bias=letters, stop=free[3:5], **how)["content"]
    assert len(free) == 12 and stopped == free[: free.index(free[3:5])]  # as `tegula generate --stop` ends
    for stop, want in ((iter([free[3:5]]), stopped), (free[:1], ""), ("dd", free), ([free[3:5], free[2:9] + "d"], stopped)):
        assert "".join(model.chat(tokenizer, messages, logit_bias=letters, stop=stop, stream=True, **how)) == want
    form = tmp_path / "ended.jinja"  # whose answers end with a text that is no token, as chatml's for a tokenizer of bytes
    form.write_text("{% for m in messages %}{{ m['content'] }}ab\n{% endfor %}")
    ended = {**how, "max_new_tokens": 60, "template": {"chat_template": str(form)}, "logit_bias": letters}
    whole = model.chat(tokenizer, messages, stop=[], **ended)["content"]
    assert len(whole) == 60 and 0 < whole.index("ab") < 60
    for stop in (None, "x", ["x"]):
        assert model.chat(tokenizer, messages, stop=stop, **ended)["content"] == whole[: whole.index("ab")]
    with pytest.raises(TypeError, match="stop: expected an id, a text, or several, got b'END'"):
        model.chat(tokenizer, messages, stop=b"END", **how)
    left = model.chat(tokenizer, messages, stream=True, **how)
    next(left)
    left.close()
    assert model._handle.num_sessions()[0] == 0
    with pytest.raises(ValueError):
        model.chat(tokenizer, [], **how)
