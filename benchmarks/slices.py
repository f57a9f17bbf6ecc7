"""What long benchmarks keep, a line of JSON for every launch or repeat, so that they can be made in
slices; those behind the figures of the documents lie in benchmarks/measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stash.hardware.machine import this_machine

MEASURED = Path(__file__).parent / "measured"


def keep(found: dict[str, Any], path: Path) -> None:
    """One more, with the processor that it was measured on."""
    with path.open("a") as file:
        file.write(json.dumps({**found, "cpu": this_machine().cpu}) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All that were kept in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
