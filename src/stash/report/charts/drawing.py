"""Drawing in SVG: scales from numbers to pixels, marks, axes, legends.

Colours are roles of the palette, written as variables of a page; `picture.py` puts real colours in
their place for files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape

TEXT_SIZE = 12.0
#: Mean width of a character over its size, with some room: a reader's font may be wider.
CHARACTER = 0.56
AXIS_HEIGHT = 40  # labels and title
LEGEND_ROW = 22
#: Numbers from here on are written with an exponent.
LONG_NUMBER = 1e7

Dash = Sequence[int]


@dataclass(frozen=True)
class Scale:
    """Numbers to pixels, in a straight line."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        if not 0 < span < math.inf:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / span * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """Round numbers inside, about as many as asked for, and one at least."""
        step = round_step(self.high - self.low, count)
        if step is None:
            return [self.low]
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)] or [self.low]

    def labels(self, ticks: Sequence[float]) -> list[str]:
        """What stands beside them."""
        return tick_labels(ticks)


class LogScale(Scale):
    """Numbers above zero to pixels, by their logarithm."""

    def __call__(self, value: float) -> float:
        straight = Scale(math.log10(self.low), math.log10(self.high), self.start, self.end)
        return straight(math.log10(value))

    def ticks(self, count: int) -> list[float]:
        """Powers of ten, with twos and fives between where there is room."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for sizes in ((1, 2, 5), (1, 3), (1,)):
            powers = range(first, last + 1)
            ticks = [size * 10.0**power for power in powers for size in sizes]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) <= count:
                break
        return inside or [self.low]


#: Values that differ by less, in parts of them, are one: no label could tell them apart.
ALIKE = 1e-9


def around(
    values: Iterable[float | None], start: float, end: float, *, count: int, zero: bool
) -> Scale:
    """A scale that holds all values and ends at round numbers; from zero on where it must."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    known += [0.0] if zero or not known else []
    low, high = min(known), max(known)
    step = round_step(high - low, 4 * count)  # finer than ticks: little room stays empty
    if step is None or high - low < ALIKE * max(abs(low), abs(high)):
        room = abs(high) / 10 or 1.0
        return Scale(low if zero else low - room, high + room, start, end)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, start, end)


def round_step(span: float, count: int) -> float | None:
    """1, 2 or 5 times a power of ten: about a span's `count`th part; none of no span."""
    if not 0 < span < math.inf:
        return None
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    if power == 0.0:
        return None
    return next((size * power for size in (1, 2, 5) if rough <= size * power), 10 * power)


def text_width(text: str, size: float = TEXT_SIZE) -> float:
    """About as wide as a text will be."""
    return len(text) * size * CHARACTER


def shortened(text: str, pixels: float) -> str:
    """As much of a label as fits."""
    fits = max(4, int(pixels / (TEXT_SIZE * CHARACTER)))
    return text if len(text) <= fits else text[: fits - 1] + "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Drawing:
    """What was drawn, and how much room it takes."""

    width: float
    height: float
    body: str


@dataclass
class Canvas:
    """Collects marks; later ones lie over earlier ones."""

    width: float
    elements: list[str] = field(default_factory=list)

    def drawing(self, height: float) -> Drawing:
        """Everything so far."""
        return Drawing(self.width, height, "".join(self.elements))

    @contextmanager
    def group(self, attributes: str) -> Iterator[None]:
        """What is drawn meanwhile belongs together."""
        self.elements.append(f"<g {attributes}>")
        yield
        self.elements.append("</g>")

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str | None = None,
        opacity: float = 1.0,
        stroke: str | None = None,
        stroke_width: float = 1.0,
        dash: Dash = (),
    ) -> None:
        """A box; one that is drawn backwards is turned round."""
        x, width = min(x, x + width), abs(width)
        y, height = min(y, y + height), abs(height)
        place = f'x="{_px(x)}" y="{_px(y)}" width="{_px(width)}" height="{_px(height)}"'
        self._add("rect", place, _fill(fill, opacity), _stroke(stroke, stroke_width, dash))

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        stroke: str,
        stroke_width: float = 1.0,
        dash: Dash = (),
    ) -> None:
        """A straight line."""
        place = f'x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}"'
        self._add("line", place, _stroke(stroke, stroke_width, dash))

    def path(
        self,
        shape: str,
        *,
        fill: str | None = None,
        opacity: float = 1.0,
        stroke: str | None = None,
        stroke_width: float = 1.0,
        dash: Dash = (),
    ) -> None:
        """Any shape, in SVG's own words."""
        self._add("path", f'd="{shape}"', _fill(fill, opacity), _stroke(stroke, stroke_width, dash))

    def dots(self, points: Iterable[tuple[float, float]], *, colour: str, size: float = 4) -> None:
        """Many dots as one shape: lines without length and with round ends."""
        shape = "".join(f"M{_px(x)} {_px(y)}h0" for x, y in points)
        line = _stroke(colour, size, ())
        self._add("path", f'd="{shape}" stroke-linecap="round" stroke-opacity=".6"', line)

    def area(self, points: Sequence[tuple[float, float]], floor: float, *, colour: str) -> None:
        """A line over points, and what lies below it."""
        line = "L".join(f"{_px(x)} {_px(y)}" for x, y in points)
        ends = f"M{_px(points[0][0])} {_px(floor)}L{line}L{_px(points[-1][0])} {_px(floor)}Z"
        self.path(ends, fill=colour, opacity=0.18)
        self.path(f"M{line}", stroke=colour, stroke_width=1.2)

    def symbol(
        self, shape: str, x: float, y: float, *, size: float, fill: str, stroke: str
    ) -> None:
        """A point whose shape tells where it comes from."""
        outline = " ".join(f"{_px(x + dx * size)},{_px(y + dy * size)}" for dx, dy in SHAPES[shape])
        look = f"{_fill(fill, 1.0)} {_stroke(stroke, 2.5, ())}"
        if shape == "circle":
            self._add("circle", f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(size)}"', look)
        else:
            self._add("polygon", f'points="{outline}"', look)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: str = "ink",
        size: float = TEXT_SIZE,
        anchor: str = "start",
        bold: bool = False,
        upright: bool = False,
    ) -> None:
        """A line of text; `y` is its base line."""
        place = f'x="{_px(x)}" y="{_px(y)}" font-size="{size:g}" text-anchor="{anchor}"'
        weight = ' font-weight="bold"' if bold else ""
        turn = f' transform="rotate(-90 {_px(x)} {_px(y)})"' if upright else ""
        look = f"{_fill(colour, 1.0)}{weight}{turn}"
        self.elements.append(f"<text {place} {look}>{escape(text)}</text>")

    def _add(self, tag: str, *attributes: str) -> None:
        self.elements.append(f"<{tag} {' '.join(one for one in attributes if one)}/>")


#: Corners around a centre, for a symbol of half-width one.
SHAPES: Mapping[str, Sequence[tuple[float, float]]] = {
    "circle": (),
    "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "triangle": ((0, -1.2), (1.2, 1), (-1.2, 1)),
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
}


def axis_below(
    canvas: Canvas,
    scale: Scale,
    y: float,
    title: str,
    *,
    count: int,
    grid_from: float | None = None,
) -> None:
    """Ticks, numbers and a title under a panel; a grid upwards where asked for."""
    ticks = scale.ticks(count)
    canvas.line(scale.start, y, scale.end, y, stroke="grid")
    for value, told in zip(ticks, scale.labels(ticks), strict=True):
        x = scale(value)
        canvas.line(x, y if grid_from is None else grid_from, x, y + 5, stroke="grid")
        canvas.text(x, y + 18, told, colour="muted", anchor="middle")
    middle = (scale.start + scale.end) / 2
    canvas.text(middle, y + 34, title, colour="muted", anchor="middle")


def axis_left(canvas: Canvas, scale: Scale, x: float, width: float, title: str = "") -> None:
    """Three ticks with their numbers and lines beside a panel; a title upright."""
    ticks = scale.ticks(3)
    for value, told in zip(ticks, scale.labels(ticks), strict=True):
        y = scale(value)
        canvas.line(x - 5, y, x + width, y, stroke="grid")
        canvas.text(x - 8, y + 4, told, colour="muted", anchor="end")
    if title:
        middle = (scale.start + scale.end) / 2
        canvas.text(x - 46, middle, title, colour="muted", anchor="middle", upright=True)


def legend(canvas: Canvas, entries: Mapping[str, str], x: float, y: float) -> float:
    """A square of its colour before each label, in as many rows as it takes; returns its end."""
    across, row = x, y
    for label, colour in entries.items():
        shown = shortened(label, canvas.width - 24)
        width = 20 + text_width(shown) + 18
        if across > x and across + width - 18 > canvas.width:
            across, row = x, row + LEGEND_ROW
        canvas.rect(across, row, 12, 12, fill=colour)
        canvas.text(across + 18, row + 10.5, shown)
        across += width
    return row + LEGEND_ROW


def tick_labels(values: Sequence[float]) -> list[str]:
    """Numbers of an axis, all to the same place."""
    if max(abs(value) for value in values) >= LONG_NUMBER:
        return [f"{value:.3g}" for value in values]
    gaps = [abs(right - left) for left, right in itertools.pairwise(values)]
    gap = min(gaps, default=abs(values[0]) or 1.0)
    places = min(9, max(0, -math.floor(math.log10(gap) + 1e-9))) if gap > 0 else 0
    return [f"{value + 0.0:,.{places}f}" for value in values]


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _fill(role: str | None, opacity: float) -> str:
    if role is None:
        return 'fill="none"'
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'fill="var(--{role})"{faint}'


def _stroke(role: str | None, width: float, dash: Dash) -> str:
    if role is None:
        return ""
    pattern = f' stroke-dasharray="{",".join(map(str, dash))}"' if dash else ""
    return f'stroke="var(--{role})" stroke-width="{width:g}"{pattern}'
