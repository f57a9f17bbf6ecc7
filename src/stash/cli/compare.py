"""`stash compare`: profiles side by side with significance, or the paper's network stall."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    profiles: Annotated[
        list[str],
        typer.Argument(help="Two or more: files, names, starts of ids, or `last`."),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="network",
            help="`network`: ONE machine against MANY with as many workers, as the paper does.",
        ),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare profiles that are not of the same thing.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a document.")] = False,
) -> None:
    """Compare profiles with the first of them: what is more, what is less, what is chance."""
    from stash.advise.compare import compare as side_by_side
    from stash.advise.compare import network_stall
    from stash.cli.output import print_document, report_console
    from stash.cli.show import load_profiles
    from stash.errors import UsageError
    from stash.report.compared import print_comparison, print_network_stall

    if kind not in (None, "network"):
        raise UsageError(f"--as is `network`, not {kind!r}.")
    if kind == "network" and len(profiles) != 2:
        raise UsageError(f"--as network takes two profiles, ONE and MANY, not {len(profiles)}.")
    found = load_profiles(profiles, folder)
    if kind == "network":
        stall = network_stall(found[0], found[1], anyway=anyway)
        if as_json:
            print_document(stall)
        else:
            print_network_stall(stall, report_console())
        return
    document = side_by_side(*found, anyway=anyway)
    if as_json:
        print_document(document)
    else:
        print_comparison(found, report_console(), anyway=anyway)
