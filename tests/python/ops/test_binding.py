"""tegula._core: arrays of NumPy and others, what is refused and how."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
core = tegula._core

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8), dtype=np.float32)
W = RNG.standard_normal(8, dtype=np.float32)
EXPECTED = X / np.sqrt((X.astype("f8") ** 2).mean(1, keepdims=True) + 1e-6) * W


def rms_norm(x, w, y, **more):
    core.run("rms_norm_fwd", x, w, y, **{"eps": 1e-6, "policy": 1, **more})
    return y


class Unversioned:
    """What JAX exports: DLPack without a version, so without a word about writing."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class NoCapsule:
    def __dlpack__(self, **options):
        return 7

    def __dlpack_device__(self):
        return (1, 0)


def test_import_needs_no_torch_and_little_time():
    code = ("import sys, time; t = time.perf_counter(); import tegula; print((time.perf_counter() - t) * 1e3);"
            "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; tegula.device_count()")
    times = [float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
             for _ in range(3)]
    assert min(times) < 50, times


def test_numpy():
    np.testing.assert_allclose(rms_norm(X, W, np.empty_like(X)), EXPECTED, rtol=2e-6)


def test_by_number_and_by_name():
    entry = [entry["name"] for entry in core.ops()].index("rms_norm_fwd")
    y, z = np.empty_like(X), np.empty_like(X)
    core.run(entry, X, W, y, None, 1e-6, 0.0, 1)
    core.run("rms_norm_fwd", weight=W, y=z, x=X, policy=1, eps=1e-6, rstd=None)
    assert np.array_equal(y, z)


def test_the_table_has_every_op():
    rows = core.ops()
    assert {"rms_norm_fwd", "attention_bwd", "adamw_step", "sample_fwd"} <= {row["name"] for row in rows}
    for row in rows:
        assert not {"num_tensors", "workspace_bytes"} & {slot["name"] for slot in row["slots"]}


@pytest.mark.parametrize("view", ["rows", "fortran_row", "one_column", "empty", "odd_strides"])
def test_views(view):
    big = RNG.standard_normal((6, 16), dtype=np.float32)
    x = {
        "rows": big[::2, 3:11], "fortran_row": np.asfortranarray(big[:1, :8]), "one_column": big[:, 5:6],
        "empty": big[:0, :8], "odd_strides": np.lib.stride_tricks.as_strided(big, (1, 8), (3996, 4)),
    }[view]  # fmt: skip
    w = np.ones(x.shape[1], np.float32)
    expected = x / np.sqrt((x.astype("f8") ** 2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(rms_norm(x, w, np.empty(x.shape, np.float32)), expected, rtol=2e-6)


def test_doubles_take_the_reference():
    y = rms_norm(X.astype("f8"), W.astype("f8"), np.empty(X.shape))
    np.testing.assert_allclose(y, X.astype("f8") / np.sqrt((X.astype("f8") ** 2).mean(1, keepdims=True) + np.float32(1e-6)) * W, rtol=1e-13)


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = X.astype(ml_dtypes.bfloat16)
    y = rms_norm(half, W, np.empty(X.shape, ml_dtypes.bfloat16))
    np.testing.assert_allclose(y.astype("f4"), EXPECTED, rtol=0.03, atol=0.03)
    with pytest.raises(TypeError, match=r"rms_norm_fwd: x: expected f32\|f16\|bf16, got f8_e4m3"):
        rms_norm(X.astype(ml_dtypes.float8_e4m3fn), W, y)
    with pytest.raises(BufferError):
        rms_norm(X.astype(ml_dtypes.float8_e5m2), W, y)


def test_arrays_of_others():
    y = np.empty_like(X)
    np.testing.assert_allclose(rms_norm(Unversioned(X), Unversioned(W), y), EXPECTED, rtol=2e-6)
    with pytest.raises(ValueError, match="rms_norm_fwd: y: expected memory that may be written"):
        rms_norm(X, W, Unversioned(y))


def read_only():
    y = np.empty_like(X)
    y.flags.writeable = False
    return y


REFUSED = {
    "weight's extent": (dict(w=W[:7]), ValueError, r"rms_norm_fwd: weight: expected f32 \[8\], got f32 \[7\]"),
    "rank": (dict(x=X[0]), ValueError, r"rms_norm_fwd: x: expected rank 2, got rank 1"),
    "rank above six": (dict(x=X.reshape(1, 1, 1, 1, 1, 3, 8)), ValueError, r"x: expected rank 0 to 6, got rank 7"),
    "dtype": (dict(x=X.astype("i4")), TypeError, r"rms_norm_fwd: x: expected f32\|f16\|bf16, got i32 \[3, 8\]"),
    "unknown dtype": (dict(x=X.astype("c8")), TypeError, r"x: expected a dtype of the library, got complex64"),
    "bool": (dict(x=X > 0), TypeError, r"x: expected a dtype of the library, got bool"),
    "other byte order": (dict(x=X.astype(">f4")), BufferError, None),
    "objects": (dict(x=X.astype(object)), BufferError, None),
    "no array": (dict(x=[1.0]), TypeError, r"rms_norm_fwd: x: expected a tensor, got <class 'list'>"),
    "scalar": (dict(x=np.float32(1)), TypeError, r"x: expected a tensor, got <class 'numpy.float32'>"),
    "no capsule": (dict(x=NoCapsule()), TypeError, r"x: expected a DLPack capsule from .*NoCapsule.*, got <class 'int'>"),
    "broadcast rows": (dict(x=np.broadcast_to(X[0], X.shape)), ValueError, r"x: expected no broadcast axis"),
    "broadcast element": (dict(x=np.broadcast_to(np.float32(1), X.shape)), ValueError, r"x: expected no broadcast axis"),
    "columns": (dict(x=np.asfortranarray(X)), ValueError, r"x: expected a contiguous last axis, got strides \[1, 3\]"),
    "negative stride": (dict(x=X[:, ::-1]), ValueError, r"x: expected strides >= 0, got stride -1 on axis 1"),
    "misaligned": (dict(x=np.frombuffer(bytes(97), "u1")[1:].view("f4").reshape(3, 8)), ValueError, "4-byte alignment"),
    "read-only output": (dict(y=read_only()), ValueError, r"rms_norm_fwd: y: expected memory that may be written"),
    "windows as output": (
        dict(y=np.lib.stride_tricks.as_strided(np.zeros(64, "f4"), (3, 8), (16, 4))),
        ValueError, r"rms_norm_fwd: y: expected a view whose elements lie apart, got an overlap",
    ),
    "output over input": (dict(y=X.ravel()[:24].reshape(3, 8)[::-1][::-1], x=X, w=X[0]), ValueError, "y: expected memory apart from weight"),
    "no output": (dict(y=None), ValueError, r"rms_norm_fwd: y: expected a f32\|f16\|bf16 tensor, got none"),
    "eps": (dict(eps=0.0), ValueError, r"rms_norm_fwd: eps: expected a finite number > 0, got 0"),
    "eps is text": (dict(eps="a"), TypeError, r"rms_norm_fwd: eps: expected a number, got 'a'"),
    "enum is a float": (dict(policy=1.5), TypeError, r"rms_norm_fwd: policy: expected an integer, got 1.5"),
    "wide enum": (dict(policy=2**40), OverflowError, r"rms_norm_fwd: policy: expected an integer of 32 bits"),
    "very wide enum": (dict(policy=2**80), OverflowError, r"rms_norm_fwd: policy: expected an integer"),
    "unknown name": (dict(nope=1), TypeError, r"rms_norm_fwd: nope: expected the name of an argument"),
    "implied name": (dict(workspace_bytes=1), TypeError, r"rms_norm_fwd: workspace_bytes: expected the name"),
    "twice": (dict(weight=W), TypeError, r"rms_norm_fwd: weight: expected one value, got two"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    given, exception, message = REFUSED[case]
    call = {"x": X, "w": W, "y": np.empty_like(X), **given}
    with pytest.raises(exception, match=message):
        rms_norm(call.pop("x"), call.pop("w"), call.pop("y"), **call)


@pytest.mark.parametrize("op, exception", [("nope", ValueError), (999, ValueError), (-1, ValueError), (None, ValueError)])
def test_no_such_op(op, exception):
    with pytest.raises(exception, match="op: expected an entry or name of the op table"):
        core.run(op, X)
    with pytest.raises(TypeError, match="op: expected an entry or name of the op table, got nothing"):
        core.run()


def test_too_many_arguments():
    with pytest.raises(TypeError, match="rms_norm_fwd: args: expected at most 7 arguments, got 8"):
        core.run("rms_norm_fwd", X, W, np.empty_like(X), None, 1e-6, 0.0, 1, 2)


def backward():
    return dict(dy=X, x=X, weight=W, rstd=np.ones(3, "f4"), dx=np.empty_like(X), dweight=np.zeros(8, "f4"))


def aligned(count):
    memory = np.empty(count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count]


def test_workspace():
    count = core.workspace("rms_norm_bwd", **backward())
    assert count > 0 and count % 256 == 0
    given, asked = backward(), backward()
    core.run("rms_norm_bwd", **given, workspace=aligned(count))
    counts = []
    core.run("rms_norm_bwd", **asked, workspace=lambda n: counts.append(n) or aligned(n))
    assert counts == [count] and np.array_equal(given["dweight"], asked["dweight"])
    for more in ({}, {"workspace": None}):
        own = backward()
        core.run("rms_norm_bwd", **own, **more)
        assert all(np.array_equal(own[name], given[name]) for name in ("dx", "dweight"))
    with pytest.raises(ValueError, match=f"workspace: expected {count} bytes, got {count - 64}"):
        core.run("rms_norm_bwd", **backward(), workspace=aligned(count - 64))
    with pytest.raises(ZeroDivisionError):
        core.run("rms_norm_bwd", **backward(), workspace=lambda n: n // 0)
    with pytest.raises(TypeError, match="workspace: expected a tensor"):
        core.run("rms_norm_bwd", **backward(), workspace=lambda n: None)


def adamw(params, grads, state, **more):
    scalars = dict(step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8)
    core.run("adamw_step", params, grads, *state, **{**scalars, **more})


def test_lists():
    params = [np.ones(3, "f4"), np.ones((2, 2), "f4")]
    grads = [np.ones_like(p) for p in params]
    state = [[np.zeros_like(p) for p in params] for _ in range(2)]
    adamw(params, grads, state)
    np.testing.assert_allclose(np.concatenate([p.ravel() for p in params]), 0.9, rtol=1e-6)
    adamw([], [], [[], []])
    with pytest.raises(ValueError, match="adamw_step: grads: expected 2 tensors, got 1"):
        adamw(params, grads[:1], state)
    with pytest.raises(TypeError, match=r"adamw_step: grads\[1\]: expected a tensor, got <class 'str'>"):
        adamw(params, [grads[0], "a"], state)
    with pytest.raises(ValueError, match=r"adamw_step: params\[0\]: expected memory that may be written"):
        adamw([read_only()], [X], [[X.copy()], [X.copy()]])
    with pytest.raises(TypeError):
        adamw(7, grads, state)


def test_threads():
    failures = []

    def work():
        y = np.empty_like(X)
        for _ in range(200):
            y[:] = 0
            rms_norm(X, W, y)
            if not np.allclose(y, EXPECTED, rtol=2e-6):
                failures.append(y.copy())
            with pytest.raises(ValueError, match=r"weight: expected f32 \[8\], got f32 \[7\]"):
                rms_norm(X, W[:7], y)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nothing_is_kept():
    y = np.empty_like(X)
    objects = [X, W, y]
    kinds = [type(f"Array{i}", (np.ndarray,), {}) for i in range(40)]  # more than the binding remembers

    def calls():
        for kind in kinds:
            rms_norm(X.view(kind), W, y)
        for bad in ({"eps": 0.0}, {"nope": 1}, {"policy": "a"}):
            with pytest.raises((ValueError, TypeError)):
                rms_norm(X, W, y, **bad)
        core.run("rms_norm_bwd", **backward(), workspace=aligned)

    calls()
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(20):
        calls()
    gc.collect()
    assert [sys.getrefcount(o) for o in objects] == before


def test_gpus_are_told_honestly():
    if tegula.device_count() == 0:
        with pytest.raises((NotImplementedError, ValueError), match="device_get_info: index: expected"):
            tegula.device_info(0)
    else:
        assert tegula.device_info(0)["name"]
    tegula.check()


@pytest.mark.parametrize("is_torch", [True, False])
def test_the_stream_without_the_exchange_api(is_torch, monkeypatch):
    """PyTorch 2.9 is asked for its current stream before it exports; others get the default one's number."""
    torch = pytest.importorskip("torch", reason="without PyTorch: no stream of its own")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 1000 + index, raising=False)
    seen = []

    class OnGpu:
        def detach(self):
            return self

        def __dlpack_device__(self):
            return (2, 3)

        def __dlpack__(self, stream=None, max_version=None):
            seen.append(stream)
            raise BufferError("seen")

    if is_torch:
        OnGpu.__torch_function__ = None
    with pytest.raises(BufferError, match="seen"):
        core.run("silu_fwd", OnGpu(), X)
    assert seen == [1003 if is_torch else 1]
