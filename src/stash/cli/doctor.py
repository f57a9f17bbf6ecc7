"""`stash doctor`: what this machine can measure, and how small a stall it can tell from noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from stash.launch.diagnose import Diagnosis


def doctor(
    folder: Annotated[
        Path, typer.Option("--data", help="Where the data will lie: can it be made cold?")
    ] = Path("."),
    nproc_per_node: Annotated[int | None, typer.Option(help="Workers to plan for.")] = None,
    max_minutes: Annotated[float, typer.Option(help="Time for the noise floor.")] = 0.5,
    skip_noise: Annotated[
        bool, typer.Option("--skip-noise", help="Look only, measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Tell what this machine can measure: cores, memory, GPUs, cold reads, noise floor."""
    from stash.cli.output import print_json, progress_console, report_console
    from stash.launch.diagnose import diagnose

    if not skip_noise and not as_json:
        progress_console().print("Measuring one step against itself ...")
    diagnosis = diagnose(folder, nproc_per_node, noise_minutes=None if skip_noise else max_minutes)
    if as_json:
        print_json(diagnosis.model_dump(mode="json"))
        return
    report_console().print(_table(diagnosis))


def _table(found: Diagnosis) -> Table:
    from rich.table import Table
    from rich.text import Text

    from stash.report.characters import harmless

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, words in _rows(found):
        table.add_row(Text(name), Text(harmless(words, limit=500)))
    return table


def _rows(found: Diagnosis) -> Iterator[tuple[str, str]]:
    free = found.available_bytes / 2**30
    yield (
        "Machine",
        f"{found.host}: {found.cpu}, {found.cores} cores, "
        f"{found.memory_bytes / 2**30:.1f} GiB memory ({free:.1f} free)",
    )
    yield (
        "Per worker",
        f"{found.workers} workers: {found.cores / found.workers:.1f} cores, "
        f"{free / found.workers:.1f} GiB each",
    )
    yield "Software", f"torch {found.torch}, Python {found.python}, {found.system}"
    yield "GPUs", _gpus(found)
    for a, b, link in found.topology:
        yield "", f"{a} - {b}: {link}"
    yield "Cold reads", f"{found.cold.message} {found.cold.next}".strip()
    yield "Steps", ", ".join(found.steps)
    for name, why in found.missing_steps.items():
        yield "", f"no {name}: {why}"
    yield "Noise floor", _noise(found)


def _gpus(found: Diagnosis) -> str:
    if not found.gpus:
        return "none seen; `--device emulated:v100` tries Stash without one"
    return "; ".join(
        f"{gpu.index} {gpu.name} ({_size(gpu.memory_bytes)}, "
        f"{gpu.processes} process(es) on it{', throttled' if gpu.throttled else ''})"
        for gpu in found.gpus
    )


def _size(memory_bytes: int | None) -> str:
    return "memory not told" if memory_bytes is None else f"{memory_bytes / 2**30:.0f} GiB"


def _noise(found: Diagnosis) -> str:
    noise = found.noise
    if noise is None:
        return "not measured (leave out --skip-noise)"
    verdict = "as it should be" if not noise.significant else "a false alarm, or a drifting machine"
    return (
        f"one step against itself over {noise.rounds} rounds: {noise.percent:+.1f} % of an "
        f"iteration, {verdict}; stalls above {noise.detectable_percent:.1f} % can be told"
    )
