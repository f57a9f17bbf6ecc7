"""The page: agrees with the profile, keeps to what is sure, and shows names as text."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mutations import mutate
from pages import MARKUP, Node, cards_of, changed, hostile_profile, read
from profiles import HAND_WORKED, noisy, profile_of
from stash.errors import StashError
from stash.report import words
from stash.report.advice import advise
from stash.report.characters import harmless
from stash.report.page import page_of, save_page
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance

PRICED = profile_of(machine_changes={"price_usd_per_hour": 24.48})
MANY_NODES = ("cluster", "spread", "scaleout")
NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"


@pytest.fixture(scope="module")
def priced_text() -> str:
    return page_of([PRICED])


@pytest.fixture(scope="module")
def priced(priced_text: str) -> Node:
    return read(priced_text)


@pytest.fixture(scope="module")
def several() -> Node:
    slower = profile_of(noisy({**HAND_WORKED, "warm": 0.3, "cold": 0.35}, seed=1))
    same = profile_of(noisy(HAND_WORKED, seed=2))
    other = profile_of(workload_changes={"batch_per_worker": 64})
    return read(page_of([profile_of(), slower, same, other]))


def test_the_page_opens_with_the_headline_and_then_the_bar(priced: Node) -> None:
    assert priced.only("h1").text() == words.headline(PRICED)[0]
    lead = [one.text() for one in priced.all("p", "lead")]
    assert lead == words.headline(PRICED)[1:]
    assert any("$" in sentence and "$24.48" in sentence for sentence in lead)
    charts = [str(one.attributes["data-chart"]) for one in priced.all("figure")]
    assert charts == ["iteration", "stalls", "blocks", "rates", "workers", "load"]


def test_every_part_that_was_promised_is_there_in_order(priced: Node) -> None:
    assert [one.text() for one in priced.all("h2")] == [
        "Stalls, and what to do about them",
        "Steps and rounds",
        "What each part sustains alone",
        "Workers",
        "Load over the run",
        "The machine",
        "Checks",
        "How it was measured",
        "Raw numbers",
    ]


def test_every_picture_has_a_finding_and_the_same_in_words(priced: Node) -> None:
    for figure in priced.all("figure"):
        title = figure.only("figcaption").text()
        said = figure.only("details", "words").only("p").text()
        pictures = figure.all("svg")
        assert len(pictures) == 2
        for picture in pictures:
            assert picture.attributes["role"] == "img"
            assert picture.attributes["aria-label"] == f"{title} {said}"


def test_the_page_can_ask_for_nothing(priced_text: str, priced: Node) -> None:
    page = priced_text
    policy = next(
        str(one.attributes["content"])
        for one in priced.all("meta")
        if one.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    links = [str(one.attributes["href"]) for one in priced.all() if "href" in one.attributes]
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert not any("src" in one.attributes for one in priced.all())
    assert not re.search(r"url\((?!#)|@import", page)


def test_a_page_is_small(priced_text: str) -> None:
    assert len(priced_text.encode()) < 1_000_000


def test_ids_on_a_page_are_unique(several: Node) -> None:
    ids = [one.attributes["id"] for one in several.all() if "id" in one.attributes]
    assert len(ids) == len(set(ids))


def agrees(shown: str, value: Interval, factor: float) -> bool:
    """Whether a rounded figure is the number, with no more digits than its interval justifies."""
    pattern = rf"{NUMBER}(?: [^(]*?)?(?: \({NUMBER} to {NUMBER}\))?"
    found = re.match(pattern, shown.replace("$", ""))
    assert found is not None, shown
    places = len(found[1].partition(".")[2].partition("e")[0])
    estimate, half_width = abs(value.estimate) * factor, 0.0
    if value.low is None or value.high is None:
        assert found[2] is None
        slack = 0.06 * estimate  # two digits
    else:
        half_width = max(value.high - value.estimate, value.estimate - value.low) * factor
        slack = half_width / 2 + 0.006 * estimate
    unit = 10.0**-places
    if places and half_width / unit >= 20:
        return False
    numbers = (value.estimate, value.low, value.high)
    return all(
        text is None
        or (number is not None and abs(float(text) - number * factor) <= unit / 2 + slack)
        for text, number in zip(found.groups(), numbers, strict=True)
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any run: stalls of any sign and size, of one node or more, quiet or noisy, priced or not."""
    steps = draw(st.sets(st.sampled_from(sorted(HAND_WORKED)), min_size=2))
    steps |= draw(st.sets(st.sampled_from(MANY_NODES)))
    rounds = noisy(
        {step: draw(st.floats(0.02, 0.5)) for step in (*HAND_WORKED, *MANY_NODES) if step in steps},
        rounds=draw(st.integers(1, 12)),
        noise_seconds=draw(st.sampled_from([1e-5, 0.002, 0.05])),
        seed=draw(st.integers(0, 1000)),
    )
    price = draw(st.none() | st.floats(0.1, 100.0))
    made = profile_of(rounds, machine_changes={"price_usd_per_hour": price})
    return changed(made, provenance=draw(st.sampled_from(list(Provenance))))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(profiles(), min_size=7, max_size=9))
def test_headline_and_cards_agree_with_any_profile(found: list[Profile]) -> None:
    page = read(page_of(found))
    sections = page.all("section", "profile")
    for section, profile in zip(sections, found, strict=True):
        headline = " ".join(one.text() for one in section.all("h2") + section.all("p", "lead"))
        assert headline == " ".join(words.headline(profile))
        assert profile.provenance.value in section.classes
        cards = cards_of(section)
        assert set(cards) == set(profile.stalls)
        advised = {one.stall for one in advise(profile)}
        for name, stall in profile.stalls.items():
            check_card(cards[name], profile, name, advised=name in advised)
            assert "unsure" in cards[name].classes or stall.significant


def check_card(card: Node, profile: Profile, name: str, *, advised: bool) -> None:
    stall = profile.stalls[name]
    share = stall.share or stall.share_of_first_epoch
    said = card.only("span", "share").text()
    if share is not None:
        assert agrees(said, share, 100.0), (said, share)
    figures = {one.only("dt").text(): one.only("dd").text() for one in card.all("div")[1:]}
    factor = 1e3 if " ms " in figures["Size"] else 1e6 if " us " in figures["Size"] else 1.0
    assert agrees(figures["Size"], stall.seconds_per_iteration, factor), figures["Size"]
    if stall.usd_per_hour_of_training is not None:
        cost = figures["Costs"]
        assert agrees(cost, stall.usd_per_hour_of_training, 1.0), cost
    else:
        assert "Costs" not in figures
    told = bool(card.all("p", "advice"))
    assert told == advised
    if not stall.significant:
        assert not told and "not significant" in card.only("summary").text()


def test_stalls_of_several_nodes_have_cards_and_only_what_trains_has_advice() -> None:
    times = {"solo": 0.1, "unsynced": 0.11, "node": 0.12, "cluster": 0.15, "scaleout": 0.2}
    profile = profile_of(noisy(times), machine_changes={"nodes": 2, "price_usd_per_hour": 3.0})
    page = read(page_of([profile]))
    cards = cards_of(page)
    assert "exchange less" in cards["scale-out"].only("p", "advice").text()
    assert "$" in cards["scale-out"].text()
    assert page.only("h1").text().startswith("Your 4 workers wait ")
    assert "scale-out" in page.all("p", "lead")[0].text()
    assert "scale-out" in page.all("figure")[0].text()
    assert not cards["network"].all("p", "advice")


def test_what_was_not_measured_looks_different_everywhere(priced_text: str) -> None:
    drawn = page_of([profile_of(machine_changes={"device": "emulated:v100"})])
    page = read(drawn)
    section = page.only("section")
    assert "emulated" in section.classes
    assert page.only("p", "banner").text().startswith("EMULATED")
    assert page.only("span", "badge").text() == "emulated"
    assert drawn.count('stroke-dasharray="6,3"') > 10
    assert 'stroke-dasharray="6,3"' not in priced_text


def test_several_profiles_stand_side_by_side_with_significance(several: Node) -> None:
    page = several
    rows = page.only("table", "compared").only("tbody").all("tr")
    headings = [one.text() for one in page.only("table", "compared").all("th")][:8]
    prep = headings.index("prep, %") - 1
    cells = [row.all("td")[prep] for row in rows]
    assert not cells[0].all("small", "change")
    assert cells[1].all("small", "more") and "+" in cells[1].text()
    assert "not significant" in cells[2].text()
    assert not cells[3].all("small", "change")
    assert "not compared: workload.batch_per_worker is 32 in one, 64 in the other" in rows[3].text()


def test_more_profiles_than_can_be_drawn_are_still_all_told() -> None:
    many = [profile_of(noisy(HAND_WORKED, rounds=3, seed=seed)) for seed in range(9)]
    page = read(page_of(many))
    assert len(page.all("section", "profile")) == 9
    assert [str(one.attributes["data-chart"]) for one in page.all("figure")] == ["overview"]
    assert len(page.only("table", "compared").only("tbody").all("tr")) == 9


@pytest.mark.parametrize("copies", [1, 8])
def test_markup_in_names_is_text(copies: int) -> None:
    page = page_of([hostile_profile()] * copies)
    tree = read(page)
    shown = harmless(MARKUP, limit=60)
    assert shown[:50] in tree.text()
    assert len(tree.all("script")) == 1 and not tree.all("img")
    assert not any(name.startswith("on") for one in tree.all() for name in one.attributes)
    assert "\x1b" not in page and "\u202e" not in page
    page.encode("utf-8")


def test_a_profile_without_blocks_has_a_page_of_what_it_knows() -> None:
    made = profile_of()
    steps = {name: step.model_copy(update={"blocks": ()}) for name, step in made.steps.items()}
    predicted = changed(made, steps=steps, telemetry={}, provenance=Provenance.PREDICTED)
    page = read(page_of([predicted]))
    charts = [str(one.attributes["data-chart"]) for one in page.all("figure")]
    assert charts == ["iteration", "stalls", "rates"]
    assert "PREDICTED by a model: nothing here was measured." in page.text()


SMALL = profile_of(noisy(HAND_WORKED, rounds=2), machine_changes={"price_usd_per_hour": 3.0})


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_document_can_be_read_becomes_a_page(data: st.DataObject) -> None:
    try:
        profile = Profile.from_json(mutate(data, SMALL.to_json()))
    except StashError:
        return
    read(page_of([profile])).only("h1")


def test_a_page_is_written_whole_and_never_over_another(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    assert save_page("one", target) == target
    with pytest.raises(StashError, match="without --force"):
        save_page("two", target)
    assert target.read_text() == "one"
    save_page("two", target, force=True)
    assert target.read_text() == "two" and list(target.parent.iterdir()) == [target]
    with pytest.raises(StashError, match="Name another file with -o"):
        save_page("three", target / "report.html")
