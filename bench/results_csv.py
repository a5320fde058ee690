"""Rows of bench/results/<device>.csv, those of a CPU unless told otherwise; bench_ops writes the
same columns."""

import os
import pathlib
import platform
import statistics

from tegula_bench.results import results_file

COLUMNS, text, read = results_file.COLUMNS, results_file.text, results_file.read
recorded = results_file.recorded


def cards(folder):
    """The files of GPUs, in the order in which pages show them; a file may be missing."""
    return [folder / "h200.csv", folder / "h100.csv"]


def device():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()} {len(os.sched_getaffinity(0))} cores"
    return "unknown CPU"


def clock_mhz():
    values = [float(line.split(":")[1]) for line in
              pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("cpu MHz")]
    return sum(values) / len(values) if values else ""


def row_of(case, impl, version, config, samples):
    """Seconds of an implementation as a row: their median, least and largest."""
    return dict(case, impl=impl, version=version, config=config,
                ms=1e3 * statistics.median(samples), ms_min=1e3 * min(samples),
                ms_max=1e3 * max(samples))


class Run(results_file.Run):
    def __init__(self, path, commit, suite, **more):
        here = dict(device=device(), driver=f"{platform.system()} {platform.release()}")
        super().__init__(path, commit, suite, **{**here, **more})

    def append(self, rows):
        super().append([{"clock_mhz": clock_mhz(), **row} for row in rows])
