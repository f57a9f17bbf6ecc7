"""Charts: valid descriptions, a finding each, every format, and looks that tell their source."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import altair as alt
import pytest

from pages import hostile_profile
from profiles import HAND_WORKED, noisy, profile_of
from stash.report.charts import pictures_of
from stash.report.charts.files import save_figures
from stash.report.charts.overview import overview_picture
from stash.report.charts.palette import COLOURS, LOOKS
from stash.report.charts.picture import NARROW, WIDE, Picture
from stash.report.names import names_of
from stash.results.profile import Provenance


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def by_name(pictures: list[Picture]) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures}


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_descriptions_follow_the_language(width: int) -> None:
    profiles = [profile_of(), profile_of(machine_changes={"device": "emulated:v100"})]
    overview = overview_picture(profiles, names_of(profiles))
    assert overview is not None
    for picture in [*pictures_of(profiles[1]), overview]:
        alt.Chart.from_dict(picture.describe(width))  # raises where it is not valid


def test_titles_state_what_was_found() -> None:
    found = by_name(pictures_of(profile_of(noisy(HAND_WORKED, rounds=40))))
    assert found["stalls"].title.startswith("The largest stall is prep, 3")
    assert found["iteration"].title.startswith("Compute 5") and "prep" in found["iteration"].title
    assert found["blocks"].title.startswith("No drift to be seen")
    assert found["rates"].title.startswith("Slowest")
    assert found["load"].title == "Processors were 50 % busy; other tenants took nothing"
    # In these profiles the second worker takes a ninth more time than the first.
    assert found["workers"].title.startswith("Worker 1 is 5.")


def test_a_stall_that_is_not_significant_is_said_and_drawn_hollow() -> None:
    quiet = profile_of(noisy({**HAND_WORKED, "unsynced": 0.1}, noise_seconds=0.01))
    picture = by_name(pictures_of(quiet))["stalls"]
    rows = {row["kind"]: row for row in picture.rows["stalls"]}
    assert not rows["contention"]["significant"] and rows["prep"]["significant"]
    assert "not significant: " in picture.title and "contention" in picture.title


def test_charts_are_files_of_every_kind(tmp_path: Path) -> None:
    written = save_figures([profile_of()], tmp_path)
    names = {"iteration", "stalls", "blocks", "rates", "workers", "load"}
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in names for kind in ("svg", "png", "pdf")
    }
    assert (tmp_path / "stalls.svg").read_text().startswith("<svg")
    assert (tmp_path / "stalls.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "stalls.pdf").read_bytes().startswith(b"%PDF")
    assert "The largest stall is prep" in (tmp_path / "stalls.svg").read_text()


def test_many_blocks_are_one_shape_a_step() -> None:
    picture = by_name(pictures_of(profile_of(noisy(HAND_WORKED, rounds=300))))["blocks"]
    assert len(picture.inline(WIDE, "x")) < 60_000


def test_text_on_a_part_can_be_read_in_either_theme() -> None:
    from stash.report.charts.palette import colour_of, text_on

    measured = LOOKS[Provenance.MEASURED]
    roles = {colour.light: role for role, colour in COLOURS.items()}
    for kind in ("compute", "contention", "communication", "interconnect", "prep", "fetch"):
        behind, before = COLOURS[roles[colour_of(kind)]], COLOURS[roles[text_on(kind, measured)]]
        assert contrast(behind.light, before.light) >= 4.5, kind
        assert contrast(behind.dark, before.dark) >= 3.0, kind
    for role in ("ink", "muted", "accent"):
        for ground in ("surface", "page", "doubt"):
            assert contrast(COLOURS[role].light, COLOURS[ground].light) >= 4.5, (role, ground)
            assert contrast(COLOURS[role].dark, COLOURS[ground].dark) >= 4.5, (role, ground)


def test_neighbours_in_a_bar_differ_in_grey_too() -> None:
    order = ("compute", "contention", "communication", "prep", "fetch")
    for left, right in pairwise(order):
        for theme in ("light", "dark"):
            colours = (getattr(COLOURS[kind], theme) for kind in (left, right))
            assert contrast(*colours) >= 1.25, (left, right, theme)


def test_every_provenance_looks_different_without_colour() -> None:
    looks = [LOOKS[provenance] for provenance in Provenance]
    assert len({look.dash for look in looks}) == len(looks)
    assert len({look.shape for look in looks}) == len(looks)
    assert len({look.fill_opacity for look in looks}) == len(looks)


def test_light_colours_occur_once_so_that_a_page_can_exchange_them() -> None:
    assert len({colour.light for colour in COLOURS.values()}) == len(COLOURS)


def test_hostile_names_are_text_in_a_drawing() -> None:
    for picture in pictures_of(hostile_profile()):
        assert "<script" not in picture.inline(WIDE, "x")
        assert "<img" not in picture.inline(WIDE, "x")
