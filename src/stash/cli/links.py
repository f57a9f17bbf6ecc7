"""`stash links`: how fast this machine's links are, by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.launch.links import LinksRequest, Probed
    from stash.launch.supervise import Event


def links(
    nproc_per_node: Annotated[
        int | None, typer.Option(help="Workers; by default one per GPU, or one per core without.")
    ] = None,
    nnodes: Annotated[int | None, typer.Option(help="Nodes; run the same on each.")] = None,
    node_rank: Annotated[
        int | None, typer.Option(help="Which node this is; 0 writes the document.")
    ] = None,
    rdzv_endpoint: Annotated[
        str | None, typer.Option(help="HOST:PORT of node 0, where all nodes meet.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Files to read cold; made, read and removed where not given."),
    ] = None,
    storage: Annotated[bool, typer.Option(help="Read files cold, too.")] = True,
    max_bytes: Annotated[int, typer.Option(help="The largest message.")] = 64 << 20,
    rounds: Annotated[int, typer.Option(help="How often everything is probed.")] = 20,
    max_minutes: Annotated[float, typer.Option(help="Probe for at most this long.")] = 2.0,
    timeout: Annotated[
        float, typer.Option(help="Give up when no worker has moved for so many seconds.")
    ] = 300.0,
    seed: Annotated[int, typer.Option(help="For the order of blocks.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the document.")] = Path("stash-profiles"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the document instead of a report.")
    ] = False,
) -> int:
    """Probe links: all-reduce over message sizes, copies by 1, 2, ... devices at once, storage."""
    from stash.cli.output import print_document, print_error, report_console
    from stash.cli.profile import print_followed
    from stash.launch import placement
    from stash.launch.links import LinksRequest, take_part_in_links
    from stash.report.links import print_links

    request = LinksRequest(
        nproc_per_node=nproc_per_node,
        nnodes=nnodes,
        node_rank=node_rank,
        rdzv_endpoint=rdzv_endpoint,
        device=device,
        data=data,
        storage=storage,
        max_bytes=max_bytes,
        rounds=rounds,
        max_minutes=max_minutes,
        timeout_seconds=timeout,
        seed=seed,
        out=out,
    )
    if not placement.place(request, os.environ).leads:
        return print_followed(take_part_in_links(request), as_json)
    probed = _measure(request)
    if probed.last_words is not None:
        print_error(probed.last_words, probed.exit_code, as_json=False)
    if as_json:
        print_document(probed.links)
    else:
        console = report_console()
        print_links(probed.links, console)
        console.print(f"Links written to {probed.path}", soft_wrap=True)
    return probed.exit_code


def _measure(request: LinksRequest) -> Probed:
    from stash.cli.output import progress_console
    from stash.launch.links import measure_links
    from stash.results.recording import LinkRound, Phase

    console = progress_console()

    def show(events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Phase):
                console.print(event.name)
            elif isinstance(event, LinkRound) and (event.number + 1) % 5 == 0:
                console.print(f"round {event.number + 1} of {request.rounds}")

    return measure_links(request, show)
