"""The lab of what-if covers what it should; `benchmarks/whatif_lab.py` measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import whatif_lab

from profiles import noisy, profile_of
from stash.results import store
from stash.results.profile import Profile
from stash.results.recording import Rate


def test_every_setting_has_a_name_of_its_own_and_covers_what_it_should() -> None:
    found = whatif_lab.settings()
    assert len({one.key for one in found}) == len(found)
    assert {one.value for one in found if one.kind == "workers"} == {1, 2, 4}
    assert {one.cached_percent for one in found if one.kind == "cache"} == {0, 25, 50, 75, 100}
    rates = [one.storage_mb for one in found if one.kind == "storage"]
    assert (min(rates), max(rates)) == (10, 200)


def measured_with(loader_workers: int, slower: float = 1.0) -> Profile:
    """Loaders that wait 160 ms a batch, devices that take 100 ms."""
    per_second = 2 * 32 * loader_workers / 0.16
    return profile_of(
        noisy({"node": 0.1, "warm": slower * max(0.1, 0.16 / loader_workers)}, noise_seconds=1e-5),
        workload_changes={"loader_workers": loader_workers},
        facts_changes={
            "preprocessing": Rate(samples_per_second=(per_second,) * 3),
            "storage": None,
        },
    )


@pytest.mark.parametrize(("slower", "met"), [(1.0, True), (1.3, False)])
def test_the_lab_holds_predictions_against_measurements(
    slower: float, met: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [one for one in whatif_lab.settings() if one.kind == "workers"]
    for one in chosen:
        made = measured_with(one.value, slower if one.value == 4 else 1.0)
        store.save(made, tmp_path, name=f"{one.key}.json")
    whatif_lab.report(chosen, tmp_path)
    *_, told = map(json.loads, capsys.readouterr().out.splitlines())
    assert told["predictions"] == 6 and told["met"] is met
    assert (told["worst_error_percent"] <= whatif_lab.WORST_BAR) is met
