"""The pages of the truth suite: docs/truth.md, its figure and truth.json, from a folder of results.

Every number on the page comes from the results; what misses its bar is said so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coverage_by_kind import by_stolen, summaries
from truth import sources
from truth_experiments import KINDS, experiments
from truth_numbers import (
    INTERCEPT_BAR,
    SLOPE_BAR,
    Fit,
    Result,
    error_percent,
    fit_of,
    leakage,
    measured_percent,
    sweep_of,
    true_percent,
)

from stash.results.validity import STEAL_FRACTION

#: Why bars are missed, as far as it was found out, and how the worlds are made: written by hand.
TEXT = Path(__file__).with_name("truth_text.md")
LEAKAGE_BAR = 2.0
COVERAGE_BAR = (0.90, 0.99)


def write_pages(folder: Path, docs: Path, launches: Path) -> None:
    """Rewrite the three files; what was not measured anew stays as the last ones have it.

    `launches` is what coverage_by_kind.py has kept.
    """
    earlier = _earlier(docs / "truth.json")
    measured = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    results = _experiments(earlier["experiments"], measured)
    if not results:
        raise SystemExit(f"There is no result in {folder}; run the experiments first.")
    coverage = _ordered(summaries(launches)) if launches.exists() else earlier["coverage"]
    stolen = by_stolen(launches) if launches.exists() else earlier["stolen"]
    fits = {kind: fit_of(sweep) for kind in KINDS if len(sweep := sweep_of(results, kind)) > 2}
    summary = {
        "fits": {kind: {**asdict(fit), "met": fit.met} for kind, fit in fits.items()},
        "leakage_percent": leakage(results),
        "coverage": coverage,
        "stolen": stolen,
        "experiments": results,
    }
    (docs / "truth.json").write_text(json.dumps(summary, indent=1) + "\n")
    (docs / "truth.svg").write_text(_figure(results))
    (docs / "truth.md").write_text(_page(results, fits, coverage, stolen))


def _earlier(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"experiments": [], "coverage": [], "stolen": []}
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def _experiments(earlier: Sequence[Result], later: Sequence[Result]) -> list[Result]:
    """The later ones, and those of the earlier ones that still exist and have no successor."""
    known = {one.name for one in experiments()}
    by_name = {one["name"]: one for one in (*earlier, *later) if one["name"] in known}
    return sorted(by_name.values(), key=lambda one: (one["created"], one["name"]))


def _ordered(coverage: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Quiet machines first, then what is about as wide as a profile asks for."""
    return sorted(
        coverage,
        key=lambda one: (
            one["bursts"],
            -one["uneven"],
            not one["undisturbed"],
            -one["rounds"],
            one["world"] == "hidden",
            KINDS.index(one["kind"]),
        ),
    )


def _page(
    results: Sequence[Result],
    fits: dict[str, Fit],
    coverage: Sequence[dict[str, Any]],
    stolen: Sequence[dict[str, Any]],
) -> str:
    return "\n\n".join(
        [
            _head(results),
            "![Measured against put in, and the error, for every kind of stall](truth.svg)",
            "## What comes out of what goes in\n\n" + _fits(fits),
            _sweeps(results),
            "## What leaks into other stalls\n\n" + _leakage(results),
            "## On an ideal device\n\nWithout what devices vary by, intervals are narrow enough to "
            "show what closed forms leave out.\n\n" + _rows(results, "even"),
            "## Hidden delays\n\nA delay that compute hides is no stall. The truth is the part "
            "that is exposed.\n\n" + _rows(results, "masked"),
            "## Two at once, and everything slower\n\n" + _rows(results, "together"),
            "## Nothing put in\n\n`noise` is one step against itself.\n\n" + _rows(results, "null"),
            "## One slow worker\n\nA block lasts as long as its slowest worker, and one worker "
            "alone is the fast one: the wait is contention.\n\n" + _rows(results, "slow worker"),
            "## Real links\n\n" + _links(results),
            *(["## Are the intervals honest?\n\n" + _coverage(coverage)] if coverage else []),
            *([_stolen(stolen)] if stolen else []),
            "## What misses its bar\n\n" + _missed(results, fits, coverage),
            TEXT.read_text(),
        ]
    )


def _head(results: Sequence[Result]) -> str:
    days = sorted({one["created"][:10] for one in results})
    machine = results[-1]["machine"]
    processors = " and ".join(dict.fromkeys(one["machine"]["cpu"] for one in results))
    minutes = sum(one["seconds"] for one in results) / 60
    return f"""# Truth: known stalls go in, the same stalls come out

Two workers train on emulated devices. Delays of known length are put in from outside the measuring
code: into the exchange of gradients, into iterations beside another worker, into the data set; data
lie on a disk that is really throttled, and links between workers and between hosts are really slow.
What each stall must then be follows from closed forms, not from another measurement. This page is
written by

```
make truth
```

Measured on {" to ".join(dict.fromkeys((days[0], days[-1])))}: {len(results)} experiments,
{minutes:.0f} minutes, half-width asked 0.5 % of an iteration; {processors}, {machine["cores"]}
cores, {machine["system"]}, torch {machine["torch"]}. All figures are percent of an iteration that
waits for nothing, with 95 % intervals. [truth.json](truth.json) has them all.{_older(results)}"""


def _older(results: Sequence[Result]) -> str:
    """Said where the code that measures is another one by now."""
    now = sources()
    older = sum(one.get("sources") != now for one in results)
    if not older:
        return ""
    which = "all of them" if older == len(results) else f"{older} of them"
    return f"\n\nWhat measures has been changed since {which} were measured."


def _fits(fits: dict[str, Fit]) -> str:
    rows = [
        [
            f"`{kind}`",
            str(fit.amounts),
            f"{fit.slope:.4f}",
            f"{fit.intercept:+.2f} ({fit.intercept - fit.intercept_half_width:+.2f} to "
            f"{fit.intercept + fit.intercept_half_width:+.2f})",
            f"{fit.r_squared:.5f}",
            "met" if fit.met else "**missed**",
        ]
        for kind, fit in fits.items()
    ]
    bar = f"slope 1 +- {SLOPE_BAR}, intercept around 0 within +-{INTERCEPT_BAR:g} %"
    return _table(["stall", "amounts", "slope", "intercept, %", "R²", bar], rows)


def _sweeps(results: Sequence[Result]) -> str:
    rows = [
        [f"`{kind}`", f"{true_percent(one, kind):.2f}", _interval(one, kind), _signed(one, kind)]
        for kind in KINDS
        for one in sweep_of(results, kind)
    ]
    return _table(["stall", "put in, %", "measured, %", "error"], rows)


def _leakage(results: Sequence[Result]) -> str:
    found = leakage(results)
    rows = [
        [f"`{kind}`", *(f"{others[o]:+.2f}" if o in others else "" for o in KINDS)]
        for kind, others in found.items()
    ]
    words = (
        "The largest error of each other stall over the amounts of a sweep, in percent of an "
        f"iteration; the bar is {LEAKAGE_BAR:g}.\n\n"
    )
    return words + _table(["put in", *(f"`{kind}`" for kind in KINDS)], rows)


def _rows(results: Sequence[Result], group: str) -> str:
    rows = []
    for one in (r for r in results if r["group"] == group):
        for stall in one["measured"]:
            if stall in one["truth_seconds"]:
                significant = "yes" if one["measured"][stall]["significant"] else "no"
                true = f"{true_percent(one, stall):.2f}"
                rows.append([one["about"], f"`{stall}`", true, _interval(one, stall), significant])
    return _table(["world", "stall", "true, %", "measured, %", "significant"], rows)


def _links(results: Sequence[Result]) -> str:
    rows = [
        [
            one["about"],
            f"{true_percent(one, 'communication'):.2f}",
            _interval(one, "communication"),
            f"{measured_percent(one, 'communication') / true_percent(one, 'communication'):.3f}",
            f"{one['wire']['ratio']:.3f}",
        ]
        for one in results
        if one["group"] == "links"
    ]
    words = (
        "The loopback of a network namespace, slowed by a token bucket. Truth: the overlap "
        "recurrence with the\nlink's goodput. The last column proves that gradients crossed the "
        "link: bytes counted there over bytes\nthat an all-reduce between two workers must send; "
        "headers are the rest.\n\n"
    )
    head = ["world", "communication by recurrence, %", "measured, %", "measured / true"]
    return words + _table([*head, "bytes on the wire / closed form"], rows)


def _coverage(coverage: Sequence[dict[str, Any]]) -> str:
    rows = [
        [
            _named(one),
            "loaded in bursts" if one["bursts"] else "as it is",
            "" if (stolen := one.get("stolen_percent")) is None else f"{stolen:.1f} %",
            f"+-{100 * one['uneven']:g} %",
            str(one["rounds"]),
            f"{one['covered']} of {one['profiles']}",
            f"{one['truth_ms']:.2f}",
            f"{one['mean_half_width_ms']:.2f}",
            f"{one['mean_error_ms']:+.2f} +- {one['error_half_width_ms']:.2f}",
        ]
        for one in coverage
    ]
    command = "python benchmarks/coverage_by_kind.py --append benchmarks/measured/coverage.jsonl"
    words = (
        "Launches of three worlds, their rounds cut into profiles: one with communication,\n"
        "contention and prep at once, one in which compute hides an exchange of 5 % of an\n"
        "iteration and batches that take 60 %, so that both stalls are zero, and one with a slow\n"
        "disk (`--only disk`), whose rounds take longer: it has profiles of eight (`--rounds 8`).\n"
        "Iterations of all vary: the doubt that intervals tell of is then larger than what closed\n"
        "forms leave out. With +-5 % intervals are about as wide as a profile asks for by\n"
        "default, with +-2 % (`--uneven 0.02`) less than half as wide where little is stolen.\n"
        "They should hold the truth in 90 to 99 of 100 profiles. Bursts load every core for 0.5\n"
        "to 4 s, with pauses of 1 to 8 s (`--bursts`). *Stolen* is the part of the processors'\n"
        "time that the machine's host gave to others; empty where that was not recorded of all\n"
        "launches. Launches that lost no more than a profile warns of (2 %) have rows of their\n"
        "own. The network stall has its own benchmark ([clusters](clusters.md)).\n\n"
        f"```\n{command}\n```\n\n"
    )
    head = ["stall", "machine", "stolen", "iterations vary by", "rounds of a profile"]
    head += ["intervals that hold the truth"]
    return words + _table([*head, "truth, ms", "mean half-width, ms", "mean error, ms"], rows)


def _named(one: dict[str, Any]) -> str:
    return f"hidden `{one['kind']}`" if one["world"] == "hidden" else f"`{one['kind']}`"


def _stolen(groups: Sequence[dict[str, Any]]) -> str:
    words = (
        "What stolen time does to errors: all quiet profiles of the first world in which it was\n"
        "recorded, in groups of one size, from the least stolen to the most. With 95 % intervals\n"
        "of the mean error, as if profiles of a group were independent:\n\n"
    )
    kinds = list(groups[0]["error_ms"])
    rows = [
        [
            "{:.1f} to {:.1f} %".format(*one["stolen_percent"]),
            str(one["profiles"]),
            *("{:+.2f} +- {:.2f}".format(*one["error_ms"][kind]) for kind in kinds),
        ]
        for one in groups
    ]
    return words + _table(["stolen", "profiles", *(f"`{kind}`, ms" for kind in kinds)], rows)


def _missed(
    results: Sequence[Result], fits: dict[str, Fit], coverage: Sequence[dict[str, Any]]
) -> str:
    missed = [f"- `{kind}`: slope or intercept, see above" for kind, f in fits.items() if not f.met]
    missed += [
        f"- leakage of `{kind}` into `{other}`: {error:+.2f} %"
        for kind, others in leakage(results).items()
        for other, error in others.items()
        if abs(error) > LEAKAGE_BAR
    ]
    missed += [
        f"- {one['about']}: `{stall}` is called significant"
        for one in results
        for stall in (one.get("hides"), "noise")  # `noise`: where a step is run against itself
        if one["measured"].get(stall, {}).get("significant")
    ]
    missed += [
        f"- coverage of {_named(one)}{' under bursts of load' if one['bursts'] else ''}, "
        f"iterations that vary by +-{100 * one['uneven']:g} %{_disturbed(one, coverage)}: "
        f"{one['covered']} of {one['profiles']}"
        for one in coverage
        if one["uneven"]
        and not COVERAGE_BAR[0] <= one["covered"] / one["profiles"] <= COVERAGE_BAR[1]
    ]
    return "\n".join(missed or ["Nothing."]) + f"\n\n{_false_alarms(results)}"


def _disturbed(one: dict[str, Any], coverage: Sequence[dict[str, Any]]) -> str:
    """Said where launches on an undisturbed machine have a row of their own."""
    alike = ("kind", "world", "bursts", "uneven", "rounds")
    rows = [row for row in coverage if all(row[key] == one[key] for key in alike)]
    if len(rows) == 1:
        return ""
    little = f"{100 * STEAL_FRACTION:g} % or less stolen"
    return f", {little}" if one["undisturbed"] else f", launches without proof of {little}"


def _false_alarms(results: Sequence[Result]) -> str:
    """Of stalls that are zero by the closed forms, how many are called significant."""
    zeros = [
        (one, stall)
        for one in results
        for stall, true in one["truth_seconds"].items()
        if true == 0 and stall in one["measured"]
    ]
    called = [(one, stall) for one, stall in zeros if one["measured"][stall]["significant"]]
    largest = max((abs(measured_percent(*found)) for found in called), default=0.0)
    return (
        f"Of all {len(zeros)} stalls on this page that are zero by the closed forms, {len(called)} "
        "are called significant; of 95 %\nintervals 5 in 100 are expected to be. The largest of "
        f"them is {largest:.2f} % of an iteration."
    )


def _interval(result: Result, stall: str) -> str:
    value, low, high = (measured_percent(result, stall, e) for e in ("estimate", "low", "high"))
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _signed(result: Result, stall: str) -> str:
    return f"{error_percent(result, stall):+.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _figure(results: Sequence[Result]) -> str:
    """Left: measured against put in. Right: the error, with its interval. One SVG document."""
    import altair as alt
    import vl_convert

    points = [
        {
            "stall": kind,
            "true": true_percent(one, kind),
            "amount": f"{true_percent(one, kind):g}",
            "measured": measured_percent(one, kind),
            **{e: measured_percent(one, kind, e) - true_percent(one, kind) for e in _ENDS},
        }
        for kind in KINDS
        for one in sweep_of(results, kind)
    ]
    base = alt.Chart(alt.Data(values=points)).properties(width=300, height=300)
    put_in = alt.X("true:Q", title="put in, % of an iteration").scale(type="log", domain=[1.5, 130])
    colour = alt.Color("stall:N", title=None)
    ideal = alt.Chart(alt.Data(values=[{"v": 1.5}, {"v": 130}])).mark_line(color="lightgray")
    log = alt.Scale(type="log", domain=[1.5, 130])
    left = ideal.encode(x=alt.X("v:Q").scale(log), y=alt.Y("v:Q").scale(log)) + base.mark_point(
        filled=True, size=50
    ).encode(
        x=put_in,
        y=alt.Y("measured:Q", title="measured, % of an iteration").scale(log),
        color=colour,
    )
    error = alt.Y("estimate:Q", title="error, % of an iteration")
    dodge = alt.XOffset("stall:N")
    amount = alt.X("amount:O", title="put in, % of an iteration", sort=alt.SortField("true"))
    amount = amount.axis(labelAngle=0)
    right = base.mark_point(filled=True, size=40).encode(
        x=amount, xOffset=dodge, y=error, color=colour
    ) + base.mark_rule().encode(
        x=amount, xOffset=dodge, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    return str(vl_convert.vegalite_to_svg((left | right).to_dict()))


_ENDS = ("estimate", "low", "high")
