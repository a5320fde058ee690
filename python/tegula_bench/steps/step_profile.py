"""The kernels of a training step, and the device's best rates."""

import torch

from .step_providers import make_optimiser

COUNTED = 2  # steps under the profiler


def kernels_of(steps, case, optimiser_name, warm_up):
    """[(name, ms of a step)] of a ModelSteps."""
    from torch.profiler import ProfilerActivity, profile

    on_gpu = steps.device == "cuda"
    steps.wake(case)
    optimiser = make_optimiser(optimiser_name, steps.model.parameters())
    batches = steps.batches(case)
    steps.steps(warm_up, batches, optimiser, [])
    steps.wait()
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as found:
        steps.steps(COUNTED, batches, optimiser, [])
        steps.wait()
    column = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    times = [(event.key, getattr(event, column) / 1e3 / COUNTED) for event in found.key_averages()]
    return [(name, ms) for name, ms in times if ms > 0]


def best_of(run, device, tries):
    """The least milliseconds of a call."""
    from .model_steps import Marks

    marks, found = Marks(device), []
    run()
    for _ in range(tries):
        start = marks.now()
        run()
        end = marks.now()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(marks.between(start, end))
    return min(found)


def roofs(device):
    """The best current rates of the device: FLOP/s of a product of 16-bit matrices, and bytes/s of a copy that exceeds
    the caches."""
    size, length = (8192, 1 << 30) if device == "cuda" else (256, 1 << 22)
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = 2 * size**3 / best_of(lambda: a @ b.T, device, 12) * 1e3
    source = torch.ones(length // 4, device=device)
    target = torch.empty_like(source)
    return {"gemm_bf16": product, "copy": 2 * length / best_of(lambda: torch.mul(source, 1.0, out=target), device, 12) * 1e3}
