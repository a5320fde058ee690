"""What only a GPU has: kernels that are loaded, streams, graphs, errors that come late."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.ops")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402

from tegula import ops  # noqa: E402

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.gpu("there is no GPU, or --device cpu")]


def in_a_new_process(code, **variables):
    """What the code leaves in `result`, in a process that has loaded nothing before, with these environment variables."""
    start = "import json, os; os.environ['CUDA_MODULE_LOADING'] = 'LAZY'; import torch, tegula; torch.ones(1).cuda()\n"
    text = start + code + "\nprint(json.dumps(result))"
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True,
                          env=os.environ | variables)  # fmt: skip
    return json.loads(done.stdout)


def test_every_kernel_is_loaded_by_the_warm_up():
    found, missing = in_a_new_process("result = tegula._core.load_kernels(0)")
    assert found > 2 * len(tegula._core.ops()) and missing > found // 2
    code = "names = tegula.warmup_all_kernels(); result = [names, *tegula._core.load_kernels(0)]"
    names, again, missing = in_a_new_process(code)
    assert again == found and missing == 0
    assert {"rms_norm", "attention", "linear_cross_entropy", "adamw_step"} <= set(names)


def test_no_call_loads_a_kernel_after_the_warm_up():
    """Of shapes and dtypes that the warm-up has not run."""
    code = """
tegula.warmup_all_kernels()
from tegula import ops
def calls():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.ones(3, 130, 4096, dtype=dtype, device="cuda", requires_grad=True)
        w = torch.ones(4096, dtype=dtype, device="cuda", requires_grad=True)
        y = ops.add_rms_norm(ops.silu(x), x, w)[0]
        q = y.view(3, 130, 32, 128).transpose(1, 2)
        ops.attention(q, q[:, :8], q[:, :8], causal=True).sum().backward()
        ops.softmax(x.detach()[0])
before = tegula._core.load_kernels(0)
calls()
result = [before, tegula._core.load_kernels(0)]
"""
    before, after = in_a_new_process(code)
    assert before == after and after[1] == 0


def test_no_call_waits_for_the_driver_s_compiler():
    """A build with PTX beside code for this GPU has entries that are PTX alone, for other GPUs. No file is in the cache."""
    code = """
from tegula import ops
try:
    q = torch.ones(1, 8, 64, 128, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    ops.attention(ops.rms_norm(q, q[0, 0, 0].detach()), q, q, causal=True).sum().backward()
    result = [name for name in open("/proc/self/maps").read().split() if "ptxjitcompiler" in name]
except RuntimeError as error:
    result = str(error)
"""
    without = in_a_new_process(code, CUDA_DISABLE_PTX_JIT="1")
    if isinstance(without, str):
        pytest.skip(f"no code for this GPU but PTX: {without}")
    assert in_a_new_process(code, CUDA_CACHE_DISABLE="1") == []


def test_the_current_stream_is_the_op_s():
    """The input is made on a stream that is busy before; the default stream would read it too early."""
    x, side = placed.zeros(64, 4096), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(1.0)
        y = ops.silu(x)
        z = ops.rms_norm(x.requires_grad_(), torch.ones_like(x[0])).sum()
        z.backward()
    side.synchronize()
    torch.testing.assert_close(y, torch.nn.functional.silu(torch.ones_like(y)))
    assert (x.grad.abs() < 1e-3).all()


def test_the_current_stream_without_the_exchange_api():
    """As in PyTorch 2.9."""
    code = """
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
x, side = torch.zeros(64, 4096, device="cuda"), torch.cuda.Stream()
tegula.ops.silu(x)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.cuda._sleep(20_000_000)
    x.fill_(1.0)
    y = tegula.ops.silu(x) * 1
side.synchronize()
result = [y.min().item(), y.max().item()]
"""
    assert in_a_new_process(code) == pytest.approx([0.7310586, 0.7310586])


def test_f32_products_follow_pytorchs_setting():
    x, w = placed.randn(130, 260).requires_grad_(), placed.randn(70, 260).requires_grad_()

    def results(**allowed):
        y = ops.linear(x, w, **allowed)
        return y, *torch.autograd.grad(y, (x, w), torch.ones_like(y) / 3)

    def same(a, b):
        return [torch.equal(p, q) for p, q in zip(a, b)]

    matmul = torch.backends.cuda.matmul
    before, exact = matmul.fp32_precision, results(allow_tf32=False)
    rounded = results(allow_tf32=True)
    assert same(rounded, exact) == [False] * 3
    try:
        for allowed, expected in ((False, exact), (True, rounded)):
            matmul.allow_tf32 = allowed
            assert same(results(), expected) == [True] * 3
            assert same(results(allow_tf32=False), exact) == [True] * 3
    finally:
        matmul.fp32_precision = before


def test_graphs():
    """Recorded once, on a stream that no op has seen, and run on other data."""
    x, w = placed.randn(32, 256).bfloat16(), placed.rand(256).bfloat16()
    q = placed.randn(1, 2, 64, 64).bfloat16()
    warm, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def run():
        h = x.detach().requires_grad_()
        y = ops.rms_norm(h, w)
        (dx,) = torch.autograd.grad(y, h, torch.ones_like(y))
        return y, dx, ops.swiglu(x, x), ops.linear(x, x), ops.attention(q, q, q, causal=True)

    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        run()
    torch.cuda.current_stream().wait_stream(warm)
    with torch.cuda.graph(graph):
        recorded = run()
    for seed in range(2):
        torch.manual_seed(seed)
        x.copy_(placed.randn(32, 256))
        q.copy_(placed.randn(1, 2, 64, 64))
        graph.replay()
        results = [t.clone() for t in recorded]
        assert all(torch.equal(a, b) for a, b in zip(results, run(), strict=True))


def test_ids_out_of_range_are_told_late():
    table, ids = placed.randn(5, 8), placed.tensor([[1, 7, 0], [4, -1, 2]])
    y = ops.embedding(ids, table)
    with pytest.raises(ValueError, match=r"embedding_fwd: ids\[1\]: expected 0 to 4, got 7"):
        tegula.check()
    tegula.check()
    bad = (ids < 0) | (ids > 4)
    assert y[bad].isnan().all() and torch.equal(y[~bad], table[ids[~bad]])


def test_tensors_of_different_devices():
    x = placed.randn(3, 8)
    with pytest.raises((ValueError, RuntimeError), match="rms_norm"):
        ops.rms_norm(x, torch.ones(8))
