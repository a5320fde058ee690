"""libtegula_model.so through ctypes: just what the tests call. TEGULA_BUILD names the build folder, else `build`."""

import ctypes as c
import os
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
LIBRARY = next(BUILD.rglob("libtegula_model.so"))
lib = c.CDLL(str(LIBRARY))


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 508)]


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("dtype", c.c_int), ("device", c.c_int32), ("ndim", c.c_int32), ("reserved", c.c_int32),
        ("shape", c.c_int64 * 6), ("stride", c.c_int64 * 6),
    ]  # fmt: skip

    def numpy(self):
        shape = tuple(self.shape[: self.ndim])
        count = int(np.prod(shape))
        return np.ctypeslib.as_array((c.c_float * count).from_address(self.data)).reshape(shape).copy()


class TrainerOptions(c.Structure):
    _fields_ = [
        ("batch_size", c.c_int32), ("sequence_length", c.c_int32), ("num_threads", c.c_int32), ("num_steps", c.c_int64),
        ("warmup_steps", c.c_int64), ("learning_rate", c.c_double), ("min_learning_rate", c.c_double),
        ("beta1", c.c_double), ("beta2", c.c_double), ("eps", c.c_double), ("weight_decay", c.c_double),
        ("max_grad_norm", c.c_double), ("dtype", c.c_int),
        ("backend", c.c_int), ("device_index", c.c_int32),
        ("micro_batch_size", c.c_int32), ("max_documents", c.c_int32), ("schedule", c.c_int),
        ("decay_fraction", c.c_double), ("freeze_experts", c.c_bool),
        ("has_router_aux_loss_coef", c.c_bool), ("router_aux_loss_coef", c.c_double),
    ]  # fmt: skip


class TrainBatch(c.Structure):
    _fields_ = [
        ("tokens", c.POINTER(c.c_int32)), ("targets", c.POINTER(c.c_int32)), ("cu_seqlens", c.POINTER(c.c_int32)),
        ("num_documents", c.c_int64),
    ]  # fmt: skip


class SessionOptions(c.Structure):
    _fields_ = [
        ("max_tokens", c.c_int32), ("num_threads", c.c_int32), ("backend", c.c_int), ("device_index", c.c_int32),
        ("cache_dtype", c.c_int),
    ]  # fmt: skip


class SaveOptions(c.Structure):
    _fields_ = [("dtype", c.c_int), ("max_shard_bytes", c.c_int64), ("tokenizer", c.c_void_p)]


class StepResult(c.Structure):
    _fields_ = [
        ("step", c.c_int64), ("loss", c.c_double), ("grad_norm", c.c_double), ("learning_rate", c.c_double),
        ("num_targets", c.c_int64), ("aux_loss", c.c_double),
    ]  # fmt: skip


lib.tg_session_logits.restype = c.POINTER(c.c_float)


def check(call, *args):
    error = Error()
    status = call(*args, c.byref(error))
    if status:
        raise RuntimeError(f"status {status}: {error.text.decode()}")


def ints(values):
    return np.ascontiguousarray(values, dtype=np.int32).ravel()


def pointer(array):
    return array.ctypes.data_as(c.POINTER(c.c_int32))


class Token(c.Structure):
    _fields_ = [("bytes", c.c_void_p), ("size", c.c_size_t), ("kind", c.c_int)]


lib.tg_tokenizer_piece.restype = Token
PLAIN, SKIP_SPECIAL, ADD_SPECIAL = 1, 2, 4


class Tokenizer:
    def __init__(self, directory):
        self.handle = c.c_void_p()
        check(lib.tg_tokenizer_load, os.fsencode(directory), c.byref(self.handle))
        self.ids, self.text = np.empty(0, np.int32), c.create_string_buffer(0)

    def encode(self, text, flags=0, ranges=()):
        data = text if isinstance(text, bytes) else text.encode()
        count = c.c_size_t()
        if len(self.ids) < 3 * len(data) + 16:
            self.ids = np.empty(3 * len(data) + 16, np.int32)
        marked = (c.c_size_t * (2 * len(ranges)))(*(end for pair in ranges for end in pair))
        check(
            lib.tg_tokenizer_encode_marked, self.handle, data, c.c_size_t(len(data)), marked, c.c_size_t(len(ranges)),
            c.c_uint32(flags), pointer(self.ids), c.c_size_t(len(self.ids)), c.byref(count),
        )  # fmt: skip
        return self.ids[: count.value].tolist()

    def decode(self, ids, flags=0):
        ids, size = ints(ids), c.c_size_t()
        for capacity in (0, None):
            if capacity is None and len(self.text) < size.value:
                self.text = c.create_string_buffer(size.value)
            check(
                lib.tg_tokenizer_decode, self.handle, pointer(ids), c.c_size_t(len(ids)), c.c_uint32(flags), self.text,
                c.c_size_t(len(self.text) if capacity is None else 0), c.byref(size),
            )  # fmt: skip
        return self.text.raw[: size.value]

    def piece(self, token):
        found = lib.tg_tokenizer_piece(self.handle, token)
        return c.string_at(found.bytes, found.size), found.kind

    def special(self, name):
        return lib.tg_tokenizer_special(self.handle, name.encode())

    def save(self, directory):
        check(lib.tg_tokenizer_save, self.handle, os.fsencode(directory))

    def close(self):
        lib.tg_tokenizer_destroy(self.handle)


class Model:
    def __init__(self, directory, dtype=0):
        self.handle = c.c_void_p()
        check(lib.tg_model_load, str(directory).encode(), dtype, c.byref(self.handle))

    def names(self):
        names, name, view = [], c.c_char_p(), Tensor()
        while lib.tg_model_parameter(self.handle, c.c_size_t(len(names)), c.byref(view), c.byref(name)) == 0:
            names.append(name.value.decode())
        return names

    def save(self, directory, dtype=0, max_shard_bytes=0):
        options = SaveOptions(dtype, max_shard_bytes, None)
        check(lib.tg_model_save, self.handle, c.byref(options), str(directory).encode())

    def close(self):
        lib.tg_model_destroy(self.handle)


class Session:
    def __init__(self, model, vocab_size):
        self.handle, self.vocab_size = c.c_void_p(), vocab_size
        check(lib.tg_session_create, model.handle, c.byref(SessionOptions(0, 2)), c.byref(self.handle))

    def feed(self, ids):
        ids = ints(ids)
        check(lib.tg_session_feed, self.handle, pointer(ids), c.c_int64(len(ids)))
        return np.ctypeslib.as_array(lib.tg_session_logits(self.handle), (self.vocab_size,)).copy()

    def truncate(self, length):
        assert lib.tg_session_truncate(self.handle, c.c_int64(length)) == 0

    def close(self):
        lib.tg_session_destroy(self.handle)


class Trainer:
    def __init__(self, model, **options):
        self.handle, self.model = c.c_void_p(), model
        check(lib.tg_trainer_create, model.handle, c.byref(TrainerOptions(**options)), c.byref(self.handle))

    def batch(self, tokens, targets, cu_seqlens=None):
        self.kept = [ints(tokens), ints(targets)]
        batch = TrainBatch(*map(pointer, self.kept))
        if cu_seqlens is not None:
            self.kept.append(ints(cu_seqlens))
            batch.cu_seqlens, batch.num_documents = pointer(self.kept[2]), len(self.kept[2]) - 1
        return c.byref(batch)

    def backward(self, tokens, targets, cu_seqlens=None):
        loss = c.c_double()
        check(lib.tg_trainer_backward, self.handle, self.batch(tokens, targets, cu_seqlens), c.byref(loss))
        return loss.value

    def loss(self, tokens, targets, cu_seqlens=None):
        loss = c.c_double()
        check(lib.tg_trainer_loss, self.handle, self.batch(tokens, targets, cu_seqlens), c.byref(loss))
        return loss.value

    def step(self, tokens, targets, cu_seqlens=None):
        result = StepResult()
        check(lib.tg_trainer_step, self.handle, self.batch(tokens, targets, cu_seqlens), c.byref(result))
        return result.loss

    def gradient(self, index):
        view = Tensor()
        assert lib.tg_trainer_gradient(self.handle, c.c_size_t(index), c.byref(view)) == 0
        return view.numpy()

    def save(self, directory):
        check(lib.tg_trainer_save, self.handle, None, None, str(directory).encode())

    def close(self):
        lib.tg_trainer_destroy(self.handle)
