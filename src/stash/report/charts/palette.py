"""Colours and shapes of all pictures: told apart in light, dark and grey, and by anyone's eyes.

Hues are Okabe and Ito's; neighbours in a bar differ in lightness, too. A page shows the light
colours as variables, so that one drawing serves both themes: hence no light colour occurs twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.results.profile import Provenance


@dataclass(frozen=True)
class Colour:
    """One role's colour on a light and on a dark page."""

    light: str
    dark: str


COLOURS = {
    "page": Colour("#f5f7f9", "#0f151b"),
    "ink": Colour("#1b2530", "#e7edf3"),
    "muted": Colour("#566372", "#a3b1bf"),
    "grid": Colour("#dfe5ea", "#2c3743"),
    "surface": Colour("#fefefe", "#161d25"),
    "doubt": Colour("#eceff3", "#26303b"),  # where a run cannot tell something from nothing
    "accent": Colour("#31688e", "#6db3dd"),
    "alarm": Colour("#b3410f", "#f08b52"),
    "compute": Colour("#c3ccd5", "#4b5865"),
    "contention": Colour("#cc79a7", "#d995bc"),
    "communication": Colour("#0072b2", "#2e86c4"),
    "interconnect": Colour("#0073b3", "#2e87c5"),
    "prep": Colour("#e69f00", "#f2b632"),
    "copy": Colour("#b98000", "#cf9d3a"),
    "fetch": Colour("#d55e00", "#e46f2e"),
    "other": Colour("#8c96a0", "#7b8794"),
    "on-light": Colour("#14191f", "#0d1217"),  # text on a light segment
    "on-dark": Colour("#ffffff", "#f4f7fa"),
}

INK, MUTED, GRID, SURFACE, DOUBT, ACCENT, ALARM = (
    COLOURS[role].light for role in ("ink", "muted", "grid", "surface", "doubt", "accent", "alarm")
)

#: Parts of a bar that are dark enough for light text: in either theme for compute's, only here.
_LIGHT_TEXT = {"communication", "interconnect"}


@dataclass(frozen=True)
class Look:
    """How values of one provenance are drawn: never by colour alone."""

    fill_opacity: float
    dash: tuple[int, ...]
    shape: str
    filled: bool

    @property
    def outline_dash(self) -> list[int]:
        """Vega's dash pattern for outlines; one long dash is a whole line."""
        return list(self.dash) or [1, 0]


LOOKS = {
    Provenance.MEASURED: Look(1.0, (), "circle", True),
    Provenance.EMULATED: Look(0.5, (6, 3), "diamond", False),
    Provenance.PREDICTED: Look(0.3, (2, 2), "triangle-up", False),
    Provenance.CITED: Look(0.12, (1, 4), "square", False),
}


def colour_of(kind: str) -> str:
    """The light theme's colour for a part of an iteration or a stall."""
    return COLOURS[kind if kind in COLOURS else "other"].light


def text_on(kind: str, look: Look) -> str:
    """A colour that can be read on that part."""
    if kind == "compute" or look.fill_opacity < 1:
        return COLOURS["ink"].light
    return COLOURS["on-dark" if kind in _LIGHT_TEXT else "on-light"].light
