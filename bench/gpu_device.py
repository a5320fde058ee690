"""Name, driver and clock of GPU 0, as nvidia-smi tells them."""

import subprocess

import torch


def ask(*what):
    line = subprocess.run(["nvidia-smi", "--id=0", "--format=csv,noheader,nounits",
                           "--query-gpu=" + ",".join(what)], check=True, capture_output=True,
                          text=True).stdout
    return line.strip().split(", ")


def name_and_driver():
    name, driver = ask("name", "driver_version")
    return name, f"NVIDIA {driver}; CUDA {torch.version.cuda}"


def clock_mhz(work, times):
    """The SM clock while the GPU does `work`, which only issues it, so many times; "" if nvidia-smi
    does not tell."""
    for _ in range(times):
        work()
    try:
        return float(ask("clocks.sm")[0])
    except (subprocess.CalledProcessError, ValueError):
        return ""
    finally:
        torch.cuda.synchronize()
