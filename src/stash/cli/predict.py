"""`stash predict`: the profile of a model on a machine that you have not rented."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    workload: Annotated[str, typer.Argument(help="A model of the zoo, or file.py:factory.")],
    instance: Annotated[str, typer.Option(help="A machine type, as in p4d.24xlarge.")],
    nnodes: Annotated[int, typer.Option(help="How many of them.")] = 1,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per worker and iteration.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="fp32, tf32, amp or bf16; by default the profile's (--from), else fp32."),
    ] = None,
    from_profile: Annotated[
        str | None,
        typer.Option(
            "--from", help="A measured profile to calibrate on: file, name, start of id, `last`."
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data that a factory of your own needs to build its model.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="In one epoch, for its time and cost.")
    ] = None,
    samples_per_core: Annotated[
        float | None, typer.Option(help="What one core prepares in a second, for prep and fetch.")
    ] = None,
    sample_bytes: Annotated[
        float | None, typer.Option(help="Of one sample in storage, for fetch.")
    ] = None,
    storage_mb_per_second: Annotated[
        float | None, typer.Option(help="Of the disk, instead of the catalog's, for fetch.")
    ] = None,
    snapshot: Annotated[
        str, typer.Option(help="2026-08, or paper-2022 for Table I of the paper.")
    ] = "2026-08",
    out: Annotated[Path | None, typer.Option(help="Also keep it in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document itself.")] = False,
) -> None:
    """Predict where the time would go on a machine of the catalog."""
    from stash.cli.output import print_document, report_console
    from stash.predict.api import predict as make
    from stash.results import store

    profile = make(
        workload,
        instance=instance,
        nnodes=nnodes,
        batch_size=batch_size,
        dtype=dtype,
        from_profile=from_profile and store.find(from_profile, folder or store.DEFAULT_FOLDER),
        data=data,
        samples=samples,
        samples_per_core=samples_per_core,
        sample_bytes=sample_bytes,
        storage_mb_per_second=storage_mb_per_second,
        snapshot=snapshot,
    )
    if out is not None:
        store.save(profile, out)
    if as_json:
        print_document(profile)
        return
    from stash.report.terminal import print_profile

    print_profile(profile, report_console())
