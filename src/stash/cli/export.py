"""`stash export`: profiles as tables, or as runs of the tracker that a team already uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.results.profile import Profile


def export(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(help="Files, names, starts of ids, or `last` (the default)."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV file, one row a number.")] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Write the same as Parquet (extra `parquet`).")
    ] = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="One row a raw block and worker instead.")
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write TensorBoard runs here (extra `tensorboard`).")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(help="Log runs to this MLflow server or folder (extra `mlflow`)."),
    ] = None,
    wandb: Annotated[
        Path | None, typer.Option(help="Write offline W&B runs here (extra `wandb`).")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Export a profile that comes with Stash.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Hand profiles to other tools."""
    from stash.cli.output import print_json
    from stash.cli.show import load_profiles
    from stash.errors import UsageError
    from stash.report.characters import harmless

    if not any((csv, parquet, tensorboard, mlflow, wandb)):
        raise UsageError(
            "Nothing to export to: give --csv, --parquet, --tensorboard, --mlflow or --wandb."
        )
    found = load_profiles(profiles, folder, sample=sample)
    written = _tables(found, csv, parquet, blocks=blocks, force=force)
    written += _trackers(found, tensorboard, mlflow, wandb)
    if as_json:
        print_json({"written": written})
        return
    for place in written:
        print(f"Written to {harmless(place)}")


def _tables(
    profiles: Sequence[Profile],
    csv: Path | None,
    parquet: Path | None,
    *,
    blocks: bool,
    force: bool,
) -> list[str]:
    from stash.report.export import tables

    rows_of = tables.block_rows if blocks else tables.number_rows
    columns = tables.BLOCK_COLUMNS if blocks else tables.NUMBER_COLUMNS
    if csv is not None:
        rows = (row for one in profiles for row in rows_of(one))
        tables.write_csv(rows, csv, columns, force=force)
    if parquet is not None:
        rows = (row for one in profiles for row in rows_of(one))
        tables.write_parquet(rows, columns, parquet, force=force)
    return [str(path) for path in (csv, parquet) if path is not None]


def _trackers(
    profiles: Sequence[Profile], tensorboard: Path | None, mlflow: str | None, wandb: Path | None
) -> list[str]:
    from stash.report.export import trackers

    written = []
    if tensorboard is not None:
        written += [str(path) for path in trackers.to_tensorboard(profiles, tensorboard)]
    if mlflow is not None:
        written += [f"{mlflow} run {run}" for run in trackers.to_mlflow(profiles, mlflow)]
    if wandb is not None:
        written += [str(path) for path in trackers.to_wandb(profiles, wandb)]
    return written
