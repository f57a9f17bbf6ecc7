"""A study for a terminal and for a spreadsheet: a table a machine, a row a model and batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from stash.report.characters import Charset
from stash.report.export.tables import Row
from stash.report.figures import derived, duration_unit, figure, with_unit, written
from stash.results.document import Interval
from stash.study.document import Cell, CellNumbers, Fit, Study
from stash.study.repeats import averaged

MACRO_STALLS = ("interconnect", "network", "prep", "fetch")
MICRO_STALLS = ("interconnect", "communication", "network")
#: Headings as the paper has them.
PAPER_WORDS = {
    "interconnect": "I/C",
    "communication": "exchange",
    "network": "network",
    "prep": "CPU",
    "fetch": "disk",
}


def csv_rows(study: Study) -> Iterator[Row]:
    """Every cell with every number, unrounded; repeats stand by themselves."""
    steps = sorted({name for _, numbers in study.done() for name in numbers.steps})
    stalls = sorted({name for _, numbers in study.done() for name in numbers.stalls})
    for cell in study.cells:
        numbers, machine = cell.numbers, study.machine(cell.machine)
        row: Row = {
            "model": cell.model,
            "batch": cell.batch,
            "largest": cell.largest,
            "machine": cell.machine,
            "gpus": machine.workers,
            "repeat": cell.repeat,
            "status": cell.status,
            "provenance": None if numbers is None else numbers.provenance.value,
            "profile": None if numbers is None else numbers.profile,
            "memory_percent": None if numbers is None else numbers.memory_percent,
        }
        row |= _spread("epoch_seconds", None if numbers is None else numbers.epoch_seconds)
        row |= _spread("epoch_usd", None if numbers is None else numbers.epoch_usd)
        for name in steps:
            row |= _spread(f"{name}_seconds", None if numbers is None else numbers.steps.get(name))
        for name in stalls:
            stall = None if numbers is None else numbers.stalls.get(name)
            row |= _spread(f"{name}_percent", None if stall is None else stall.percent)
        yield {**row, "message": cell.message}


def _spread(name: str, value: Interval | None) -> Row:
    if value is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}


class StudyTable:
    """Lays a study out once the terminal's characters are known."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        charset = Charset(ascii_only=options.ascii_only)
        cells = averaged(self._study)
        for machine in self._study.machines:
            rows = [(cell, numbers) for cell, numbers in cells if cell.machine == machine.name]
            if not rows:
                continue
            told = rows[0][1].provenance.value
            price = (
                "" if machine.price_usd_per_hour is None else _hourly(machine.price_usd_per_hour)
            )
            yield Text(charset.safe(f"{machine.name}, {told}{price}"), style="bold")
            yield self._table(rows, charset)
        yield from (Text(charset.safe(line)) for line in self._remarks())

    def _table(self, rows: Sequence[tuple[Cell, CellNumbers]], charset: Charset) -> Table:
        macro = self._study.kind == "macro"
        names = [
            name
            for name in (MACRO_STALLS if macro else MICRO_STALLS)
            if any(name in numbers.stalls for _, numbers in rows)
        ]
        unit = "%" if macro else "ms"
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        headings = ["model", "batch", *(f"{PAPER_WORDS[name]} {unit}" for name in names)]
        for heading in [*headings, "epoch", "$"]:
            table.add_column(
                heading, justify="left" if heading == "model" else "right", overflow="fold"
            )
        for cell, numbers in rows:
            stalls = [_stall(numbers, name, in_percent=macro) for name in names]
            words = [cell.model, str(cell.batch), *stalls, *_epoch(numbers)]
            table.add_row(*(Text(charset.safe(word)) for word in words))
        return table

    def _remarks(self) -> Iterator[str]:
        study = self._study
        for one in study.fits:
            yield fit_words(one)
        smaller = [cell for cell in study.cells if cell.status == "does not fit"]
        if smaller:
            told = ", ".join(f"{one.model} {one.batch} ({one.machine})" for one in smaller[:6])
            more = f" and {len(smaller) - 6} more" if len(smaller) > 6 else ""
            yield f"Do not fit the GPU's memory: {told}{more}."
        for cell in study.failed:
            first = cell.message.splitlines()[0] if cell.message else ""
            yield f"FAILED {cell.model}, batch {cell.batch}, {cell.machine}: {first}"
        yield from study.assumptions
        yield "Estimates to two digits; study.csv and study.json have the intervals."


def fit_words(one: Fit) -> str:
    """One line of a micro study: what a message and a byte cost on a link."""
    message = written(one.seconds_per_message, "us", 1e6)
    each = one.seconds_per_byte.estimate
    rate = f"{1 / each / 1e9:.3g} GB/s" if each > 0 else "no rate: its cost is not above 0"
    return (
        f"{one.machine}: {one.stall} = L*tau + G/B over {one.cells} models, L in {one.messages}: "
        f"tau {message}, B {rate} ({written(one.seconds_per_byte, 'ns/byte', 1e9)}); "
        f"explains {100 * one.explained:.1f} %."
    )


def _hourly(price: float) -> str:
    return f", ${price:.2f} an hour"


def _stall(numbers: CellNumbers, name: str, *, in_percent: bool) -> str:
    stall = numbers.stalls.get(name)
    if stall is None or (in_percent and stall.percent is None):
        return "-"
    if in_percent:
        assert stall.percent is not None
        return _plain(stall.percent)
    return _plain(stall.seconds_per_iteration, 1e3)


def _epoch(numbers: CellNumbers) -> tuple[str, str]:
    unit, factor = duration_unit(numbers.epoch_seconds.estimate)
    seconds = with_unit(_plain(numbers.epoch_seconds, factor), unit)
    usd = numbers.epoch_usd
    return seconds, "-" if usd is None else f"{usd.estimate:.2f}"


def _plain(value: Interval, factor: float = 1.0) -> str:
    """Two digits: machines are compared here, and what their intervals share would hide that."""
    return figure(derived(value.estimate), factor).estimate
