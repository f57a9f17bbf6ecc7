"""`stash compare`: a table with significance, refusals by name, the paper's network stall."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stash
from profiles import HAND_WORKED, noisy, profile_of
from stash.advise.compare import network_stall
from stash.cli.main import main
from stash.errors import UsageError
from stash.results import store
from stash.results.profile import Profile


def many_nodes(scaleout: float, **changes: object) -> Profile:
    """Two nodes with a worker each, whose step of all workers takes so long."""
    rounds = noisy({"solo": 0.1, "node": 0.1, "scaleout": scaleout}, seed=3)
    machine = {"nodes": 2, "workers_per_node": 1, "devices": ("Tesla V100",), **changes}
    return profile_of(rounds, machine_changes=machine).model_copy(update={"id": "many"})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for name, rounds, changes in (
        ("a", noisy(HAND_WORKED), {}),
        ("slower", noisy({**HAND_WORKED, "warm": 0.26}, seed=1), {}),
        ("same", noisy(HAND_WORKED, seed=2), {}),
        ("batch8", noisy(HAND_WORKED, seed=4), {"batch_per_worker": 8}),
    ):
        made = profile_of(rounds, workload_changes=changes)
        store.save(made.model_copy(update={"id": name}), tmp_path, name=f"{name}.json")
    store.save(many_nodes(0.195), tmp_path, name="many.json")
    return tmp_path


def compare(folder: Path, *arguments: str) -> int:
    return main(["compare", *arguments, "--folder", str(folder)])


def test_the_table_says_what_is_more_and_what_is_chance(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert compare(saved, "a.json", "slower.json", "same.json") == 0
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
    prep = shown[shown.index("prep, %") : shown.index("fetch, %")].splitlines()
    assert prep[1].split()[0] == "B" and prep[1].rstrip().endswith("more")
    assert prep[2].split()[0] == "C" and prep[2].rstrip().endswith("not significant")


def test_the_document_has_the_numbers_of_the_table(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(saved, "a.json", "slower.json", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert first["seconds_per_iteration"]["difference"] is None
    prep = second["stall_shares"]["prep"]
    assert prep["significant"] and prep["difference"]["estimate"] == pytest.approx(0.15, abs=0.02)
    assert second["seconds_per_iteration"]["value"]["estimate"] == pytest.approx(0.26, abs=0.01)


def test_unlike_profiles_are_refused_by_the_fields_name(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(saved, "a.json", "batch8.json") == 2
    assert "workload.batch_per_worker is 32 in one, 8 in the other" in capsys.readouterr().err
    assert compare(saved, "a.json", "batch8.json", "--anyway") == 0
    assert "compared all the same, although workload.batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.json"], "two profiles or more"),
        (["a.json", "same.json", "--as", "disk"], "--as is `network`, not 'disk'"),
        (["a.json", "same.json", "slower.json", "--as", "network"], "two profiles, ONE and MANY"),
        (["a.json", "same.json", "--as", "network"], "these are of 1 and of 1"),
        (["many.json", "a.json", "--as", "network"], "these are of 2 and of 1"),
        (["a.json", "nowhere.json"], "'nowhere.json' is no profile"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_sentence(
    saved: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(saved, *arguments) == 2
    assert words in capsys.readouterr().err


def test_the_network_stall_is_many_nodes_against_one_in_percent_of_one() -> None:
    found = network_stall(profile_of(), many_nodes(0.195))
    assert found.seconds_per_iteration.estimate == pytest.approx(0.065, abs=0.003)
    assert found.percent.estimate == pytest.approx(50, abs=3) and found.significant
    low, high = found.percent.low, found.percent.high
    assert low is not None and high is not None and low < 50 < high


def test_one_large_node_against_two_of_half_its_devices_is_the_papers_comparison() -> None:
    gpus = ("Tesla V100",) * 8
    one = profile_of(machine_changes={"workers_per_node": 8, "devices": gpus})
    found = network_stall(one, many_nodes(0.195, workers_per_node=4, devices=gpus[:4]))
    assert found.one.workers == found.many.workers == 8 and found.significant


def test_no_network_stall_is_not_significant() -> None:
    found = network_stall(profile_of(), many_nodes(0.130))
    assert not found.significant


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"workers_per_node": 4}, "machine.workers is 2 in one, 8 in the other"),
        ({"devices": ("Tesla T4",)}, "machine.devices is Tesla V100 in one, Tesla T4 in"),
    ],
)
def test_a_network_stall_needs_as_many_workers_of_the_same_kind(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(UsageError, match=field):
        network_stall(profile_of(), many_nodes(0.2, **changes))
    network_stall(profile_of(), many_nodes(0.2, **changes), anyway=True)


def test_without_its_step_the_network_stall_says_which_is_missing() -> None:
    without = many_nodes(0.2).model_copy(update={"steps": {}})
    with pytest.raises(UsageError, match="Profile many has no step scaleout"):
        network_stall(profile_of(), without)


def test_the_network_stall_is_told_in_one_sentence(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(saved, "a.json", "many.json", "--as", "network") == 0
    assert "Network stall of 2 workers on 2 nodes: " in capsys.readouterr().out
    assert compare(saved, "a.json", "many.json", "--as", "network", "--json") == 0
    assert json.loads(capsys.readouterr().out)["percent_of"] == "node"


def test_it_can_be_had_from_python(saved: Path) -> None:
    found = stash.compare(saved / "a.json", saved / "slower.json")
    assert [row.profile.id for row in found.rows] == ["a", "slower"]
