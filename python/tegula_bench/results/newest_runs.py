"""Selects the rows of a results file that count: those of one measurement for each case."""

CASE = ("suite", "op", "dir", "dtype", "shape")
ANY_ORDER = "tegula_any_order"  # ours in another mode than the default: reported, not judged


def number(row, key):
    return float(row[key]) if row[key] else 0.0


def case_of(row):
    return tuple(row[key] for key in CASE)


def is_ours(row):
    return row["impl"].startswith("tegula")


def ours_of(rows):
    """The fastest of ours in the default mode; rows of ops have one."""
    mine = [row for row in rows if is_ours(row)]
    return min((row for row in mine if row["impl"] != ANY_ORDER), key=lambda row: number(row, "ms"), default=mine[0])


def peers_of(rows):
    return [row for row in rows if not is_ours(row) and row["impl"] != "copy" and not row["impl"].startswith("roof:")]


def result(rows):
    """How good a run is: share of the roof, else the peers' best time over ours."""
    mine, theirs = ours_of(rows), [number(row, "ms") for row in peers_of(rows)]
    share = number(mine, "roof_share")
    return share or min(theirs, default=1.0) / number(mine, "ms")


def named(row):
    """The provider, with its version where that is a peer's own: another release of Liger-Kernel is another peer."""
    version = row["version"].split()
    return f"{row['impl']} {version[0]}" if row["impl"].startswith("liger") and version else row["impl"]


def of_cards(rows):
    """Card -> its rows; the card that was measured first comes first."""
    found = {}
    for row in rows:
        found.setdefault(row["device"], []).append(row)
    return found


def measurements(rows):
    """The rows of a case in one run, apart where the run measured it more than once: a provider's second row begins a new
    measurement. Rows without ours and a peer, as ours timed again behind the peers, belong to the measurement before."""
    parts, seen = [], set()
    for row in rows:
        provider = row["impl"], row["version"], row["config"]
        if not parts or provider in seen:
            parts.append([])
            seen = set()
        parts[-1].append(row)
        seen.add(provider)
    found = parts[:1]
    for part in parts[1:]:
        if any(map(is_ours, part)) and peers_of(part):
            found.append(part)
        else:
            found[-1] += part
    return found


def newest(rows):
    """(case) -> rows of one measurement of ours, and of a peer if any measurement has one: of those at the case's newest
    commit, on the same card, that with the median result, of two the worse. Rows of what could not be measured are left
    out."""
    runs = {}
    for row in (row for row in rows if row["ms"]):
        runs.setdefault(case_of(row), {}).setdefault(row["run"], []).append(row)
    latest = {}
    for case, by_run in runs.items():
        whole = [found for of_run in by_run.values() for found in measurements(of_run) if any(map(is_ours, found))]
        whole = [found for found in whole if peers_of(found)] or whole
        if whole:
            last = max(whole, key=lambda found: (found[0]["date"], found[0]["run"]))[0]
            same = [found for found in whole if all(found[0][key] == last[key] for key in ("commit", "device"))]
            same.sort(key=result)
            latest[case] = same[(len(same) - 1) // 2]
    return latest


def with_failures(rows, cases):
    """The same with the rows without a time (out of memory, failed) of each case's run, in the order of the file."""
    runs = {case: found[0]["run"] for case, found in cases.items()}
    whole = {case: [] for case in cases}
    for row in rows:
        if runs.get(case_of(row)) == row["run"]:
            whole[case_of(row)].append(row)
    return whole
