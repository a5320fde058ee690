"""Rows of bench/results/<device>.csv; bench_ops writes the same columns."""

import csv
import datetime
import os
import pathlib
import platform

COLUMNS = ("run date commit device driver clock_mhz suite op dir dtype shape config impl version "
           "ms ms_min ms_max host_us bytes flops gbps tflops roof roof_share tokens_per_s "
           "peak_bytes note").split()


def device():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()} {len(os.sched_getaffinity(0))} cores"
    return "unknown CPU"


def clock_mhz():
    values = [float(line.split(":")[1]) for line in
              pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("cpu MHz")]
    return sum(values) / len(values) if values else ""


def text(value):
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace(",", ";").replace("\n", " ").replace('"', "'")


class Run:
    """What the rows of one run share (`more`: columns that are not the CPU's); appends them to
    `path`, or nowhere if that is None."""

    def __init__(self, path, commit, suite, **more):
        now = datetime.datetime.now(datetime.timezone.utc)
        self.path = pathlib.Path(path) if path else None
        self.common = {"run": f"{now:%Y%m%dT%H%M%S}-{os.getpid()}",
                       "date": f"{now:%Y-%m-%dT%H:%M:%SZ}", "commit": commit, "device": device(),
                       "driver": f"{platform.system()} {platform.release()}", "suite": suite, **more}

    def append(self, rows):
        if not self.path:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="", encoding="utf-8") as f:
            writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            for row in rows:
                full = {**self.common, "clock_mhz": clock_mhz(), **row}
                if full.get("ms"):
                    full["gbps"] = full.get("bytes", 0) / full["ms"] * 1e-6 or ""
                    full["tflops"] = full.get("flops", 0) / full["ms"] * 1e-9 or ""
                writer.writerow({key: text(full.get(key, "")) for key in COLUMNS})


def read(path):
    path = pathlib.Path(path)
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def recorded(rows, commit, case, impls):
    """True if one run of this commit holds the case (column -> value) in every implementation."""
    runs = {}
    for row in rows:
        if row["commit"] == commit and all(row[key] == text(value) for key, value in case.items()):
            runs.setdefault(row["run"], set()).add(row["impl"])
    return any(set(impls) <= found for found in runs.values())
