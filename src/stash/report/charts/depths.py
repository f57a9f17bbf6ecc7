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
    axis_left,
    legend,
)
from stash.report.charts.grouped import (
    GAP,
    LEFT,
    PANEL_HEIGHT,
    TITLE_HEIGHT,
    Figure,
    Row,
    colours_of,
)
from stash.report.charts.palette import LOOKS
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

    def row(self) -> Row:
        """What the figure says of it."""
        return {
            "panel": self.panel,
            "series": self.series,
            "depth": self.depth,
            "milliseconds": self.milliseconds,
            "provenance": self.provenance.value,
        }


def depths_picture(study: Study, name: str, number: str) -> Figure | None:
    """Interconnect and network stall in milliseconds, one line a family and variant."""
    points: list[Point] = []
    for cell, numbers in averaged(study):
        model = study.model(cell.model)
        if model.group in FAMILIES and model.depth is not None:
            points += _points(model, model.depth, cell.machine, numbers)
    if not points:
        return None
    panels = {one.panel: one.provenance for one in points}
    return Figure(
        name=name,
        title="Stall time over depth: " + "; ".join(_finding(points, panel) for panel in panels),
        words=f"{number}Batch 32 per GPU. "
        + " ".join(f"{panel}: {provenance.value}." for panel, provenance in panels.items()),
        draw=lambda width: _draw(points, list(panels), width),
        rows={"points": [one.row() for one in points]},
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
                f"{words} stall, {machine}",
                f"{family}, {model.variant}" if model.variant else family,
                depth,
                1e3 * one.seconds_per_iteration.estimate,
                numbers.provenance,
            )
        )
    return found


def _finding(points: Sequence[Point], panel: str) -> str:
    most = max((one for one in points if one.panel == panel), key=lambda one: one.milliseconds)
    return f"{panel} at most {most.milliseconds:.3g} ms ({most.series})"


def _draw(points: Sequence[Point], panels: Sequence[str], width: int) -> Drawing:
    colours = colours_of(sorted({one.series for one in points}))
    canvas, top = Canvas(width), 0.0
    for panel in panels:
        _draw_panel(canvas, panel, [one for one in points if one.panel == panel], colours, top)
        top += TITLE_HEIGHT + PANEL_HEIGHT + AXIS_HEIGHT + GAP
    return canvas.drawing(legend(canvas, colours, LEFT, top))


def _draw_panel(
    canvas: Canvas, panel: str, own: Sequence[Point], colours: Mapping[str, str], top: float
) -> None:
    canvas.text(LEFT, top + 13, panel)
    ceiling, floor = top + TITLE_HEIGHT, top + TITLE_HEIGHT + PANEL_HEIGHT
    x = around([one.depth for one in own], LEFT, canvas.width - 10, count=8, zero=True)
    y = around([one.milliseconds for one in own], floor, ceiling, count=3, zero=True)
    axis_left(canvas, y, LEFT, canvas.width - LEFT, "stall (ms)")
    axis_below(canvas, x, floor, "layers", count=8)
    for series, colour in colours.items():
        line = sorted((one for one in own if one.series == series), key=lambda one: one.depth)
        places = [(x(one.depth), y(one.milliseconds)) for one in line]
        if not places:
            continue
        look = LOOKS[line[0].provenance]
        shape = "L".join(f"{across:.1f} {up:.1f}" for across, up in places)
        canvas.path(f"M{shape}", stroke=colour, stroke_width=1.5, dash=look.dash)
        for across, up in places:
            canvas.symbol(look.shape, across, up, size=3, fill=colour, stroke=colour)
