"""What-if against a real gang: what more loader workers bring is foreseen, then measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import whatif_lab
from truth_worlds import World

from stash.results.profile import Profile

MARGIN = 0.15


def test_every_setting_has_a_name_of_its_own_and_covers_what_it_should() -> None:
    found = whatif_lab.settings()
    assert len({one.key for one in found}) == len(found)
    assert {one.value for one in found if one.kind == "workers"} == {1, 2, 4}
    assert {one.cached_percent for one in found if one.kind == "cache"} == {0, 25, 50, 75, 100}
    rates = [one.storage_mb for one in found if one.kind == "storage"]
    assert (min(rates), max(rates)) == (10, 200)


@pytest.mark.gang
def test_what_a_second_loader_worker_brings_is_foreseen_from_a_profile_with_one() -> None:
    world = World(iteration_seconds=0.1, prepare_seconds=0.16, samples_per_batch=8)
    one, two = (
        whatif_lab.Setting(
            kind="workers",
            value=number,
            world=replace(world, loader_workers=number),
            steps="node,warm",
        )
        for number in (1, 2)
    )
    before = Profile.from_json(whatif_lab.measure(one, rounds=5))
    after = Profile.from_json(whatif_lab.measure(two, rounds=5))
    measured = after.steps["warm"].seconds_per_iteration.estimate
    assert measured < 0.8 * before.steps["warm"].seconds_per_iteration.estimate
    assert whatif_lab.predicted_seconds(before, two) == pytest.approx(measured, rel=MARGIN)
