"""What a chart shows, whoever draws it: the page's table under a chart holds the same numbers."""

import dataclasses
import math


def finite(value):
    """The same with None for each number that JSON does not have: NaN and the infinities."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def worst(values):
    """The largest, and NaN above all: max() finds it only where it comes first."""
    return max(values, key=lambda one: (math.isnan(one), one))


@dataclasses.dataclass
class Series:
    name: str
    values: list  # a number or None for each x
    spread: list | None = None  # half the length of an error bar
    form: str = "bar"  # or "line", "marker"


@dataclasses.dataclass
class Chart:
    key: str  # id in the page
    title: str
    about: str  # what a reader who does not see it is told
    x_title: str
    y_title: str
    x: list  # labels, or numbers
    series: list
    stacked: bool = False
    log_x: bool = False
    log_y: bool = False
    line_at: float | None = None  # a reference across the chart

    def heading(self):
        cells = [self.x_title]
        for one in self.series:
            cells += [one.name, "±"] if one.spread else [one.name]
        return cells

    def rows(self):
        """Lines of the table: the label, and the numbers as they are."""
        for place, label in enumerate(self.x):
            line = [label]
            for one in self.series:
                line += [one.values[place], one.spread[place]] if one.spread else [one.values[place]]
            yield line

    def drawable(self):
        """Without numbers that no drawing can show; the table has them."""
        series = [dataclasses.replace(one, values=finite(one.values), spread=finite(one.spread)) for one in self.series]
        return dataclasses.replace(self, series=series)

    def as_json(self):
        return dataclasses.asdict(self.drawable())
