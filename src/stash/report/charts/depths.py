"""Figure 16 of the paper: stall times of ResNets and VGGs over their depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    Scale,
    around,
    axis_below,
    axis_left,
    legend,
)
from stash.report.charts.grouped import LEFT, PANEL_HEIGHT, RIGHT, TITLE_HEIGHT
from stash.report.charts.palette import LOOKS, colours_of
from stash.report.charts.picture import Picture
from stash.results.profile import Provenance
from stash.study.document import CellNumbers, StudiedModel, Study
from stash.study.repeats import averaged

FAMILIES = {"resnet": "ResNet", "vgg": "VGG"}


@dataclass(frozen=True)
class Point:
    """One model on one machine."""

    panel: str
    series: str
    depth: int
    milliseconds: float
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class DepthsPicture(Picture):
    """A picture of lines, whose points stay at hand."""

    points: Sequence[Point]


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
        points=points,
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
    most = max(
        (point for point in points if point.panel == panel), key=lambda point: point.milliseconds
    )
    return f"{panel} at most {most.milliseconds:.3g} ms ({most.series})"


def _draw(points: Sequence[Point], panels: Sequence[str], width: int) -> Drawing:
    canvas, y = Canvas(width), 0.0
    colours = colours_of(sorted({point.series for point in points}))
    depths = [float(point.depth) for point in points]
    x = around(depths, LEFT, width - RIGHT - 8, count=8, zero=True)
    for panel in panels:
        canvas.text(LEFT, y + 20, panel)
        y += TITLE_HEIGHT
        _panel(canvas, [point for point in points if point.panel == panel], colours, x, y)
        y += PANEL_HEIGHT
    axis_below(canvas, x, y, "layers", count=width // 90)
    return canvas.drawing(legend(canvas, colours, 16, y + AXIS_HEIGHT + 6))


def _panel(
    canvas: Canvas, own: Sequence[Point], colours: Mapping[str, str], x: Scale, top: float
) -> None:
    milliseconds = [point.milliseconds for point in own]
    y = around(milliseconds, top + PANEL_HEIGHT, top, count=4, zero=True)
    axis_left(canvas, y, LEFT, x.end - LEFT, "stall (ms)")
    for name, colour in colours.items():
        line = sorted((p for p in own if p.series == name), key=lambda point: point.depth)
        if not line:
            continue
        look = LOOKS[line[0].provenance]
        places = [(x(point.depth), y(point.milliseconds)) for point in line]
        path = "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
        canvas.path(f"M{path}", stroke=colour, stroke_width=1.5, dash=look.dash)
        for across, down in places:
            canvas.symbol(look.shape, across, down, size=3, fill=colour, stroke=colour)
