"""The terminal report: fits any terminal, agrees with its numbers, and shows names harmlessly."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mutations import mutate
from profiles import HAND_WORKED, noisy, profile_of
from stash.errors import StashError
from stash.report import bars
from stash.report.characters import Charset, harmless
from stash.report.terminal import print_profile, render
from stash.results.profile import Profile
from stash.results.recording import Check, End

HOSTILE = "[bold red]x[/]\x1b[31;1m\x1b]0;title\x07\r\n\t\b\u202e\u200bЖф模型\x9b2J" + "y" * 300


def text_of(profile: Profile, width: int = 80, encoding: str = "utf-8") -> str:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding=encoding, errors="strict", newline="\n")
    print_profile(profile, Console(file=stream, width=width, markup=False, highlight=False))
    stream.flush()
    return data.getvalue().decode(encoding)


def words_of(profile: Profile, width: int = 80) -> str:
    """The report as running text, however it was wrapped."""
    return " ".join(text_of(profile, width).split())


def of_steps(*steps: str, **changes: Any) -> Profile:
    return profile_of(noisy({step: HAND_WORKED[step] for step in steps}), **changes)


def hostile() -> Profile:
    document = profile_of().model_dump(by_alias=True)
    check = {"name": HOSTILE, "status": "warn", "message": HOSTILE * 8, "next": HOSTILE}
    for part in ("workload", "machine"):
        for field, value in document[part].items():
            if isinstance(value, str) and field != "device":
                document[part][field] = HOSTILE
    document["machine"] |= {"devices": (HOSTILE,), "device": HOSTILE, "instance": HOSTILE}
    document["checks"] = tuple([check] * 30)
    document["stalls"][HOSTILE] = document["stalls"]["prep"]
    document["steps"][HOSTILE] = document["steps"]["warm"]
    document["run"] |= {"stopped_because": "failed", "message": HOSTILE * 8}
    document["id"] = HOSTILE
    return Profile.model_validate(document)


def intermittent() -> Profile:
    rounds = noisy({**HAND_WORKED, "staged": 0.132, "again": 0.13, "warm": 0.14}, rounds=48)
    late = [{**one, "warm": one["warm"] + 0.08 * (i % 4 == 0)} for i, one in enumerate(rounds)]
    return profile_of(late)


def huge() -> Profile:
    changes: Mapping[str, Any] = {"price_usd_per_hour": 1e3, "cores": 10**15, "nodes": 10**6}
    return profile_of(
        [{step: seconds * 1e7 for step, seconds in HAND_WORKED.items()}] * 3,
        machine_changes=changes,
        workload_changes={"parameters": 10**15, "samples": 10**9, "batch_per_worker": 1},
    )


PROFILES = {
    "ordinary": profile_of(),
    "priced": profile_of(machine_changes={"price_usd_per_hour": 12.24}),
    "emulated": profile_of(machine_changes={"device": "emulated:v100"}),
    "one round": profile_of([HAND_WORKED]),
    "noise only": profile_of(
        noisy({**HAND_WORKED, "warm": 0.101, "node": 0.1}, noise_seconds=0.02)
    ),
    "one device": of_steps("node", "warm", "cold", machine_changes={"workers_per_node": 1}),
    "exchange only": of_steps("unsynced", "node"),
    "no split": of_steps("solo", "node", "warm"),
    "a gap": of_steps("solo", "warm"),
    "data only": of_steps("node", "warm"),
    "one step": of_steps("node"),
    "only cold": of_steps("cold"),
    "intermittent": intermittent(),
    "failed": profile_of(failure="worker 1 died"),
    "interrupted": profile_of(interrupted=True),
    "hostile": hostile(),
    "huge": huge(),
}


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("name", PROFILES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = text_of(PROFILES[name], width).splitlines()
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize("name", PROFILES)
def test_a_width_of_its_own_is_kept(name: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as capture:
        console.print(render(PROFILES[name], width=80))
    assert max(cell_len(line) for line in capture.get().splitlines()) <= 80


@pytest.mark.parametrize("name", PROFILES)
def test_a_stream_without_unicode_gets_ascii(name: str) -> None:
    text = text_of(PROFILES[name], encoding="ascii")
    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("name", PROFILES)
def test_text_that_is_not_for_a_terminal_has_no_escapes(name: str) -> None:
    text = text_of(PROFILES[name])
    assert all(character.isprintable() or character == "\n" for character in text)


def test_names_cannot_colour_move_or_retitle_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as capture:
        console.print(render(PROFILES["hostile"]))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capture.get())  # what the report's own styles write
    assert all(character.isprintable() or character == "\n" for character in shown)
    # Styles of the report are fewer than those of the names, none of which may be in force.
    assert "\x1b[31;1m" not in capture.get()
    assert "[bold red]x[/]" in shown
    assert "\\x1b[31;1m" in shown


def test_one_profile_is_one_screen() -> None:
    assert len(text_of(PROFILES["priced"]).splitlines()) <= 64
    assert len(text_of(PROFILES["hostile"]).splitlines()) <= 250


def test_text_made_harmless_shows_what_it_was() -> None:
    assert harmless("a\x1b[0m\n\u202eb") == "a\\x1b[0m\\n\\u202eb"
    assert harmless("a\nb", keep_newlines=True) == "a\nb"
    assert harmless("x" * 100, limit=10) == "xxxxxxx..."
    assert Charset(ascii_only=True).safe("é模") == "\\xe9\\u6a21"


def test_the_headline_agrees_with_the_numbers() -> None:
    profile = PROFILES["priced"]
    waiting, prep = profile.waiting.later, profile.stalls["prep"].share
    assert waiting is not None and prep is not None
    text = words_of(profile)
    found = re.search(r"Your 2 workers wait ([\d.]+) % \(([\d.]+) to ([\d.]+)\) of the time", text)
    assert found is not None
    shown = [float(number) / 100 for number in found.groups()]
    assert shown == pytest.approx([waiting.estimate, waiting.low, waiting.high], abs=0.0006)
    largest = re.search(r"largest part is prep, ([\d.]+) %", text)
    assert largest is not None
    assert float(largest[1]) / 100 == pytest.approx(prep.estimate, abs=0.0006)
    money = re.search(r"Waiting costs \$([\d.]+) .* of the \$12.24", text)
    assert money is not None
    assert float(money[1]) == pytest.approx(12.24 * waiting.estimate, abs=0.01)


def test_the_first_epoch_is_told_with_its_storage() -> None:
    assert re.search(
        r"In the first epoch they wait 60.\d % .* 20.\d % .* for storage",
        words_of(PROFILES["ordinary"]),
    )


def test_without_a_price_there_are_device_hours_and_no_dollars() -> None:
    text = text_of(PROFILES["ordinary"])
    assert "device-hours" in text and "$" not in text
    assert "device-hours" not in text_of(PROFILES["priced"])


def test_an_emulation_is_said_loudly_and_first() -> None:
    assert text_of(PROFILES["emulated"]).startswith("EMULATED")
    assert "EMULATED" not in text_of(PROFILES["ordinary"])
    assert "measured: 20 rounds in 1 launch" in text_of(PROFILES["ordinary"])


def test_a_stall_that_is_not_significant_says_so_in_words() -> None:
    profile = PROFILES["noise only"]
    for name, stall in profile.stalls.items():
        line = next(
            line for line in text_of(profile).splitlines() if re.match(rf" *{name} +-?\d", line)
        )
        assert ("not significant" in line) == (not stall.significant)
    assert "no significant waiting" in text_of(PROFILES["noise only"])


def test_one_round_claims_no_interval_and_no_significance() -> None:
    text = words_of(PROFILES["one round"])
    assert "from one round, without interval" in text
    assert "no interval" in text and "they need two rounds or more" in text
    assert " yes " not in text


def test_an_intermittent_stall_is_marked_and_explained() -> None:
    text = words_of(PROFILES["intermittent"])
    assert re.search(r"prep .*\bintermittent\b", text)
    assert "An intermittent stall hits some iterations only" in text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one device", "One device: prep and fetch only"),
        ("exchange only", "Not measured: interconnect (needs solo)"),
        ("exchange only", "cannot be told from these steps"),
        ("data only", "what sharing the machine costs was not measured"),
        ("no split", "Not measured: contention (needs unsynced)"),
        ("a gap", "waiting, not told apart 50"),
        ("one step", "cannot be told from these steps"),
        ("failed", "FAILED; the complete rounds are kept."),
        ("failed", "worker 1 died"),
        ("interrupted", "Interrupted; the complete rounds are kept."),
        ("ordinary", "Stopped because every stall is as sure as asked."),
    ],
)
def test_what_is_absent_or_went_wrong_is_said_plainly(name: str, sentence: str) -> None:
    assert sentence in words_of(PROFILES[name])


def test_a_run_that_stopped_early_says_how_sure_it_was() -> None:
    end = End(launch=0, reason="max-minutes", checks=(), peak_device_memory_bytes=())
    profile = profile_of(noisy(HAND_WORKED, noise_seconds=0.03), end=end)
    text = words_of(profile)
    assert "time limit (--max-minutes) before every stall was as sure as asked" in text
    reached = profile.run.half_width_reached
    assert reached is not None
    assert f"Widest half-width: {100 * reached:.2g} % of an iteration, asked 3 %." in text


def test_only_warnings_are_shown_each_with_what_to_do() -> None:
    checks = (
        Check(name="quiet", status="pass", message="Nobody else is here."),
        Check(name="throttling", status="warn", message="The clock fell.", next="Cool it."),
    )
    text = words_of(profile_of(facts_changes={"checks": checks}))
    assert "WARNING throttling: The clock fell. What to do: Cool it." in text
    assert "Nobody else is here." not in text
    assert "2 checks passed." in text


def test_bars_use_another_character_for_every_part() -> None:
    first = bars.breakdowns(PROFILES["ordinary"])[1].segments
    assert [segment.kind for segment in first] == [
        "compute", "contention", "communication", "prep", "fetch",
    ]  # fmt: skip
    for charset in (Charset(ascii_only=True), Charset(ascii_only=False)):
        assert len({charset.mark(segment.kind) for segment in first}) == len(first)


def test_a_bar_is_as_wide_as_asked_and_in_proportion() -> None:
    profile = profile_of([HAND_WORKED] * 5)
    later, first = bars.breakdowns(profile)
    charset = Charset(ascii_only=True)
    assert bars.draw(later.segments, 20, charset).plain == "#" * 10 + "x" + "==" + "-" * 7
    assert bars.draw(first.segments, 25, charset).plain == "#" * 10 + "x" + "==" + "-" * 7 + "/" * 5


def test_a_negative_part_is_listed_with_its_sign_and_not_drawn() -> None:
    profile = profile_of([{**HAND_WORKED, "unsynced": 0.095}] * 5)
    later = bars.breakdowns(profile)[0]
    charset = Charset(ascii_only=True)
    drawn = bars.draw(later.segments, 60, charset).plain
    assert "x" not in drawn and len(drawn) == 60
    assert "x contention -2.5" in bars.legend(later.segments, 80, charset).plain
    assert "negative, not drawn" in bars.legend(later.segments, 80, charset).plain


def test_shares_in_the_legend_add_up_to_the_whole() -> None:
    for breakdown in bars.breakdowns(profile_of([HAND_WORKED] * 5)):
        assert sum(segment.share.estimate for segment in breakdown.segments) == pytest.approx(1)


SMALL = profile_of(noisy(HAND_WORKED, rounds=2), machine_changes={"price_usd_per_hour": 3.0})
SMALL_TEXT = SMALL.model_copy(
    update={"steps": {k: v.model_copy(update={"blocks": ()}) for k, v in SMALL.steps.items()}}
).to_json()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_document_can_be_read_can_be_shown(data: st.DataObject) -> None:
    try:
        profile = Profile.from_json(mutate(data, SMALL_TEXT))
    except StashError:
        return
    lines = text_of(profile).splitlines()
    assert max(cell_len(line) for line in lines) <= 80
