"""Fresh prices from gpuhunt: from the network, or from a local folder of its files.

Never needed: the package has prices of its own. Changes when gpuhunt does.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from stash.errors import StashError, UsageError
from stash.hardware.catalog import Instance

#: Our clouds under gpuhunt's names. RunPod is left out: it names its offers in another way.
PROVIDERS = {"aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambdalabs"}
MAX_NAMED = 10


@dataclass(frozen=True)
class Offer:
    """One price of one machine type in one region."""

    cloud: str
    name: str
    gpus: int
    region: str
    usd_per_hour: float
    spot: bool


@dataclass(frozen=True)
class Refresh:
    """What a refresh would change."""

    rows: tuple[Instance, ...]
    lost: tuple[str, ...]  # known and available, but not offered any more


def offers_from_folder(folder: Path, clouds: Iterable[str]) -> list[Offer]:
    """Offers from gpuhunt's own files (aws.csv, gcp.csv, ...)."""
    found: list[Offer] = []
    for cloud in clouds:
        path = folder / f"{PROVIDERS[cloud]}.csv"
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"Cannot read {path}, a file of gpuhunt's catalog: {error}.") from None
        found += _offers(cloud, csv.DictReader(text.splitlines()), path)
    return found


def offers_from_network(clouds: Iterable[str]) -> list[Offer]:
    """Offers as gpuhunt publishes them now."""
    try:
        gpuhunt: Any = importlib.import_module("gpuhunt")
    except ImportError:
        raise StashError(
            "Fresh prices need the package gpuhunt: "
            "`pip install '.[prices]'` in the folder of Stash. "
            "Without it, the prices that come with Stash are used."
        ) from None
    try:
        items = [(cloud, gpuhunt.query(provider=PROVIDERS[cloud])) for cloud in clouds]
    except Exception as error:  # whatever its network library raises
        raise StashError(
            f"gpuhunt could not fetch prices ({type(error).__name__}: {error}). "
            "Try again later, or give a folder of its files with --folder."
        ) from error
    return [
        Offer(cloud, i.instance_name, i.gpu_count, i.location, i.price, i.spot)
        for cloud, found in items
        for i in found
    ]


def refresh(
    known: Sequence[Instance], offers: Sequence[Offer], clouds: Iterable[str], today: date
) -> Refresh:
    """New prices for known machine types of these clouds, in the region that each row is priced in.

    A cloud that was asked for and offers nothing has lost all of its machines.
    """
    by_type: dict[tuple[str, str, int], list[Offer]] = {}
    for offer in offers:
        if offer.usd_per_hour <= 0:
            continue  # nobody rents for nothing: a price that is not known
        by_type.setdefault((offer.cloud, offer.name.lower(), offer.gpus), []).append(offer)
    rows, lost = [], []
    asked = set(clouds)
    for one in known:
        if one.cloud not in asked or not one.gpus:
            continue
        # Our names of Google's N1 machines say which GPUs we put into them: n1-standard-8+1xT4.
        found = by_type.get((one.cloud, one.name.split("+")[0].lower(), one.gpus), [])
        priced = _repriced(one, found, today)
        if priced is not None:
            rows.append(priced)
        elif one.status == "available" and one.price_usd_per_hour is not None:
            lost.append(one.name)
    return Refresh(tuple(rows), tuple(lost))


def explain_lost(lost: Sequence[str]) -> str:
    """Why a refresh is refused."""
    named = ", ".join(lost[:MAX_NAMED]) + (", ..." if len(lost) > MAX_NAMED else "")
    return (
        f"Refused: the new prices lack {len(lost)} machine types that the catalog has as "
        f"available ({named}). Nothing was changed. Where they are really gone, or another cloud "
        "is meant, choose with --cloud, or say --accept-lost: those keep their old prices."
    )


def _repriced(one: Instance, offers: Sequence[Offer], today: date) -> Instance | None:
    on_demand = _cheapest([o for o in offers if not o.spot], one.price_region)
    if on_demand is None:
        return None
    spot = _cheapest([o for o in offers if o.spot], on_demand.region)
    same_region = spot is not None and spot.region == on_demand.region
    return replace(
        one,
        price_usd_per_hour=on_demand.usd_per_hour,
        price_region=on_demand.region,
        price_date=today.isoformat(),
        source_price="gpuhunt",
        spot_usd_per_hour=spot.usd_per_hour if spot is not None and same_region else None,
        spot_region=spot.region if spot is not None and same_region else "",
        spot_date=today.isoformat() if same_region else "",
    )


def _cheapest(offers: Sequence[Offer], region: str) -> Offer | None:
    here = [offer for offer in offers if region and offer.region.startswith(region)]
    return min(here or offers, key=lambda offer: offer.usd_per_hour, default=None)


def _offers(cloud: str, rows: Iterable[dict[str, str]], path: Path) -> Iterator[Offer]:
    for number, row in enumerate(rows, start=2):
        try:
            yield Offer(
                cloud=cloud,
                name=row["instance_name"],
                gpus=int(float(row["gpu_count"] or 0)),
                region=row["location"],
                usd_per_hour=float(row["price"]),
                spot=row["spot"].strip().lower() == "true",
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{path}, line {number}: not a row of gpuhunt's catalog ({error!r})."
            ) from None
