"""Times training steps of all providers, case by case: rounds in changing order, one provider on the GPU at a time."""

import dataclasses
import json
import math
import sys
import time

from ..results import results_file
from .step_rows import doubt, note_of, row_of, table

OVERHEAD = 3.0  # seconds of a turn besides its steps: waking, loading, freeing


def order_of(entrants, number):
    """The order forwards and backwards, then starting from the next one."""
    first = number // 2 % len(entrants)
    turned = entrants[first:] + entrants[:first]
    return turned[::-1] if number % 2 else turned


class TimeIsOver(Exception):
    """No further round fits in the given minutes."""


class Sweep:
    """`start(name)` starts the worker of a provider. `run` receives the rows."""

    def __init__(self, start, run, folder, progress, say=print, rounds=2, warm_up=3, steps=5, minutes=math.inf):
        self.start, self.run, self.folder, self.progress = start, run, folder, progress
        self.say, self.rounds, self.warm_up, self.steps = say, rounds, warm_up, steps
        self.deadline = time.monotonic() + 60 * minutes
        self.workers, self.versions, self.used, self.rows = {}, {}, set(), []
        self.record = {"run": run.common["run"], "commit": run.common["commit"], "cases": []}

    # ---- workers ----

    def prepare(self, names):
        """Starts all missing workers together and returns their answers. One that fails is ended and stays in `versions`
        with the reason."""
        missing = [name for name in names if name not in self.workers or not self.workers[name].alive]
        for name in missing:
            self.workers[name] = self.start(name)
        said = {name: self.workers[name].ask(do="hello") for name in missing}
        for name, found in said.items():
            if "error" in found:
                self.workers.pop(name).end()
            self.versions[name] = found
        return said

    def where(self, names):
        """Starts the workers; returns device and driver from one of them."""
        said = self.prepare(dict.fromkeys(names)).values()
        found = next((one for one in said if "error" not in one), {})
        return {"device": found.get("device", ""), "driver": found.get("driver", "")}

    def end_others(self, name):
        """Ends the other workers, whose contexts hold memory. True if there were any."""
        others = [other for other in self.workers if other != name and other in self.used]
        for other in others:
            self.workers.pop(other).end()
        self.used.difference_update(others)
        return bool(others)

    def end(self):
        for worker in self.workers.values():
            worker.end()
        self.workers.clear()

    # ---- a case ----

    def turn(self, case, entrant):
        name = entrant.provider.name
        self.prepare([name])
        if name not in self.workers:
            return {"error": self.versions[name]["error"]}
        request = dict(case=dataclasses.asdict(case), optimiser=entrant.optimiser, warm_up=self.warm_up, steps=self.steps)
        self.used.add(name)
        found = self.workers[name].ask(do="time", **request)
        if "oom" in found and self.end_others(name):  # out of memory counts only with the GPU to itself
            found = self.workers[name].ask(do="time", **request)
        return found

    def round(self, case, order, results, reasons):
        for entrant in order:
            if entrant in reasons:
                self.progress.skipped(1)
                continue
            what = f"{case.name} {entrant.name}"
            self.progress.now(what)
            found = self.turn(case, entrant)
            if "steps" in found:
                results[entrant].append(found)
                ms = sorted(found["steps"])[len(found["steps"]) // 2]
                text = f"{ms:.1f} ms, {1e3 * case.tokens / ms:.0f} tokens/s, {found['peak_bytes'] / 2**30:.1f} GiB"
            else:
                text = reasons[entrant] = note_of(found)
            self.progress.ended(f"{what}: {text}")

    def is_over(self):
        return time.monotonic() > self.deadline

    def length_of_round(self, results):
        steps = self.warm_up + self.steps
        return sum(OVERHEAD + 1e-3 * steps * rounds[-1]["wall_ms"] for rounds in results.values() if rounds)

    def measure(self, case, entrants):
        """Rows of the case, recorded; TimeIsOver before a round that would not end in time."""
        results, reasons = {entrant: [] for entrant in entrants}, {}
        for number in range(self.rounds):
            if time.monotonic() + self.length_of_round(results) > self.deadline:
                raise TimeIsOver(f"{case.name}: {number} of {self.rounds} rounds are done")
            self.round(case, order_of(entrants, number), results, reasons)
        rows = self.rows_of(case, results, reasons)
        self.run.append(rows)
        self.keep(case, results, reasons)
        return rows

    def rows_of(self, case, results, reasons):
        stock = next((rounds for entrant, rounds in results.items() if entrant.provider.name == "hf"), [])
        rows = []
        for entrant, rounds in results.items():
            notes = [reasons.get(entrant, ""), doubt(rounds, stock) if rounds and stock else ""]
            version = self.versions[entrant.provider.name].get("version", "")
            rows.append(row_of(case, entrant, version, rounds, "; ".join(note for note in notes if note)))
        return rows

    def keep(self, case, results, reasons):
        """Every step of every round, as JSON."""
        self.record["cases"].append({
            "case": dataclasses.asdict(case),
            "entrants": [
                {"provider": entrant.provider.name, "config": entrant.config_of(case), "rounds": rounds,
                 "note": reasons.get(entrant, "")} for entrant, rounds in results.items()
            ],
        })  # fmt: skip
        path = self.folder / f"{self.record['run']}.json"
        path.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    # ---- all cases ----

    def is_recorded(self, case, entrants):
        if not self.run.path:
            return False
        rows = [row for row in results_file.read(self.run.path) if results_file.is_result(row)]
        return results_file.recorded(
            rows, self.run.common["commit"], {**case.identity, "suite": self.run.common["suite"]},
            [entrant.key_of(case) for entrant in entrants], ("impl", "config"),
        )  # fmt: skip

    def go(self, cases, entrants, again=False):
        """(number of cases that failed in part, number left when time was over)"""
        failed, per_case = 0, self.rounds * len(entrants)
        for number, case in enumerate(cases):
            if not again and self.is_recorded(case, entrants):
                self.say(f"{case.name}: recorded already")
                self.progress.skipped(per_case)
                continue
            try:
                rows = self.measure(case, entrants)
            except TimeIsOver as over:
                print(f"{over}; not recorded", file=sys.stderr)
                return failed, len(cases) - number
            self.rows += rows
            self.say("\n".join([f"## {case.name}", *table(rows)]))
            failed += any("failed: " in row["note"] for row in rows)
        return failed, 0
