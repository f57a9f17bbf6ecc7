"""One chart: described once with Altair, drawn as SVG for a page and as SVG, PNG and PDF files."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from stash.errors import StashError
from stash.report.charts.palette import COLOURS, GRID, INK, MUTED, SURFACE

#: Widths in pixels: for a desk and for a phone.
WIDE, NARROW = 760, 328
FONT = "Arial, Liberation Sans, Helvetica, sans-serif"
#: The version of the language that this Altair speaks.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
FORMATS = ("svg", "png", "pdf")

#: What Vega says of single marks: the whole picture has one text, and they would drown it.
UNHEARD = re.compile(r' (?:role|class|aria-[a-z]+)="[^"]*"')
TAG = re.compile(r"<[a-z][^>]*>")

Row = Mapping[str, object]
Specification = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chart whose title is its finding, with the same in words for those who do not see it."""

    name: str  # also of its files
    title: str
    words: str
    describe: Callable[[int], Specification]  # for a width in pixels
    #: Rows by the name under which `describe` refers to them.
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def inline(self, width: int, prefix: str) -> str:
        """An SVG element for a page: colours are variables, ids its own, the title outside."""
        svg = vl_convert.vegalite_to_svg(self._specification(width), vl_version=VEGA_LITE)
        return _for_page(svg, f"{self.title} {self.words}", f"{prefix}-{width}")

    def save(self, folder: Path) -> list[Path]:
        """Write the chart in every format, with its title, for papers and slides."""
        specification = self._specification(WIDE)
        specification["title"] = {
            "text": textwrap.wrap(self.title, 92),
            "subtitle": textwrap.wrap(self.words, 118),
        }
        specification["background"] = SURFACE
        svg = vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE)
        drawn = {
            "svg": svg.encode(),
            "png": vl_convert.svg_to_png(svg, scale=2),
            "pdf": vl_convert.svg_to_pdf(svg),
        }
        return [_write(folder / f"{self.name}.{kind}", drawn[kind]) for kind in FORMATS]

    def _specification(self, width: int) -> Specification:
        """Rows are added after the description: Altair would walk through every one of them."""
        with debug_mode(False):  # the tests validate: it takes longer than drawing
            described = self.describe(width)
        rows = {name: list(rows) for name, rows in self.rows.items()}
        return {"$schema": alt.SCHEMA_URL, **described, "datasets": rows, "config": _config()}


def table(name: str) -> alt.NamedData:
    """Rows of a picture, by name."""
    return alt.NamedData(name=name)


def layered(*charts: alt.Chart, **properties: object) -> Specification:
    """Charts over each other. Altair's own `layer` copies every one of them several times."""
    described = [chart.to_dict(validate=False, context={"top_level": False}) for chart in charts]
    return {"layer": described, **properties}


def stacked(panels: Sequence[Specification], spacing: int, **properties: object) -> Specification:
    """Panels below each other."""
    return {"vconcat": list(panels), "spacing": spacing, **properties}


def panel_title(text: str | list[str], **changes: object) -> Specification:
    """A line above one panel."""
    plain = {"fontSize": 12, "fontWeight": "normal", "offset": 4, "frame": "group"}
    return {"text": text, **plain, **changes}


def _config() -> dict[str, Any]:
    return {
        "aria": False,
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED,
            "titleColor": MUTED,
            "titleFontWeight": "normal",
            "labelFontSize": 12,
            "titleFontSize": 12,
            "gridColor": GRID,
            "domainColor": GRID,
            "tickColor": GRID,
            "labelLimit": 160,
        },
        "legend": {
            "labelColor": INK,
            "labelFontSize": 12,
            "symbolSize": 150,
            "columnPadding": 26,  # a reader's font may be wider than the one that is measured with
            "title": None,
            "orient": "bottom",
            "labelLimit": 200,
        },
        "title": {
            "color": INK,
            "subtitleColor": MUTED,
            "anchor": "start",
            "fontSize": 14,
            "subtitleFontSize": 11.5,
            "subtitlePadding": 4,
            "offset": 10,
        },
        "text": {"color": INK, "fontSize": 12},
    }


def _for_page(svg: str, words: str, prefix: str) -> str:
    for role, colour in COLOURS.items():
        svg = svg.replace(f'"{colour.light}"', f'"var(--{role})"')
    svg = re.sub(r'(id="|url\(#)(clip|gradient)', rf"\1{prefix}-\2", svg)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = TAG.sub(lambda tag: UNHEARD.sub("", tag[0]), body)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if size is None:
        raise StashError("The drawing library returned something that is no picture.")
    width, height = size.groups()
    return (
        f'<svg role="img" aria-label="{escape(words)}" viewBox="0 0 {width} {height}" '
        f'style="max-width:{float(width) * 1.25:.0f}px">{body}'
    )


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise StashError(
            f"Cannot write {path}: {error.strerror or error}. Name a writable folder.", exit_code=2
        ) from None
    return path
