"""A stall as a card: what it means, how large it is, what it costs, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from stash.report import words
from stash.report.advice import Advice, advise
from stash.report.characters import harmless
from stash.report.facts import iteration_unit, paper_words, stalls_in_order
from stash.report.figures import derived, percentage, written
from stash.results.profile import Profile, StallResult
from stash.results.steps import STALL_BY_NAME

NAME_LIMIT = 40
NO_SHARE = (
    "It tells links apart and is no part of an epoch: some devices stand idle in its steps. What "
    "several nodes cost in training is scale-out."
)


@dataclass(frozen=True)
class Card:
    """What one stall's card says, in words and rounded numbers."""

    name: str
    kind: str  # chooses the colour
    part_of: str | None
    meaning: str
    how: str  # which steps are subtracted
    significant: bool
    verdict: str
    seconds: str
    share: str
    share_estimate: float | None
    paper: str
    finds: str
    usd: str | None
    advice: Advice | None
    remark: str  # what to do where there is no advice


def cards(profile: Profile) -> list[Card]:
    """One card a stall, in the method's order."""
    given = {one.stall: one for one in advise(profile)}
    return [
        _card(profile, name, stall, given.get(name)) for name, stall in stalls_in_order(profile)
    ]


def _card(profile: Profile, name: str, stall: StallResult, advice: Advice | None) -> Card:
    unit, factor = iteration_unit(profile)
    known = STALL_BY_NAME.get(name)
    finds = words.detectable(stall, factor)
    share = stall.share if stall.share is not None else stall.share_of_first_epoch
    usd = stall.usd_per_hour_of_training
    return Card(
        name=harmless(name, limit=NAME_LIMIT),
        kind=name,
        part_of=None if stall.part_of is None else harmless(stall.part_of, limit=NAME_LIMIT),
        meaning=known.meaning if known else "a stall that this version of Stash does not know",
        how=_difference(name),
        significant=stall.significant,
        verdict=words.verdict(stall),
        seconds=f"{written(stall.seconds_per_iteration, unit, factor)} per iteration",
        share=_share_words(stall),
        share_estimate=None if share is None else share.estimate,
        paper=paper_words(stall, lambda text: harmless(text, limit=NAME_LIMIT)),
        finds=finds if finds == "-" else f"{finds} {unit}",
        usd=None if usd is None else f"{written(usd, '$')} {_hour(stall)}",
        advice=advice,
        remark=_remark(profile, name, stall),
    )


def _share_words(stall: StallResult) -> str:
    if stall.share is not None:
        return f"{percentage(stall.share)} of the time"
    if stall.share_of_first_epoch is not None:
        return f"{percentage(stall.share_of_first_epoch)} of the first epoch"
    return "no part of an epoch"


def _hour(stall: StallResult) -> str:
    of = "of training" if stall.share is not None else "of the first epoch"
    return f"of every hour {of}"


def _difference(name: str) -> str:
    stall = STALL_BY_NAME.get(name)
    if stall is None:
        return ""
    signs = {1: "+", -1: "\N{MINUS SIGN}"}
    return " ".join(f"{signs[sign]} {step}" for sign, step in stall.terms).removeprefix("+ ")


def _remark(profile: Profile, name: str, stall: StallResult) -> str:
    """Why there is nothing to advise; never advice itself."""
    unit, factor = iteration_unit(profile)
    smallest = stall.detectable_seconds_per_iteration
    if not stall.significant:
        if smallest is None:
            return "Not significant: one round has no interval. Measure longer."
        found = written(derived(smallest), unit, factor)
        return f"Not significant, so there is nothing to do. More than {found} would be found."
    if stall.seconds_per_iteration.estimate <= 0:
        return "It is negative: nothing waits here."
    parts = [part for part, one in profile.stalls.items() if one.part_of == name and part != "copy"]
    if parts:
        told = " and ".join(harmless(part, limit=NAME_LIMIT) for part in parts)
        return f"Its parts are told apart: see {told}."
    if stall.share is None and stall.share_of_first_epoch is None:
        return NO_SHARE
    return "Too small to be worth a change, or nothing is known that would help."
