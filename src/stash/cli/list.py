"""`stash list`: what is in the store, one line a profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from stash.errors import StashError
    from stash.results.profile import Profile

    Entry = tuple[Path, Profile | StashError]


def list_profiles(
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the profiles that have been measured, oldest first."""
    from stash.cli.output import NOTHING_MEASURED, print_json, report_console
    from stash.report.characters import harmless
    from stash.results import store

    where = folder or store.DEFAULT_FOLDER
    found = store.entries(where)
    if as_json:
        print_json([_as_document(path, entry) for path, entry in found])
    elif not found:
        print(NOTHING_MEASURED.format(folder=harmless(str(where))))
    else:
        _print_table(found, report_console())


def _as_document(path: Path, entry: Profile | StashError) -> dict[str, object]:
    from stash.errors import StashError
    from stash.report.words import largest_stall

    if isinstance(entry, StashError):
        return {"path": str(path), "error": entry.message}
    largest = largest_stall(entry)
    waiting = entry.waiting.later
    share = None if largest is None else largest[1].share
    return {
        "path": str(path),
        "id": entry.id,
        "created": entry.created.isoformat(),
        "provenance": entry.provenance.value,
        "workload": entry.workload.name,
        "workers": entry.machine.workers,
        "device": entry.machine.device,
        "waiting_share": None if waiting is None else waiting.estimate,
        "largest_stall": None if largest is None else largest[0],
        "largest_stall_share": None if share is None else share.estimate,
    }


def _print_table(found: Sequence[Entry], console: Console) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stash.errors import StashError
    from stash.report.characters import Charset

    charset = Charset(ascii_only=console.options.ascii_only)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("created", no_wrap=True)
    for heading in ("workload", "workers", "waiting", "largest stall", "from", "id"):
        table.add_column(heading, overflow="fold")
    for _, entry in found:
        if not isinstance(entry, StashError):
            table.add_row(*(Text(charset.safe(cell, limit=40)) for cell in _row(entry)))
    if table.row_count:
        console.print(table)
    for path, entry in found:
        if isinstance(entry, StashError):
            reason = charset.safe(f"{path.name}: {entry.message}", limit=300)
            console.print(Text(f"unreadable: {reason}"))


def _row(profile: Profile) -> list[str]:
    from stash.report.figures import figure, with_unit
    from stash.report.words import largest_stall

    waiting, largest = profile.waiting.later, largest_stall(profile)
    words = "none significant"
    if largest is not None and largest[1].share is not None:
        words = f"{largest[0]} {with_unit(figure(largest[1].share, 100).estimate, '%')}"
    return [
        profile.created.isoformat(sep=" ", timespec="minutes")[:16],
        profile.workload.name,
        f"{profile.machine.workers} x {profile.machine.device}",
        "-" if waiting is None else with_unit(figure(waiting, 100).estimate, "%"),
        words,
        profile.provenance.value,
        profile.id,
    ]
