"""What Python adds to a call of the runtime: at most 10 us to logits of one row, and 2 % to 256 tokens."""

import ctypes as c
import time

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
numpy = pytest.importorskip("numpy")
import model_library  # noqa: E402


class Sampling(c.Structure):
    _fields_ = [
        ("temperature", c.c_float), ("top_k", c.c_int32), ("top_p", c.c_float), ("min_p", c.c_float), ("seed", c.c_uint64),
        ("repetition_penalty", c.c_float), ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float),
        ("penalty_window", c.c_int32), ("logit_bias", c.c_void_p), ("num_logit_bias", c.c_int64),
    ]  # fmt: skip


class GenerateOptions(c.Structure):
    _fields_ = [
        ("sampling", Sampling), ("max_new_tokens", c.c_int64), ("stop_ids", c.c_void_p), ("num_stop_ids", c.c_int64),
        ("logprobs", c.c_void_p),
    ]  # fmt: skip


def least(runs, rounds, repeats):
    """Seconds of each function's fastest round, all in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            best[number] = min(best[number], (time.perf_counter() - start) / repeats)
    return best


def open_session(directory):
    """The C library's own session, on one thread."""
    model, session, error = c.c_void_p(), c.c_void_p(), model_library.Error()
    assert model_library.lib.tg_model_load(str(directory).encode(), 0, c.byref(model), c.byref(error)) == 0, error.text
    options = model_library.SessionOptions(num_threads=1)
    assert model_library.lib.tg_session_create(model, c.byref(options), c.byref(session), c.byref(error)) == 0, error.text
    return model, session


def close_session(model, session):
    model_library.lib.tg_session_destroy(session)
    model_library.lib.tg_model_destroy(model)


def test_logits_of_one_row(tmp_path):
    tegula.Model(tegula.ModelConfig(n_layer=1, n_head=1, n_embd=4, n_positions=8, vocab_size=8)).save_pretrained(tmp_path)
    ours = tegula.Model.from_pretrained(tmp_path, num_threads=1)
    ids, row, out = numpy.array([[1, 2, 3]]), numpy.array([1, 2, 3], numpy.int32), numpy.empty((3, 8), numpy.float32)
    model, session = open_session(tmp_path)
    logits = model_library.Tensor(data=out.ctypes.data, dtype=1, ndim=2, shape=(3, 8))
    call = model_library.lib.tg_session_forward
    call.argtypes = [c.c_void_p, c.c_void_p, c.c_int64, c.c_int64, c.c_uint32, model_library.Tensor, c.c_void_p]
    attempts = []
    for _ in range(5):
        # the last one, without a session, returns at once: what a call through ctypes costs by itself
        python, through, empty = least(
            [lambda: ours(ids), lambda: call(session, row.ctypes.data, 1, 3, 0, logits, None), lambda: call(None, row.ctypes.data, 1, 3, 0, logits, None)], 30, 300
        )
        attempts.append(1e6 * (python - (through - empty)))
        if attempts[-1] <= 10:
            break
    assert (out == ours(ids)[0]).all()
    close_session(model, session)
    assert attempts[-1] <= 10, attempts


def test_256_tokens(tmp_path):
    tegula.Model.from_preset("gpt_mini", vocab_size=257).save_pretrained(tmp_path)
    ours = tegula.Model.from_pretrained(tmp_path, num_threads=1)
    model, session = open_session(tmp_path)
    prompt, got = numpy.array([1, 2, 3], numpy.int32), []
    receive = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_int32)
    options = GenerateOptions(Sampling(temperature=0.8, top_k=40, seed=7), max_new_tokens=250)

    def in_c(callback):
        model_library.lib.tg_session_truncate(session, c.c_int64(0))
        model_library.lib.tg_session_feed(session, c.c_void_p(prompt.ctypes.data), c.c_int64(3), None)
        assert model_library.lib.tg_session_generate(session, c.byref(options), callback, c.c_void_p(1), None) == 0

    def note(user, token):
        got.append(token)
        return True

    in_c(receive(note))
    in_python = lambda: ours.generate(prompt, 250, temperature=0.8, top_k=40, seed=7, stop=[])  # noqa: E731
    assert in_python()[3:].tolist() == got
    # As `tegula generate` calls it, with a callback in C that does next to nothing: labs of the pointer 1 says to go on.
    plain = c.cast(c.CDLL(None).labs, receive)
    ratios = []
    for _ in range(5):
        python, through = least([in_python, lambda: in_c(plain)], 12, 1)
        ratios.append(python / through)
        if ratios[-1] <= 1.02:
            break
    close_session(model, session)
    assert ratios[-1] <= 1.02, ratios
