"""The iteration as a stacked bar: what its time is made of, in shares that add up to the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from stash.report.characters import Charset
from stash.report.figures import derived, figure, with_unit
from stash.results.document import Interval
from stash.results.profile import Profile, StallResult
from stash.results.steps import STALL_BY_NAME, Terms, compute_step
from stash.results.whole import has_data, iteration_seconds, whole_step, whole_terms

STYLES = {
    "compute": "green",
    "contention": "magenta",
    "communication": "blue",
    "interconnect": "blue",
    "scale-out": "cyan",
    "prep": "yellow",
    "fetch": "red",
}
GAP = "   "


@dataclass(frozen=True)
class Segment:
    """One part of an iteration; `kind` chooses its character and colour."""

    kind: str
    label: str
    share: Interval
    significant: bool = True


@dataclass(frozen=True)
class Breakdown:
    """One kind of iteration and the parts of its time."""

    title: str
    seconds: Interval
    segments: tuple[Segment, ...]


def breakdowns(profile: Profile) -> list[Breakdown]:
    """Later epochs, then the first one, as far as they were measured."""
    result = []
    whole = whole_step(profile)
    if whole != "cold" and iteration_seconds(profile) is not None:
        title = "Later epochs" if has_data(profile) else f"Without data (step {whole})"
        result.append(_breakdown(profile, title, first=False))
    if iteration_seconds(profile, first=True) is not None:
        result.append(_breakdown(profile, "First epoch", first=True))
    return [one for one in result if len(one.segments) > 1]


def _breakdown(profile: Profile, title: str, *, first: bool) -> Breakdown:
    seconds, whole = iteration_seconds(profile, first=first), whole_terms(profile, first=first)
    assert seconds is not None and whole is not None
    waiting = profile.waiting.first if first else profile.waiting.later
    stalls = _shown_stalls(profile, first=first)
    segments = [_segment(name, stall, first=first) for name, stall in stalls.items()]
    explained = sum(segment.share.estimate for segment in segments)
    if waiting is None:
        rest = derived(1 - explained)
    else:
        rest = _complement(waiting)
        if not _explain_everything(stalls, whole, compute_step(set(profile.steps))):
            left = derived(waiting.estimate - explained)
            segments.append(Segment("waiting", "waiting, not told apart", left))
    segments.insert(0, Segment("compute", _rest_label(profile, stalls), rest))
    return Breakdown(title, seconds, tuple(segments))


def _shown_stalls(profile: Profile, *, first: bool) -> dict[str, StallResult]:
    """Stalls that make up the time without counting any part twice."""
    found = profile.stalls
    split = "contention" in found and "communication" in found
    names = ["contention", "communication"] if split else ["interconnect"]
    if not split and "interconnect" not in found:
        names = ["contention", "communication"]
    names += ["scale-out", "prep", "fetch"] if first else ["scale-out", "prep"]
    shares = {name: _share(found[name], first=first) for name in names if name in found}
    return {name: found[name] for name, share in shares.items() if share is not None}


def _share(stall: StallResult, *, first: bool) -> Interval | None:
    return stall.share_of_first_epoch if first else stall.share


def _segment(name: str, stall: StallResult, *, first: bool) -> Segment:
    share = _share(stall, first=first)
    assert share is not None
    return Segment(name, name, share, stall.significant)


def _complement(share: Interval) -> Interval:
    return derived(
        1 - share.estimate,
        None if share.high is None else 1 - share.high,
        None if share.low is None else 1 - share.low,
    )


def _explain_everything(stalls: dict[str, StallResult], whole: Terms, alone: str | None) -> bool:
    """Whether these stalls add up to the whole iteration over one worker's compute."""
    if alone is None:
        return not stalls
    told = [term for name in stalls for term in STALL_BY_NAME[name].terms]
    return _summed(told) == _summed([*whole, (-1, alone)])


def _summed(terms: Sequence[tuple[int, str]]) -> dict[str, int]:
    """Steps with their coefficients, without those that cancel."""
    found: dict[str, int] = {}
    for sign, step in terms:
        found[step] = found.get(step, 0) + sign
    return {step: coefficient for step, coefficient in found.items() if coefficient}


def _rest_label(profile: Profile, stalls: dict[str, StallResult]) -> str:
    if profile.machine.workers == 1 or "solo" in profile.steps:
        return "compute"
    return "compute, contention" if "communication" in stalls else "compute, interconnect"


def draw(segments: Sequence[Segment], width: int, charset: Charset) -> Text:
    """The bar itself; parts that are negative cannot be drawn."""
    text = Text(no_wrap=True, overflow="crop")
    shares = [max(0.0, segment.share.estimate) for segment in segments]
    for segment, cells in zip(segments, _cells(shares, width), strict=True):
        text.append(charset.mark(segment.kind) * cells, style=STYLES.get(segment.kind, "dim"))
    return text


def legend(segments: Sequence[Segment], width: int, charset: Charset) -> Text:
    """What each character of the bar stands for, with its share and sign."""
    text = Text()
    column = 0
    for segment in segments:
        entry = f"{charset.mark(segment.kind)} {legend_words(segment)}"
        if column:
            fits = column + len(GAP) + len(entry) <= width
            text.append(GAP if fits else "\n")
            column = column + len(GAP) if fits else 0
        text.append(entry[0], style=STYLES.get(segment.kind, "dim"))
        text.append(entry[1:])
        column += len(entry)
    return text


def legend_words(segment: Segment) -> str:
    """A part of a bar with its share, its sign, and whether it is there at all."""
    words = f"{segment.label} {with_unit(figure(segment.share, 100).estimate, '%')}"
    notes = []
    if segment.share.estimate < 0:
        notes.append("negative, not drawn")
    if not segment.significant:
        notes.append("not significant")
    return f"{words} ({'; '.join(notes)})" if notes else words


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells in proportion to the shares, together exactly the width (largest remainders)."""
    total = sum(shares)
    if total <= 0:
        return [0] * len(shares)
    exact = [share / total * width for share in shares]
    cells = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: cells[i] - exact[i])
    for index in by_remainder[: width - sum(cells)]:
        cells[index] += 1
    return cells
