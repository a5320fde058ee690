"""What a chart shows, whoever draws it: the page's table under a chart holds the same numbers."""

import dataclasses


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

    def as_json(self):
        return dataclasses.asdict(self)
