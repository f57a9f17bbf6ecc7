"""`stash catalog`: machines for rent, what they have and cost; own rows; fresh prices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.hardware.catalog import Instance

app = typer.Typer(help="Machines for rent: what they have, what they cost.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Snapshot = Annotated[str, typer.Option(help="2026-08, or paper-2022 for Table I of the paper.")]


@app.command("list")
def list_instances(
    cloud: Annotated[str | None, typer.Option(help="aws, azure, gcp, lambda, runpod.")] = None,
    gpu: Annotated[str | None, typer.Option(help="A GPU, as in v100 or a100-sxm4-80gb.")] = None,
    max_usd: Annotated[
        float | None, typer.Option(help="At most so many dollars per hour, on demand.")
    ] = None,
    status: Annotated[str, typer.Option(help="available, retired or all.")] = "available",
    snapshot: Snapshot = "2026-08",
    as_json: Json = False,
) -> None:
    """List machine types, cheapest first."""
    from stash.cli.output import print_json, report_console
    from stash.hardware import catalog

    _check_status(status)
    found = [
        one
        for one in catalog.instances(snapshot)
        if (cloud is None or one.cloud == cloud.lower())
        and (gpu is None or _has_gpu(one, gpu))
        and (status == "all" or one.status == status)
        and (max_usd is None or _price(one) <= max_usd)
    ]
    found.sort(key=lambda one: (_price(one), one.cloud, one.name))
    if as_json:
        print_json([_as_document(one) for one in found])
    elif not found:
        print("No machine type is like that. `stash catalog list --status all` shows every one.")
    else:
        report_console().print(_table(found))


@app.command("show")
def show_instance(
    name: Annotated[str, typer.Argument(help="A machine type, as in p3.16xlarge.")],
    snapshot: Snapshot = "2026-08",
    as_json: Json = False,
) -> None:
    """Show all that is known of one machine type, with where it comes from."""
    from stash.cli.output import print_json, report_console
    from stash.hardware import catalog

    one = catalog.find(name, snapshot)
    if as_json:
        print_json(_as_document(one))
        return
    console = report_console()
    for column, value in _as_document(one).items():
        if value not in (None, ""):
            console.print(f"{column.replace('_', ' ')}: {value}", soft_wrap=True)
    if one.topology:
        console.print(_topology_words(one), soft_wrap=True)


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A CSV; `name` is needed, other columns replace.")],
    as_json: Json = False,
) -> None:
    """Take your own rows into your catalog: they stand before those of Stash."""
    from stash.cli.output import print_json
    from stash.hardware import catalog

    rows = catalog.import_rows(file)
    if as_json:
        print_json([_as_document(one) for one in rows])
    else:
        print(f"{len(rows)} rows are now in {catalog.user_folder() / catalog.IMPORTED}.")


@app.command("refresh")
def refresh_prices(
    folder: Annotated[
        Path | None, typer.Option(help="A folder of gpuhunt's files, instead of the network.")
    ] = None,
    cloud: Annotated[
        list[str] | None, typer.Option(help="aws, azure, gcp or lambda; may be repeated.")
    ] = None,
    accept_lost: Annotated[
        bool, typer.Option("--accept-lost", help="Also where machine types are gone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch today's prices. Never needed: Stash comes with prices and their dates."""
    from datetime import datetime, timezone

    from stash.cli.output import print_json
    from stash.errors import StashError, UsageError
    from stash.hardware import catalog, prices

    clouds = [one.lower() for one in cloud] if cloud else sorted(prices.PROVIDERS)
    if unknown := sorted(set(clouds) - set(prices.PROVIDERS)):
        raise UsageError(
            f"No prices to refresh for {', '.join(unknown)}; "
            f"there are {', '.join(sorted(prices.PROVIDERS))}."
        )
    offers = (
        prices.offers_from_network(clouds)
        if folder is None
        else prices.offers_from_folder(folder, clouds)
    )
    fresh = prices.refresh(catalog.instances(), offers, clouds, datetime.now(timezone.utc).date())
    if fresh.lost and not accept_lost:
        raise StashError(prices.explain_lost(fresh.lost))
    path = catalog.save_refreshed(fresh.rows)
    if as_json:
        print_json({"refreshed": [one.name for one in fresh.rows], "lost": list(fresh.lost)})
    else:
        print(f"{len(fresh.rows)} prices are now in {path}; {len(fresh.lost)} keep their old ones.")


def _check_status(status: str) -> None:
    from stash.errors import UsageError

    if status not in ("available", "retired", "all"):
        raise UsageError(f"Unknown status {status!r}; there are available, retired, all.")


def _has_gpu(one: Instance, gpu: str) -> bool:
    from stash.hardware import gpus

    family = gpu.strip().lower()
    if one.gpu == family or one.gpu.startswith(f"{family}-"):
        return True
    if any(key.startswith(f"{family}-") for key in gpus.names()):
        return False
    return one.gpu == gpus.find(gpu).key


def _price(one: Instance) -> float:
    return float("inf") if one.price_usd_per_hour is None else one.price_usd_per_hour


def _as_document(one: Instance) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(one)


def _table(found: Sequence[Instance]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("machine", "cloud", "GPUs", "cores", "network", "$/hour", "priced"):
        table.add_column(heading, overflow="fold")
    for one in found:
        retired = "" if one.status == "available" else " (retired)"
        network = one.network_bytes_per_second
        price = one.price_usd_per_hour
        cells = (
            one.name + retired,
            one.cloud,
            f"{one.gpus} x {one.gpu or one.gpu_name}" if one.gpus else "-",
            "-" if one.vcpus is None else f"{one.vcpus:g}",
            "-" if network is None else f"{network * 8 / 1e9:g} Gbit/s",
            "-" if price is None else f"{price:.2f}",
            f"{one.price_date} {one.price_region}".strip() or "-",
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _topology_words(one: Instance) -> str:
    from stash.hardware import topologies

    links = topologies.find(one.topology)
    speed = links.nvlink_ring_bytes_per_second
    if speed is None:
        return f"links: PCIe, {links.pcie_bytes_per_second / 1e9:g} GB/s a GPU. {links.note}"
    how = "through a switch" if links.links_to_switch else f"{links.rings} rings"
    return f"links: NVLink, {how}, {speed / 1e9:g} GB/s for collectives. {links.note}"
