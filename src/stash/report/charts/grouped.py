"""Bars in groups: a group a model, a bar a machine, a panel a quantity and batch size.

What the figures of the paper are made of. Changes when such a figure is drawn in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stash.report.charts.drawing import (
    Canvas,
    Drawing,
    Scale,
    around,
    axis_left,
    legend,
    shortened,
)
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import Picture
from stash.results.document import Interval
from stash.results.profile import Provenance

Row = Mapping[str, object]

#: Roles of the palette, in an order whose neighbours differ in lightness.
SERIES = (
    "communication", "prep", "scale-out", "contention", "network", "fetch", "other", "ink",
    "copy", "relief",
)  # fmt: skip
LEFT, TITLE_HEIGHT, PANEL_HEIGHT, LABEL_HEIGHT, GAP = 66, 20, 140, 34, 12
#: Below this a light bar of a prediction could not be told from the ground.
FAINTEST = 0.45


@dataclass(frozen=True, kw_only=True)
class Figure(Picture):
    """A picture with the numbers that it shows."""

    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """One number of a figure."""

    panel: str
    group: str
    series: str
    value: Interval
    provenance: Provenance

    @property
    def ends(self) -> tuple[float, float]:
        """Where its interval ends; the estimate itself where there is none."""
        low, high, estimate = self.value.low, self.value.high, self.value.estimate
        return estimate if low is None else low, estimate if high is None else high

    def row(self) -> Row:
        """What the figure says of it."""
        return {
            "panel": self.panel,
            "group": self.group,
            "series": self.series,
            "value": self.value.estimate,
            "provenance": self.provenance.value,
        }


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    name: str
    quantity: str  # title of the vertical axis


def grouped(bars: Sequence[Bar], panels: Sequence[Panel], width: int, *, across: str) -> Drawing:
    """Panels below each other, all with the same series."""
    series = list(dict.fromkeys(bar.series for bar in bars))
    colours = colours_of(series)
    canvas, top = Canvas(width), 0.0
    for panel in panels:
        own = [bar for bar in bars if bar.panel == panel.name]
        _draw_panel(canvas, panel, own, colours, top)
        top += TITLE_HEIGHT + PANEL_HEIGHT + LABEL_HEIGHT + GAP
    canvas.text((LEFT + width) / 2, top, across, colour="muted", anchor="middle")
    return canvas.drawing(legend(canvas, colours, LEFT, top + GAP))


def colours_of(series: Sequence[str]) -> dict[str, str]:
    """A colour for each of them."""
    return {name: SERIES[number % len(SERIES)] for number, name in enumerate(series)}


def _draw_panel(
    canvas: Canvas, panel: Panel, own: Sequence[Bar], colours: Mapping[str, str], top: float
) -> None:
    canvas.text(LEFT, top + 13, panel.name)
    ceiling, floor = top + TITLE_HEIGHT, top + TITLE_HEIGHT + PANEL_HEIGHT
    y = around([end for bar in own for end in bar.ends], floor, ceiling, count=3, zero=True)
    axis_left(canvas, y, LEFT, canvas.width - LEFT, panel.quantity)
    groups = list(dict.fromkeys(bar.group for bar in own))
    series = [name for name in colours if any(bar.series == name for bar in own)]
    room = (canvas.width - LEFT) / len(groups)
    for number, group in enumerate(groups):
        start = LEFT + room * number
        _label(canvas, group, start + room / 2, floor, room)
        for bar in own:
            if bar.group == group:
                each = 0.8 * room / len(series)
                x = start + 0.1 * room + each * series.index(bar.series)
                _draw_bar(canvas, bar, colours[bar.series], x, each, y)


def _label(canvas: Canvas, group: str, x: float, floor: float, room: float) -> None:
    """The batch below its model."""
    for line, word in enumerate(group.split(" ", 1)):
        told = shortened(word, room)
        canvas.text(x, floor + 14 + 13 * line, told, colour="muted", anchor="middle", size=11)


def _draw_bar(canvas: Canvas, bar: Bar, colour: str, x: float, width: float, y: Scale) -> None:
    look = LOOKS[bar.provenance]
    canvas.rect(
        x,
        y(0),
        width,
        y(bar.value.estimate) - y(0),
        fill=colour,
        opacity=max(look.fill_opacity, FAINTEST),
        stroke="ink" if look.dash else None,
        stroke_width=0.8,
        dash=look.dash,
    )
    low, high = bar.ends
    if low < high:
        canvas.line(x + width / 2, y(low), x + width / 2, y(high), stroke="ink")
