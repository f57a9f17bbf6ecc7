"""`stash recommend`: what to rent for a job, under a deadline, a budget, or neither."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.advise.recommendation import Recommendation


#: Assumptions by their options; times are told in seconds, however they were written.
ASSUMED = {
    "setup_seconds": "--setup in seconds",
    "profiling_seconds": "--profiling in seconds",
    "interruptions_per_node_hour": "--interruptions",
    "lost_seconds_per_interruption": "--lost in seconds",
}


def recommend(
    workload: Annotated[str, typer.Argument(help="A model of the zoo, or file.py:factory.")],
    samples: Annotated[int, typer.Option(help="In one epoch.")],
    epochs: Annotated[int, typer.Option(help="To train for.")],
    data_size: Annotated[
        str | None, typer.Option(help="Of the data set in storage, as in 133GB.")
    ] = None,
    samples_per_core: Annotated[
        float | None, typer.Option(help="What one core prepares in a second.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="As in 6h or 2d.")] = None,
    budget: Annotated[float | None, typer.Option(help="In dollars.")] = None,
    from_profiles: Annotated[
        list[str] | None,
        typer.Option("--from", help="A profile of this model: file, name, start of id, `last`."),
    ] = None,
    next_probe: Annotated[
        bool, typer.Option("--next-probe", help="Also say which machine to measure next.")
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per worker and iteration.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="fp32, tf32, amp or bf16 (default: the profile's, or fp32).")
    ] = None,
    clouds: Annotated[str | None, typer.Option(help="Only these, as in aws,gcp.")] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="A machine type, or a pattern such as p4*; repeatable.")
    ] = None,
    max_nodes: Annotated[int, typer.Option(help="At most so many nodes.")] = 8,
    retired: Annotated[
        bool, typer.Option("--retired", help="Also machines that are not rented out any more.")
    ] = False,
    catalog: Annotated[
        str, typer.Option(help="2026-08, paper-2022, or a CSV of your own machines.")
    ] = "2026-08",
    spot: Annotated[bool, typer.Option("--spot", help="Spot prices, and interruptions.")] = False,
    interruptions: Annotated[
        float, typer.Option(help="Of one spot node in an hour: an assumption.")
    ] = 0.05,
    lost: Annotated[str, typer.Option(help="Work lost by an interruption.")] = "15min",
    setup: Annotated[str, typer.Option(help="From renting to the first iteration.")] = "10min",
    profiling: Annotated[
        str, typer.Option(help="What a machine without a profile is measured for first.")
    ] = "10min",
    data: Annotated[
        Path | None, typer.Option(help="Data that a factory of your own needs to build its model.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the document to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every way considered as CSV.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the front into this folder (SVG, PNG, PDF).")
    ] = None,
    sky: Annotated[
        Path | None, typer.Option(help="Write a SkyPilot task for the chosen machine.")
    ] = None,
    sky_times: Annotated[
        Path | None, typer.Option(help="Write a table of times for SkyPilot's optimizer.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document itself.")] = False,
) -> None:
    """Say what to rent: the cheapest in time, the fastest for the money, or the knee."""
    from stash.advise.recommend import recommend as find
    from stash.advise.recommendation import Assumptions
    from stash.cli.output import comma_separated, print_document, report_console
    from stash.lab import words
    from stash.results.document import from_options

    found = find(
        workload,
        samples=samples,
        epochs=epochs,
        data_bytes=None if data_size is None else words.byte_count(data_size),
        samples_per_core=samples_per_core,
        deadline_hours=None if deadline is None else words.seconds(deadline) / 3600,
        budget_usd=budget,
        from_profiles=_profiles(from_profiles, folder),
        batch_size=batch_size,
        dtype=dtype,
        clouds=tuple(comma_separated(clouds) or ()),
        exclude=tuple(exclude or ()),
        max_nodes=max_nodes,
        retired=retired,
        catalog=catalog,
        data=data,
        assumptions=from_options(
            Assumptions,
            ASSUMED,
            {
                "setup_seconds": words.seconds(setup),
                "profiling_seconds": words.seconds(profiling),
                "spot": spot,
                "interruptions_per_node_hour": interruptions,
                "lost_seconds_per_interruption": words.seconds(lost),
            },
        ),
        next_probe=next_probe,
    )
    if as_json:
        print_document(found)
    else:
        from stash.report.recommendation import render

        report_console().print(render(found))
    code = _write(_files(found, out, csv, chart, sky, sky_times, force=force), quiet=as_json)
    if found.status == "infeasible" or code:
        raise typer.Exit(max(1, code))


def _profiles(named: list[str] | None, folder: Path | None) -> list[Path]:
    from stash.results import store

    return [store.find(one, folder or store.DEFAULT_FOLDER) for one in named or ()]


def _files(
    found: Recommendation,
    out: Path | None,
    csv: Path | None,
    chart: Path | None,
    sky: Path | None,
    sky_times: Path | None,
    *,
    force: bool,
) -> Iterator[Callable[[], list[Path]]]:
    """What was asked for beside the answer, each to be written when it is its turn."""
    from stash.advise.recommend_sky import sky_task
    from stash.report.export import recommendations, tables

    makers: list[tuple[Path | None, Callable[[], str]]] = [
        (out, found.to_json),
        (csv, lambda: tables.as_csv(recommendations.candidate_rows(found))),
        (sky, lambda: sky_task(found)),
        (sky_times, lambda: tables.as_csv(recommendations.sky_time_rows(found))),
    ]
    for path, make in makers:
        if path is not None:
            yield partial(_write_text, make, path, force=force)
    if chart is not None:
        yield partial(_draw, found, chart, force=force)


def _write(files: Iterable[Callable[[], list[Path]]], *, quiet: bool) -> int:
    """The answer is out already: a file that cannot be written is told, and hinders no other."""
    from stash.cli.output import print_error, report_console
    from stash.errors import StashError

    code = 0
    for write in files:
        try:
            written = write()
        except StashError as error:
            print_error(error.message, error.exit_code, as_json=False)
            code = max(code, error.exit_code)
        else:
            for path in () if quiet else written:
                report_console().print(f"Written to {path}", soft_wrap=True)
    return code


def _draw(found: Recommendation, folder: Path, *, force: bool) -> list[Path]:
    from stash.cli.report import MISSING
    from stash.errors import StashError

    try:
        from stash.report.charts.files import save_picture
        from stash.report.charts.rent import rent_picture
    except ModuleNotFoundError as error:
        raise StashError(MISSING.format(name=error.name)) from None
    picture = rent_picture(found)
    if picture is None:
        raise StashError("Nothing came into question, so there is no chart to draw.")
    return save_picture(picture, folder, force=force)


def _write_text(make: Callable[[], str], path: Path, *, force: bool) -> list[Path]:
    from stash.errors import StashError
    from stash.results import store

    try:
        store.write_whole(make(), path, force=force)
    except FileExistsError:
        raise store.will_not_overwrite(path) from None
    except OSError as error:
        raise StashError(f"Cannot write {path}: {error.strerror or error}.") from None
    return [path]
