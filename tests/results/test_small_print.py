"""What is easily overlooked: files that end, messages that are cut, launches of which one fails."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from scipy import stats

from profiles import HAND_WORKED, facts, machine, profile_of
from stash.errors import StashError
from stash.results import profile as documents
from stash.results import statistics, store
from stash.results.profile import Profile
from stash.results.recording import Recorder


def test_a_recording_that_is_closed_takes_nothing_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.write(facts())
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.write(facts())


def test_a_file_that_cannot_be_read_is_told_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.json"
    for path, reason in ((missing, "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(StashError) as caught:
            Profile.load(path)
        assert caught.value.message.startswith(f"Cannot read {path}: {reason}. ")


def test_a_long_failure_is_cut_to_what_a_document_holds() -> None:
    assert profile_of([HAND_WORKED], failure="x" * 5000).run.message == "x" * 4000


def test_a_prediction_from_several_launches_adds_the_scatter_between_them() -> None:
    # Means 2 and 6: variance between 8, standard error 2; within each launch variance 1.
    half = statistics.prediction_half_width(
        [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], iterations_per_block=2, iterations=10
    )
    assert half == pytest.approx(float(stats.t.ppf(0.975, 1)) * math.sqrt(4 + 8 + 1 * 2 / 10))
    # Means 1, 2 and 6: variance between 7; rounds that do not differ scatter nothing.
    half = statistics.prediction_half_width(
        [[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]], iterations_per_block=2, iterations=10
    )
    assert half == pytest.approx(float(stats.t.ppf(0.975, 2)) * math.sqrt(7 / 3 + 7))
    # One round a launch tells nothing of the scatter within.
    half = statistics.prediction_half_width([[1.0], [3.0]], iterations_per_block=2, iterations=10)
    assert half == pytest.approx(float(stats.t.ppf(0.975, 1)) * math.sqrt(1 + 2))


def test_what_is_saved_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    named_before: list[int] = []
    real = os.fsync

    def noting(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        named_before.append(len(list(tmp_path.glob("*.json"))))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    path = store.save(profile_of([HAND_WORKED] * 2), tmp_path)
    assert (sizes, named_before) == ([path.stat().st_size], [0])
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.write(facts())
    recorder.close()
    assert sizes[1:] == [(tmp_path / "run.jsonl").stat().st_size]


def test_a_store_is_for_colleagues_too(tmp_path: Path) -> None:
    path = store.save(profile_of([HAND_WORKED]), tmp_path)
    assert path.stat().st_mode & 0o777 == 0o644


def test_long_names_are_cut(tmp_path: Path) -> None:
    made = profile_of([HAND_WORKED], workload_changes={"name": "n" * 100})
    name = store.file_name(made)
    assert "-" + "n" * 60 + "-" in name


def test_a_folder_is_made_with_all_above_it_and_used_again(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    for _ in range(2):
        store.ensure_writable(deep)
    paths = {store.save(profile_of([HAND_WORKED]), deep, name=name) for name in ("1", "2")}
    assert paths == set(deep.iterdir())


def test_one_profile_is_found_among_many_by_the_end_of_its_name(tmp_path: Path) -> None:
    made = profile_of([HAND_WORKED])
    saved = [
        store.save(made.model_copy(update={"id": f"{number}f00"}), tmp_path) for number in range(3)
    ]
    for number, path in enumerate(saved):
        assert store.find(f"{number}f", tmp_path) == path
    assert store.find("last", tmp_path) == sorted(saved)[-1]


def test_a_document_is_made_to_be_read_by_people_too() -> None:
    text = profile_of([HAND_WORKED]).to_json()
    assert text.startswith('{\n "schema": "stash.profile/1",\n "id": "3f2a9c01",')


@pytest.mark.parametrize(("wrong", "more"), [(1, ""), (2, " (and 1 more)"), (3, " (and 2 more)")])
def test_every_field_that_is_wrong_is_counted(wrong: int, more: str) -> None:
    document = json.loads(profile_of([HAND_WORKED]).to_json())
    for field in ("cores", "nodes", "pinned")[:wrong]:
        document["machine"][field] = "?"
    with pytest.raises(StashError) as caught:
        Profile.from_json(json.dumps(document))
    assert caught.value.message.startswith("profile: field 'machine.cores': ")
    assert caught.value.message.endswith(f"{more}.")


def test_an_older_document_is_migrated_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = json.loads(profile_of([HAND_WORKED]).to_json())
    monkeypatch.setattr(
        documents,
        "MIGRATIONS",
        {
            "stash.profile/-1": lambda old: {**old, "schema": "stash.profile/0"},
            "stash.profile/0": lambda old: {**old, "schema": "stash.profile/1"},
        },
    )
    old = {**newest, "schema": "stash.profile/-1"}
    assert Profile.from_json(json.dumps(old)) == Profile.from_json(json.dumps(newest))
    with pytest.raises(StashError, match="Upgrade Stash"):
        Profile.from_json(json.dumps({**newest, "schema": "stash.profile/9"}))


def test_workers_are_those_of_all_nodes() -> None:
    assert machine(nodes=3, workers_per_node=4).workers == 12
