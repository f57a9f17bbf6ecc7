"""What ships is what the run of the validation printed that docs/validation.md was written from."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from stash.predict.constants import FITTED, FITTED_ROWS
from stash.predict.uncertainty import BANDS, OVER_SOLO, band

PAGE = (Path(__file__).parents[2] / "docs" / "validation.md").read_text("utf-8")


def cells(section: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    paragraphs = [one for one in text.split("\n\n") if one.lstrip().startswith("|")]
    lines = paragraphs[0].strip().splitlines()
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
        [f"{setting} {kind}", f"{band.low:.3g}", f"{band.high:.3g}"]
        for (setting, kind), band in BANDS.items()
    ]
    of_parts = [row[:3] for row in cells("Intervals") if row[0] in ("blind node", "blind nodes")]
    assert sorted(shipped) == sorted(
        row[:3] for row in cells("Intervals") if row[:3] not in of_parts
    )
    for name, low, high in of_parts:
        found = band(*name.split())
        assert (found.low, found.high) == pytest.approx((float(low), float(high)), rel=0.01)


def test_every_setting_has_bounds_on_both_sides_for_every_kind() -> None:
    assert set(OVER_SOLO.values()) <= {setting for setting, _ in BANDS}
    for setting in ("calibrated", "blind", "blind over solo"):
        for kind in ("node", "nodes"):
            found = band(setting, kind)
            assert found.low < 1 < found.high
