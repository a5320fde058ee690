"""Rows of a results file: a run, what was measured, by whom, what it took. Needs nothing of the package: the programs of
the repository's bench/ read and write the same files."""

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
    """What the rows of one run share: `more` names further columns, at least device and driver. Appends rows to `path`,
    or nowhere if that is None."""

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


OUT_OF_MEMORY = "out of memory"  # how the note of a row without a time begins then


def is_result(row):
    """A time, or that memory ran out: what went wrong otherwise may go well the next time."""
    return bool(row["ms"]) or row["note"].startswith(OUT_OF_MEMORY)


def recorded(rows, commit, case, wanted, columns=("impl",)):
    """True if one run of this commit holds the case (column -> value) for everyone wanted, each named by its values of
    `columns` (a name alone where that is one column)."""
    runs = {}
    for row in rows:
        if row["commit"] == commit and all(row[key] == text(case[key]) for key in case):
            runs.setdefault(row["run"], set()).add(tuple(row[key] for key in columns))
    names = {(name,) if isinstance(name, str) else tuple(map(text, name)) for name in wanted}
    return any(names <= found for found in runs.values())
