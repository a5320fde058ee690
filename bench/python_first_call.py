#!/usr/bin/env python3
"""What the first call of the package in a process takes, in milliseconds: rms_norm, after PyTorch has used the device.

    PYTHONPATH=build/release/python bench/python_first_call.py [--device cuda] [--shape 1x4096]

A process has one first call, so python_host.py starts several. The first of them on a machine that has just been
started reads libraries of CUDA from disk, too.
"""

import argparse
import time

import torch

from tegula import ops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="1x4096")
    options = parser.parse_args()
    rows, cols = (int(extent) for extent in options.shape.split("x"))
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    # Made before the clock starts: PyTorch reads the code of its kernels from disk when it first needs them.
    x = torch.randn(rows, cols, device=options.device).bfloat16()
    weight = torch.ones(cols, device=options.device).bfloat16()
    synchronize()
    start = time.perf_counter()
    ops.rms_norm(x, weight)
    synchronize()
    print(f"{1e3 * (time.perf_counter() - start):.3f}")


if __name__ == "__main__":
    main()
