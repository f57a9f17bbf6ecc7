"""The links document on a terminal: tables of sizes and of sharing, and what the line says."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stash.report.characters import Charset
from stash.report.figures import duration, figure, time_unit, written
from stash.results.document import Interval
from stash.results.links import AllReduce, Line, Links, SharedLink
from stash.results.recording import Check

WHERE = {
    "node": "inside the first node",
    "between": "between nodes, one worker of each",
    "cluster": "all workers of all nodes",
}
KINDS = {
    "memory": "Memory copies",
    "host-to-device": "Copies from pinned host memory to the device",
    "device-to-host": "Copies from the device to pinned host memory",
    "storage": "Cold reads from storage",
}
STOPPED = {
    "rounds": "after all rounds asked for",
    "max-minutes": "because the time was over (--max-minutes)",
    "interrupted": "because it was interrupted",
    "failed": "because it failed",
}
NOTE = (
    "Intervals are 95 %. bus: size over time, times 2 (n - 1) / n for n workers, as nccl-tests "
    "has it: what every link must have carried."
)


def print_links(links: Links, console: Console) -> None:
    """Print the report of one links document."""
    charset = Charset(ascii_only=console.options.ascii_only)
    console.print(Group(*_parts(links, charset)))


def summary(line: Line) -> str:
    """Latency and bus bandwidth, as they stand in a sentence."""
    return f"{_latency(line)}, bus bandwidth {_rate(line.bus_bytes_per_second)}"


def _latency(line: Line) -> str:
    unit, factor = time_unit(line.latency_seconds.estimate)
    return f"latency {written(line.latency_seconds, unit, factor)}"


def link_lines(links: Links) -> list[str]:
    """The same in a few lines, for the report of a profile."""
    lines = []
    for one in links.all_reduce:
        # Bandwidth by the largest message: it is closer to the link than a line through all is.
        largest = one.messages[-1]
        latency = "" if one.line is None else f"{_latency(one.line)}, "
        bus = f"bus bandwidth {_rate(largest.bus_bytes_per_second)} at {_size(largest.bytes)}"
        lines.append(f"all-reduce {WHERE[one.where]}: {latency}{bus}")
    for shared in links.shared:
        alone, all_of_them = shared.counts[0], shared.counts[-1]
        words = f"{KINDS[shared.kind]}: {_rate(alone.bytes_per_second_each)} alone"
        if all_of_them.at_once > 1:
            each = _rate(all_of_them.bytes_per_second_each)
            words += f", {each} each with {all_of_them.at_once} at once"
        lines.append(words)
    return lines


def _parts(links: Links, charset: Charset) -> Iterable[RenderableType]:
    yield from _what_was_probed(links, charset)
    for one in links.all_reduce:
        yield Text()
        yield from _all_reduce(one, charset.safe(links.machine.backend, limit=30))
    if links.all_reduce:
        yield Text(NOTE, style="dim")
    for shared in links.shared:
        yield Text()
        yield from _shared(shared)
    if links.topology:
        yield Text()
        yield Text("Links between devices, as the driver tells")
        for pair in links.topology:
            yield Text(f"  {pair.first} - {pair.second}: {charset.safe(pair.linked_by, limit=40)}")
    yield Text()
    yield from _checks(links.checks, charset)
    yield from _end(links, charset)


def _what_was_probed(links: Links, charset: Charset) -> Iterable[Text]:
    machine = links.machine
    kind, backend = charset.safe(machine.device, limit=60), charset.safe(machine.backend, limit=30)
    workers = f"{machine.workers} worker{'' if machine.workers == 1 else 's'} x {kind}"
    device = charset.safe(machine.devices[0], limit=60) if machine.devices else "unknown"
    nodes = f" on {machine.nodes} nodes" if machine.nodes > 1 else ""
    host, torch = charset.safe(machine.host, limit=60), charset.safe(machine.torch, limit=30)
    yield Text(f"Links of {workers} ({device}){nodes}", style="bold")
    yield Text(f"host {host}, {machine.cores} cores; torch {torch}, {backend}")
    created = links.created.strftime("%Y-%m-%d %H:%M UTC")
    seconds = duration(links.run.measuring_seconds)
    own = charset.safe(links.id, limit=20)
    yield Text(f"measured: {links.run.rounds} rounds, {seconds}, {created}, links {own}")


def _all_reduce(one: AllReduce, backend: str) -> Iterable[RenderableType]:
    yield Text(f"All-reduce {WHERE[one.where]}: {one.workers} workers, {backend}", style="bold")
    table = _table("size", "time", "size / time", "bus")
    for message in one.messages:
        unit, factor = time_unit(message.seconds.estimate)
        table.add_row(
            _size(message.bytes),
            written(message.seconds, unit, factor),
            _rate(message.bytes_per_second),
            figure_of_rate(message.bus_bytes_per_second),
        )
    yield table
    if one.line is None:
        yield Text("No line: the check below tells why.")
    else:
        off = f"off by {one.line.worst_misfit_percent:.0f} % at most"
        yield Text(f"line: {summary(one.line)}; {off}")


def _shared(shared: SharedLink) -> Iterable[RenderableType]:
    yield Text(f"{KINDS[shared.kind]}: {_size(shared.bytes)} each", style="bold")
    table = _table("at once", "each", "all together")
    for one in shared.counts:
        each = one.bytes_per_second_each
        table.add_row(str(one.at_once), _rate(each), _rate(_times(each, one.at_once)))
    yield table


def _checks(checks: Iterable[Check], charset: Charset) -> Iterable[Text]:
    known = list(checks)
    warnings = [check for check in known if check.status == "warn"]
    passed = len(known) - len(warnings)
    yield Text(f"{passed} check{'' if passed == 1 else 's'} passed.", style="dim")
    for check in warnings:
        words = f"WARNING {check.name}: {check.message}"
        words += f" What to do: {check.next}" if check.next else ""
        yield Text(charset.safe(words, limit=600))


def _end(links: Links, charset: Charset) -> Iterable[Text]:
    yield Text(f"Stopped {STOPPED[links.run.stopped_because]}.")
    for line in links.run.message.splitlines()[:20]:
        yield Text(charset.safe(line, limit=400))


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(headings[0], justify="right", no_wrap=True)
    for heading in headings[1:]:
        table.add_column(heading, overflow="fold")
    return table


def figure_of_rate(value: Interval) -> str:
    """A rate without its interval, where another column has it already."""
    unit, factor = _rate_unit(value.estimate)
    return f"{figure(value, factor).estimate} {unit}"


def _rate(value: Interval) -> str:
    unit, factor = _rate_unit(value.estimate)
    return written(value, unit, factor)


def _rate_unit(bytes_per_second: float) -> tuple[str, float]:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_second >= size:
            return unit, 1 / size
    return "kB/s", 1e-3


def _times(value: Interval, count: int) -> Interval:
    low = None if value.low is None else value.low * count
    high = None if value.high is None else value.high * count
    return Interval(estimate=value.estimate * count, low=low, high=high)


def _size(count: int) -> str:
    """In powers of two, as messages are chosen."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"
