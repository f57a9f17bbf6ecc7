"""Profiles as tables for other tools: one row a number, or one row a block and worker."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stash.errors import StashError
from stash.results import store
from stash.results.document import Interval
from stash.results.profile import Profile

Row = dict[str, object]

NUMBER_COLUMNS = (
    "profile", "created", "provenance", "workload", "device", "workers", "host",
    "part", "name", "quantity", "unit", "estimate", "low", "high", "significant", "intermittent",
)  # fmt: skip
BLOCK_COLUMNS = (
    "profile", "step", "launch", "round", "at_seconds", "worker", "iterations", "seconds",
    "lead_in_iterations", "lead_in_seconds", "loader_read_bytes", "loader_file_bytes",
    "wall_seconds", "cpu_busy_seconds", "cpu_steal_seconds", "disk_read_bytes", "network_bytes",
    "memory_used_bytes", "device_busy_percent",
)  # fmt: skip


def number_rows(profile: Profile) -> Iterator[Row]:
    """Every estimate of a profile with its interval, unrounded."""
    common: Row = {
        "profile": profile.id,
        "created": profile.created.isoformat(),
        "provenance": profile.provenance.value,
        "workload": profile.workload.name,
        "device": profile.machine.device,
        "workers": profile.machine.workers,
        "host": profile.machine.host,
    }
    for part, name, quantity, unit, value, more in _numbers(profile):
        if value is not None:
            numbers = {"estimate": value.estimate, "low": value.low, "high": value.high}
            empty = {"significant": None, "intermittent": None}
            place = {"part": part, "name": name, "quantity": quantity, "unit": unit}
            yield {**common, **place, **numbers, **empty, **more}


Number = tuple[str, str, str, str, Interval | None, Mapping[str, object]]


def _numbers(profile: Profile) -> Iterator[Number]:
    yield "waiting", "later", "share", "fraction", profile.waiting.later, {}
    yield "waiting", "first", "share", "fraction", profile.waiting.first, {}
    for name, step in profile.steps.items():
        value = step.seconds_per_iteration
        yield "step", name, "seconds_per_iteration", "seconds", value, {}
    for name, stall in profile.stalls.items():
        flags = {"significant": stall.significant, "intermittent": stall.intermittent}
        for quantity, unit, found in (
            ("seconds_per_iteration", "seconds", stall.seconds_per_iteration),
            ("percent", "percent", stall.percent),
            ("share", "fraction", stall.share),
            ("share_of_first_epoch", "fraction", stall.share_of_first_epoch),
            ("usd_per_hour_of_training", "dollars per hour", stall.usd_per_hour_of_training),
        ):
            yield "stall", name, quantity, unit, found, flags
    for name, epoch in (("first", profile.epoch.first), ("later", profile.epoch.later)):
        if epoch is not None:
            yield "epoch", name, "seconds", "seconds", epoch.seconds, {}
            yield "epoch", name, "device_hours", "hours", epoch.device_hours, {}
            yield "epoch", name, "usd", "dollars", epoch.usd, {}
    for name in ("devices", "preprocessing", "storage"):
        rate = getattr(profile.rates, name)
        yield "rate", name, "samples_per_second", "samples per second", rate, {}


def block_rows(profile: Profile) -> Iterator[Row]:
    """Every raw block, one row a worker that took part."""
    for name, step in profile.steps.items():
        for block in step.blocks:
            seen = block.disturbance.model_dump()
            common = {
                "profile": profile.id,
                "step": name,
                "launch": block.launch,
                "round": block.round,
                "at_seconds": block.at_seconds,
                "iterations": block.iterations,
                "lead_in_iterations": block.lead_in_iterations,
                "loader_read_bytes": block.loader_read_bytes,
                "loader_file_bytes": block.loader_file_bytes,
                **{column: seen[column] for column in BLOCK_COLUMNS if column in seen},
            }
            for worker, seconds in enumerate(block.seconds):
                if seconds is not None:
                    lead_in = block.lead_in_seconds
                    before = lead_in[worker] if worker < len(lead_in) else None
                    row = {**common, "worker": worker, "seconds": seconds}
                    row["lead_in_seconds"] = before
                    yield {column: row[column] for column in BLOCK_COLUMNS}


def block_times(profile: Profile) -> str:
    """Times of all blocks as short as can be, for a page: one row a block, one column a worker."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    blocks = [(name, block) for name, step in profile.steps.items() for block in step.blocks]
    workers = max((len(block.seconds) for _, block in blocks), default=0)
    seconds = [f"seconds_of_worker_{number}" for number in range(workers)]
    writer.writerow(["step", "launch", "round", "at_seconds", "iterations", *seconds])
    for name, block in blocks:
        place = [_cell(name), block.launch, block.round, block.at_seconds, block.iterations]
        writer.writerow([*place, *block.seconds])
    return text.getvalue()


def as_csv(rows: Iterable[Row], columns: Iterable[str] | None = None) -> str:
    """Rows as comma-separated text; a spreadsheet takes no name in it for a formula.

    Columns are those of the first row where none are named.
    """
    text = io.StringIO()
    known = list(rows)
    head = list(columns) if columns is not None else list(known[0]) if known else []
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    for row in known:
        writer.writerow({column: _cell(value) for column, value in row.items()})
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value  # floats are written so that they read back the same
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def write_csv(
    rows: Iterable[Row], path: Path, columns: Iterable[str] | None = None, *, force: bool
) -> None:
    """Write rows as a CSV file."""
    try:
        store.write_whole(as_csv(rows, columns), path, force=force)
    except FileExistsError:
        raise store.will_not_overwrite(path) from None
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> StashError:
    """The error for a file that cannot be written."""
    reason = error.strerror or str(error)
    return StashError(f"Cannot write {path}: {reason}. Name a file in a writable folder.")


def write_parquet(rows: Iterable[Row], columns: Iterable[str], path: Path, *, force: bool) -> None:
    """Write rows as a Parquet file; empty columns keep their type."""
    if path.exists() and not force:
        raise store.will_not_overwrite(path)
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise StashError(
            f"The package {error.name} is not installed. "
            "Install it with `pip install '.[parquet]'` in the folder of Stash."
        ) from None
    schema = pyarrow.schema([(name, _parquet_type(name)) for name in columns])
    table = pyarrow.Table.from_pylist(list(rows), schema=schema)
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise cannot_write(path, error) from None


TEXT_COLUMNS = {
    "profile", "created", "provenance", "workload", "device", "host", "part", "name", "quantity",
    "unit", "step",
}  # fmt: skip
FLAG_COLUMNS = {"significant", "intermittent"}


def _parquet_type(column: str) -> str:
    if column in TEXT_COLUMNS:
        return "string"
    if column in FLAG_COLUMNS:
        return "bool"
    whole = column.endswith(("bytes", "iterations"))
    return "int64" if whole or column in ("launch", "round", "worker", "workers") else "float64"
