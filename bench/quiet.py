"""Load of other processes, from /proc/stat less what this process and its children used."""

import os
import resource
import time

LIMIT = 0.1  # CPUs; recorded runs refuse more


class Load:
    def __init__(self):
        self.clock, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def others(self):
        """CPUs that others kept busy since this object was made."""
        wall = time.monotonic() - self.clock
        used = (busy_seconds() - self.busy) - (own_seconds() - self.own)
        return max(used, 0) / wall if wall > 0 else 0


def busy_seconds():
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(t) for t in f.readline().split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def wait(patience):
    """Waits for a quiet second, `patience` seconds at most; the last second's load."""
    start = time.monotonic()
    while True:
        load = Load()
        time.sleep(1)
        others = load.others()
        if others <= LIMIT or time.monotonic() - start >= patience:
            return others
