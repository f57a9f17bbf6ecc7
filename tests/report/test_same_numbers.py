"""Terminal, page, JSON, CSV and Python tell the same numbers of the same profile."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import stash
from pages import Node, cards_of, read
from profiles import HAND_WORKED, noisy, profile_of
from stash.cli.main import main
from stash.results import store
from stash.results.document import Interval
from stash.results.profile import Profile

INTERVAL = r"(-?[\d.]+) (?:(?:ms|s|min|h|days|%) )?\((-?[\d.]+) to (-?[\d.]+)\)"
#: Where a part of the CSV stands in the document.
PLACES = {"waiting": "waiting", "step": "steps", "rate": "rates", "epoch": "epoch"}
Number = tuple[str, str, str, Interval, float, str]


def beside_stalls(profile: Profile, page: Node) -> Iterator[Number]:
    """Every other number: where it stands in the CSV, its value, and what the page shows."""
    first = next(one.text() for one in page.all("p", "lead") if "first epoch" in one.text())
    assert profile.waiting.later is not None and profile.waiting.first is not None
    yield "waiting", "later", "share", profile.waiting.later, 100, page.only("h1").text()
    yield "waiting", "first", "share", profile.waiting.first, 100, first
    table = page.all("table")[0].only("tbody")
    steps = {row.only("th").text(): row for row in table.all("tr")}
    for name, step in profile.steps.items():
        shown = steps[name].all("td")[0].text().replace(" ms ", " ")
        yield "step", name, "seconds_per_iteration", step.seconds_per_iteration, 1e3, shown
    facts = page.all("dl", "grid")[0].all("div")
    rates = {one.only("dt").text(): one.only("dd").text() for one in facts}
    for name in ("devices", "preprocessing", "storage"):
        rate = getattr(profile.rates, name)
        if rate is not None:
            yield "rate", name, "samples_per_second", rate, 1, rates[name]
    lines = [one.text() for one in page.only("ul", "plain").all("li")]
    for name, epoch in (("first", profile.epoch.first), ("later", profile.epoch.later)):
        assert epoch is not None
        shown = next(line for line in lines if f"{name}:" in line)
        factor = {"s": 1.0, "min": 1 / 60, "h": 1 / 3600, "days": 1 / 86400}
        unit = re.search(r": [\d.]+ (\w+) \(", shown)
        assert unit is not None
        yield "epoch", name, "seconds", epoch.seconds, factor[unit[1]], shown


def check_rounding(shown: Sequence[str], value: Interval, factor: float) -> None:
    """Every text is its number, as far as the interval justifies."""
    assert value.low is not None and value.high is not None
    exact = [value.estimate * factor, value.low * factor, value.high * factor]
    places = len(shown[0].partition(".")[2])
    half_width = max(exact[0] - exact[1], exact[2] - exact[0])
    assert places == 0 or half_width * 10**places < 20, "more digits than the interval justifies"
    slack = max(0.5 * 10.0**-places, half_width / 2) * 1.001
    assert [float(text) for text in shown] == pytest.approx(exact, abs=slack)


@pytest.mark.parametrize("seed", range(2))
def test_five_ways_to_the_same_numbers(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {**HAND_WORKED, "unsynced": 0.1 + 0.004 * seed}
    saved = profile_of(noisy(times, noise_seconds=0.004 * (seed + 1), seed=seed))
    path = store.save(saved, tmp_path)

    def printed(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    terminal = printed("show", str(path))
    document = json.loads(printed("show", str(path), "--json"))
    printed("export", str(path), "--csv", str(tmp_path / "numbers.csv"))
    printed("report", str(path), "-o", str(tmp_path / "report.html"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "numbers.csv").read_text())))
    cards = cards_of(read((tmp_path / "report.html").read_text()))
    loaded = stash.load(path)
    assert loaded == saved

    page = read((tmp_path / "report.html").read_text())
    flat = " ".join(terminal.split())
    told = {(row["part"], row["name"], row["quantity"]): row for row in rows}
    for part, name, quantity, value, factor, shown in beside_stalls(loaded, page):
        found = re.search(INTERVAL, shown)
        assert found is not None and found[0] in flat, (part, name, shown)
        check_rounding(found.groups(), value, factor)
        row = told[part, name, quantity]
        exact = [value.estimate, value.low, value.high]
        assert [float(row[column]) for column in ("estimate", "low", "high")] == exact
        in_json = document[PLACES[part]][name]
        in_json = in_json if part in ("waiting", "rate") else in_json[quantity]
        assert [in_json["estimate"], in_json["low"], in_json["high"]] == exact

    assert set(cards) == set(document["stalls"]) == set(loaded.stalls)
    for name, stall in loaded.stalls.items():
        value = stall.seconds_per_iteration
        exact = [value.estimate, value.low, value.high]
        told = document["stalls"][name]["seconds_per_iteration"]
        assert [told["estimate"], told["low"], told["high"]] == exact
        (row,) = (
            row
            for row in rows
            if (row["part"], row["name"], row["quantity"])
            == ("stall", name, "seconds_per_iteration")
        )
        assert [float(row[column]) for column in ("estimate", "low", "high")] == exact
        in_terminal = re.search(rf"^ *{name} +{INTERVAL}", terminal, re.MULTILINE)
        on_page = re.search(rf"Size {INTERVAL} per iteration", cards[name].text())
        assert in_terminal is not None and on_page is not None
        assert in_terminal.groups() == on_page.groups()
        check_rounding(on_page.groups(), value, 1e3)
        verdict = "significant" if stall.significant else "not significant"
        assert verdict in cards[name].only("summary").text() or stall.intermittent
