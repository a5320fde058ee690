"""Training steps of one provider's model, timed in parts.

Between cases the model sleeps: its modules stay, which keeps compiled code, but the memory of its weights is freed, since
two models of 8 G parameters with gradients and moments do not fit on one GPU. On waking, weights are drawn again from
the same seed, so they are the same for every provider and round."""

import gc
import time

import torch

from ..gpu_state import clock_mhz
from .step_cases import DTYPES
from .step_providers import make_optimiser
from .text_batches import batches, text_bytes

SEED = 0
BATCHES = 2  # of random ids, used in turn


def draw(model):
    """Draws weights from the seed with the distribution of transformers; bf16 values in any dtype."""
    torch.manual_seed(SEED)
    deviation = model.config.initializer_range
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim > 1:
                wide = torch.randn(parameter.shape, device=parameter.device, dtype=torch.float32)
                parameter.copy_(wide.mul_(deviation).bfloat16())
            else:
                parameter.fill_(1)


def make_model(size, dtype, device, attention=""):
    """Creates the model in its dtype; position tables stay in f32."""
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            size.config(), dtype=dtype, attn_implementation=attention or size.attention).train()  # fmt: skip


class Marks:
    """Time stamps in the work of a device, and the milliseconds between two of them."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"

    def now(self):
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first, second):
        return first.elapsed_time(second) if self.on_gpu else 1e3 * (second - first)


class ModelSteps:
    def __init__(self, provider, device):
        self.provider, self.device, self.marks = provider, device, Marks(device)
        self.model = self.called = self.holds = None
        self.sizes = {}  # parameter -> bytes of its memory when awake
        if device == "cpu":
            torch.set_num_threads(1)  # both then use one: PyTorch's spin on the CPUs that Tegula's need
        provider.prepare()

    # ---- the model ----

    def wake(self, case):
        wanted = case.model, case.layers, case.dtype
        if self.holds != wanted:
            self.holds = self.model = self.called = None
            self.free()
            self.model = make_model(case.size, getattr(torch, DTYPES[case.dtype]), self.device, self.provider.attention)
            self.called = self.provider.convert(self.model)
            self.sizes = {p: p.untyped_storage().nbytes() for p in self.model.parameters()}
            self.holds, self.checkpointing = wanted, False
        for parameter, size in self.sizes.items():
            parameter.untyped_storage().resize_(size)
        draw(self.model)
        if case.checkpointing != self.checkpointing:  # anew it would be compiled anew
            self.checkpointing = case.checkpointing
            if case.checkpointing:
                self.model.gradient_checkpointing_enable(dict(use_reentrant=False, **self.provider.checkpoint()))
            else:
                self.model.gradient_checkpointing_disable()

    def sleep(self):
        for parameter in self.sizes:
            parameter.grad = None
            parameter.untyped_storage().resize_(0)
        self.free()

    def free(self):
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    # ---- steps ----

    def batches(self, case):
        generator = torch.Generator().manual_seed(1)
        shape, vocabulary = (case.batch, case.seq), case.size.vocabulary
        return [torch.randint(vocabulary, shape, generator=generator).to(self.device) for _ in range(BATCHES)]

    def loss_of(self, ids):
        return self.called(input_ids=ids, labels=ids, use_cache=False, **self.provider.inputs).loss

    def steps(self, count, batches, optimiser, losses):
        """Marks of `count` consecutive steps, issued without waiting for the device: for each step the start, the end of
        the forward and the end of the backward; then the end."""
        found = []
        for i in range(count):
            found.append([self.marks.now()])
            loss = self.loss_of(batches[i % len(batches)])
            found[-1].append(self.marks.now())
            loss.backward()
            found[-1].append(self.marks.now())
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.detach())
        return found, self.marks.now()

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def time(self, case, optimiser_name, warm_up, steps):
        """Parts of each step in ms, losses from the first step on, and the memory of the timed steps."""
        self.wake(case)
        optimiser = make_optimiser(optimiser_name, self.model.parameters())
        batches, losses = self.batches(case), []
        self.steps(warm_up, batches, optimiser, losses)
        self.wait()
        self.reset_peaks()
        start = time.perf_counter()
        taken = self.steps(steps, batches, optimiser, losses)
        clock = clock_mhz() if self.device == "cuda" else ""
        self.wait()
        wall = 1e3 * (time.perf_counter() - start) / steps
        return {**self.parts(*taken), "wall_ms": wall, "clock_mhz": clock, "losses": [float(loss) for loss in losses],
                **self.peaks()}  # fmt: skip

    def train(self, case, optimiser_name, steps, text):
        """Losses of steps on pieces of the text, each used once, and of a last piece without a step."""
        self.wake(case)
        optimiser = make_optimiser(optimiser_name, self.model.parameters())
        *seen, unseen = (ids.to(self.device) for ids in batches(text_bytes(text), steps + 1, case.batch, case.seq))
        losses = []
        self.reset_peaks()
        taken = self.steps(steps, seen, optimiser, losses)
        with torch.no_grad():
            last = float(self.loss_of(unseen))
        return {**self.parts(*taken), "losses": [float(loss) for loss in losses], "unseen": last, **self.peaks()}

    def evaluate(self, case, passes):
        """Milliseconds of each pass without gradients, after one that is not timed; the loss, and the memory."""
        self.wake(case)
        self.model.eval()
        (ids, *_), marks = self.batches(case), []
        with torch.no_grad():
            loss = float(self.loss_of(ids))
            self.reset_peaks()
            for _ in range(passes):
                marks.append(self.marks.now())
                self.loss_of(ids)
            marks.append(self.marks.now())
        self.wait()
        self.model.train()
        return {"passes": [self.marks.between(*pair) for pair in zip(marks, marks[1:])], "loss": loss, **self.peaks()}

    def parts(self, marks, end):
        """What self.steps returned, in ms."""
        whole = [[*mark, after] for mark, after in zip(marks, [*(mark[0] for mark in marks[1:]), end])]
        found = {"steps": [self.marks.between(part[0], part[3]) for part in whole]}
        for number, name in enumerate(("forward", "backward", "optimiser")):
            found[name] = [self.marks.between(part[number], part[number + 1]) for part in whole]
        return found

    def reset_peaks(self):
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peaks(self):
        if self.device != "cuda":
            return {"peak_bytes": 0, "reserved_bytes": 0}
        return {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
