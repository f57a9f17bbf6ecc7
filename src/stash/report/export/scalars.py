"""What trackers of experiments take: named numbers, series over rounds, and facts as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stash.report.characters import harmless
from stash.report.export.tables import number_rows
from stash.results.profile import Profile

FACT_LIMIT = 250


def results(profile: Profile) -> dict[str, float]:
    """Every estimate by name, such as `stall/prep/share`, with `.low` and `.high` beside it."""
    found: dict[str, float] = {}
    for row in number_rows(profile):
        name = clean(f"{row['part']}/{row['name']}/{row['quantity']}")
        for column, suffix in (("estimate", ""), ("low", ".low"), ("high", ".high")):
            value = row[column]
            if isinstance(value, (int, float)):
                found[name + suffix] = float(value)
    return found


def series(profile: Profile) -> Iterator[tuple[str, int, float, float]]:
    """Seconds per iteration of every block: name, number of its round, when, value."""
    for name, step in profile.steps.items():
        blocks = sorted(step.blocks, key=lambda block: (block.launch, block.round))
        for number, block in enumerate(blocks):
            if any(seconds is not None for seconds in block.seconds):
                key = clean(f"block/{name}/seconds_per_iteration")
                yield key, number, block.at_seconds, block.seconds_per_iteration


def facts(profile: Profile) -> dict[str, str]:
    """What was trained on what, one short text a field."""
    known = {"profile": profile.id, "provenance": profile.provenance.value}
    parts = {"workload": profile.workload, "machine": profile.machine}
    for part, document in parts.items():
        for field, value in document.model_dump().items():
            if value is not None:
                known[f"{part}.{field}"] = harmless(str(value), limit=FACT_LIMIT)
    known["run.stopped_because"] = profile.run.stopped_because
    known["run.rounds"] = str(profile.run.rounds)
    return known


def clean(name: str) -> str:
    """A name that every tracker accepts; step and stall names may hold anything."""
    return re.sub(r"[^A-Za-z0-9_.\-/ ]", "_", name)[:FACT_LIMIT]
