"""Colours and shapes of all pictures: told apart in light, dark and grey, and by anyone's eyes.

Hues are Okabe and Ito's; neighbours in a bar differ in lightness, too. A drawing names roles, which
are variables of a page, so that one drawing serves both themes.
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
    "network": Colour("#56b4e9", "#7cc5ef"),
    "links": Colour("#3f9fd6", "#66b6e4"),
    "relief": Colour("#8fcbee", "#9fd4f3"),
    "scale-out": Colour("#009e73", "#1fa880"),
    "prep": Colour("#e69f00", "#f2b632"),
    "copy": Colour("#b98000", "#cf9d3a"),
    "fetch": Colour("#d55e00", "#e46f2e"),
    "other": Colour("#8c96a0", "#7b8794"),
    "series-a": Colour("#0072b2", "#2e86c4"),
    "series-b": Colour("#e69f00", "#f2b632"),
    "series-c": Colour("#009e73", "#1fa880"),
    "series-d": Colour("#f0e442", "#f4ea6b"),
    "series-e": Colour("#cc79a7", "#d995bc"),
    "series-f": Colour("#56b4e9", "#7cc5ef"),
    "series-g": Colour("#d55e00", "#e46f2e"),
    "series-h": Colour("#8c96a0", "#7b8794"),
    "series-i": Colour("#1b2530", "#e7edf3"),
    "series-j": Colour("#a6761d", "#c2984a"),
    "on-light": Colour("#14191f", "#0d1217"),  # text on a light segment
    "on-dark": Colour("#ffffff", "#f4f7fa"),
}

#: Roles of lines and bars that stand for nothing but their name, in an order whose neighbours
#: differ in lightness.
SERIES = tuple(role for role in COLOURS if role.startswith("series-"))

#: Parts of a bar that are dark enough for light text, in either theme.
_LIGHT_TEXT = {"communication", "interconnect"}


@dataclass(frozen=True)
class Look:
    """How values of one provenance are drawn: never by colour alone."""

    fill_opacity: float
    dash: tuple[int, ...]
    shape: str
    filled: bool


LOOKS = {
    Provenance.MEASURED: Look(1.0, (), "circle", True),
    Provenance.EMULATED: Look(0.5, (6, 3), "diamond", False),
    Provenance.PREDICTED: Look(0.3, (2, 2), "triangle", False),
    Provenance.CITED: Look(0.12, (1, 4), "square", False),
}


def colour_of(kind: str) -> str:
    """The role that colours a part of an iteration or a stall."""
    return kind if kind in COLOURS else "other"


def text_on(kind: str, look: Look) -> str:
    """A role whose colour can be read on that part."""
    if kind == "compute" or look.fill_opacity < 1:
        return "ink"
    return "on-dark" if kind in _LIGHT_TEXT else "on-light"
