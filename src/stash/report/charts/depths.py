"""Figure 16 of the paper: stall times of ResNets and VGGs over their depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from stash.report.charts.grouped import PANEL_HEIGHT, SERIES
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import (
    Picture,
    Row,
    Specification,
    layered,
    panel_title,
    stacked,
    table,
)
from stash.results.profile import Provenance
from stash.study.document import CellNumbers, StudiedModel, Study
from stash.study.repeats import averaged

FAMILIES = {"resnet": "ResNet", "vgg": "VGG"}


def depths_picture(study: Study, name: str, number: str) -> Picture | None:
    """Interconnect and network stall in milliseconds, one line a family and variant."""
    rows: list[dict[str, Any]] = []
    for cell, numbers in averaged(study):
        model = study.model(cell.model)
        if model.group in FAMILIES and model.depth is not None:
            rows += _points(model, cell.machine, numbers)
    if not rows:
        return None
    panels = list(dict.fromkeys((str(row["panel"]), str(row["provenance"])) for row in rows))
    return Picture(
        name=name,
        title="Stall time over depth: " + "; ".join(_finding(rows, panel) for panel, _ in panels),
        words=f"{number}Batch 32 per GPU. "
        + " ".join(f"{panel}: {provenance}." for panel, provenance in panels),
        describe=lambda width: _panels(rows, panels, width),
        rows={"points": rows},
    )


def _points(model: StudiedModel, machine: str, numbers: CellNumbers) -> list[dict[str, Any]]:
    family = FAMILIES[model.group]
    found = []
    for stall, words in (("interconnect", "I/C"), ("network", "N/W")):
        one = numbers.stalls.get(stall)
        if one is None or (stall == "interconnect" and "network" in numbers.stalls):
            continue  # what several machines show inside one of them is that machine's own
        found.append(
            {
                "panel": f"{words} stall, {machine}",
                "series": f"{family}, {model.variant}" if model.variant else family,
                "depth": model.depth,
                "milliseconds": 1e3 * one.seconds_per_iteration.estimate,
                "provenance": numbers.provenance.value,
            }
        )
    return found


def _finding(rows: Sequence[Row], panel: str) -> str:
    own = [row for row in rows if row["panel"] == panel]
    most = max(own, key=lambda row: float(str(row["milliseconds"])))
    return f"{panel} at most {float(str(most['milliseconds'])):.3g} ms ({most['series']})"


def _panels(rows: Sequence[Row], panels: Sequence[tuple[str, str]], width: int) -> Specification:
    series = sorted({str(row["series"]) for row in rows})
    colours = [SERIES[number % len(SERIES)] for number in range(len(series))]
    drawn = []
    for panel, provenance in panels:
        last = (panel, provenance) == panels[-1]
        look = LOOKS[Provenance(provenance)]
        base = alt.Chart(table("points")).transform_filter(
            alt.FieldEqualPredicate(equal=panel, field="panel")
        )
        x = alt.X("depth:Q", axis=alt.Axis(title="layers" if last else None, tickCount=8))
        y = alt.Y("milliseconds:Q", axis=alt.Axis(title="stall (ms)", tickCount=5))
        colour = alt.Color(
            "series:N",
            scale=alt.Scale(domain=series, range=colours),
            legend=alt.Legend(columns=3, symbolType="square"),
        )
        line = base.mark_line(strokeDash=look.outline_dash).encode(x=x, y=y, color=colour)
        point = base.mark_point(shape=look.shape, filled=True, size=50)
        drawn.append(
            layered(
                line,
                point.encode(x=x, y=y, color=colour),
                width=width - 70,
                height=PANEL_HEIGHT,
                title=panel_title(panel),
            )
        )
    return stacked(drawn, 14)
