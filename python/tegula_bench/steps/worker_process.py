"""The sweep's handle of a worker: starts the process, sends requests, ends it."""

import contextlib
import json
import selectors
import subprocess
import sys

ENDS_WITHIN = 30  # seconds after the last request


STEPS = ("-m", "tegula_bench.steps.step_worker")


class WorkerProcess:
    """A provider's process, of `program`. It starts importing at once; the first answer waits for that."""

    def __init__(self, name, device, log, patience, program=STEPS):
        self.name, self.log, self.patience = name, log, patience
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *program, name, device],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def ask(self, **request):
        """The worker's answer. If it died or took longer than `patience` seconds: {"error": ...}, and the process is ended."""
        try:
            self.process.stdin.write((json.dumps(request) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.gone()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(self.patience):
                self.end(kill=True)
                return {"error": f"no answer within {self.patience:g} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else self.gone()

    def gone(self):
        status = self.process.wait()
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return {"error": f"the process ended with {status}: {lines[-1][:160] if lines else ''}"}

    @property
    def alive(self):
        return self.process.poll() is None

    def end(self, kill=False):
        if kill:
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
