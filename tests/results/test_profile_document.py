"""The profile document: reads back what was written, and refuses anything else by field name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mutations import mutate
from profiles import HAND_WORKED, noisy, profile_of, rounds_of
from stash.errors import StashError
from stash.results.profile import SCHEMA, Profile

PROFILE = profile_of(noisy(HAND_WORKED, rounds=2), machine_changes={"price_usd_per_hour": 3.0})
TEXT = PROFILE.to_json()


def changed(path: str, value: object) -> str:
    """The document with one field replaced."""
    document = json.loads(TEXT)
    *parents, last = path.split(".")
    place = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(document)


def test_a_document_reads_back_the_same() -> None:
    assert Profile.from_json(TEXT) == PROFILE
    assert Profile.from_json(TEXT).to_json() == TEXT
    assert Profile.from_json(TEXT.encode()) == PROFILE


def test_the_document_begins_with_its_schema_and_keeps_every_raw_block() -> None:
    document = json.loads(TEXT)
    assert document["schema"] == SCHEMA
    assert [block["round"] for block in document["steps"]["node"]["blocks"]] == [0, 1]


def test_text_in_any_script_or_markup_reads_back_unchanged() -> None:
    name = '[bold red]模型 \x1b[31m\\ "quoted" \n\u202e'
    assert Profile.from_json(changed("workload.name", name)).workload.name == name


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("workload.batch_per_worker", "32", "workload.batch_per_worker"),
        ("workload.batch_per_worker", 0, "workload.batch_per_worker"),
        ("workload.name", "", "workload.name"),
        ("workload.name", "x" * 513, "workload.name"),
        ("machine.cores", 1e300, "machine.cores"),
        ("machine.cores", 10**400, "machine.cores"),
        ("machine.cores_per_worker", -1, "machine.cores_per_worker"),
        ("machine.pinned", 1, "machine.pinned"),
        ("steps.node.seconds_per_iteration.estimate", None, "steps.node"),
        ("steps.node.blocks.0.seconds.0", -1.0, "steps.node.blocks.0.seconds.0"),
        ("stalls.prep.share.low", 1e19, "stalls.prep.share.low"),
        ("stalls.prep.significant", "yes", "stalls.prep.significant"),
        ("run.stopped_because", "boredom", "run.stopped_because"),
        ("checks.0.status", "fail", "checks.0.status"),
        ("provenance", "guessed", "provenance"),
        ("created", "yesterday", "created"),
        ("unknown", 1, "unknown"),
        ("epoch", [], "epoch"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    path: str, value: object, field: str
) -> None:
    with pytest.raises(StashError) as caught:
        Profile.from_json(changed(path, value), source="some file")
    assert caught.value.message.startswith("some file: field ")
    assert field in caught.value.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(StashError, match=r"not a number|finite"):
        Profile.from_json(changed("stalls.prep.share.estimate", value))
    overflowing = changed("stalls.prep.share.estimate", 12345.678).replace("12345.678", "1e999")
    with pytest.raises(StashError, match=r"stalls\.prep\.share\.estimate"):
        Profile.from_json(overflowing)


@pytest.mark.parametrize("schema", ["stash.profile/999", "other", None, 1, [], {}, [[[]]], True])
def test_another_schema_is_refused_with_a_way_out(schema: object) -> None:
    with pytest.raises(StashError, match=r"field 'schema'.*Upgrade"):
        Profile.from_json(changed("schema", schema))


def test_a_truncated_document_is_refused_wherever_it_ends() -> None:
    for end in range(0, len(TEXT) - 1, max(1, len(TEXT) // 60)):
        with pytest.raises(StashError, match="not a complete JSON document"):
            Profile.from_json(TEXT[:end])


@pytest.mark.parametrize("text", ["[]", "1", '"profile"', "null", "true"])
def test_json_that_is_no_object_is_no_profile(text: str) -> None:
    with pytest.raises(StashError, match="expected a JSON object"):
        Profile.from_json(text)


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 990, 5_000, 200_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for text in (
        deep,
        f'{{"schema": {deep}}}',
        changed("telemetry", "DEEP").replace('"DEEP"', deep),
    ):
        with pytest.raises(StashError):
            Profile.from_json(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    for data in (b"\xff\xfe\x00", b"\x80abc", b"", bytes(range(256))):
        with pytest.raises(StashError):
            Profile.from_json(data)


def test_files_that_cannot_be_read_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.json", tmp_path):
        with pytest.raises(StashError, match="stash list") as caught:
            Profile.load(path)
        assert caught.value.exit_code == 2


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_change_to_a_document_raises_anything_but_an_error_for_the_user(
    data: st.DataObject,
) -> None:
    text = mutate(data, TEXT)
    try:
        profile = Profile.from_json(text)
    except StashError as error:
        assert error.message
    else:
        assert Profile.from_json(profile.to_json()) == profile


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.integers(0, len(TEXT)))
def test_no_bytes_put_into_a_document_raise_anything_but_an_error_for_the_user(
    junk: bytes, position: int
) -> None:
    whole = TEXT.encode()
    try:
        Profile.from_json(whole[:position] + junk + whole[position + len(junk) :])
    except StashError as error:
        assert error.message


def test_rounds_of_a_document_are_those_that_were_recorded() -> None:
    recorded = noisy(HAND_WORKED, rounds=3)
    assert profile_of(recorded).rounds() == rounds_of([recorded])
