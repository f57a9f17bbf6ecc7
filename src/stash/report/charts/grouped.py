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
from stash.report.charts.palette import LOOKS, SERIES
from stash.report.charts.picture import Picture
from stash.results.document import Interval
from stash.results.profile import Provenance

LEFT, RIGHT = 66, 12
TITLE_HEIGHT, PANEL_HEIGHT, LABELS_HEIGHT, GAP = 20, 150, 34, 14
#: Of the room of a group, what its bars take.
FILLED = 0.84


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
        """Of its interval, or where it stands."""
        low, high, estimate = self.value.low, self.value.high, self.value.estimate
        return estimate if low is None else low, estimate if high is None else high


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    name: str
    quantity: str  # title of the vertical axis


@dataclass(frozen=True, kw_only=True)
class BarsPicture(Picture):
    """A figure with the bars that it shows."""

    bars: tuple[Bar, ...]


def series_colours(names: Sequence[str]) -> dict[str, str]:
    """A role of the palette for every series, in order."""
    distinct = dict.fromkeys(names)
    return {name: SERIES[number % len(SERIES)] for number, name in enumerate(distinct)}


def grouped(bars: Sequence[Bar], panels: Sequence[Panel], width: int, *, across: str) -> Drawing:
    """Panels below each other, all with the same series."""
    canvas = Canvas(width)
    colours = series_colours([bar.series for bar in bars])
    y = 0.0
    for panel in panels:
        own = [bar for bar in bars if bar.panel == panel.name]
        _panel(canvas, panel, own, colours, y)
        y += TITLE_HEIGHT + PANEL_HEIGHT + LABELS_HEIGHT + GAP
    canvas.text((LEFT + width - RIGHT) / 2, y + 2, across, colour="muted", anchor="middle")
    return canvas.drawing(legend(canvas, colours, LEFT, y + 14))


def panel_scale(
    canvas: Canvas, name: str, quantity: str, values: Sequence[float], top: float
) -> Scale:
    """The title of a panel, and its vertical axis."""
    top += TITLE_HEIGHT
    canvas.text(LEFT, top - 7, name, bold=True)
    scale = around(values, top + PANEL_HEIGHT, top, count=12, zero=True)
    axis_left(canvas, scale, LEFT, canvas.width - RIGHT - LEFT, quantity)
    return scale


def _panel(
    canvas: Canvas, panel: Panel, own: Sequence[Bar], colours: Mapping[str, str], top: float
) -> None:
    values = [end for bar in own for end in (*bar.ends, bar.value.estimate)]
    scale = panel_scale(canvas, panel.name, panel.quantity, values, top)
    groups = list(dict.fromkeys(bar.group for bar in own))
    series = [name for name in colours if any(bar.series == name for bar in own)]
    room = (canvas.width - RIGHT - LEFT) / len(groups)
    thick = FILLED * room / len(series)
    for bar in own:
        start = LEFT + room * groups.index(bar.group) + (1 - FILLED) / 2 * room
        _bar(canvas, bar, scale, start + thick * series.index(bar.series), thick, colours)
    size = 11 if len(groups) < 6 else 9.5
    for number, group in enumerate(groups):
        middle = LEFT + room * (number + 0.5)
        for line, words in enumerate(group.split(" ", 1)):
            y = scale.start + 15 + 13 * line
            canvas.text(middle, y, shortened(words, room), size=size, anchor="middle")


def _bar(
    canvas: Canvas, bar: Bar, scale: Scale, x: float, thick: float, colours: Mapping[str, str]
) -> None:
    look = LOOKS[bar.provenance]
    zero, end = scale(0.0), scale(bar.value.estimate)
    canvas.rect(
        x,
        zero,
        0.92 * thick,
        end - zero,
        fill=colours[bar.series],
        opacity=max(look.fill_opacity, 0.45),
        stroke="ink" if look.dash else None,
        stroke_width=0.8,
        dash=look.dash,
    )
    low, high = bar.ends
    if low < high:
        middle = x + 0.46 * thick
        canvas.line(middle, scale(low), middle, scale(high), stroke="ink")
