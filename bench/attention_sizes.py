#!/usr/bin/env python3
"""Times attention on GPU 0 over lengths: 4 sequences of 8 heads of 64 and 128, f16, all keys or causal, from 128 to 65,536
tokens, beside cuDNN's in turn; and attention_naive of one head beside PyTorch's formula.

  attention_sizes.py [--csv FILE] [--commit NAME] [--most TOKENS] [--samples N]

The time is that on the GPU, of calls in a CUDA graph; medians of samples taken in turn. Each result is compared with
PyTorch's first. The roof is a product of f16 matrices of 8192 x 8192 by PyTorch, measured here. A causal call counts half
of the flops.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tegula
from gpu_timing import Provider, time_in_turn
from tegula_bench import gpu_state
from tegula_bench.results import results_file

BATCH, HEADS = 4, 8
BOUND = 2e-2  # of f16 results whose elements are averages of N(0, 1)


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--csv", help="append rows to this results file")
    parser.add_argument("--commit", default=tegula.__version__)
    parser.add_argument("--most", type=int, default=65536, help="tokens of the longest sequence")
    parser.add_argument("--samples", type=int, default=5)
    return parser.parse_args()


def random(*shape):
    """By a generator of its own: PyTorch's is not to be used between captures that a library broke off."""
    if not hasattr(random, "generator"):
        random.generator = torch.Generator("cuda").manual_seed(0)
    return torch.randn(*shape, device="cuda", dtype=torch.float16, generator=random.generator)


def measured_peak(stream, samples):
    """Flops per second of the products."""
    a, b = random(8192, 8192), random(8192, 8192)
    with torch.cuda.stream(stream):
        a @ b  # cuBLAS takes its workspace for the stream before the capture
    torch.cuda.synchronize()
    product = Provider("gemm", [lambda: a @ b])
    time_in_turn([product], samples, stream)
    return 2 * 8192**3 / (1e-3 * product.ms)


def check(name, got, want):
    worst = float((got.float() - want.float()).abs().max())
    if not worst <= BOUND:
        raise RuntimeError(f"{name}: expected a difference of at most {BOUND} from PyTorch, got {worst}")


def cudnn(q, k, v, causal):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def attention_case(tokens, dim, causal):
    q, k, v = (random(BATCH, HEADS, tokens, dim) for _ in range(3))
    ours = lambda: tegula.ops.attention(q, k, v, causal=causal)
    theirs = lambda: cudnn(q, k, v, causal)
    shape = f"b{BATCH}_h{HEADS}_s{tokens}_d{dim}" + "_causal" * causal
    check(shape, ours(), theirs())
    flops = 4 * BATCH * HEADS * tokens**2 * dim / (2 if causal else 1)
    return "attention", shape, flops, [Provider("tegula:sm90", [ours]), Provider("cudnn", [theirs], version=torch.__version__)]


def naive_case(tokens):
    dim = 64
    q, k, v = (random(1, 1, tokens, dim) for _ in range(3))
    plain = lambda: torch.softmax(q @ k.transpose(2, 3) * dim**-0.5, -1) @ v
    ours = lambda: tegula.ops.attention_naive(q, k, v)
    check(f"naive {tokens}", ours(), plain())
    providers = [Provider("tegula:sm80", [ours]), Provider("torch", [plain], version=torch.__version__)]
    return "attention_naive", f"b1_h1_s{tokens}_d{dim}", 4 * tokens**2 * dim, providers


def rows_of(op, shape, flops, providers, peak):
    for one in providers:
        rate = flops / (1e-3 * one.ms)
        yield dict(op=op, dir="fwd", dtype="f16", shape=shape, config="graph", impl=one.impl, version=one.version, ms=one.ms,
                   ms_min=min(one.samples), ms_max=max(one.samples), flops=flops, roof="gemm_f16", roof_share=rate / peak)  # fmt: skip


def main():
    options = options_of()
    stream = torch.cuda.Stream()
    peak = measured_peak(stream, options.samples)
    name, driver = gpu_state.name_and_driver()
    run = results_file.Run(options.csv, options.commit, "attention_sizes", device=name, driver=driver)
    print(f"{name}: products of 8192 x 8192 in f16: {1e-12 * peak:.0f} TFLOP/s")
    cases = [lambda n=n: naive_case(n) for n in (64, 128, 256, 512)]
    for power in range(7, 17):
        if 2**power <= options.most:
            cases += [lambda n=2**power, d=d, c=c: attention_case(n, d, c) for d in (64, 128) for c in (False, True)]
    for make in cases:
        op, shape, flops, providers = make()
        time_in_turn(providers, options.samples, stream)
        rows = list(rows_of(op, shape, flops, providers, peak))
        run.append([dict(row, clock_mhz=gpu_state.clock_mhz()) for row in rows])
        print(op, shape, *(f"{row['impl']} {row['ms']:.4f} ms {100 * row['roof_share']:.1f}%" for row in rows), flush=True)
        del providers
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
