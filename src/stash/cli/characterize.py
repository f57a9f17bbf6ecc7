"""`stash characterize`: the paper's study, on this machine and on machines for rent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.cli.output import comma_separated

if TYPE_CHECKING:
    from stash.study.document import Study
    from stash.study.plan import Batch, Here, Plan

app = typer.Typer(help="The paper's study: models, batches and machines in one table.")

Instances = Annotated[
    str | None,
    typer.Option(
        help="Machines to predict, such as p4d.24xlarge,2x p3.8xlarge; `paper` for the paper's own."
    ),
]
Models = Annotated[str | None, typer.Option(help="Only these models of the zoo.")]
Device = Annotated[
    str | None, typer.Option(help="Also measure here: cpu, cuda, or emulated:<gpu>.")
]
Workers = Annotated[
    int | None, typer.Option(help="Workers here; by default one per GPU, or one per core without.")
]
Minutes = Annotated[float, typer.Option(help="Measure each cell here for at most this long.")]
Dtype = Annotated[str, typer.Option(help="amp as in the paper, fp32 or bf16.")]
Snapshot = Annotated[str, typer.Option(help="Of the catalog; `paper` machines have their own.")]
Price = Annotated[float | None, typer.Option(help="What this machine costs.")]
Out = Annotated[
    Path, typer.Option(help="Folder of the study; cells that are there are not measured again.")
]
Figures = Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the paper's figures.")]
Json = Annotated[bool, typer.Option("--json", help="Print the document instead of a table.")]


@app.command()
def macro(
    instances: Instances = None,
    models: Models = None,
    batches: Annotated[
        str, typer.Option(help="Per worker, `max` for the largest that fits; BERT-large has 4.")
    ] = "32,64,96,128,max",
    device: Device = None,
    nproc_per_node: Workers = None,
    num_workers: Annotated[int | None, typer.Option(help="Loader workers per worker.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Image folder or token file; generated where not given.")
    ] = None,
    max_minutes: Minutes = 3.0,
    dtype: Dtype = "amp",
    samples_per_core: Annotated[
        float | None,
        typer.Option(help="What one rented core prepares in a second; else as measured here."),
    ] = None,
    storage_mb_per_second: Annotated[
        float | None, typer.Option(help="Of rented disks, instead of the catalog's.")
    ] = None,
    links: Annotated[
        Path | None, typer.Option(help="What `stash links --json` said, for the bandwidth per GPU.")
    ] = None,
    price_usd_per_hour: Price = None,
    snapshot: Snapshot = "2026-08",
    out: Out = Path("stash-study/macro"),
    figures: Figures = True,
    as_json: Json = False,
) -> int:
    """Table II models, several batches, every machine: stalls, time and cost of an epoch."""
    from stash.study import plan as plans

    here = _here(
        device, nproc_per_node, max_minutes, price_usd_per_hour, instances,
        num_workers=num_workers, data=data, links=links,
    )  # fmt: skip
    return _run(
        plans.Plan(
            kind="macro",
            folder=out,
            models=plans.macro_models(comma_separated(models)),
            batches=_batches(batches),
            dtype=dtype,
            here=here,
            rented=plans.machines(comma_separated(instances) or [], "macro", snapshot),
            samples_per_core=samples_per_core,
            storage_mb_per_second=storage_mb_per_second,
        ),
        figures,
        as_json,
    )


@app.command()
def micro(
    instances: Instances = None,
    depths: Annotated[
        str | None, typer.Option(help="Layers: ResNet 10 to 152, VGG 11 to 19; all by default.")
    ] = None,
    models: Models = None,
    repeats: Annotated[int, typer.Option(help="Of every cell that is measured here.")] = 3,
    device: Device = None,
    nproc_per_node: Workers = None,
    max_minutes: Minutes = 3.0,
    dtype: Dtype = "amp",
    price_usd_per_hour: Price = None,
    snapshot: Snapshot = "2026-08",
    out: Out = Path("stash-study/micro"),
    figures: Figures = True,
    as_json: Json = False,
) -> int:
    """ResNets and VGGs by depth, batch norm and residual links; L*tau + G/B for each link."""
    from stash.errors import UsageError
    from stash.study import plan as plans

    if repeats < 1:
        raise UsageError(f"--repeats is {repeats}; expected 1 or more.")
    numbers = [_whole(word, "--depths") for word in comma_separated(depths) or []]
    return _run(
        plans.Plan(
            kind="micro",
            folder=out,
            models=plans.micro_models(numbers, comma_separated(models)),
            batches=(plans.MICRO_BATCH,),
            repeats=repeats,
            dtype=dtype,
            here=_here(device, nproc_per_node, max_minutes, price_usd_per_hour, instances),
            rented=plans.machines(comma_separated(instances) or [], "micro", snapshot),
        ),
        figures,
        as_json,
    )


def _run(plan: Plan, figures: bool, as_json: bool) -> int:
    from stash.cli.output import print_json, progress_console, report_console
    from stash.report.export.tables import write_csv
    from stash.report.study import StudyTable, csv_rows
    from stash.study.run import DOCUMENT, run

    console = progress_console()
    study, interrupted = run(plan, tell=lambda line: console.print(line, soft_wrap=True))
    write_csv(csv_rows(study), plan.folder / "study.csv", force=True)
    drawn = _draw(study, plan.folder / "figures") if figures and not interrupted else []
    if as_json:
        print_json(study.model_dump(mode="json", by_alias=True))
    else:
        report = report_console()
        report.print(StudyTable(study))
        report.print(f"{plan.folder / DOCUMENT}; study.csv beside it; {len(drawn)} figures.")
    if interrupted:
        console.print("Interrupted. The same command goes on where it was.")
        return 3
    return 1 if study.failed else 0


def _draw(study: Study, folder: Path) -> list[Path]:
    from stash.cli.report import MISSING
    from stash.errors import StashError

    try:
        from stash.report.charts.study import save_study_figures
    except ModuleNotFoundError as error:
        raise StashError(MISSING.format(name=error.name)) from None
    return save_study_figures(study, folder)


def _here(
    device: str | None,
    workers: int | None,
    minutes: float,
    price: float | None,
    instances: str | None,
    *,
    num_workers: int | None = None,
    data: Path | None = None,
    links: Path | None = None,
) -> Here | None:
    """This machine is studied where it is asked for, or nothing else is."""
    from stash.study.plan import Here

    if device is None and instances is not None:
        return None
    return Here(
        device=device,
        nproc_per_node=workers,
        num_workers=num_workers,
        data=data,
        max_minutes=minutes,
        price_usd_per_hour=price,
        links=links,
    )


def _batches(text: str) -> tuple[Batch, ...]:
    from stash.errors import UsageError

    found: list[Batch] = []
    for word in comma_separated(text) or []:
        found.append("max" if word == "max" else _whole(word, "--batches"))
    if not found:
        raise UsageError("--batches: expected numbers such as 32,128 or `max`.")
    return tuple(dict.fromkeys(found))


def _whole(word: str, option: str) -> int:
    from stash.errors import UsageError

    if not word.isdigit() or int(word) < 1:
        raise UsageError(f"{option}: {word!r} is not a whole number above 0.")
    return int(word)
