"""Training steps of a model on several devices, or on one with the same global batch: the process that torchrun starts
for each device. Prints nothing; rank 0 writes the results to --answer."""

import argparse
import contextlib
import json
import os
import pathlib
import statistics

import torch
from torch import distributed as dist

from . import copy_engine_gather
from .model_steps import Marks, ModelSteps
from .step_cases import case_of
from .step_providers import PROVIDERS, make_optimiser
from .text_batches import batches, text_bytes

WAYS = ("fsdp", "ddp", "one")


def sharded(model):
    """FSDP2 with each layer as a unit, the rest of the model as another, and the head with its norm as one of its own
    unless it shares the embedding's weight. Gathered parameters stay until the backward: a second gather would occupy
    multiprocessors again, and the memory suffices."""
    from torch.distributed.fsdp import fully_shard

    units = [*model.model.layers]
    if model.lm_head.weight is not model.model.embed_tokens.weight:
        units.append([model.model.norm, model.lm_head])
    for unit in units:
        fully_shard(unit, reshard_after_forward=False)
    return fully_shard(model)


def replicated(model, device):
    from torch.nn.parallel import DistributedDataParallel

    places = [torch.cuda.current_device()] if device == "cuda" else None
    return DistributedDataParallel(model, device_ids=places, gradient_as_bucket_view=True)


class GlobalSteps:
    """Steps on a global batch of `parts` micro-batches. Each process computes its own; a single process computes all."""

    def __init__(self, options):
        self.case, self.way, self.parts = case_of(options.model, options.shape, options.dtype), options.way, options.parts
        steps = ModelSteps(PROVIDERS[options.provider], options.device)
        steps.wake(self.case)
        self.marks, self.device, self.inputs = Marks(options.device), options.device, steps.provider.inputs
        self.called = steps.called
        if self.way == "fsdp":
            self.called = sharded(steps.called)
            if options.copy_engines:
                copy_engine_gather.use(self.called)
        elif self.way == "ddp":
            self.called = replicated(steps.called, self.device)
        self.optimiser = make_optimiser(options.optimiser, self.called.parameters())
        rows = self.parts * self.case.batch
        self.batches = batches(text_bytes(), options.steps, rows, self.case.seq)

    def mine(self, ids):
        pieces = ids.to(self.device).chunk(self.parts)
        return pieces if self.way == "one" else pieces[dist.get_rank() :][:1]

    def step(self, ids):
        """The mean loss over the micro-batches of this process."""
        pieces, total = self.mine(ids), 0.0
        for piece in pieces:
            loss = self.called(input_ids=piece, labels=piece, use_cache=False, **self.inputs).loss / len(pieces)
            loss.backward()
            total = total + loss.detach()
        self.optimiser.step()
        self.optimiser.zero_grad()
        return total

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def go(self, warm_up):
        losses, marks = [], []
        for number, ids in enumerate(self.batches):
            if number == warm_up and self.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            marks.append(self.marks.now())
            losses.append(self.step(ids))
        marks.append(self.marks.now())
        self.wait()
        losses = torch.stack(losses).float()
        if self.way != "one":
            dist.all_reduce(losses)
            losses /= self.parts
        times = [self.marks.between(first, second) for first, second in zip(marks[warm_up:], marks[warm_up + 1 :])]
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else 0
        return {"losses": losses.tolist(), "steps": times, "ms": statistics.median(times), "peak_bytes": peak}


@contextlib.contextmanager
def process_group(options):
    """Also sets options.copy_engines, which requires CUDA on this process's GPU."""
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    options.copy_engines = options.way == "fsdp" and copy_engine_gather.is_possible(options.device)
    if options.way == "one":
        yield
        return
    more = copy_engine_gather.group_options() if options.copy_engines else {}
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo", **more)
    try:
        yield
    finally:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="Training steps on this process's part of a global batch.")
    parser.add_argument("--provider", choices=PROVIDERS)
    parser.add_argument("--optimiser")
    parser.add_argument("--model")
    parser.add_argument("--shape", help="of a micro-batch")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--parts", type=int, help="micro-batches of a global batch")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warm-up", type=int)
    parser.add_argument("--answer", type=pathlib.Path)
    options = parser.parse_args()
    with process_group(options):
        try:
            found = {**GlobalSteps(options).go(options.warm_up), "copy_engines": options.copy_engines}
        except torch.OutOfMemoryError as error:
            found = {"oom": str(error).splitlines()[0], "peak_bytes": torch.cuda.max_memory_allocated()}
        if options.way == "one" or dist.get_rank() == 0:
            options.answer.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
