"""The tables of docs/benchmarks.md that come from kept slices: engine, other tools, side by side.

Slices lie in benchmarks/measured, a line for every launch or repeat, as `--append` writes them.

    python benchmarks/bench_tables.py --write docs      tables anew, between their marks on the page
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import overhead
from side_by_side import START
from side_by_side_summary import summaries
from slices import MEASURED, read

PAGE = "benchmarks.md"
CASES = {
    "emulated": "emulated V100, ResNet50 shapes",
    "conv": "`tinycnn` on CPUs, batch 8",
    "tiny-layers": "75 linear layers of 64 x 64 on CPUs",
}
TOOLS = {
    "torch-profiler": "`torch.profiler`",
    "torch-profiler-stacks": "`torch.profiler` with stacks",
    "traceml": "TraceML",
}
WORLDS = {"emulated": "emulated devices, iterations of 60 ms", "cpu": "a small net on CPUs"}
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="DOCS", required=True)
    page = parser.parse_args().write / PAGE
    page.write_text(with_tables(page.read_text(), tables()))


def with_tables(text: str, made: Mapping[str, str]) -> str:
    """The page, with every marked table as it was made; a page may leave some out."""
    return MARKED.sub(lambda found: found[1] + "\n" + made[found[2]] + "\n\n" + found[3], text)


def tables() -> dict[str, str]:
    """Every table by the name of its mark."""
    every = overhead.summaries(read(MEASURED / "overhead.jsonl"))
    costs = [one for one in every if one["case"] in CASES]
    lines = read(MEASURED / "side_by_side.jsonl")
    repeats = list(summaries(lines))
    return {
        "engine": engine([one for one in costs if one["peer"] is None]),
        "tools": tools([one for one in costs if one["peer"] is not None]),
        "side-by-side-seconds": _seconds(summaries(started_as_now(lines))),
        "side-by-side-errors": _errors(repeats, "rms"),
        "side-by-side-middles": _errors(repeats, "middle"),
        "side-by-side-widths": _widths(repeats),
    }


def engine(costs: Sequence[dict[str, Any]]) -> str:
    """What the engine costs, and whether that is shown."""
    head = (
        "case",
        "processor",
        "iteration",
        "launches",
        "pairs of blocks of",
        "engine over bare",
        "in processor time",
        "bound for the upper end",
        "",
    )
    return _table(
        head,
        [
            (
                CASES[one["case"]],
                _processor(one),
                f"{one['iteration_ms']:.2f} ms",
                str(one["launches"]),
                f"{one['pairs']}, {one['block_seconds']} s",
                _within(*_ends(one["engine"])),
                _within(*_ends(one["engine_processor"])),
                f"{one['bound']}",
                _verdict(one),
            )
            for one in sorted(costs, key=lambda one: list(CASES).index(one["case"]))
        ],
    )


def _processor(one: dict[str, Any]) -> str:
    """By its name, less what names of processors say for show."""
    return re.sub(r"\((R|TM)\)", "", one["cpu"] or "not noted")


def _verdict(one: dict[str, Any]) -> str:
    """Processor time may stand in where the clock is too noisy to tell, and is named so."""
    low, high, bound = one["engine"]["low"], one["engine"]["high"], one["bound"]
    if one["engine"]["passed"]:
        return "met"
    if low is None or high is None:
        return "missed"
    noisy = (high - low) / 2 > overhead.half_width_wanted(one["case"])
    if noisy and low <= bound and one["engine_processor"]["passed"]:
        return "met in processor time"
    return "below it, interval too wide" if high <= bound else "missed"


def tools(costs: Sequence[dict[str, Any]]) -> str:
    """The engine beside other tools, with the number of launches in which a worker crashed."""
    head = ("case", "tool", "processor", "launches", "crashed")
    head += ("tool over bare", "engine over bare there")
    head += ("engine less tool", "the same in processor time", "engine significantly above?")
    order = [(case, tool) for case in CASES for tool in TOOLS]
    return _table(
        head,
        [
            (
                CASES[one["case"]],
                TOOLS[one["peer"]],
                _processor(one),
                str(one["launches"]),
                str(one["died"]),
                *_compared(one),
            )
            for one in sorted(costs, key=lambda one: order.index((one["case"], one["peer"])))
        ],
    )


def _compared(one: dict[str, Any]) -> tuple[str, ...]:
    if not one["launches"]:
        return ("",) * 5
    less = one["engine_less_tool"]
    return (
        _within(*one["tool"]),
        _within(*_ends(one["engine"])),
        _within(*less, sign="+"),
        _within(*one["engine_less_tool_processor"], sign="+"),
        "" if less[1] is None else "yes" if less[1] > 0 else "no",
    )


def started_as_now(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Repeats whose times still hold: how Stash starts its workers has changed."""
    return [line for line in lines if line["start"] == START]


def _seconds(repeats: Iterable[dict[str, Any]]) -> str:
    """How long each answer took, and what part of the other method's time that is."""
    head = ("workload", "machine", "repeats", "answer", "with starts", "part", "without", "part")
    rows = []
    for one in repeats:
        (*_, last), over = one["reference"].values(), one["stash_over_reference"]
        start = (WORLDS[one["case"]], _machine(one))
        rows.append((*start, str(last["repeats"]), "one launch a step", *_took(last, {})))
        rows += [
            (*start, str(answer["repeats"]), f"Stash, {count} rounds", *_took(answer, over[count]))
            for count, answer in one["stash"].items()
        ]
    return _table(head, rows)


def _took(answer: dict[str, Any], part: dict[str, Any]) -> tuple[str, ...]:
    keys = ("seconds", "seconds_without_start")
    return tuple(
        text
        for key in keys
        for text in (f"{answer[key]:.1f} s", f"{part[key]:.2f}" if part else "")
    )


def _errors(repeats: Sequence[dict[str, Any]], kind: str) -> str:
    """How far answers are off, by one way to sum errors up, and Stash's over the other's."""
    counts = _counts(repeats)
    head = [*_STALL_HEAD, "truth", "one launch a step"]
    head += [f"Stash, {count} rounds: error; over the other's" for count in counts]
    rows = []
    for one, stall, start in _stalls(repeats):
        (*_, other) = one["reference"].values()
        truth, of_other = one["truth_ms"][stall], other[f"{kind}_error_ms"][stall]
        told = [_error(one, count, stall, kind) for count in counts]
        rows.append((*start, f"{truth:.0f} ms", f"{of_other:.2f} ms", *told))
    return _table(head, rows)


def _error(one: dict[str, Any], count: str, stall: str, kind: str) -> str:
    """One answer's; empty where no repeat has it."""
    if count not in one["stash"]:
        return ""
    answer = one["stash"][count]
    ratio = one["stash_over_reference"][count][f"{kind}_error"][stall]
    told = f"{answer[f'{kind}_error_ms'][stall]:.2f} ms; {_within(*ratio, digits=2)}"
    alike = answer["repeats"] == one["repeats"]
    return told if alike else f"{told} in {answer['repeats']} repeats"


def _widths(repeats: Sequence[dict[str, Any]]) -> str:
    """How wide Stash's intervals are, and how many hold the truth; the other method has none."""
    counts = _counts(repeats)
    head = [*_STALL_HEAD, *(f"{n} rounds: mean half-width; hold the truth" for n in counts)]
    rows = []
    for one, stall, start in _stalls(repeats):
        answers = [one["stash"].get(count) for count in counts]
        told = [
            f"{answer['half_width_ms'][stall]:.2f} ms; "
            f"{answer['inside_interval'][stall]} of {answer['repeats']}"
            if answer
            else ""
            for answer in answers
        ]
        rows.append((*start, *told))
    return _table(head, rows)


def _counts(repeats: Sequence[dict[str, Any]]) -> list[str]:
    """After how many rounds there are answers, in any case."""
    return sorted({count for one in repeats for count in one["stash"]}, key=int)


_STALL_HEAD = ("workload", "machine", "stall")


def _stalls(
    repeats: Sequence[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...]]]:
    """Every known stall of every case, and the cells that its row begins with."""
    for one in repeats:
        for stall in one["truth_ms"]:
            yield one, stall, (WORLDS[one["case"]], _machine(one), f"`{stall}`")


def _machine(one: dict[str, Any]) -> str:
    return "loaded in bursts" if one["bursts"] else "as it is"


def _ends(cost: dict[str, Any]) -> tuple[float, float | None, float | None]:
    return cost["ratio"], cost["low"], cost["high"]


def _within(
    value: float | None, low: float | None, high: float | None, *, digits: int = 4, sign: str = ""
) -> str:
    shape = f"{sign}.{digits}f"
    if value is None:
        return ""
    if low is None or high is None:
        return format(value, shape)
    return f"{value:{shape}} ({low:{shape}} to {high:{shape}})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_row(cells) for cells in (head, ["---"] * len(head), *rows))


def _row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


if __name__ == "__main__":
    main()
