"""`stash lab`: test hosts with links and limits of known size, on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.lab.registry import Lab

app = typer.Typer(
    help="Test hosts on this machine: real links, storage and limits of known size (needs root)."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command()
def up(
    hosts: Annotated[int, typer.Option(help="Test hosts, joined by a switch.")] = 0,
    link: Annotated[
        str, typer.Option(help="Rate of each host's link, such as 1gbit or 100MB/s.")
    ] = "1gbit",
    delay: Annotated[
        str | None, typer.Option(help="Delay of each link, such as 1ms (needs netem).")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Read rate of storage, such as 20MB/s.")
    ] = None,
    data: Annotated[
        Path, typer.Option(help="The rate is for the disk that holds this folder.")
    ] = Path("."),
    cpus: Annotated[float | None, typer.Option(help="CPU time, in CPUs: 1.5.")] = None,
    cores: Annotated[str | None, typer.Option(help="Only these cores: 0,2-3.")] = None,
    memory: Annotated[str | None, typer.Option(help="At most this much: 2GiB.")] = None,
    workers: Annotated[int, typer.Option(help="Limits of their own for so many workers.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a lab that stays until `stash lab down`."""
    from stash.lab import kept, words
    from stash.lab.network import Link
    from stash.lab.resources import Limits, device_of

    limits = Limits(
        read_bytes_per_second=words.bytes_per_second(storage) if storage else None,
        device=device_of(data) if storage else None,
        cpus=cpus,
        cores=words.cores(cores) if cores else None,
        memory_bytes=words.byte_count(memory) if memory else None,
    )
    asked = kept.Asked(
        hosts=hosts,
        link=Link(words.bits_per_second(link), delay_seconds=words.seconds(delay) if delay else 0),
        limits=None if limits == Limits() else limits,
        workers=workers,
    )
    _print([kept.up(asked)], as_json, nothing="")


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="After `--`: what to run.")],
    host: Annotated[str | None, typer.Option(help="On this host (default: h0).")] = None,
    lab: Annotated[str | None, typer.Option(help="In this lab, where several are up.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a failure to start as JSON.")
    ] = False,
) -> None:
    """Run a command in the lab that is up; its output and exit code are the command's own."""
    from stash.lab import kept, registry

    registry.require_root()
    words, environment = kept.words_to_run(kept.find(lab), host)
    os.execvpe(words[0], [*words, *command], {**os.environ, **environment})


@app.command("list")
def list_labs(as_json: AsJson = False) -> None:
    """List the labs of this machine."""
    from stash.lab import registry

    _print(registry.labs(), as_json, nothing="No lab.")


@app.command()
def down(
    name: Annotated[str | None, typer.Argument(help="One lab (default: all that are up).")] = None,
    as_json: AsJson = False,
) -> None:
    """Take labs down: end their processes, remove all that they made and what dead ones left."""
    from stash.cli.output import print_json
    from stash.lab import registry

    removed = registry.take_down(name)
    if as_json:
        print_json({"removed": removed})
    else:
        print(f"Removed {', '.join(removed)}." if removed else "No lab was up.")


def _print(labs: list[Lab], as_json: bool, nothing: str) -> None:
    from stash.cli.output import print_json

    if as_json:
        print_json([_as_document(lab) for lab in labs])
        return
    for lab in labs:
        print(f"{lab.name}  {_state(lab)}, made {lab.created}")
        for line in _lines(lab):
            print(f"  {line}")
    if not labs:
        print(nothing)


def _lines(lab: Lab) -> list[str]:
    from stash.lab import kept

    lines = [
        f"{host.name} {host.address}, link of {host.link.bits_per_second / 1e6:g} Mbit/s "
        f"({host.link.goodput / 1e6:.1f} MB/s of payload)"
        for host in kept.hosts(lab)
    ]
    asked = {key: value for key, value in lab.parts.get(kept.LIMITS, {}).items() if value}
    return [*lines, *(f"{key} {value}" for key, value in asked.items())]


def _state(lab: Lab) -> str:
    if lab.is_abandoned:
        return "left over; the next start removes it"
    return "up" if lab.owner is None else f"of process {lab.owner.pid}"


def _as_document(lab: Lab) -> dict[str, object]:
    from stash.lab import kept

    return {
        "name": lab.name,
        "created": lab.created,
        "owner_pid": lab.owner.pid if lab.owner else None,
        "left_over": lab.is_abandoned,
        "hosts": [
            {
                "name": host.name,
                "address": host.address,
                "link_bits_per_second": host.link.bits_per_second,
                "goodput_bytes_per_second": host.link.goodput,
            }
            for host in kept.hosts(lab)
        ],
        "limits": lab.parts.get(kept.LIMITS),
    }
