"""Times providers of one problem in turn on a GPU.

A provider has a call for each of R sets of arrays. Its R calls are captured in a graph, whose
replays cost the host nothing; what cannot be captured is called. A sample is as many rounds as take
SAMPLE_MS between two events. The providers take turns, and who begins changes.
"""

import dataclasses
import statistics
import time

import torch

SAMPLE_MS = 5.0
ISSUED_MS = 20.0  # of work that host_us lets pile up: less than the GPU's queue holds
ISSUED_CALLS = 64


@dataclasses.dataclass
class Provider:
    impl: str
    calls: list  # functions, one for each set of arrays
    config: str = ""
    version: str = ""
    capturable: bool = True
    peak_bytes: float = 0
    note: str = ""
    graph: object = None
    samples: list = dataclasses.field(default_factory=list)  # ms of one call
    host_us: float = 0
    rounds: int = 0  # of a sample

    def round(self):
        if self.graph:
            self.graph.replay()
        else:
            for call in self.calls:
                call()

    @property
    def ms(self):
        return statistics.median(self.samples)


def try_capture(provider, stream):
    """What a graph cannot take, of a library that was not known for it, is timed by its calls."""
    try:
        capture(provider, stream)
    except RuntimeError as error:
        if provider.impl == "copy" or provider.impl.startswith("tegula"):
            raise
        torch.cuda.synchronize()  # raises if more is lost than the graph
        reason = str(error).strip().splitlines()[0][:80]
        provider.note = f"{provider.note} no graph: {reason}".strip()


def capture(provider, stream):
    """Results are kept apart until all calls are recorded, so each has memory of its own."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call() for call in provider.calls]
    del kept
    provider.graph = graph


def elapsed_ms(provider, rounds):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(rounds):
        provider.round()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def issue_us(provider):
    """Host time of a call with nothing before it in the queue."""
    count = max(1, min(ISSUED_CALLS, int(ISSUED_MS / max(provider.ms, 1e-4))))
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(count):
            provider.calls[i % len(provider.calls)]()
        found.append((time.perf_counter() - start) / count)
    torch.cuda.synchronize()
    return 1e6 * statistics.median(found)


def time_in_turn(providers, samples, stream, capturing=True):
    """Fills in samples and host_us."""
    for provider in providers:
        if provider.capturable and capturing:
            try_capture(provider, stream)
        provider.round()
        once = elapsed_ms(provider, 1)
        provider.rounds = max(1, -int(-SAMPLE_MS // max(once, 1e-3)))
    for sample in range(samples):
        for step in range(len(providers)):
            provider = providers[(sample + step) % len(providers)]
            provider.round()
            provider.samples.append(elapsed_ms(provider, provider.rounds)
                                    / (provider.rounds * len(provider.calls)))
    for provider in providers:
        provider.host_us = issue_us(provider)
