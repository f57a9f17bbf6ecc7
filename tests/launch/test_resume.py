"""What `--resume` continues, what it refuses, and what it says of rounds from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles import HAND_WORKED, facts, machine, profile_of, rounds_of
from stash.engine.plan import RECORDING
from stash.errors import UsageError
from stash.launch import resume
from stash.results.profile import Profile
from stash.results.recording import Recorder


def on(**changes: object) -> Profile:
    return profile_of(machine_changes=changes)


def test_another_kind_of_machine_is_refused_by_the_fields_name() -> None:
    now = facts(machine=machine(instance="p3.8xlarge"))
    with pytest.raises(UsageError, match=r"machine.instance is p3.16xlarge in .* p3.8xlarge here"):
        resume.refuse_unlike(on(instance="p3.16xlarge"), [now])
    resume.refuse_unlike(on(instance="p3.8xlarge"), [now])


def test_other_hosts_of_the_same_kind_are_continued_and_told() -> None:
    before = on(nodes=2, hosts=("a", "b"))
    same = facts(machine=machine(nodes=2, hosts=("a", "b")))
    others = facts(machine=machine(nodes=2, hosts=("a", "c")))
    resume.refuse_unlike(before, [others])
    assert "They ran on a, b, the others on a, c." in resume.check_of(before, [others]).message
    assert "They ran on" not in resume.check_of(before, [same]).message
    assert "They ran on" not in resume.check_of(before, []).message


def test_a_run_that_could_not_write_its_profile_is_continued_from_its_recordings(
    tmp_path: Path,
) -> None:
    rounds = rounds_of([[HAND_WORKED] * 3, [HAND_WORKED] * 2])
    for launch in range(2):
        folder = tmp_path / f"launch-{launch}"
        folder.mkdir()
        recorder = Recorder(folder / RECORDING)
        recorder.write(facts(launch=launch))
        for one in rounds:
            if one.launch == launch:
                recorder.write(one)
        recorder.close()
    found = resume.load(tmp_path, tmp_path / "out")
    assert found.rounds() == rounds
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no recorded rounds"):
        resume.load(tmp_path / "empty", tmp_path / "out")
