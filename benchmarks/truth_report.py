"""The pages of the truth suite: docs/truth.md, its figure and truth.json, from a folder of results.

Every number on the page comes from the results; what misses its bar is said so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coverage_by_kind import summaries
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

LEAKAGE_BAR = 2.0
COVERAGE_BAR = (0.90, 0.99)
#: What makes one row of coverage comparable with another.
ALIKE = ("kind", "bursts", "uneven", "rounds")


def write_pages(folder: Path, docs: Path, launches: Path) -> None:
    """Rewrite the three files; what was not measured anew stays as the last ones have it.

    `launches` is what coverage_by_kind.py has kept.
    """
    earlier = _earlier(docs / "truth.json")
    measured = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    results = _experiments(earlier["experiments"], measured)
    if not results:
        raise SystemExit(f"There is no result in {folder}; run the experiments first.")
    covered = summaries(launches) if launches.exists() else []
    coverage = _fullest(earlier["coverage"], covered)
    fits = {kind: fit_of(sweep) for kind in KINDS if len(sweep := sweep_of(results, kind)) > 2}
    summary = {
        "fits": {kind: {**asdict(fit), "met": fit.met} for kind, fit in fits.items()},
        "leakage_percent": leakage(results),
        "coverage": coverage,
        "experiments": results,
    }
    (docs / "truth.json").write_text(json.dumps(summary, indent=1) + "\n")
    (docs / "truth.svg").write_text(_figure(results))
    (docs / "truth.md").write_text(_page(results, fits, coverage))


def _earlier(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"experiments": [], "coverage": []}
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def _experiments(earlier: Sequence[Result], later: Sequence[Result]) -> list[Result]:
    """The later ones, and those of the earlier ones that still exist and have no successor."""
    known = {one.name for one in experiments()}
    by_name = {one["name"]: one for one in (*earlier, *later) if one["name"] in known}
    return sorted(by_name.values(), key=lambda one: (one["created"], one["name"]))


def _fullest(
    earlier: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Of rows that tell of the same, the one with the most profiles; the later of two alike."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in sorted((*earlier, *later), key=lambda one: int(one["profiles"])):
        rows[tuple(one[key] for key in ALIKE)] = one
    order = sorted(rows.values(), key=lambda one: KINDS.index(one["kind"]))
    return sorted(order, key=lambda one: (one["bursts"], -one["uneven"], -one["rounds"]))


def _page(
    results: Sequence[Result], fits: dict[str, Fit], coverage: Sequence[dict[str, Any]]
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
            "## What misses its bar\n\n" + _missed(results, fits, coverage),
            _METHOD,
        ]
    )


def _head(results: Sequence[Result]) -> str:
    days = sorted({one["created"][:10] for one in results})
    machine = results[0]["machine"]
    minutes = sum(one["seconds"] for one in results) / 60
    older = sum(one.get("sources") != sources() for one in results)
    before = (
        f"\n\n{older} of them were measured before the last change of what measures them."
        if older
        else ""
    )
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
{minutes:.0f} minutes, half-width asked 0.5 % of an iteration; {machine["cpu"]}, {machine["cores"]}
cores, {machine["system"]}, torch {machine["torch"]}. All figures are percent of an iteration that
waits for nothing, with 95 % intervals. [truth.json](truth.json) has them all.{before}"""


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
            f"`{one['kind']}`",
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
    command = "python benchmarks/coverage_by_kind.py"
    words = (
        "Launches of two worlds, their rounds cut into profiles: one world with communication,\n"
        "contention and prep at once, and one with a slow disk, whose rounds take longer: it has\n"
        "profiles of eight (`--rounds 8`). Iterations of both vary: the doubt that intervals tell\n"
        "of is then larger than what closed forms leave out. With +-5 % intervals are about as\n"
        "wide as a profile asks for by default, with +-2 % (`--uneven 0.02`) less than half as\n"
        "wide. They should hold the truth in 90 to 99 of 100 profiles. Bursts load every core for\n"
        "0.5 to 4 s, with pauses of 1 to 8 s. *Stolen* is the part of the processors' time that\n"
        "the machine's host gave to others; empty where that was not recorded. The network stall\n"
        "has its own benchmark ([clusters](clusters.md)).\n\n"
        "```\n"
        f"{command} --append benchmarks/measured/coverage.jsonl\n"
        f"{command} --bursts --append benchmarks/measured/coverage.jsonl\n"
        "```\n\n"
    )
    head = ["stall", "machine", "stolen", "iterations vary by", "rounds of a profile"]
    head += ["intervals that hold the truth"]
    return words + _table([*head, "truth, ms", "mean half-width, ms", "mean error, ms"], rows)


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
        f"- coverage of `{one['kind']}`{' under bursts of load' if one['bursts'] else ''}, "
        f"iterations that vary by +-{100 * one['uneven']:g} %: "
        f"{one['covered']} of {one['profiles']}"
        for one in coverage
        if one["uneven"]
        and not COVERAGE_BAR[0] <= one["covered"] / one["profiles"] <= COVERAGE_BAR[1]
    ]
    return "\n".join(missed or ["Nothing."]) + f"\n\n{_false_alarms(results)}\n\n{_WHY}"


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
        f"them is {largest:.2f} % of an iteration: what the closed forms\nleave out."
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

_WHY = """**Why.** On devices that are exactly even, intervals of some hundredths of a percent of an
iteration, some hundredths of a millisecond, show what closed forms leave out:

- *An exchange that is partly hidden* reads too long: by 0.9 +- 0.5 %, and by 0.42 +- 0.04 % on an
  ideal device, the day before. What DDP does after its last message hides under the backward
  pass in `unsynced`, and comes after it in `node`.
- *Hidden delays and nothing put in* are measured on devices that vary by +-1 % since 2026-11-18, as
  sweeps are. On ideal ones, the day before, four of their zeros had been called significant, the
  largest 0.04 % of an iteration: the exchange that is over before the backward pass as -0.03 %. A
  worker that makes its own batches has a loop that differs from step to step, probably by the
  hundredths of a millisecond that were seen; they were not measured apart.
- *Exact zeros.* Where loader workers keep a device busy and nothing waits, every iteration of an
  emulated device lasts what it was told, and blocks are timed on the device's side. That such zeros
  come out shows that measuring adds no wait of its own; of intervals they tell nothing.
- *Network and links.* The recurrence has no latency. On the hosts, exchange inside one of them
  really takes one or two milliseconds, where the closed form has nothing: that is the leak into
  communication. A run before this one, on links whose TCP was the machine's own (BBR), had read
  107.6 % (103.5 to 111.7) for 100 %; links of the lab are paced by `reno` since ([lab](lab.md)).
- *Coverage where iterations vary by +-2 %, quiet.* Five launches of the night before 2026-11-18,
  04:10, in which much time was stolen from this machine: 13 and 36 % of all processors' in the
  last two, about a third in minutes of the second. 12 ms are probably not the whole truth then:
  workers that exchange gradients also wait for the one whose core was taken, in every iteration,
  and stalls read too long. Four launches of the day before had held the truth in 74, 76 and 77 of
  80; their slices were lost. One more of the morning after, with 5 % stolen: 16, 20 and 20 of 20,
  communication 0.2 ms too long in the mean, with half-widths of 0.8 ms. So what stolen processors
  seem to add, some tenths of a millisecond with 4 to 10 % stolen, is hidden in an interval of 3 %
  of such an iteration, and not in one of 1 %. To +-5 % it was changed after that launch, and
  before those that have it. A profile warns where more than 2 % are stolen (check `steal`).
- *Coverage of fetch, quiet.* In one of its five launches the half-width was 22.5 ms in the mean, in
  the others 1.5 to 4.5; why was not looked into. Wide intervals hold the truth easily.
- *Against one launch per step* ([benchmarks](benchmarks.md)): under bursts of load three rounds do
  not halve its error (0.57 to 3.1 of it), because a burst can lie over all of them. The 20 rounds
  of a profile do (0.06 to 0.35), and ten do (0.13 to 0.34), in half of its time.
- *What the engine costs* ([benchmarks](benchmarks.md)) stays below its bounds in all three cases.
  On tiny layers its interval is +-1.3 % in 44 launches where +-1 % is wanted; less the cost of
  another tool it is +-2 to 6 % in 7 to 16 launches, and +-23 % for `torch.profiler` with stacks on
  tiny layers. Two blocks that follow each other differ by 10 to 36 % (half of the pairs by less
  than two thirds of that): 5 to 15 % of this machine's time is stolen from it. By these figures
  +-1 % takes from half an hour to some hours of launches for each case and tool.

Network and links ran with `--minutes 4`, the default; all others with 1.6. Hidden delays and worlds
with nothing put in are of 2026-11-18, all others of the day before.
"""

_METHOD = """## How the worlds are made

- **Device.** Emulated, slowed so that an iteration lasts 200 ms: a host's own tenths of a
  millisecond then weigh little. In the sweeps iterations vary by +-1 %, evenly and by all workers
  alike, as real devices do. Where nothing is put into the exchange, the first layer, the last in
  the backward pass, is frozen: what an exchange between two processes really takes (a few
  milliseconds) hides there. Workers that make their own batches read their loss after every step,
  so nothing is queued when they ask for one.
- **Communication.** Every all-reduce takes a known time from the moment at which it is asked for.
  Truth is the overlap recurrence (`benchmarks/recurrence.py`):
  `end_k = max(ready_k, end_{k-1}) + delay + bytes_k / bandwidth - burst`, and the stall is what
  goes beyond the backward pass.
- **Contention.** The device is busy for longer, by a known time, in an iteration during which
  another worker computes.
- **Prep.** The data set waits for a known time before it gives a batch. Batches are made in the
  worker itself; the wait is counted from when it has read its loss, and exposed as a whole. With a
  loader worker (hidden delays) only what goes beyond an iteration is.
- **Fetch.** Every worker reads from a disk that the kernel throttles, in a control group of its
  own. A loader worker reads ahead without pause, so `cold` is bytes / rate, and the stall is what
  goes beyond an iteration. The kernel lets a request pass at once while it fits into 0.1 s of the
  rate, and otherwise waits in ticks (4 ms here), exactly for up to 63 of them. So every file is one
  request that is worth 0.1 to 0.25 s, and a batch takes a whole number of ticks.
- **Links.** The lab's slow loopback: `tbf` in a network namespace; bandwidth is its rate less
  headers and acknowledgements.
- **Network.** ResNet50's gradients, two workers on each of two test hosts of the lab, so that
  `cluster` is one worker on each; the rate of the link is the one at which the overlap recurrence
  gives the amount. Between two workers a ring all-reduce sends every byte once in each direction.
  A token bucket lets a burst (3 ms of its rate) pass at once after a pause; the recurrence knows.
  There is no latency in it: what a message takes beside its bytes, tenths of a millisecond, is in
  the error.
- **Everything slower.** Device and delays twice as slow: all percentages must stay.
"""
