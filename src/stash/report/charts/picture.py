"""One chart: described once, drawn into a page at two widths or as a picture of its own."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from stash.report.charts.drawing import Canvas, Drawing
from stash.report.charts.palette import COLOURS

#: Widths in pixels: for a desk and for a phone.
WIDE, NARROW = 760, 328
FONT = "Arial, Liberation Sans, Helvetica, sans-serif"
MARGIN = 14
COLOUR = re.compile(r'="var\(--([a-z-]+)\)"')


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chart whose title is its finding, with the same in words for those who do not see it."""

    name: str  # also of its files
    title: str
    words: str
    draw: Callable[[int], Drawing]  # for a width in pixels

    def inline(self, width: int) -> str:
        """An SVG element for a page: colours are the page's, the title stands outside."""
        drawn = self.draw(width)
        return (
            f'<svg role="img" aria-label="{escape(f"{self.title} {self.words}")}" '
            f'viewBox="0 0 {drawn.width:g} {drawn.height:g}" font-family="{FONT}" '
            f'style="max-width:{1.25 * drawn.width:.0f}px">{drawn.body}</svg>'
        )

    def alone(self) -> str:
        """A file of its own: light colours, and the title above."""
        drawn, head = self.draw(WIDE), Canvas(WIDE)
        y = 0.0
        for line in textwrap.wrap(self.title, 92):
            y += 18
            head.text(0, y, line, size=14, bold=True)
        for line in textwrap.wrap(self.words, 118):
            y += 15
            head.text(0, y, line, size=11.5, colour="muted")
        y += 16
        width, height = drawn.width + 2 * MARGIN, drawn.height + y + 2 * MARGIN
        ground = Canvas(width)
        ground.rect(0, 0, width, height, fill="surface")
        body = COLOUR.sub(
            lambda found: f'="{COLOURS[found[1]].light}"',
            f'{"".join(ground.elements)}<g transform="translate({MARGIN},{MARGIN})">'
            f'{"".join(head.elements)}<g transform="translate(0,{y:g})">{drawn.body}</g></g>',
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" font-family="{FONT}">{body}</svg>'
        )
