"""Terminal, page, JSON, CSV and Python tell the same numbers of the same profile."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import stash
from pages import cards_of, read
from profiles import HAND_WORKED, noisy, profile_of
from stash.cli.main import main
from stash.results import store

INTERVAL = r"(-?[\d.]+) (?:ms )?\((-?[\d.]+) to (-?[\d.]+)\)"


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
        places = len(on_page[1].partition(".")[2])
        assert [float(text) for text in on_page.groups()] == pytest.approx(
            [number * 1e3 for number in exact if number is not None],
            abs=max(0.5 * 10.0**-places, (exact[2] - exact[0]) * 500) * 1.001,
        )
        verdict = "significant" if stall.significant else "not significant"
        assert verdict in cards[name].only("summary").text() or stall.intermittent
