"""`stash share`: loader workers among jobs that run on one machine at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def share(
    profiles: Annotated[
        list[str], typer.Argument(help="One a job: files, names, starts of ids, or `last`.")
    ],
    cores: Annotated[int, typer.Option(help="Cores of the machine that all jobs share.")],
    first_epoch: Annotated[
        bool, typer.Option("--first-epoch", help="Data come from storage, not from memory.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a document.")] = False,
) -> None:
    """Divide loader workers among concurrent jobs for the highest total throughput."""
    from stash.advise.share import share as divide
    from stash.cli.output import print_document, report_console
    from stash.cli.show import load_profiles
    from stash.report.shared import print_share

    found = divide(*load_profiles(profiles, folder), cores=cores, first_epoch=first_epoch)
    if as_json:
        print_document(found)
    else:
        print_share(found, report_console())
