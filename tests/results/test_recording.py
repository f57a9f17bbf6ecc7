"""The recording: nothing of a complete round is lost, whatever happens to the file around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiles import HAND_WORKED, block, facts, rounds_of
from stash.results.recording import End, Facts, Phase, Recorder, RecordingReader, Round

ROUNDS = rounds_of([[HAND_WORKED] * 3])


def written(path: Path, *events: Facts | Phase | Round | End) -> None:
    recorder = Recorder(path)
    for event in events:
        recorder.write(event)
    recorder.close()


def test_every_kind_of_event_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    end = End(launch=0, reason="rounds", checks=(), peak_device_memory_bytes=(None, 5))
    events: list[Facts | Phase | Round | End] = [
        facts(),
        Phase(launch=0, name="measuring"),
        *ROUNDS,
        end,
    ]
    written(path, *events)
    assert list(RecordingReader(path).new_events()) == events


def test_a_recording_that_is_not_there_yet_has_no_events(tmp_path: Path) -> None:
    assert list(RecordingReader(tmp_path / "later.jsonl").new_events()) == []


def test_a_growing_recording_gives_each_event_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    reader, recorder = RecordingReader(path), Recorder(path)
    seen = []
    for event in ROUNDS:
        recorder.write(event)
        seen.append(list(reader.new_events()))
    assert seen == [[event] for event in ROUNDS]
    assert list(reader.new_events()) == []
    recorder.close()


def test_a_line_without_its_end_is_left_until_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, ROUNDS[0])
    line = ROUNDS[1].model_dump_json().encode() + b"\n"
    reader = RecordingReader(path)
    with path.open("ab") as file:
        file.write(line[:100])
        file.flush()
        assert list(reader.new_events()) == [ROUNDS[0]]
        assert list(reader.new_events()) == []
        file.write(line[100:])
    assert list(reader.new_events()) == [ROUNDS[1]]


@pytest.mark.parametrize(
    "torn",
    [b"\n", b"{}\n", b'{"kind": "round", "laun\n', b"\x00" * 64 + b"\n", b"\xff\xfe\n", b"[1]\n"],
)
def test_a_torn_line_costs_itself_only(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "run.jsonl"
    lines = [event.model_dump_json().encode() + b"\n" for event in ROUNDS]
    path.write_bytes(lines[0] + torn + lines[2])
    assert list(RecordingReader(path).new_events()) == [ROUNDS[0], ROUNDS[2]]


def test_numbers_that_are_none_do_not_enter_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    document = json.loads(ROUNDS[0].model_dump_json())
    document["blocks"][0]["seconds"] = [float("nan"), None]
    path.write_text(json.dumps(document) + "\n")
    assert list(RecordingReader(path).new_events()) == []


def test_a_block_is_as_slow_as_its_slowest_worker() -> None:
    slow = block("node", 0.1, seconds=(0.3, None, 0.5), iterations=2)
    assert slow.seconds_per_iteration == pytest.approx(0.25)


def test_a_block_lasts_from_the_last_lead_in_to_the_last_end() -> None:
    """One worker ends its lead-in a tenth earlier, the other its block: nobody took longer."""
    ends = block("node", 0.1, seconds=(0.5, 0.4, None), iterations=2)
    shifted = ends.model_copy(update={"lead_in_seconds": (0.2, 0.3, None)})
    assert shifted.seconds_per_iteration == pytest.approx(0.2)
    slow = ends.model_copy(update={"lead_in_seconds": (0.3, 0.2, None)})
    assert slow.seconds_per_iteration == pytest.approx(0.25)


def test_a_block_whose_lead_in_nobody_wrote_down_is_as_long_as_its_slowest_worker() -> None:
    bare = block("node", 0.1, seconds=(0.3, 0.5), iterations=1)
    assert bare.model_copy(update={"lead_in_seconds": ()}).seconds_per_iteration == 0.5
