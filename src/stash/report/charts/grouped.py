"""Bars in groups: a group a model, a bar a machine, a panel a quantity and batch size.

What the figures of the paper are made of. Changes when such a figure is drawn in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.report.charts.drawing import (
    Canvas,
    Drawing,
    Scale,
    around,
    axis_left,
    legend,
    shortened,
)
from stash.report.charts.palette import LOOKS, colours_of
from stash.report.charts.picture import Picture
from stash.results.document import Interval
from stash.results.profile import Provenance

PANEL_HEIGHT = 150
TITLE_HEIGHT = 30
LEFT, RIGHT = 64, 8
LINE_HEIGHT = 13
#: Lighter fills than this cannot be told apart by their hue.
LEAST_FILL = 0.45


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
        """Where its interval ends; at the estimate where there is none."""
        low, high = self.value.low, self.value.high
        estimate = self.value.estimate
        return estimate if low is None else low, estimate if high is None else high


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    name: str
    quantity: str  # title of the vertical axis


@dataclass(frozen=True, kw_only=True)
class GroupedPicture(Picture):
    """A picture of bars, which stay at hand."""

    bars: Sequence[Bar]


def grouped(bars: Sequence[Bar], panels: Sequence[Panel], width: int, *, across: str) -> Drawing:
    """Panels below each other, all with the same series."""
    canvas, y = Canvas(width), 0.0
    colours = colours_of(list(dict.fromkeys(bar.series for bar in bars)))
    for panel in panels:
        canvas.text(LEFT, y + 20, panel.name)
        own = [bar for bar in bars if bar.panel == panel.name]
        y = _panel(canvas, own, panel, colours, y + TITLE_HEIGHT)
    canvas.text((LEFT + width - RIGHT) / 2, y + 14, across, colour="muted", anchor="middle")
    return canvas.drawing(legend(canvas, colours, 16, y + 28))


def _panel(
    canvas: Canvas, own: Sequence[Bar], panel: Panel, colours: Mapping[str, str], top: float
) -> float:
    """One set of axes with its groups; returns where their names end."""
    bottom = top + PANEL_HEIGHT
    groups = list(dict.fromkeys(bar.group for bar in own))
    here = [name for name in colours if any(bar.series == name for bar in own)]
    reach = [end for bar in own for end in (bar.value.estimate, *bar.ends)]
    y = around(reach, bottom, top, count=4, zero=True)
    axis_left(canvas, y, LEFT, canvas.width - RIGHT - LEFT, panel.quantity)
    room = (canvas.width - RIGHT - LEFT) / max(1, len(groups))
    slot = 0.8 * room / max(1, len(here))
    lines = 0
    for number, group in enumerate(groups):
        start = LEFT + room * number
        for bar in own:
            if bar.group == group:
                left = start + 0.1 * room + slot * here.index(bar.series)
                _bar(canvas, bar, colours[bar.series], left, slot, y)
        lines = max(lines, _name(canvas, group, start + room / 2, bottom, room))
    canvas.line(LEFT, y(0), canvas.width - RIGHT, y(0), stroke="muted")
    return bottom + 6 + LINE_HEIGHT * lines


def _bar(canvas: Canvas, bar: Bar, colour: str, left: float, slot: float, y: Scale) -> None:
    look = LOOKS[bar.provenance]
    canvas.rect(
        left,
        y(0),
        0.92 * slot,
        y(bar.value.estimate) - y(0),
        fill=colour,
        opacity=max(look.fill_opacity, LEAST_FILL),
        stroke="ink" if look.dash else None,
        stroke_width=0.8,
        dash=look.dash,
    )
    low, high = bar.ends
    if low < high:
        middle = left + 0.46 * slot
        canvas.line(middle, y(low), middle, y(high), stroke="ink")


def _name(canvas: Canvas, group: str, middle: float, bottom: float, room: float) -> int:
    """A group's name, the batch below its model; returns its lines."""
    parts = group.split(" ")
    for number, part in enumerate(parts):
        down = bottom + LINE_HEIGHT * (number + 1)
        told = shortened(part, room)
        canvas.text(middle, down, told, size=10, colour="muted", anchor="middle")
    return len(parts)
