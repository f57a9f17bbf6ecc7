"""`stash whatif`: what a measured job would wait for with other loaders, storage or devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def whatif(
    profile: Annotated[
        str, typer.Argument(help="A file, the name of one, the start of an id, or `last`.")
    ] = "last",
    num_workers: Annotated[int | None, typer.Option(help="Loader workers per worker.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores of the node.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per worker and iteration.")
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Memory for data in later epochs, such as 64GiB, or 0.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="What storage reads in a second, such as 500MB/s.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Another GPU, such as a100.")] = None,
    network: Annotated[
        str | None, typer.Option(help="Another network between nodes, such as 100gbit.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Ask about a profile that comes with Stash.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a document.")] = False,
) -> None:
    """Predict the stalls of a profile with some things changed; without any, what would help."""
    from stash.advise.whatif import whatif as predict
    from stash.cli.output import print_document, report_console
    from stash.cli.show import load_profiles
    from stash.report.whatif import print_whatif

    (measured,) = load_profiles([profile], folder, sample=sample)
    found = predict(
        measured,
        num_workers=num_workers,
        cores=cores,
        batch_size=batch_size,
        cache=cache,
        storage=storage,
        gpu=gpu,
        network=network,
    )
    if as_json:
        print_document(found)
    else:
        print_whatif(found, report_console())
