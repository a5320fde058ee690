"""The process of one provider: `python -m tegula_bench.steps.step_worker PROVIDER DEVICE`.

Reads requests and answers each with a line of JSON on the original standard output; libraries print to standard error.
The process lives for a whole sweep, since imports and compiling take longer than steps. Between requests its model sleeps
(model_steps.py), so that one process at a time uses the GPU."""

import importlib.metadata
import json
import os
import sys

from .. import liger_package
from ..gpu_state import where
from .step_cases import StepCase
from .step_providers import PROVIDERS


def version_of(name):
    """Versions of the provider's package, PyTorch and transformers."""
    found = [f"torch {importlib.metadata.version('torch')}"]
    if name.startswith("tegula"):
        import tegula

        return " ".join([tegula.__version__, *found])
    found.append(f"transformers {importlib.metadata.version('transformers')}")
    return " ".join(([liger_package.version()] if name.startswith("liger") else []) + found)


class Worker:
    """Answers requests: a dict with `do` and its arguments."""

    def __init__(self, name, device):
        import torch
        from transformers.utils import logging

        from .model_steps import ModelSteps

        logging.set_verbosity_error()
        self.name, self.device, self.out_of_memory = name, device, torch.OutOfMemoryError
        self.steps = ModelSteps(PROVIDERS[name], device)

    def hello(self):
        return {"version": version_of(self.name), **where(self.device)}

    def time(self, case, optimiser, warm_up, steps):
        return self.steps.time(StepCase(**case), optimiser, warm_up, steps)

    def losses(self, case, optimiser, steps, text):
        return self.steps.train(StepCase(**case), optimiser, steps, text)

    def evaluate(self, case, passes):
        return self.steps.evaluate(StepCase(**case), passes)

    def profile(self, case, optimiser, warm_up):
        from .step_profile import kernels_of

        return {"kernels": kernels_of(self.steps, StepCase(**case), optimiser, warm_up)}

    def roofs(self):
        from .step_profile import roofs

        return roofs(self.device)

    def answer(self, request):
        """The result, or {"oom": ...} or {"error": ...}."""
        function = getattr(self, request.pop("do"))
        try:
            found = function(**request)
        except self.out_of_memory as error:
            found = {"oom": first_line(error), **self.steps.peaks()}
        except Exception as error:  # compilers and libraries raise exceptions of any class
            if "out of memory" in str(error):  # compilers wrap it
                found = {"oom": first_line(error), **self.steps.peaks()}
            else:
                found = {"error": f"{type(error).__name__}: {first_line(error)}"}
                sys.excepthook(type(error), error, error.__traceback__)
        # Only now are the frames of an error, and their tensors, released.
        self.steps.sleep()
        return found


def first_line(error):
    return (str(error).strip().splitlines() or [""])[0][:200]


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
