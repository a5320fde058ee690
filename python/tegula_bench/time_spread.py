"""How the times of the same work are spread."""

from __future__ import annotations


def quantile(ordered: list[float], q: float) -> float:
    """Between two of them interpolated linearly."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread_of(times: list[float]) -> dict[str, float]:
    """mean, std (of the population), min, max, median, p95, p99."""
    ordered = sorted(times)
    mean = sum(ordered) / len(ordered)
    return {
        "mean": mean, "std": (sum((one - mean) ** 2 for one in ordered) / len(ordered)) ** 0.5, "min": ordered[0], "max": ordered[-1],
        "median": quantile(ordered, 0.5), "p95": quantile(ordered, 0.95), "p99": quantile(ordered, 0.99),
    }  # fmt: skip
