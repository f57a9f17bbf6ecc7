"""`stash doctor`: what this machine can measure, and how small a stall it can tell from noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
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
    console = report_console()
    for line in _lines(diagnosis):
        console.print(line)


def _lines(found: Diagnosis) -> list[str]:
    lines = [
        f"Machine      {found.host}: {found.cpu}, {found.cores} cores, "
        f"{found.memory_bytes / 2**30:.1f} GiB memory ({found.available_bytes / 2**30:.1f} free)",
        f"Per worker   {found.workers} workers: {found.cores / found.workers:.1f} cores, "
        f"{found.available_bytes / found.workers / 2**30:.1f} GiB each",
        f"Software     torch {found.torch}, Python {found.python}, {found.system}",
        f"GPUs         {_gpus(found)}",
    ]
    lines += [f"             {a} - {b}: {link}" for a, b, link in found.topology]
    lines.append(f"Cold reads   {found.cold.message}")
    if found.cold.next:
        lines.append(f"             {found.cold.next}")
    lines.append(f"Steps        {', '.join(found.steps)}")
    lines += [f"             no {name}: {why}" for name, why in found.missing_steps.items()]
    lines.append(f"Noise floor  {_noise(found)}")
    return lines


def _gpus(found: Diagnosis) -> str:
    if not found.gpus:
        return "none seen; `--device emulated:v100` tries Stash without one"
    return "; ".join(
        f"{gpu.index} {gpu.name} ({gpu.memory_bytes / 2**30:.0f} GiB, "
        f"{gpu.processes} process(es) on it{', throttled' if gpu.throttled else ''})"
        for gpu in found.gpus
    )


def _noise(found: Diagnosis) -> str:
    noise = found.noise
    if noise is None:
        return "not measured (leave out --skip-noise)"
    verdict = "as it should be" if not noise.significant else "a false alarm, or a drifting machine"
    return (
        f"one step against itself over {noise.rounds} rounds: {noise.percent:+.1f} % of an "
        f"iteration, {verdict}; stalls above {noise.detectable_percent:.1f} % can be told"
    )
