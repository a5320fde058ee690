"""Name, driver and clock of the GPU in use, from nvidia-smi."""

import os
import subprocess


def ask(*what):
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = ["nvidia-smi", f"--id={gpu}", "--format=csv,noheader,nounits", "--query-gpu=" + ",".join(what)]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return line.strip().split(", ")


def refusal(device):
    """Why nothing can be measured on the device; "" if it can."""
    try:
        return "" if device == "cpu" or ask("name") else "nvidia-smi without a name"
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)


def name_and_driver():
    import torch

    name, driver = ask("name", "driver_version")
    return name, f"NVIDIA {driver}; CUDA {torch.version.cuda}"


def clock_mhz():
    """The current SM clock; "" if nvidia-smi does not report it."""
    try:
        return float(ask("clocks.sm")[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return ""


def where(device):
    """The columns device and driver of a results file."""
    name, driver = name_and_driver() if device == "cuda" else ("", "")
    return {"device": name, "driver": driver}


def visible_gpus():
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return len([name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name])
    try:
        return len(subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return 0
