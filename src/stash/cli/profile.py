"""`stash profile`: measure a workload on this machine and print what it waits for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.launch.api import Measured
    from stash.launch.nodes import Followed
    from stash.launch.request import Request
    from stash.launch.supervise import Event


def profile(
    workload: Annotated[
        str,
        typer.Argument(
            help="A model of the zoo (resnet18, bert-large, ...), a training script (train.py), "
            "or file.py:factory."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="The script's own arguments."),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", help="WORKLOAD is a module to run as a script, as python -m does.")
    ] = False,
    nproc_per_node: Annotated[
        int | None, typer.Option(help="Workers; by default one per GPU, or one per core without.")
    ] = None,
    nnodes: Annotated[
        int | None,
        typer.Option(help="Machines; run the same command on each (docs/clusters.md)."),
    ] = None,
    node_rank: Annotated[
        int | None, typer.Option(help="Which of them this is; 0 writes the profile.")
    ] = None,
    rdzv_endpoint: Annotated[
        str | None,
        typer.Option(help="HOST:PORT on which node 0 listens for the others, and nowhere else."),
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(help="Samples per worker and iteration, or `max`.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Image folder or token file; generated where not given. "
            "For a script: what it reads, where that cannot be seen."
        ),
    ] = None,
    num_workers: Annotated[
        int | None, typer.Option(help="Loader workers per worker, as in torch's DataLoader.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, or emulated:<gpu> such as emulated:v100.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="fp32 (default), amp or bf16; a script decides by itself.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Only these steps, such as solo,node,warm.")
    ] = None,
    half_width: Annotated[
        str,
        typer.Option(help="Stop when every stall is known this well: 3% or 0.03 of an iteration."),
    ] = "3%",
    launches: Annotated[int, typer.Option(help="Start the workers anew this many times.")] = 1,
    max_minutes: Annotated[float, typer.Option(help="Measure for at most this long.")] = 10.0,
    max_rounds: Annotated[
        int | None, typer.Option(help="Measure at most this many rounds.")
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(help="Measure for at most this much money (needs a price).")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Give up when no worker has moved for so many seconds.")
    ] = 300.0,
    instance: Annotated[
        str | None,
        typer.Option(
            help="What kind of machine this is, as in p4d.24xlarge; its price is taken where none "
            "is given."
        ),
    ] = None,
    price_usd_per_hour: Annotated[
        float | None, typer.Option(help="What one machine costs; several are counted each.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="Worker counts to profile one after the other, such as 1,2,4."),
    ] = None,
    protect: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of the script's output (checkpoints) to leave as it was."),
    ] = None,
    keep_tracking: Annotated[
        bool, typer.Option(help="Leave the script's experiment trackers on.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the rounds of this profile, or run folder; it stays."),
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="Probe links, too, as `stash links` does.")
    ] = False,
    seed: Annotated[int, typer.Option(help="For the order of blocks.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the profile.")] = Path("stash-profiles"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the profile as JSON instead of a report.")
    ] = False,
) -> int:
    """Measure where the time of each training iteration goes, and how sure that is."""
    from stash.errors import UsageError, fraction
    from stash.launch import placement
    from stash.launch.request import Request

    request = Request(
        workload=workload,
        is_module=module,
        script_arguments=tuple(arguments or ()),
        nproc_per_node=nproc_per_node,
        nnodes=nnodes,
        node_rank=node_rank,
        rdzv_endpoint=rdzv_endpoint,
        batch_size=_batch(batch_size),
        data=data,
        num_workers=num_workers,
        device=device,
        dtype=dtype,
        steps=None if steps is None else tuple(s.strip() for s in steps.split(",") if s.strip()),
        half_width=fraction("--half-width", half_width),
        launches=launches,
        max_minutes=max_minutes,
        max_rounds=max_rounds,
        max_usd=max_usd,
        timeout_seconds=timeout,
        instance=instance,
        price_usd_per_hour=price_usd_per_hour,
        seed=seed,
        resume=resume,
        links=links,
        keep_tracking=keep_tracking,
        protect=tuple(protect or ()),
        out=out,
    )
    if placement.is_worker(os.environ):
        from stash.launch import inside

        inside.run(request)
    place = placement.place(request, os.environ)
    if not place.leads:
        return _take_part(request, as_json)
    if sweep is None:
        return _one(request, as_json)
    if place.nodes > 1 or resume is not None:
        raise UsageError("--sweep profiles one machine, from the first round on.")
    return _sweep(request, _counts(sweep), as_json)


def _one(request: Request, as_json: bool) -> int:
    from stash.cli.output import print_document

    measured = _measure(request)
    if as_json:
        print_document(measured.profile)
    else:
        _print(measured)
    return measured.exit_code


def _take_part(request: Request, as_json: bool) -> int:
    """On other nodes than the first: workers run here, and the profile is made there."""
    from stash.launch.api import take_part

    return print_followed(take_part(request), as_json)


def print_followed(followed: Followed, as_json: bool) -> int:
    """What node 0 told at the end."""
    from stash.cli.output import print_json
    from stash.errors import StashError
    from stash.report.characters import harmless

    if followed.exit_code:
        raise StashError(followed.message, exit_code=followed.exit_code)
    if as_json:
        print_json({"message": followed.message, "exit_code": followed.exit_code})
    else:
        print(harmless(followed.message, keep_newlines=True))
    return 0


def _sweep(request: Request, counts: list[int], as_json: bool) -> int:
    """The same profile at several worker counts, then how it scales."""
    from stash.cli.output import print_json, report_console
    from stash.report.scaling import render_scaling

    alike = _alike_at_every_count(request, max(counts))
    done: list[Measured] = []
    for count in counts:
        done.append(_measure(replace(alike, nproc_per_node=count)))
        if not as_json:
            _print(done[-1])
        if done[-1].exit_code:
            break
    profiles = [measured.profile for measured in done]
    if as_json:
        print_json([one.model_dump(mode="json", by_alias=True) for one in profiles])
    else:
        report_console().print(render_scaling(profiles))
    return done[-1].exit_code


def _alike_at_every_count(request: Request, most: int) -> Request:
    """Threads and loader workers as at the largest count: otherwise unlike workers are compared."""
    from stash.hardware.machine import usable_cores
    from stash.launch.prepare import default_loaders
    from stash.launch.script import is_script

    if is_script(request):
        return request  # it decides by itself
    cores = usable_cores()
    loaders = request.num_workers
    if loaders is None:
        loaders = default_loaders(cores, most)
    return replace(request, num_workers=loaders, threads_per_worker=max(1, cores // most))


def _measure(request: Request) -> Measured:
    """With an agent that is started before we import what we need ourselves."""
    from stash.launch.early import starting_agent
    from stash.launch.request import expected_environment

    with starting_agent(expected_environment(request)):
        return _measure_and_show(request)


def _measure_and_show(request: Request) -> Measured:
    from stash.cli.output import print_error, progress_console
    from stash.engine.plan import MIN_ROUNDS
    from stash.launch.api import measure
    from stash.launch.placement import place
    from stash.report.live import Progress
    from stash.results.recording import Phase, Round

    limit = None if request.max_minutes is None else request.max_minutes * 60.0
    price = request.hourly_usd
    rounds: list[Round] = []
    with Progress(
        progress_console(),
        max_seconds=limit,
        max_usd=request.max_usd,
        min_rounds=MIN_ROUNDS,
        price_usd_per_hour=None if price is None else price * place(request, os.environ).nodes,
        half_width_asked=request.half_width,
    ) as progress:

        def show(events: Iterable[Event]) -> None:
            for event in events:
                if isinstance(event, Phase):
                    progress.limits_begin()
                    progress.phase(event.name)
                elif isinstance(event, Round):
                    rounds.append(event)
                    progress.round(rounds)
            progress.tick()

        progress.phase("preparing")
        measured = measure(request, show)
    if measured.last_words is not None:
        print_error(measured.last_words, measured.exit_code, as_json=False)
    return measured


def _print(measured: Measured) -> None:
    from stash.cli.output import report_console
    from stash.report.terminal import print_profile

    console = report_console()
    print_profile(measured.profile, console)
    console.print(f"Profile written to {measured.path}", soft_wrap=True)


def _batch(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _counts(text: str) -> list[int]:
    from stash.errors import UsageError

    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise UsageError(f"--sweep: {text!r} is not a list of worker counts such as 1,2,4.")
    return counts
