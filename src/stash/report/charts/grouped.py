"""Bars in groups: a group a model, a bar a machine, a panel a quantity and batch size.

What the figures of the paper are made of. Changes when such a figure is drawn in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from stash.report.charts.palette import INK, LOOKS
from stash.report.charts.picture import Row, Specification, layered, panel_title, stacked, table
from stash.results.document import Interval
from stash.results.profile import Provenance

#: Okabe and Ito's, in an order whose neighbours differ in lightness.
SERIES = (
    "#0072b2", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#56b4e9", "#d55e00", "#8c96a0",
    "#1b2530", "#a6761d",
)  # fmt: skip
PANEL_HEIGHT = 150


@dataclass(frozen=True)
class Bar:
    """One number of a figure."""

    panel: str
    group: str
    series: str
    value: Interval
    provenance: Provenance

    def row(self) -> Row:
        """For the drawing."""
        low, high = self.value.low, self.value.high
        estimate = self.value.estimate
        return {
            "panel": self.panel,
            "group": self.group,
            "series": self.series,
            "value": estimate,
            "low": estimate if low is None else low,
            "high": estimate if high is None else high,
            "provenance": self.provenance.value,
        }


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    name: str
    quantity: str  # title of the vertical axis


def rows_of(bars: Sequence[Bar]) -> dict[str, Sequence[Row]]:
    """What a picture keeps of its bars."""
    return {"bars": [bar.row() for bar in bars]}


def grouped(
    bars: Sequence[Bar], panels: Sequence[Panel], width: int, *, across: str
) -> Specification:
    """Panels below each other, all with the same series."""
    series = list(dict.fromkeys(bar.series for bar in bars))
    drawn = [
        _panel(bars, panel, series, width, across, last=panel is panels[-1]) for panel in panels
    ]
    return stacked(drawn, 14)


def _panel(
    bars: Sequence[Bar], panel: Panel, series: list[str], width: int, across: str, *, last: bool
) -> Specification:
    own = [bar for bar in bars if bar.panel == panel.name]
    groups = list(dict.fromkeys(bar.group for bar in own))
    base = alt.Chart(table("bars")).transform_filter(
        alt.FieldEqualPredicate(equal=panel.name, field="panel")
    )
    x = alt.X(
        "group:N",
        sort=groups,
        axis=alt.Axis(
            title=across if last else None,
            labelAngle=0,
            labelExpr="split(datum.label, ' ')",  # the batch below its model
            labelFontSize=12 if len(groups) < 6 else 10,
            labelLimit=180,
            ticks=False,
        ),
    )
    here = [one for one in series if any(bar.series == one for bar in own)]
    offset = alt.XOffset("series:N", sort=here, scale=alt.Scale(domain=here))
    y = alt.Y("value:Q", axis=alt.Axis(title=panel.quantity, tickCount=5))
    colours = [SERIES[number % len(SERIES)] for number in range(len(series))]
    colour = alt.Color(
        "series:N",
        sort=series,
        scale=alt.Scale(domain=series, range=colours),
        legend=alt.Legend(columns=4, symbolType="square"),
    )
    layers = []
    for provenance in sorted({bar.provenance for bar in own}):
        look = LOOKS[provenance]
        chosen = base.transform_filter(f"datum.provenance == '{provenance.value}'")
        bar = chosen.mark_bar(
            fillOpacity=max(look.fill_opacity, 0.45),
            stroke=INK,
            strokeWidth=0.8 if look.dash else 0,
            strokeDash=look.outline_dash,
        )
        layers.append(bar.encode(x=x, xOffset=offset, y=y, color=colour))
    whisker = base.transform_filter("datum.low < datum.high").mark_rule(color=INK, strokeWidth=1)
    ends = {"y": alt.Y("low:Q"), "y2": alt.Y2("high:Q")}
    layers.append(whisker.encode(x=x, xOffset=offset, **ends))
    return layered(*layers, width=width - 70, height=PANEL_HEIGHT, title=panel_title(panel.name))
