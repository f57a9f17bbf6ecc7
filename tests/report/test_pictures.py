"""Charts: a finding each, every format, scales that hold, and looks that tell their source."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pages import Node, hostile_profile, read
from profiles import HAND_WORKED, noisy, profile_of
from stash.report.charts import pictures_of
from stash.report.charts.drawing import LogScale, Scale, around, tick_labels
from stash.report.charts.files import save_figures
from stash.report.charts.overview import overview_picture
from stash.report.charts.palette import COLOURS, LOOKS
from stash.report.charts.picture import NARROW, WIDE, Picture
from stash.report.names import names_of
from stash.results.profile import Provenance
from stash.results.steps import STALL_BY_NAME


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


def drawn(picture: Picture, width: int = WIDE) -> Node:
    return read(picture.inline(width)).only("svg")


def places(marks: list[Node], attribute: str) -> list[float]:
    return [float(mark.attributes[attribute] or "nan") for mark in marks]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_mark_lies_inside_its_picture(width: int) -> None:
    profiles = [profile_of(), profile_of(machine_changes={"device": "emulated:v100"})]
    overview = overview_picture(profiles, names_of(profiles))
    assert overview is not None
    for picture in [*pictures_of(profiles[0]), *pictures_of(profiles[1]), overview]:
        svg = drawn(picture, width)
        room = [float(size) for size in str(svg.attributes["viewbox"]).split()]
        for tag, across, down in (("line", "x1", "y1"), ("line", "x2", "y2"), ("rect", "x", "y")):
            assert all(-1 <= x <= room[2] + 1 for x in places(svg.all(tag), across)), picture.name
            assert all(-1 <= y <= room[3] + 1 for y in places(svg.all(tag), down)), picture.name
        for text in svg.all("text"):
            length = 0.5 * 12 * len(text.text())
            start = {"start": 0.0, "middle": length / 2, "end": length}
            left = float(str(text.attributes["x"])) - start[str(text.attributes["text-anchor"])]
            if "transform" not in text.attributes:
                assert left >= -1 and left + length <= room[2] + 1, (picture.name, text.text())


def test_a_bar_is_as_long_as_its_numbers() -> None:
    profile = profile_of(noisy({**HAND_WORKED, "unsynced": 0.11}, noise_seconds=1e-5))
    svg = drawn(by_name(pictures_of(profile))["iteration"])
    parts = [mark for mark in svg.all("rect") if mark.attributes.get("height") == "46"]
    lengths = {mark.attributes["fill"]: float(str(mark.attributes["width"])) for mark in parts[:4]}
    told = {"var(--compute)": 1 - profile.waiting.later.estimate if profile.waiting.later else 0.0}
    for name in ("contention", "communication", "prep"):
        share = profile.stalls[name].share
        assert share is not None
        told[f"var(--{name})"] = share.estimate
    total = sum(lengths.values())
    assert {kind: length / total for kind, length in lengths.items()} == pytest.approx(
        told, abs=0.001
    )


def test_every_block_is_a_dot_where_its_time_is() -> None:
    profile = profile_of(noisy(HAND_WORKED, rounds=25))
    svg = drawn(by_name(pictures_of(profile))["blocks"])
    shapes = [str(mark.attributes["d"]) for mark in svg.all("path")]
    assert [shape.count("M") for shape in shapes] == [25] * len(profile.steps)
    solo = [block.seconds_per_iteration for block in profile.steps["solo"].blocks]
    heights = [float(dot.removesuffix("h0").split()[1]) for dot in shapes[0].split("M")[1:]]
    slowest, fastest = solo.index(max(solo)), solo.index(min(solo))
    assert heights[slowest] == min(heights) and heights[fastest] == max(heights)


@example([1000.0, 0.0], 2, False, True)
@example([-1000.0, 0.0], 3, False, True)
@given(
    st.lists(st.floats(-1e300, 1e300), max_size=6), st.integers(1, 8), st.booleans(), st.booleans()
)
def test_a_scale_holds_its_values_and_its_ticks(
    values: list[float], count: int, zero: bool, near: bool
) -> None:
    if near and values:
        values = [values[0] * (1 + 1e-12 * index) for index in range(len(values))]
    scale = around(values, 10, 110, count=count, zero=zero)
    for value in values:
        assert 10 - 1e-6 <= scale(value) <= 110 + 1e-6
    ticks = scale.ticks(count)
    assert 1 <= len(ticks) <= 2 * count + 3
    assert all(len(label) < 16 for label in tick_labels(ticks))


def test_numbers_of_an_axis_are_round() -> None:
    assert Scale(0, 100, 0, 1).ticks(5) == [0, 20, 40, 60, 80, 100]
    assert tick_labels([0, 2000, 4000]) == ["0", "2,000", "4,000"]
    assert tick_labels([-0.2, 0.0, 0.2]) == ["-0.2", "0.0", "0.2"]


def test_a_logarithmic_scale_gives_equal_room_to_equal_ratios() -> None:
    scale = LogScale(0.5, 5000, 0, 100)
    assert scale(0.5) == pytest.approx(0) and scale(5000) == pytest.approx(100)
    assert scale(5) - scale(0.5) == pytest.approx(scale(500) - scale(50))
    assert scale.ticks(20) == pytest.approx(
        [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    )
    assert scale.ticks(4) == pytest.approx([1, 10, 100, 1000])
    assert LogScale(1.2, 1.4, 0, 1).ticks(3) == [1.2]


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
    marks = drawn(picture).all("circle")
    fills = dict(zip(quiet.stalls, (mark.attributes["fill"] for mark in marks), strict=True))
    assert fills["contention"] == "var(--surface)" and fills["prep"] == "var(--ink)"
    assert "not significant: " in picture.title and "contention" in picture.title


def test_charts_are_files_of_every_kind(tmp_path: Path) -> None:
    written = save_figures([profile_of()], None, tmp_path, force=False)
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
    assert len(picture.inline(WIDE)) < 60_000


def test_text_on_a_part_can_be_read_in_either_theme() -> None:
    from stash.report.charts.palette import colour_of, text_on

    measured = LOOKS[Provenance.MEASURED]
    for kind in ("compute", *STALL_BY_NAME):
        behind, before = COLOURS[colour_of(kind)], COLOURS[text_on(kind, measured)]
        assert contrast(behind.light, before.light) >= 4.5, kind
        assert contrast(behind.dark, before.dark) >= 3.0, kind
    for role in ("ink", "muted", "accent"):
        for ground in ("surface", "page", "doubt"):
            assert contrast(COLOURS[role].light, COLOURS[ground].light) >= 4.5, (role, ground)
            assert contrast(COLOURS[role].dark, COLOURS[ground].dark) >= 4.5, (role, ground)


def test_neighbours_in_a_bar_differ_in_grey_too() -> None:
    order = ("compute", "contention", "communication", "scale-out", "prep", "fetch")
    for left, right in pairwise(order):
        for theme in ("light", "dark"):
            colours = (getattr(COLOURS[kind], theme) for kind in (left, right))
            assert contrast(*colours) >= 1.25, (left, right, theme)


def test_every_provenance_looks_different_without_colour() -> None:
    looks = [LOOKS[provenance] for provenance in Provenance]
    assert len({look.dash for look in looks}) == len(looks)
    assert len({look.shape for look in looks}) == len(looks)
    assert len({look.fill_opacity for look in looks}) == len(looks)


def test_files_have_colours_of_their_own() -> None:
    for picture in pictures_of(profile_of()):
        assert "var(" not in picture.alone()


def test_hostile_names_are_text_in_a_drawing() -> None:
    for picture in pictures_of(hostile_profile()):
        assert "<script" not in picture.inline(WIDE)
        assert "<img" not in picture.inline(WIDE)
