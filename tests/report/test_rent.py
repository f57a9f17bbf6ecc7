"""What to rent on the page: the document's own choice, its numbers, and names as text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import stash
from pages import MARKUP, Node, read
from profiles import profile_of
from stash.advise.recommendation import Recommendation
from stash.cli.main import main
from stash.report.charts.picture import WIDE
from stash.report.charts.rent import rent_picture
from stash.report.page import page_of
from stash.report.rent import rent_of


@pytest.fixture(scope="module")
def found() -> Recommendation:
    return stash.recommend("resnet50", samples=1_281_167, epochs=90, clouds=["aws"], max_nodes=4)


def rows(page: Node) -> list[Node]:
    return [row for row in page.all("tr") if "data-way" in row.attributes]


def test_the_front_is_told_cheapest_first_and_the_choice_is_marked(found: Recommendation) -> None:
    page = read(page_of([profile_of()], found))
    shown = rows(page)
    assert [row.only("th").text().split(" predicted")[0] for row in shown] == [
        way.name for way in found.pareto
    ]
    assert found.choice is not None
    (taken,) = (row for row in shown if "chosen" in row.classes)
    assert taken.only("th").text().startswith(found.choice.name)
    assert taken.text().endswith("rent this")
    assert page.only("p", "choice").text().startswith(f"{found.choice.name} (aws): ")
    assert found.words in page.text()
    assert all("predicted" in row.classes for row in shown), "it must not look measured"


def test_every_figure_of_a_way_is_its_number_rounded(found: Recommendation) -> None:
    for row, way in zip(rows(read(page_of([], found))), found.pareto, strict=True):
        time, cost = (cell.text() for cell in row.all("td", "figure"))
        assert way.usd is not None
        for told, value, factor in (
            (time, way.hours, {"h": 1.0, "min": 60.0, "days": 1 / 24}[time.split()[1]]),
            (cost, way.usd, 1.0),
        ):
            numbers = [float(text) for text in re.findall(r"[\d.]+", told)]
            exact = [value.estimate * factor, (value.low or 0) * factor, (value.high or 0) * factor]
            half_width = max(exact[0] - exact[1], exact[2] - exact[0])
            assert numbers == pytest.approx(exact, abs=half_width / 2), told


def test_a_page_of_advice_alone_has_no_profile(found: Recommendation) -> None:
    page = read(page_of([], found))
    assert page.only("h1").text() == "What to rent"
    assert not page.all("section", "profile") and len(page.all("section", "rent")) == 1


def test_the_job_that_nothing_can_do_in_time_is_told(found: Recommendation) -> None:
    hopeless = stash.recommend(
        "resnet50", samples=1_281_167, epochs=90, clouds=["aws"], max_nodes=4, deadline_hours=0.5
    )
    assert hopeless.status == "infeasible"
    page = read(page_of([], hopeless))
    assert not any("chosen" in row.classes for row in rows(page))
    assert page.only("p", "choice").text().startswith("No way keeps these limits. The fastest is")
    picture = rent_picture(hopeless)
    assert picture is not None and picture.title == "No way to rent keeps the limits"


def test_every_way_can_be_reached_by_a_slider(found: Recommendation) -> None:
    rent = rent_of(found)
    deadlines = [value for value in rent.deadline.values if value is not None]
    assert rent.deadline.values[-1] is None and deadlines == sorted(deadlines)
    for way in rent.ways:
        assert any(
            way.hours.estimate <= value <= 1.011 * way.hours.estimate for value in deadlines
        ), way.name
    assert min(deadlines) < rent.ways[-1].hours.estimate, "a limit that nothing keeps is told, too"


def test_limits_that_were_asked_for_are_where_the_sliders_stand() -> None:
    asked = stash.recommend(
        "resnet18", samples=50_000, epochs=10, max_nodes=1, deadline_hours=1.2345, budget_usd=40
    )
    rent = rent_of(asked)
    assert rent.deadline.values[rent.deadline.chosen] == 1.2345
    assert rent.budget.values[rent.budget.chosen] == 40
    assert rent.budget.labels[rent.budget.chosen] == "at most $40"


def test_hostile_names_of_machines_are_text(found: Recommendation) -> None:
    machines = [one.model_copy(update={"machine": MARKUP[:200]}) for one in found.candidates]
    hostile = found.model_copy(
        update={"candidates": tuple(machines), "words": MARKUP, "remarks": (MARKUP,)}
    )
    text = page_of([], hostile)
    page = read(text)
    assert len(page.all("script")) == 1 and not page.all("img")
    assert not any(name.startswith("on") for one in page.all() for name in one.attributes)
    picture = rent_picture(hostile)
    assert picture is not None and "<script" not in picture.inline(WIDE)


def test_the_command_reads_what_recommend_wrote(
    found: Recommendation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("advice.json").write_text(found.to_json())
    assert main(["report", "--advice", "advice.json", "--figures", "charts", "-o", "r.html"]) == 0
    assert "What to rent" in Path("r.html").read_text()
    assert {path.name for path in Path("charts").iterdir()} == {
        "rent.svg",
        "rent.png",
        "rent.pdf",
    }
    capsys.readouterr()
    Path("other.json").write_text(json.dumps({"schema": "stash.profile/1"}))
    assert main(["report", "--advice", "other.json", "-o", "s.html"]) != 0
    assert "expected 'stash.recommendation/1'" in capsys.readouterr().err
