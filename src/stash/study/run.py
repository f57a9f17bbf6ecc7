"""The story of a study: every cell in turn, what is there is kept, what fails is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from stash.errors import StashError, UsageError
from stash.results import store
from stash.results.profile import Profile
from stash.study import fit, here, rented
from stash.study.cells import numbers_of, with_network
from stash.study.document import (
    Cell,
    CellNumbers,
    Fit,
    Kind,
    StudiedMachine,
    StudiedModel,
    Study,
)
from stash.study.here import DoesNotFitError, UnlikeCellError
from stash.study.plan import Batch, Plan, Rented, batches, studied_model
from stash.study.repeats import averaged

CELLS, DOCUMENT = "cells", "study.json"

Measure = Callable[[Plan, str, int, int], Profile]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """One cell before anything is known of it."""

    model: StudiedModel
    batch: Batch
    machine: StudiedMachine
    rented: Rented | None  # none: this machine
    repeat: int

    def __str__(self) -> str:
        again = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"{self.model.name}, batch {self.batch}, {self.machine.name}{again}"


@dataclass
class Progress:
    """What a study has so far."""

    cells: list[Cell] = field(default_factory=list)
    rates: dict[str, Profile] = field(default_factory=dict)  # of this machine, by model
    interrupted: bool = False


def run(
    plan: Plan, *, tell: Tell = lambda line: None, measure: Measure = here.measure
) -> tuple[Study, bool]:
    """Run or go on with a study; the second value says whether it was interrupted."""
    _check(plan)
    store.ensure_writable(plan.folder)
    models = tuple(studied_model(name, plan.kind) for name in plan.models)
    asked = list(_asked(plan, models))
    if not asked:
        raise UsageError("This study has no cell: name models, batches and machines.")
    progress = Progress()
    for number, one in enumerate(asked, start=1):
        if one.rented is None:
            tell(f"{number} of {len(asked)}: {one}")
        try:
            _add(progress, plan, one, measure, tell)
        except KeyboardInterrupt:
            progress.interrupted = True
            break
        if one.rented is None:  # predictions are made anew in no time
            _write(_study(plan, models, asked, progress), plan)
    study = _study(plan, models, asked, progress)
    _write(study, plan)
    return study, progress.interrupted


def _check(plan: Plan) -> None:
    """Refuse what no cell could be had with, and a folder whose cells are of another study."""
    if plan.here is not None:
        here.check(plan)
    if plan.rented:
        rented.check(plan)
    kind = _kind_in(plan.folder / DOCUMENT)
    if kind not in (None, plan.kind):
        raise UsageError(
            f"{plan.folder} holds a {kind} study, and this is a {plan.kind} one. "
            "Name another folder with --out."
        )


def _kind_in(path: Path) -> Kind | None:
    try:
        return Study.load(path).kind
    except StashError:
        return None  # none, or damaged: written anew


def _write(study: Study, plan: Plan) -> None:
    path = plan.folder / DOCUMENT
    try:
        store.write_whole(study.to_json(), path, force=True)
    except OSError as error:
        raise StashError(
            f"Cannot write {path}: {error.strerror or error}. Cells that are complete are in "
            f"{path.parent / CELLS}; make room, then give the same command again."
        ) from None


def cell_file(plan: Plan, one: Asked, batch: int) -> Path:
    """Where the profile of a cell is kept."""
    words = [one.model.name, f"b{batch}", one.machine.name, plan.dtype, f"r{one.repeat}"]
    return plan.folder / CELLS / ("-".join(re.sub(r"[^\w.]+", "_", w) for w in words) + ".json")


def _asked(plan: Plan, models: tuple[StudiedModel, ...]) -> Iterator[Asked]:
    """This machine's cells first: what they tell of loaders serves predictions."""
    if plan.here is not None:
        place, memory = here.machine(plan), here.memory_gib(plan)
        for repeat in range(1, plan.repeats + 1):
            for model in models:
                for batch in batches(plan, model.name, memory):
                    yield Asked(model, batch, place, None, repeat)
    for one in plan.rented:
        place = rented.machine(one)
        for model in models:
            for batch in batches(plan, model.name, rented.memory_gib(one)):
                yield Asked(model, batch, place, one, 1)


def _add(progress: Progress, plan: Plan, one: Asked, measure: Measure, tell: Tell) -> None:
    """One cell more, or the reason why there is none."""
    batch = one.batch if isinstance(one.batch, int) else 1
    try:
        batch = _resolved(plan, one)
        if any(_is_same(cell, one, batch) for cell in progress.cells):
            return  # the largest that fits is one of the others
        numbers = _numbers(progress, plan, one, batch, measure)
    except DoesNotFitError as error:
        if isinstance(one.batch, int):
            progress.cells.append(_without(one, batch, "does not fit", error.message))
        return
    except UnlikeCellError:
        raise
    except Exception as error:  # whatever it is, no other cell is lost by it
        if isinstance(error, StashError) and error.exit_code == 3:
            raise KeyboardInterrupt from None
        message = _message(error)
        tell(f"failed: {one}: {message.splitlines()[0]}")
        progress.cells.append(_without(one, batch, "failed", message[:4000]))
        return
    cell = _without(one, batch, "done", "")
    progress.cells.append(cell.model_copy(update={"numbers": numbers}))


def _message(error: Exception) -> str:
    return error.message if isinstance(error, StashError) else f"{type(error).__name__}: {error}"


def _resolved(plan: Plan, one: Asked) -> int:
    if one.rented is None:
        return here.resolve_batch(plan, one.model.name, one.batch)
    return rented.resolve_batch(plan, one.model.name, one.batch, one.rented)


def _is_same(cell: Cell, one: Asked, batch: int) -> bool:
    place = (cell.model, cell.batch, cell.machine, cell.repeat)
    return place == (one.model.name, batch, one.machine.name, one.repeat)


def _numbers(
    progress: Progress, plan: Plan, one: Asked, batch: int, measure: Measure
) -> CellNumbers:
    path = cell_file(plan, one, batch)
    if one.rented is not None:
        rates = progress.rates.get(one.model.name)
        profile = rented.predict(plan, one.model, batch, one.rented, rates)
        store.save(profile, path.parent, name=path.name, force=True)
        found = numbers_of(profile, path.name, one.model, one.machine)
        return rented.with_exchange(found, plan, one.model.name, batch, one.rented)
    kept = here.kept(plan, path)
    if kept is None:
        kept = measure(plan, one.model.name, batch, one.repeat)
        store.save(kept, path.parent, name=path.name, force=True)
    if kept.rates.preprocessing is not None:
        progress.rates.setdefault(one.model.name, kept)
    return numbers_of(kept, path.name, one.model, one.machine)


def _without(one: Asked, batch: int, status: str, message: str) -> Cell:
    return Cell.model_validate(
        {
            "model": one.model.name,
            "batch": batch,
            "largest": one.batch == "max",
            "machine": one.machine.name,
            "repeat": one.repeat,
            "status": status,
            "message": message,
            "numbers": None,
        }
    )


def _study(
    plan: Plan, models: tuple[StudiedModel, ...], asked: list[Asked], progress: Progress
) -> Study:
    machines = tuple(dict.fromkeys(one.machine for one in asked))
    study = Study(
        kind=plan.kind,
        created=datetime.now(timezone.utc).replace(microsecond=0),
        dtype=plan.dtype,
        models=models,
        machines=machines,
        cells=with_network(progress.cells, machines),
        fits=(),
        assumptions=tuple(_assumptions(plan, progress)),
        asked=len(asked),
    )
    return study.model_copy(update={"fits": _fits(plan, study)}) if plan.kind == "micro" else study


def _fits(plan: Plan, study: Study) -> tuple[Fit, ...]:
    by_machine: dict[str, list[fit.Point]] = {}
    for cell, numbers in averaged(study):
        by_machine.setdefault(cell.machine, []).append((study.model(cell.model), numbers))
    scale = {} if plan.here is None else {here.machine(plan).name: here.byte_scale(plan)}
    return tuple(fit.fits(by_machine, scale))


def _assumptions(plan: Plan, progress: Progress) -> Iterator[str]:
    yield (
        "An epoch is ImageNet-1k (1,281,167 samples) for vision models and SQuAD 2.0 (130,319) "
        "for language models, without data stalls, on every machine."
    )
    if not plan.rented:
        return
    yield "Machines for rent are predicted from specifications (docs/validation.md has the errors)."
    if plan.kind == "micro":
        return
    if plan.samples_per_core is not None:
        yield f"One core prepares {plan.samples_per_core:g} samples a second, as given."
    elif progress.rates:
        names = ", ".join(progress.rates)
        yield f"A core prepares as many samples a second as here, model by model ({names})."
    else:
        yield "How fast a core prepares samples is not known: no CPU and disk stalls for rent."
    if plan.storage_mb_per_second is not None:
        yield f"Storage reads {plan.storage_mb_per_second:g} MB/s, as given."
    elif plan.samples_per_core is not None and (unknown := _without_disk(plan)):
        yield (
            f"The catalog knows no disk of {', '.join(unknown)}: no disk stalls there "
            "(--storage-mb-per-second says how fast one reads)."
        )


def _without_disk(plan: Plan) -> list[str]:
    return sorted(
        one.name
        for one in {rented.instance for rented in plan.rented}
        if not (one.nvme_read_mb_per_second or one.disk_mb_per_second)
    )
