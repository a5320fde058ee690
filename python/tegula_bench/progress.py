"""Progress of a long measurement on standard error: one updated line on a terminal, else a line for each turn."""

import os
import sys
import time

WIDTH = 24


class Progress:
    def __init__(self, total, stream=None):
        self.total, self.done, self.stream = total, 0, stream or sys.stderr
        self.start, self.is_terminal = time.monotonic(), (stream or sys.stderr).isatty()

    def left(self):
        """The estimated remaining time as text."""
        if not self.done:
            return ""
        seconds = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        return f", about {seconds / 60:.1f} min left" if self.done < self.total else ""

    def now(self, text):
        """Begins a turn."""
        if self.is_terminal:
            filled = WIDTH * self.done // max(self.total, 1)
            line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {self.done}/{self.total} {text}{self.left()}"
            columns = os.get_terminal_size(self.stream.fileno()).columns or 80
            print(f"\r\033[K{line[: columns - 1]}", end="", file=self.stream, flush=True)

    def ended(self, text, turns=1):
        """Ends it; `text` is the result."""
        self.done += turns
        start = "\r\033[K" if self.is_terminal else ""
        print(f"{start}[{self.done}/{self.total}] {text}{self.left()}", file=self.stream, flush=True)

    def skipped(self, turns):
        self.total -= turns
