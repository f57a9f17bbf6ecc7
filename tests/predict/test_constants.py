"""What ships is what the run of the validation printed that docs/validation.md was written from."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from stash.predict.constants import FITTED, FITTED_ROWS
from stash.predict.uncertainty import BANDS, OVER_SOLO

PAGE = (Path(__file__).parents[2] / "docs" / "validation.md").read_text("utf-8")


def cells(section: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1]
    lines = [line for line in text.split("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_constants_are_those_of_the_page() -> None:
    shipped = {}
    for name, value in asdict(FITTED).items():
        several = value.items() if isinstance(value, dict) else [("", value)]
        shipped |= {f"`{name}`, {key}".rstrip(", "): f"{one:.3g}" for key, one in several}
    assert shipped == dict(cells("Constants"))


def test_the_rows_that_they_were_fitted_to_are_those_of_the_page() -> None:
    (kept,) = [row[1] for row in cells("Which rows") if row[0] == "**kept**"]
    assert int(kept) == FITTED_ROWS
    assert re.search(rf"from {FITTED_ROWS:,} rows of", PAGE)


def test_bounds_are_those_of_the_page() -> None:
    shipped = [
        [f"{setting} {kind}", f"{band.up_to_share:g}", f"{band.low:.3g}", f"{band.high:.3g}"]
        for (setting, kind), several in BANDS.items()
        for band in several
    ]
    assert sorted(shipped) == sorted(row[:4] for row in cells("Intervals"))


def test_every_setting_has_bounds_for_every_kind_and_every_share() -> None:
    settings = {setting for setting, _ in BANDS}
    assert set(OVER_SOLO.values()) <= settings
    for several in BANDS.values():
        assert several[-1].up_to_share == 1.0
        assert all(band.low < 1 < band.high for band in several)
