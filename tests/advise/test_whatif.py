"""`stash whatif`: nothing changed gives what was measured; each change does what it must."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stash
from profiles import HAND_WORKED, disturbance, noisy, profile_of
from stash.advise.replay import faster_gpus
from stash.advise.whatif import WhatIf
from stash.cli.main import main
from stash.errors import StashError, UsageError
from stash.results import store
from stash.results.document import derived
from stash.results.profile import Profile

#: 64 samples an iteration of 130 ms; loaders prepare 320 a second (200 ms), storage reads 256.
MEASURED = profile_of()


def seconds(found: WhatIf, step: str) -> float:
    return found.steps[step].predicted_seconds_per_iteration


def stall(found: WhatIf, name: str) -> float:
    return found.stalls[name].predicted_seconds_per_iteration


@pytest.mark.parametrize(
    "steps",
    [
        HAND_WORKED,
        {**HAND_WORKED, "warm": 0.131, "cold": 0.26},  # loaders alone are slower than in place
        {**HAND_WORKED, "warm": 0.30, "cold": 0.31},
        {**HAND_WORKED, "node": 0.3, "warm": 0.32, "cold": 0.35},  # hidden, yet it costs something
    ],
)
def test_with_nothing_changed_it_tells_what_was_measured(steps: dict[str, float]) -> None:
    measured = profile_of(noisy(steps))
    found = stash.whatif(measured)
    for name, step in found.steps.items():
        assert seconds(found, name) == pytest.approx(step.seconds_per_iteration.estimate, rel=0.01)
    for name, one in found.stalls.items():
        assert stall(found, name) == pytest.approx(one.seconds_per_iteration.estimate, abs=0.003)
    assert found.changes == () and found.provenance.value == "measured"


def test_twice_the_loader_workers_take_half_the_time_until_the_devices_decide() -> None:
    assert seconds(stash.whatif(MEASURED, num_workers=1), "warm") == pytest.approx(0.4, rel=0.02)
    more = stash.whatif(MEASURED, num_workers=4)
    assert seconds(more, "warm") == pytest.approx(0.13, rel=0.03)
    assert abs(stall(more, "prep")) < 0.004
    assert (
        stall(more, "interconnect")
        == MEASURED.stalls["interconnect"].seconds_per_iteration.estimate
    )


def test_without_loader_workers_preparing_and_training_take_turns() -> None:
    found = stash.whatif(MEASURED, num_workers=0)
    assert seconds(found, "warm") == pytest.approx(0.13 + 0.4, rel=0.02)


def test_slower_storage_is_waited_for_and_faster_storage_is_not() -> None:
    # 64 samples of 100 kB are 6.4 MB an iteration.
    slow = stash.whatif(MEASURED, storage="8MB/s")
    assert seconds(slow, "cold") == pytest.approx(0.8, rel=0.02)
    fast = stash.whatif(MEASURED, storage="10GB/s")
    assert seconds(fast, "cold") == pytest.approx(seconds(fast, "warm"), rel=0.01)


def test_a_cache_is_between_none_and_all_with_both_bounds() -> None:
    none, half, all_of_it = (
        stash.whatif(MEASURED, storage="8MB/s", cache=size) for size in ("0", "500MB", "1GB")
    )
    for found in (none, half, all_of_it):
        assert found.later is not None and found.first is not None
    assert none.later.predicted_samples_per_second == pytest.approx(64 / 0.8, rel=0.02)
    assert half.cached_fraction == 0.5
    assert half.later.predicted_samples_per_second == pytest.approx(64 / 0.4, rel=0.05)
    low = half.later.predicted_low_samples_per_second
    assert 80 < low < half.later.predicted_samples_per_second
    assert all_of_it.later.predicted_samples_per_second == pytest.approx(320, rel=0.02)


def test_few_cores_slow_down_what_works_on_them() -> None:
    # Telemetry: half of 8 cores, so 0.8 core-seconds in an iteration of 200 ms.
    found = stash.whatif(MEASURED, cores=2)
    assert seconds(found, "warm") == pytest.approx(0.4, rel=0.02)
    assert seconds(found, "node") == pytest.approx(0.26, rel=0.02)


def test_a_larger_batch_takes_longer_but_exchanges_less_often() -> None:
    found = stash.whatif(MEASURED, batch_size=64)
    assert found.batch_per_worker == 64
    assert seconds(found, "warm") == pytest.approx(0.4, rel=0.03)  # loaders decide, per sample
    assert 1.5 * 0.1 < seconds(found, "solo") < 2 * 0.1
    assert stall(found, "communication") < 2 * stall(stash.whatif(MEASURED), "communication")
    assert found.later is not None
    assert found.later.predicted_samples_per_second == pytest.approx(320, rel=0.03)


def test_a_faster_gpu_computes_faster_and_hides_less() -> None:
    found = stash.whatif(MEASURED, gpu="a100", num_workers=16)
    assert seconds(found, "solo") < 0.09
    assert stall(found, "communication") >= 0.02
    assert found.changes[-1].endswith("-> A100 SXM4 40GB") or "A100" in found.changes[-1]


def many_nodes() -> Profile:
    rounds = noisy({"solo": 0.1, "unsynced": 0.1, "node": 0.11, "scaleout": 0.3})
    return profile_of(rounds, machine_changes={"nodes": 2})


def test_another_network_changes_what_crosses_it_and_nothing_else() -> None:
    measured = many_nodes()
    times = [
        seconds(stash.whatif(measured, network=rate), "scaleout")
        for rate in ("1gbit", "10gbit", "100gbit")
    ]
    assert times[0] > times[1] > times[2] >= 0.099
    # 46.8 MB on a ring of four: 1.5 times that at 96 % of 1 Gbit/s, of which some is hidden.
    assert 0.45 < times[0] - 0.1 < 0.7
    assert seconds(stash.whatif(measured, network="1gbit"), "node") == pytest.approx(0.11, rel=0.01)


def test_nodes_of_one_worker_exchange_across_the_network_alone() -> None:
    measured = profile_of(
        noisy({"node": 0.1, "scaleout": 0.3}, noise_seconds=0.0),
        machine_changes={"nodes": 2, "workers_per_node": 1},
    )
    times = [
        seconds(stash.whatif(measured, network=rate), "scaleout") for rate in ("1gbit", "100gbit")
    ]
    # 46.8 MB between two at 96 % of 1 Gbit/s take 0.39 s, of which some is hidden.
    assert 0.3 < times[0] - 0.1 < 0.45
    assert times[1] == pytest.approx(0.1, rel=0.1)


def test_rates_of_several_nodes_are_those_of_all_workers_with_their_network() -> None:
    steps = {"solo": 0.1, "unsynced": 0.1, "node": 0.11, "scaleout": 0.3, "warm": 0.2, "cold": 0.25}
    measured = profile_of(noisy(steps, noise_seconds=0.0), machine_changes={"nodes": 2})
    found = stash.whatif(measured)
    assert found.later is not None and found.first is not None
    # 4 workers of 32 samples; an iteration is scaleout and what data adds to one node.
    later, first = 128 / (0.3 + 0.2 - 0.11), 128 / (0.3 + 0.25 - 0.11)
    assert found.later.samples_per_second == pytest.approx(later)
    assert found.later.predicted_samples_per_second == pytest.approx(later, rel=0.01)
    assert found.first.samples_per_second == pytest.approx(first)
    assert found.first.predicted_samples_per_second == pytest.approx(first, rel=0.01)
    half = stash.whatif(measured, storage="8MB/s", cache="500MB").later
    assert half is not None
    low, high = half.predicted_low_samples_per_second, half.predicted_samples_per_second
    # All from a disk of 8 MB/s, the 6.4 MB of a node's iteration take 0.8 s; half of it, 0.4 s.
    assert high == pytest.approx(128 / (0.3 + 0.4 - 0.11), rel=0.05)
    assert 128 / (0.3 + 0.8 - 0.11) < low < high


def test_of_several_nodes_no_rate_is_told_from_the_steps_of_one() -> None:
    found = stash.whatif(profile_of(machine_changes={"nodes": 2}))
    assert (found.later, found.first, found.single_changes) == (None, None, ())


def test_missing_cores_are_no_communication() -> None:
    steps = {**HAND_WORKED, "scaleout": 0.3}
    measured = profile_of(noisy(steps, noise_seconds=0.0), machine_changes={"nodes": 2})
    found = stash.whatif(measured, cores=2)
    # 0.52 core-seconds of training on 2 cores take 0.26 s, 0.13 s more than the node took.
    wanted = {"solo": 0.1, "unsynced": 0.24, "node": 0.26, "scaleout": 0.43}
    for step, expected in wanted.items():
        assert seconds(found, step) == pytest.approx(expected, rel=0.01), step
    assert stall(found, "communication") == pytest.approx(0.02, rel=0.01)
    assert stall(found, "contention") == pytest.approx(0.14, rel=0.01)
    assert stall(found, "scale-out") == pytest.approx(0.17, rel=0.01)


def test_the_cheapest_change_is_a_setting_where_one_does() -> None:
    found = stash.whatif(MEASURED)
    assert found.cheapest is not None
    assert (found.cheapest.option, found.cheapest.kind) == ("--num-workers 4", "setting")
    assert found.cheapest.removed_fraction == pytest.approx(0.7, abs=0.05)  # 70 of 100 ms
    kinds = [one.kind for one in found.single_changes]
    assert kinds == sorted(kinds, key=("setting", "training", "hardware").index)


def test_a_job_that_waits_for_its_network_is_told_the_slowest_that_would_do() -> None:
    found = stash.whatif(many_nodes())
    (network,) = [one for one in found.single_changes if one.option.startswith("--network")]
    assert (network.option, network.kind) == ("--network 25gbit", "hardware")
    after = seconds(stash.whatif(many_nodes(), network="25gbit"), "scaleout")
    assert network.removed_fraction == pytest.approx((0.3 - after) / 0.2, rel=0.05)
    alone = stash.whatif(MEASURED).single_changes
    assert not any(one.option.startswith("--network") for one in alone)


def test_workers_that_slow_each_other_down_do_less_so_on_a_faster_gpu() -> None:
    crowded = profile_of(noisy({"solo": 0.1, "unsynced": 0.2, "node": 0.2}, noise_seconds=0.0))
    found = stash.whatif(crowded)
    (faster,) = [one for one in found.single_changes if one.option.startswith("--gpu")]
    assert faster.kind == "hardware" and faster.removed_fraction >= 0.5
    ladder = faster_gpus(crowded)
    key = faster.option.split()[1]
    assert key in ladder
    times = [seconds(stash.whatif(crowded, gpu=one), "solo") for one in ladder]
    assert all(later <= before / 1.25 for before, later in pairwise([0.1, *times]))
    slower = ladder[: ladder.index(key)]
    for one in slower:
        contention = stall(stash.whatif(crowded, gpu=one), "contention")
        assert contention > 0.5 * 0.1
    mine = profile_of(workload_changes={"name": "mine", "parameters": 5})
    assert faster_gpus(mine) == ()


def test_where_cores_are_short_more_loader_workers_are_not_the_answer() -> None:
    measured = profile_of(
        noisy({**HAND_WORKED, "node": 0.15, "warm": 0.2}),
        machine_changes={"cores": 4, "device": "cpu", "devices": ("cpu", "cpu")},
    )
    telemetry = {
        name: one.model_copy(update={"cpu_percent": 97.0})
        for name, one in measured.telemetry.items()
    }
    rates = measured.rates.model_copy(update={"preprocessing": derived(900.0)})
    measured = measured.model_copy(update={"telemetry": telemetry, "rates": rates})
    found = stash.whatif(measured, num_workers=8)
    assert seconds(found, "warm") == pytest.approx(0.2, rel=0.02)
    assert found.cheapest is None or found.cheapest.kind == "hardware"
    assert seconds(stash.whatif(measured, cores=8), "warm") == pytest.approx(0.15, rel=0.02)


def test_needs_answer_how_many_cores_how_much_cache_how_fast_a_disk() -> None:
    needs = stash.whatif(MEASURED, num_workers=8).needs
    assert needs.loader_workers_per_worker == 4  # 492 samples/s, 80 from each of 2 x w
    assert needs.storage_bytes_per_second == pytest.approx(49.2e6, rel=0.02)
    assert needs.cores == pytest.approx(4 + 492 * 0.28 / 64, rel=0.05)
    assert needs.cache_bytes is not None and 0 < needs.cache_bytes < 1e9


def test_a_profile_without_data_still_answers_for_devices() -> None:
    measured = profile_of(
        noisy({"solo": 0.1, "node": 0.13}),
        facts_changes={"preprocessing": None, "storage": None},
    )
    found = stash.whatif(measured, batch_size=64)
    assert found.later is None and found.needs.cores is None
    with pytest.raises(UsageError, match="--steps node,warm,cold"):
        stash.whatif(measured, num_workers=4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_workers": -1}, "--num-workers is -1; expected 0 or more"),
        ({"num_workers": 5000}, "expected 1024 or fewer"),
        ({"cores": 0}, "--cores is 0; expected 1 or more"),
        ({"batch_size": 0}, "--batch-size is 0; expected 1 or more"),
        ({"batch_size": 10**6}, "does not fit"),
        ({"cache": "plenty"}, "'plenty' is not a size"),
        ({"storage": "20MB"}, "is an amount, not a rate"),
        ({"storage": "0MB/s"}, "must be more than zero"),
        ({"gpu": "a1000"}, "Unknown GPU 'a1000'"),
        ({"network": "10gbit"}, "is of one node"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(StashError, match=words):
        stash.whatif(MEASURED, **changes)


def test_a_profile_of_cpus_cannot_be_carried_over_to_a_gpu() -> None:
    measured = profile_of(machine_changes={"device": "cpu", "devices": ("EPYC", "EPYC")})
    with pytest.raises(UsageError, match="no GPU of our table"):
        stash.whatif(measured, gpu="a100")
    other = profile_of(workload_changes={"name": "mine", "parameters": 5})
    with pytest.raises(UsageError, match="its layers are not known"):
        stash.whatif(other, gpu="a100")


def test_a_name_in_a_document_is_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef f(): pass\n")
    stash.whatif(profile_of(workload_changes={"name": f"{trap}:f"}), batch_size=64)
    assert not (tmp_path / "sprung").exists()


def test_unknown_sizes_are_said_where_they_are_needed() -> None:
    measured = profile_of(workload_changes={"data_bytes": None})
    with pytest.raises(UsageError, match="how large its samples are"):
        stash.whatif(measured, storage="1GB/s")
    with pytest.raises(UsageError, match="how large its data is"):
        stash.whatif(measured, cache="1GB")


def test_the_terminal_shows_both_columns_within_80_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    store.save(MEASURED, tmp_path, name="a.json")
    arguments = ["whatif", str(tmp_path / "a.json"), "--num-workers", "4", "--cache", "500MB"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    assert "What if: loader workers 2 -> 4, cache of 500MB" in shown
    assert "measured" in shown and "predicted" in shown
    assert "--num-workers 4 (a setting)" in shown.replace(" \n", " ")
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "stash.whatif/1"


def test_what_others_do_on_the_machine_is_not_the_jobs_own_work() -> None:
    """All cores are busy, but hardly with this job: fewer cores would do."""
    alone = profile_of(disturbance=disturbance(cpu_busy_seconds=8.0, worker_cpu_seconds=0.25))
    assert seconds(stash.whatif(alone, cores=4), "warm") == pytest.approx(0.2, rel=0.02)
    crowded = profile_of(disturbance=disturbance(cpu_busy_seconds=8.0))
    assert seconds(stash.whatif(crowded, cores=4), "warm") == pytest.approx(0.4, rel=0.02)
