"""Ops on the CPU use as many threads as PyTorch is told to, and work in a child process after a fork."""

import concurrent.futures
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
import numpy as np  # noqa: E402

from tegula import ops  # noqa: E402


@pytest.fixture(autouse=True)
def restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def eager_call():
    x = torch.randn(2048, 2048)
    return lambda: ops.softmax(x)


def backward_call():
    x = torch.randn(2048, 2048, requires_grad=True)
    y, dy = ops.softmax(x), torch.randn(2048, 2048)
    return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)


def general_call():
    q, k, v = (torch.randn(1, 4, 256, 64) for _ in range(3))
    return lambda: ops.attention(q, k, v)


def list_call():
    parameter = torch.nn.Parameter(torch.randn(2048, 1024))
    parameter.grad = torch.randn(2048, 1024)
    return tegula.optim.AdamW([parameter]).step


def array_call():
    x = np.random.rand(2048, 2048).astype(np.float32)
    y = np.empty_like(x)
    return lambda: tegula._core.run("silu_fwd", x, y)


def shares(call):
    """CPU time of the process's other threads over that of this one, measured again and again."""
    call()
    time.sleep(0.05)  # PyTorch's threads spin for a while
    whole, own = time.process_time(), time.thread_time()
    while True:
        call()
        mine = time.thread_time() - own
        if mine > 0.02:
            yield (time.process_time() - whole - mine) / mine, mine


def works_alone(call):
    return next(share for share, seconds in shares(call) if seconds > 0.2) < 0.02


def has_company(call):
    """On a machine whose CPUs are busy the others may come late."""
    start = time.monotonic()
    return next(share > 0.1 for share, _ in shares(call) if share > 0.1 or time.monotonic() - start > 60)


@pytest.mark.parametrize("make", [eager_call, backward_call, general_call, list_call], ids=lambda make: make.__name__)
def test_follows_torch(make):
    torch.set_num_threads(2)
    call = make()
    for _ in range(2):  # both ways
        torch.set_num_threads(2)
        assert has_company(call)
        torch.set_num_threads(1)
        assert works_alone(call)


def test_other_arrays_have_the_default(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(1)
    ops.silu(torch.randn(8, 8))  # on the context that the next call has
    assert has_company(array_call())


def test_follows_torch_in_other_python_threads():
    torch.set_num_threads(1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(works_alone, eager_call()).result()


FORK = """
import os, sys, torch
from tegula import ops
torch.set_num_threads(2)
x = torch.randn(2048, 2048)
for _ in range(20):
    expected = ops.softmax(x)
child = os.fork()
if child == 0:
    same = torch.equal(ops.softmax(x), expected)
    sys.stdout.write(f"child {same}\\n")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print("parent", torch.equal(ops.softmax(x), expected))
"""

LOADER = """
import torch
from tegula import ops
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return ops.softmax(torch.full((512, 1024), float(i))).sum()
torch.set_num_threads(2)
ops.softmax(torch.randn(2048, 2048))
loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork", timeout=60)
print([round(float(item)) for item in loader])
"""


PROGRAMS = {"fork": (FORK, "child True\nparent True\n"), "loader": (LOADER, "[512, 512, 512, 512]\n")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_child_processes(name):
    program, printed = PROGRAMS[name]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.stdout == printed, done.stderr
