"""Figure 16 of the paper: stall times of ResNets and VGGs over their depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    around,
    axis_below,
    legend,
)
from stash.report.charts.grouped import (
    GAP,
    LEFT,
    PANEL_HEIGHT,
    RIGHT,
    TITLE_HEIGHT,
    panel_scale,
    series_colours,
)
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import Picture
from stash.report.figures import derived, written
from stash.results.profile import Provenance
from stash.study.document import CellNumbers, StudiedModel, Study
from stash.study.repeats import averaged

FAMILIES = {"resnet": "ResNet", "vgg": "VGG"}


@dataclass(frozen=True)
class Point:
    """One stall of one model on one machine."""

    panel: str
    series: str
    depth: int
    milliseconds: float
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class DepthsPicture(Picture):
    """The figure with the points that it shows."""

    points: tuple[Point, ...]


def depths_picture(study: Study, name: str, number: str) -> DepthsPicture | None:
    """Interconnect and network stall in milliseconds, one line a family and variant."""
    points: list[Point] = []
    for cell, numbers in averaged(study):
        model = study.model(cell.model)
        if model.group in FAMILIES and model.depth is not None:
            points += _points(model, model.depth, cell.machine, numbers)
    if not points:
        return None
    panels = list(dict.fromkeys((point.panel, point.provenance) for point in points))
    return DepthsPicture(
        name=name,
        title="Stall time over depth: " + "; ".join(_finding(points, panel) for panel, _ in panels),
        words=f"{number}Batch 32 per GPU. "
        + " ".join(f"{panel}: {provenance.value}." for panel, provenance in panels),
        draw=lambda width: _draw(points, [panel for panel, _ in panels], width),
        points=tuple(points),
    )


def _points(model: StudiedModel, depth: int, machine: str, numbers: CellNumbers) -> list[Point]:
    family = FAMILIES[model.group]
    found = []
    for stall, words in (("interconnect", "I/C"), ("network", "N/W")):
        one = numbers.stalls.get(stall)
        if one is None or (stall == "interconnect" and "network" in numbers.stalls):
            continue  # what several machines show inside one of them is that machine's own
        found.append(
            Point(
                panel=f"{words} stall, {machine}",
                series=f"{family}, {model.variant}" if model.variant else family,
                depth=depth,
                milliseconds=1e3 * one.seconds_per_iteration.estimate,
                provenance=numbers.provenance,
            )
        )
    return found


def _finding(points: Sequence[Point], panel: str) -> str:
    own = [point for point in points if point.panel == panel]
    most = max(own, key=lambda point: point.milliseconds)
    return f"{panel} at most {written(derived(most.milliseconds), 'ms')} ({most.series})"


def _draw(points: Sequence[Point], panels: Sequence[str], width: int) -> Drawing:
    canvas = Canvas(width)
    colours = series_colours(sorted(point.series for point in points))
    y = 0.0
    for panel in panels:
        _panel(canvas, panel, [point for point in points if point.panel == panel], colours, y)
        y += TITLE_HEIGHT + PANEL_HEIGHT + AXIS_HEIGHT + GAP
    return canvas.drawing(legend(canvas, colours, LEFT, y))


def _panel(
    canvas: Canvas, panel: str, own: Sequence[Point], colours: Mapping[str, str], top: float
) -> None:
    y = panel_scale(canvas, panel, "stall (ms)", [point.milliseconds for point in own], top)
    depths = [float(point.depth) for point in own]
    x = around(depths, LEFT, canvas.width - RIGHT, count=8, zero=True)
    axis_below(canvas, x, y.start, "layers", count=8)
    for series, colour in colours.items():
        line = sorted((p for p in own if p.series == series), key=lambda point: point.depth)
        if not line:
            continue
        look = LOOKS[line[0].provenance]
        places = [(x(point.depth), y(point.milliseconds)) for point in line]
        shape = "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
        canvas.path(f"M{shape}", stroke=colour, stroke_width=1.5, dash=look.dash)
        for across, down in places:
            canvas.symbol(look.shape, across, down, size=3, fill=colour, stroke=colour)
