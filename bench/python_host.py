#!/usr/bin/env python3
"""Host time of rms_norm: called from C, through the Python package, and PyTorch's own, in turn.

    PYTHONPATH=build/release/python bench/python_host.py build/release [--device cuda] [--shape 1x4096] [--csv FILE]

The package's first call in a process (python_first_call.py) is timed in three processes, one after the other: median,
least and most. Every other figure is the least over all rounds of a round's mean time of a call. A round's calls are
issued back to back; between rounds the program waits for the GPU. C: the prepared call through ctypes, less a ctypes
call of a function that does nothing. Output alone: PyTorch's fastest allocation and release of the output. The last
columns are the time over C's and the ratio to PyTorch's time for the same call. --csv records all figures.
"""

import argparse
import ctypes
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from torch.nn import functional as F

import results_csv
from tegula import _core, ops
from tegula.autograd import rowwise_op
from tegula_bench import gpu_state
from tegula_call import Library

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_CALLS = 3


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="1x4096")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    return parser.parse_args()


def least_times(functions, options):
    least = dict.fromkeys(functions, float("inf"))
    for _ in range(options.rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(options.calls):
                function()
            least[name] = min(least[name], (time.perf_counter() - start) / options.calls)
            if options.device == "cuda":
                torch.cuda.synchronize()
    return {name: 1e6 * seconds for name, seconds in least.items()}


def prepared_call(options, x, weight, y):
    """The op on a context of its own, and a function that does nothing, with the same ctypes prototype."""
    backend = "CUDA" if options.device == "cuda" else "CPU"
    library = Library(next(options.build.rglob("libtegula.so")), ROOT / "include", torch.get_num_threads(), backend)
    fields = {"x": x, "weight": weight, "y": y, "eps": 1e-6, "policy": 1}
    call = library.call("rms_norm_fwd", fields)
    run, context, arguments = call.op.run, library.ctx, ctypes.addressof(call.memory)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    nothing = prototype(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value)
    return (library, call), lambda: run(context, arguments), lambda: nothing(context, arguments)


def first_calls(options):
    """Milliseconds of the first call in a process, of FIRST_CALLS processes."""
    command = [sys.executable, ROOT / "bench/python_first_call.py", "--device", options.device, "--shape", options.shape]
    return [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(FIRST_CALLS)]


def record(options, least, first):
    """Rows of the suite host: `config` is the kind of call, `ms` its host time."""
    commit = subprocess.run([options.build / "bench/bench_ops", "--commit"], check=True, capture_output=True, text=True)
    where = {}
    if options.device == "cuda":
        device, driver = gpu_state.name_and_driver()
        where = {"device": device, "driver": driver}
    run = results_csv.Run(options.csv, commit.stdout.strip(), "host", **where)
    common = {"op": "rms_norm", "dtype": "bf16", "shape": options.shape, "clock_mhz": ""}
    rows = [{**common, "dir": "call", "config": name, "impl": "torch" if name.startswith("PyTorch") else "tegula",
             "version": torch.__version__, "ms": 1e-3 * us} for name, us in least.items()]
    run.append([*rows, {**common, "dir": "first", "config": "first call", "impl": "tegula",
                        "version": torch.__version__, "ms": statistics.median(first), "ms_min": min(first),
                        "ms_max": max(first)}])


def main():
    options = parse_options()
    rows, cols = (int(extent) for extent in options.shape.split("x"))
    first = first_calls(options)
    x = torch.randn(rows, cols, device=options.device).bfloat16()
    weight, y = torch.ones(cols, device=options.device).bfloat16(), torch.empty_like(x)
    with_grad = [t.clone().requires_grad_() for t in (x, weight)]
    kept, from_c, nothing = prepared_call(options, x, weight, y)
    empty = rowwise_op.EMPTY[options.device]
    index = [entry["name"] for entry in _core.ops()].index("rms_norm_fwd")
    functions = {
        "nothing": nothing, "C": from_c, "output alone": lambda: empty((rows, cols), (cols, 1), torch.bfloat16), "_core.run": lambda: _core.run(index, x, weight, y, None, 1e-6, 0.0, 1),
        "out=": lambda: ops.rms_norm(x, weight, out=y), "allocated": lambda: ops.rms_norm(x, weight),
        "with gradient": lambda: ops.rms_norm(*with_grad),
        "PyTorch": lambda: F.rms_norm(x, (cols,), weight, 1e-6),
        "PyTorch with gradient": lambda: F.rms_norm(with_grad[0], (cols,), with_grad[1], 1e-6),
    }  # fmt: skip
    least = least_times(functions, options)
    least["C"] -= least.pop("nothing")
    peers = {"allocated": "PyTorch", "with gradient": "PyTorch with gradient"}
    print(f"rms_norm {options.shape} bf16 on {options.device}, microseconds of the host\n")
    for name, value in least.items():
        share = f"{value / least[peers[name]]:8.2f}" if name in peers else ""
        print(f"{name:24} {value:8.2f} {value - least['C']:+8.2f} {share}")
    each = ", ".join(f"{ms:.1f}" for ms in first)
    print(f"\nfirst call of the package in a process, {FIRST_CALLS} processes one after the other: {each} ms")
    if options.csv:
        record(options, least, first)


if __name__ == "__main__":
    main()
