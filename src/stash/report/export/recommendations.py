"""A recommendation as tables: every way that was considered; times for SkyPilot's optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from stash.advise.recommend_sky import SKY_CLOUDS, sky_names
from stash.advise.recommendation import Recommendation
from stash.report.export.tables import Row
from stash.results.document import Interval


def candidate_rows(found: Recommendation) -> Iterator[Row]:
    """Every way that was considered, cheapest first, unrounded."""
    front, ties = set(found.front), set(found.ties)
    for position, one in enumerate(found.candidates):
        yield {
            "machine": one.machine,
            "cloud": one.cloud,
            "nodes": one.nodes,
            "gpu": one.gpu,
            "gpus_per_node": one.gpus_per_node,
            "provenance": one.provenance.value,
            "price_usd_per_hour": one.price_usd_per_hour,
            "price_region": one.price_region,
            "price_date": one.price_date,
            **_columns("hours", one.hours),
            **_columns("usd", one.usd),
            **_columns("device_hours", one.device_hours),
            "first_epoch_seconds": one.first_epoch_seconds.estimate,
            "later_epoch_seconds": one.later_epoch_seconds.estimate,
            "largest_stall": one.largest_stall,
            "chosen": position == found.chosen,
            "on_front": position in front,
            "tied": position in ties,
        }


def sky_time_rows(found: Recommendation) -> Iterator[Row]:
    """Seconds of the whole job by machine type, attached GPUs and nodes, as SkyPilot names them."""
    for one in found.candidates:
        if one.cloud in SKY_CLOUDS:
            machine, attached = sky_names(one.machine)
            yield {
                "cloud": one.cloud,
                "instance_type": machine,
                "accelerators": attached,
                "num_nodes": one.nodes,
                "seconds": round(one.hours.estimate * 3600, 1),
            }


def _columns(name: str, value: Interval | None) -> Row:
    if value is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
