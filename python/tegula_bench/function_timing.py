"""Times the functions of one case in turn, as a program calls them: consecutive calls on several sets of inputs that
together exceed the caches, the forward alone or with the gradients."""

import statistics
import time

import torch

from .steps.model_steps import Marks
from .steps.step_cases import DTYPES

SAMPLE_MS = 5.0
SETS_BYTES, MAX_SETS = 200e6, 64
TOLERANCE = {"bf16": 6e-2, "f16": 2e-2, "f32": 1e-3}  # relative to the largest value: detects a different function


class Draw:
    def __init__(self, dtype, device):
        self.dtype, self.device = dtype, device

    def __call__(self, *shape):
        return torch.randn(*shape, dtype=self.dtype, device=self.device)

    def ids(self, count, below):
        return torch.randint(below, (count,), device=self.device)


def tuple_of(found):
    return found if isinstance(found, tuple) else (found,)


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


class Timed:
    """A function with its own inputs, since some of Liger-Kernel's functions overwrite theirs."""

    def __init__(self, function, spec, case, device, sets=1):
        torch.manual_seed(1)
        self.function, self.case, self.marks, self.number = function, case, Marks(device), 0
        draw = Draw(getattr(torch, DTYPES[case.dtype]), device)
        self.sets, self.samples, self.calls, self.host_us, self.peak_bytes = [], [], 1, 0.0, 0
        for _ in range(sets):
            inputs, fixed = spec.inputs(draw, *case.extents)
            if case.dir == "fwdbwd":
                for tensor in inputs:
                    tensor.requires_grad_()
            self.sets.append((inputs, fixed, None))

    def call(self):
        """The results, or the gradients of the inputs; incoming gradients are drawn at the first call."""
        place = self.number % len(self.sets)
        self.number += 1
        inputs, fixed, incoming = self.sets[place]
        if self.case.dir == "fwd":
            with torch.no_grad():
                return tuple_of(self.function(*inputs, *fixed))
        results = tuple_of(self.function(*inputs, *fixed))
        if incoming is None:
            incoming = [torch.randn_like(t) if t.ndim else torch.ones_like(t) for t in results]
            self.sets[place] = inputs, fixed, incoming
        return torch.autograd.grad(results, inputs, incoming)

    def bytes(self):
        """The least traffic: forward, each input and result once; backward, also inputs, incoming and computed gradients."""
        inputs, fixed, incoming = self.sets[0]
        size = bytes_of(inputs) + bytes_of(fixed)
        if self.case.dir == "fwd":
            return size + bytes_of(self.call())
        return 2 * size + bytes_of(inputs) + 2 * bytes_of(incoming)

    # ---- time and memory ----

    def wait(self):
        if self.marks.on_gpu:
            torch.cuda.synchronize()

    def sample(self):
        """Milliseconds of a call."""
        start = self.marks.now()
        for _ in range(self.calls):
            self.call()
        end = self.marks.now()
        self.wait()
        return self.marks.between(start, end) / self.calls

    def prepare(self):
        """Warms up; finds the number of calls of a sample and the peak memory of a call."""
        for _ in self.sets:
            self.call()
        self.wait()
        if self.marks.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.call()
            self.wait()
            self.peak_bytes = torch.cuda.max_memory_allocated() - before
        self.calls = max(1, min(1000, round(SAMPLE_MS / max(self.sample(), 1e-3))))

    def issue(self):
        """Host time of a call in microseconds, with an empty queue before it."""
        found = []
        for _ in range(5):
            self.wait()
            start = time.perf_counter()
            for _ in range(min(self.calls, 20)):
                self.call()
            found.append((time.perf_counter() - start) / min(self.calls, 20))
        self.wait()
        self.host_us = 1e6 * statistics.median(found)


def number_of_sets(spec, case, device):
    one = Timed(None, spec, case, device)
    return max(1, min(MAX_SETS, round(SETS_BYTES / bytes_of(one.sets[0][0])))) if device == "cuda" else 1


def differs(mine, theirs, dtype):
    """A message if results differ by more than the rounding of their dtype, else empty."""
    for number, (a, b) in enumerate(zip(mine, theirs)):
        a, b = a.float(), b.float()
        error = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()
        if not error <= TOLERANCE[dtype]:
            return f"result {number} differs from torch's: {error:.2g} of the largest"
    return ""


def time_in_turn(timed, samples):
    for one in timed:
        one.prepare()
    for number in range(samples):
        for step in range(len(timed)):
            one = timed[(number + step) % len(timed)]
            one.sample()
            one.samples.append(one.sample())
    for one in timed:
        one.issue()
