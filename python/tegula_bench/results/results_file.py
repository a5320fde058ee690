"""Rows of a results file: run, case, implementation, time and memory. The programs of the repository's bench/ read and
write the same files."""

import csv
import datetime
import os
import pathlib

COLUMNS = (
    "run date commit device driver clock_mhz suite op dir dtype shape config impl version ms ms_min ms_max host_us bytes "
    "flops gbps tflops roof roof_share tokens_per_s peak_bytes note"
).split()


def text(value):
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace(",", ";").replace("\n", " ").replace('"', "'")


class Run:
    """The columns that the rows of one run share; `more` names further ones, at least device and driver. Appends rows to
    `path`, unless it is None."""

    def __init__(self, path, commit, suite, **more):
        now = datetime.datetime.now(datetime.timezone.utc)
        self.path = pathlib.Path(path) if path else None
        self.common = {
            "run": f"{now:%Y%m%dT%H%M%S}-{os.getpid()}", "date": f"{now:%Y-%m-%dT%H:%M:%SZ}", "commit": commit,
            "suite": suite, **more,
        }  # fmt: skip

    def complete(self, row):
        """The row with the run's columns and its rates."""
        full = {**self.common, **row}
        if full.get("ms"):
            full["gbps"] = (full.get("bytes") or 0) / full["ms"] * 1e-6 or ""
            full["tflops"] = (full.get("flops") or 0) / full["ms"] * 1e-9 or ""
        return {key: text(full.get(key, "")) for key in COLUMNS}

    def append(self, rows):
        if not self.path:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(map(self.complete, rows))


def read(path):
    path = pathlib.Path(path)
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


OUT_OF_MEMORY = "out of memory"  # the start of the note of a row without a time


def is_result(row):
    """Whether the row is final: it has a time or memory ran out. Other failures are tried again."""
    return bool(row["ms"]) or row["note"].startswith(OUT_OF_MEMORY)


def recorded(rows, commit, case, wanted, columns=("impl",)):
    """Whether one run of this commit holds the case (column -> value) for every wanted implementation, each given by its
    values of `columns` (a single value for one column)."""
    runs = {}
    for row in rows:
        if row["commit"] == commit and all(row[key] == text(case[key]) for key in case):
            runs.setdefault(row["run"], set()).add(tuple(row[key] for key in columns))
    names = {(name,) if isinstance(name, str) else tuple(map(text, name)) for name in wanted}
    return any(names <= found for found in runs.values())
