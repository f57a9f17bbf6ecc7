"""A study: which cells it has, that it goes on where it was, what it compares and fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from profiles import HAND_WORKED, noisy, profile_of, workload
from stash.errors import StashError, UsageError
from stash.hardware import catalog
from stash.hardware.machine import usable_cores
from stash.launch.api import Measured
from stash.launch.prepare import default_loaders
from stash.launch.request import Request
from stash.results import store
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance
from stash.results.recording import End
from stash.study import fit, here, plan, run
from stash.study.document import CellNumbers, Study, StudyStall
from stash.study.plan import Here, Plan, studied_model
from stash.study.repeats import averaged


def paper_plan(folder: Path, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "kind": "macro",
        "folder": folder,
        "models": plan.macro_models(["resnet18", "vgg11"]),
        "batches": (32, 128),
        "rented": plan.machines(["paper"], "macro", catalog.CURRENT),
    }
    return Plan(**{**given, **changes})


def here_plan(folder: Path, **changes: Any) -> Plan:
    here = Here(device="emulated:v100", nproc_per_node=2)
    return paper_plan(folder, **{"rented": (), "here": here, **changes})


def one_cell(folder: Path, **options: Any) -> Plan:
    return here_plan(
        folder,
        models=plan.macro_models(["resnet18"]),
        batches=(32,),
        here=Here(device="emulated:v100", nproc_per_node=2, **options),
    )


def fake_profile(model: str, batch: int, **changes: Any) -> Profile:
    """As two workers of this machine would measure it."""
    return profile_of(
        noisy(HAND_WORKED, rounds=20),
        workload_changes={
            "name": model,
            "batch_per_worker": batch,
            "data": "generated",
            "loader_workers": default_loaders(usable_cores(), 2),
        },
        machine_changes={"device": "emulated:v100-sxm2-16gb", "torch": torch.__version__},
        **changes,
    )


class Measuring:
    """Stands in for a gang: answers at once, fails or is interrupted where it is told to."""

    def __init__(self, fail: str = "", interrupt: str = "", error: Exception | None = None) -> None:
        self.fail, self.interrupt = fail, interrupt
        self.error = error or StashError("A worker died.\nAll logs: elsewhere")
        self.done: list[str] = []

    def __call__(self, plan: Plan, model: str, batch: int, repeat: int) -> Profile:
        cell = f"{model} {batch}"
        if cell == self.interrupt:
            raise KeyboardInterrupt
        if cell == self.fail:
            raise self.error
        self.done.append(f"{cell} {repeat}")
        return fake_profile(model, batch)


def test_macro_is_table_two_and_micro_is_every_depth_and_variant() -> None:
    assert plan.macro_models(None) == plan.TABLE_TWO
    names = plan.micro_models(None, None)
    assert len(names) == 3 * 6 + 2 * 4
    assert {"resnet10", "resnet152-nobn", "resnet34-nores", "vgg19_bn"} <= set(names)
    assert plan.micro_models([50, 16], None) == (
        "resnet50", "resnet50-nobn", "resnet50-nores", "vgg16", "vgg16_bn",
    )  # fmt: skip
    with pytest.raises(UsageError, match="--depths: 12"):
        plan.micro_models([12], None)


def test_machines_are_names_multiples_and_the_papers_own() -> None:
    found = plan.machines(["2x p3.8xlarge", "p4d.24xlarge"], "macro", catalog.CURRENT)
    assert [(one.name, one.nodes) for one in found] == [("2x p3.8xlarge", 2), ("p4d.24xlarge", 1)]
    paper = plan.machines(["paper"], "micro", catalog.CURRENT)
    assert [one.name for one in paper] == ["p3.16xlarge", "2x p3.8xlarge"]
    assert {one.instance.snapshot for one in paper} == {catalog.PAPER}
    with pytest.raises(UsageError, match="Nearest names"):
        plan.machines(["p3.9xlarge"], "macro", catalog.CURRENT)
    with pytest.raises(UsageError, match="is no machine"):
        plan.machines(["0x p3.8xlarge"], "macro", catalog.CURRENT)


def test_bert_has_batch_4_and_8_only_where_memory_allows(tmp_path: Path) -> None:
    asked = paper_plan(tmp_path, models=plan.macro_models(["bert-large"]))
    study, _ = run.run(asked)
    batches = {(cell.machine, cell.batch) for cell in study.cells}
    assert ("p3dn.24xlarge", 8) in batches
    assert not any(batch == 8 for machine, batch in batches if machine != "p3dn.24xlarge")


def test_the_largest_batch_that_fits_is_its_own_on_every_gpu(tmp_path: Path) -> None:
    study, _ = run.run(paper_plan(tmp_path, batches=("max",)))
    largest = {
        (cell.model, study.machine(cell.machine).family, cell.machine): cell.batch
        for cell in study.cells
    }
    assert all(cell.largest for cell in study.cells)
    assert largest["vgg11", "K80", "p2.xlarge"] < largest["vgg11", "V100", "p3.2xlarge"]
    assert largest["vgg11", "V100", "p3.2xlarge"] < largest["vgg11", "V100", "p3dn.24xlarge"]


def test_what_does_not_fit_is_said_and_is_no_failure(tmp_path: Path) -> None:
    study, _ = run.run(paper_plan(tmp_path, batches=(32, 4096)))
    smaller = [cell for cell in study.cells if cell.status == "does not fit"]
    assert {cell.batch for cell in smaller} == {4096}
    assert "largest batch that fits" in smaller[0].message
    assert not study.failed


def test_a_study_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    asked = here_plan(tmp_path)
    first = Measuring(interrupt="vgg11 32")
    study, interrupted = run.run(asked, measure=first)
    assert interrupted
    assert first.done == ["resnet18 32 1", "resnet18 128 1"]
    assert len(study.cells) == 2 and study.asked == 4
    second = Measuring()
    study, interrupted = run.run(asked, measure=second)
    assert not interrupted
    assert second.done == ["vgg11 32 1", "vgg11 128 1"]
    assert {cell.status for cell in study.cells} == {"done"}
    assert Study.load(tmp_path / run.DOCUMENT) == study


def test_a_failed_cell_is_named_loses_no_other_and_is_tried_again(tmp_path: Path) -> None:
    asked, told = here_plan(tmp_path), []
    study, _ = run.run(asked, tell=told.append, measure=Measuring(fail="resnet18 128"))
    assert [(cell.model, cell.batch) for cell in study.failed] == [("resnet18", 128)]
    assert len([cell for cell in study.cells if cell.status == "done"]) == 3
    assert any("failed: resnet18, batch 128" in line and "worker died" in line for line in told)
    again = Measuring()
    study, _ = run.run(asked, measure=again)
    assert again.done == ["resnet18 128 1"] and not study.failed


def test_whatever_ends_a_cell_ends_no_other(tmp_path: Path) -> None:
    told: list[str] = []
    measuring = Measuring(fail="resnet18 128", error=RuntimeError("no room in /dev/shm"))
    study, interrupted = run.run(here_plan(tmp_path), tell=told.append, measure=measuring)
    assert not interrupted and len(measuring.done) == 3
    assert study.failed[0].message == "RuntimeError: no room in /dev/shm"
    assert any("failed: resnet18, batch 128" in line for line in told)


def test_the_document_is_there_after_every_cell(tmp_path: Path) -> None:
    seen: list[int] = []

    def measure(asked: Plan, model: str, batch: int, repeat: int) -> Profile:
        document = tmp_path / run.DOCUMENT
        seen.append(len(Study.load(document).cells) if document.exists() else 0)
        return fake_profile(model, batch)

    run.run(here_plan(tmp_path), measure=measure)
    assert seen == [0, 1, 2, 3]


def test_what_a_failed_cell_has_left_is_kept_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / here.UNDER_WAY / "failed.json"
    left.parent.mkdir()
    left.write_text("{}")

    def launch(request: Request) -> Measured:
        made = fake_profile(request.workload, 32)
        return Measured(made, store.save(made, request.out), 0)

    monkeypatch.setattr("stash.launch.api.measure", launch)
    asked = here_plan(tmp_path)
    assert here.measure(asked, "resnet18", 32, 1).workload.name == "resnet18"
    assert list(left.parent.iterdir()) == [left]
    left.unlink()
    here.measure(asked, "resnet18", 32, 1)
    assert not left.parent.exists()


def test_a_damaged_cell_is_measured_again(tmp_path: Path) -> None:
    asked = here_plan(tmp_path, models=plan.macro_models(["resnet18"]), batches=(32,))
    run.run(asked, measure=Measuring())
    (kept,) = (tmp_path / run.CELLS).glob("*.json")
    kept.write_text(kept.read_text()[:100])
    again = Measuring()
    run.run(asked, measure=again)
    assert again.done == ["resnet18 32 1"]


def test_cells_that_were_measured_in_another_way_are_not_mixed_in(tmp_path: Path) -> None:
    run.run(one_cell(tmp_path), measure=Measuring())
    pictures = tmp_path / "pictures" / "cats"
    pictures.mkdir(parents=True)
    Image.new("RGB", (256, 256)).save(pictures / "one.png")
    measuring = Measuring()
    with pytest.raises(UsageError, match="was measured with data generated"):
        run.run(one_cell(tmp_path, data=pictures.parent), measure=measuring)
    with pytest.raises(UsageError, match=r"with loader workers .*, and this study has 7"):
        run.run(one_cell(tmp_path, num_workers=7), measure=measuring)
    (cell,) = (tmp_path / run.CELLS).glob("*.json")
    cell.write_text(cell.read_text().replace(f'"{torch.__version__}"', '"1.13.1"'))
    with pytest.raises(UsageError, match=r"measured with torch 1\.13\.1.*another folder"):
        run.run(one_cell(tmp_path), measure=measuring)
    assert not measuring.done


def test_a_folder_holds_one_kind_of_study(tmp_path: Path) -> None:
    """Else macro would take over micro's cells, which have no steps with data."""

    def only_micro_steps(asked: Plan, model: str, batch: int, repeat: int) -> Profile:
        made = fake_profile(model, batch)
        steps = {name: one for name, one in made.steps.items() if name in here.MICRO_STEPS}
        return made.model_copy(update={"steps": steps})

    micro, macro = (replace(one_cell(tmp_path), kind=kind) for kind in ("micro", "macro"))
    run.run(micro, measure=only_micro_steps)
    with pytest.raises(UsageError, match="holds a micro study, and this is a macro one"):
        run.run(macro, measure=Measuring())
    (tmp_path / run.DOCUMENT).unlink()
    with pytest.raises(UsageError, match="was measured without warm and cold"):
        run.run(macro, measure=Measuring())


def test_more_time_is_for_cells_that_are_not_sure_enough(tmp_path: Path) -> None:
    done: list[float] = []

    def measure(asked: Plan, model: str, batch: int, repeat: int) -> Profile:
        assert asked.here is not None
        done.append(asked.here.max_minutes)
        end = End(launch=0, reason="max-minutes", checks=(), peak_device_memory_bytes=())
        return fake_profile(model, batch, end=end)  # 20 rounds in 200 seconds

    for minutes in (3.5, 3.5, 2.0, 10.0):
        run.run(one_cell(tmp_path, max_minutes=minutes), measure=measure)
    assert done == [3.5, 10.0]
    run.run(one_cell(tmp_path / "sure", max_minutes=3.5), measure=Measuring())
    again = Measuring()
    run.run(one_cell(tmp_path / "sure", max_minutes=10.0), measure=again)
    assert not again.done


def test_a_new_price_is_reckoned_without_measuring_again(tmp_path: Path) -> None:
    run.run(one_cell(tmp_path, price_usd_per_hour=1.0), measure=Measuring())
    again = Measuring()
    study, _ = run.run(one_cell(tmp_path, price_usd_per_hour=3.0), measure=again)
    ((_, numbers),) = study.done()
    assert not again.done and numbers.epoch_usd is not None
    assert numbers.epoch_usd.estimate == pytest.approx(numbers.epoch_seconds.estimate * 3 / 3600)


def test_this_machines_loaders_serve_the_predictions(tmp_path: Path) -> None:
    rented = plan.machines(["p3.16xlarge"], "macro", catalog.PAPER)
    models = plan.macro_models(["resnet18"])
    alone, _ = run.run(paper_plan(tmp_path / "a", models=models, rented=rented))
    assert not any("prep" in numbers.stalls for _, numbers in alone.done())
    both, _ = run.run(
        here_plan(tmp_path / "b", models=models, rented=rented), measure=lambda *_: with_rates()
    )
    predicted = [one for _, one in both.done() if one.provenance is Provenance.PREDICTED]
    assert all("prep" in one.stalls for one in predicted)
    assert any("as here, model by model" in line for line in both.assumptions)


def test_disks_that_nobody_knows_have_no_stalls(tmp_path: Path) -> None:
    rented = plan.machines(["p3.16xlarge"], "macro", catalog.PAPER)
    asked = {"models": plan.macro_models(["resnet18"]), "rented": rented, "samples_per_core": 50.0}
    study, _ = run.run(paper_plan(tmp_path / "a", **asked))
    assert all("prep" in one.stalls and "fetch" not in one.stalls for _, one in study.done())
    assert any("no disk of p3.16xlarge" in line for line in study.assumptions)
    told, _ = run.run(paper_plan(tmp_path / "b", **asked, storage_mb_per_second=500.0))
    assert all("fetch" in one.stalls for _, one in told.done())
    assert not any("no disk" in line for line in told.assumptions)


def with_rates() -> Profile:
    made = fake_profile("resnet18", 32)
    known = workload(name="resnet18", samples=1000, data="generated", data_bytes=10**8)
    rate = Interval(estimate=500.0, low=None, high=None)
    rates = made.rates.model_copy(update={"preprocessing": rate})
    return made.model_copy(update={"rates": rates, "workload": known})


def test_the_network_stall_is_against_one_machine_with_as_many_gpus(tmp_path: Path) -> None:
    study, _ = run.run(paper_plan(tmp_path))
    found = {(cell.model, cell.batch, cell.machine): numbers for cell, numbers in study.done()}
    spread, single = found["vgg11", 32, "2x p3.8xlarge"], found["vgg11", 32, "p3.16xlarge"]
    stall = spread.stalls["network"]
    assert stall.against == "p3.16xlarge"
    expected = spread.steps["scaleout"].estimate - single.steps["node"].estimate
    assert stall.seconds_per_iteration.estimate == pytest.approx(expected)
    assert stall.percent is not None and stall.percent.low is not None
    assert stall.percent.estimate == pytest.approx(100 * expected / single.steps["node"].estimate)
    assert stall.percent.low < stall.percent.estimate
    assert "network" not in single.stalls


def test_machines_of_one_gpu_are_compared_with_one_of_as_many(tmp_path: Path) -> None:
    rented = plan.machines(["4x g4dn.xlarge", "g4dn.12xlarge"], "macro", catalog.CURRENT)
    models = plan.macro_models(["resnet18"])
    study, _ = run.run(paper_plan(tmp_path, rented=rented, models=models, batches=(32,)))
    found = {cell.machine: numbers for cell, numbers in study.done()}
    spread, single = found["4x g4dn.xlarge"], found["g4dn.12xlarge"]
    expected = spread.steps["scaleout"].estimate - single.steps["node"].estimate
    assert spread.stalls["network"].against == "g4dn.12xlarge"
    assert spread.stalls["network"].seconds_per_iteration.estimate == pytest.approx(expected)


def test_emulated_and_predicted_machines_are_never_subtracted(tmp_path: Path) -> None:
    here = Here(device="emulated:v100", nproc_per_node=8)
    rented = plan.machines(["2x p3.8xlarge"], "macro", catalog.PAPER)
    models = plan.macro_models(["resnet18"])
    asked = here_plan(tmp_path, here=here, rented=rented, models=models, batches=(32,))
    study, _ = run.run(asked, measure=Measuring())
    assert not any("network" in numbers.stalls for _, numbers in study.done())


def test_an_epoch_is_the_same_data_on_every_machine(tmp_path: Path) -> None:
    study, _ = run.run(paper_plan(tmp_path))
    found = {(cell.model, cell.batch, cell.machine): numbers for cell, numbers in study.done()}
    one = found["resnet18", 128, "p3.16xlarge"]
    iterations = int(np.ceil(np.ceil(1_281_167 / 8) / 128))
    assert one.epoch_seconds.estimate == pytest.approx(iterations * one.steps["node"].estimate)
    assert one.epoch_usd is not None
    assert one.epoch_usd.estimate == pytest.approx(one.epoch_seconds.estimate * 24.48 / 3600)


def test_repeats_are_averaged_with_their_own_scatter(tmp_path: Path) -> None:
    seconds = iter((0.10, 0.12, 0.14))

    def measure(asked: Plan, model: str, batch: int, repeat: int) -> Profile:
        steps = {**HAND_WORKED, "node": HAND_WORKED["node"] + next(seconds)}
        return profile_of(
            noisy(steps, rounds=20),
            workload_changes={"name": model, "batch_per_worker": batch, "data": "generated"},
        )

    models = plan.micro_models([18], ["resnet18"])
    asked = here_plan(tmp_path, kind="micro", models=models, batches=(32,), repeats=3)
    study, _ = run.run(asked, measure=measure)
    assert [cell.repeat for cell in study.cells] == [1, 2, 3]
    ((_, numbers),) = averaged(study)
    runs = [one.steps["node"].estimate for _, one in study.done()]
    node = numbers.steps["node"]
    assert node.estimate == pytest.approx(np.mean(runs))
    half = 4.302653 * np.std(runs, ddof=1) / np.sqrt(3)  # Student's t, two degrees of freedom
    assert node.high == pytest.approx(node.estimate + half)


def test_a_link_made_of_two_constants_is_found_again() -> None:
    tau, rate = 3e-4, 5e9
    models = [studied_model(name, "micro") for name in plan.micro_models([18, 50, 152, 16], None)]
    points = [(one, numbers_with(one.messages * tau + one.gradient_bytes / rate)) for one in models]
    by_buckets, by_tensors = fit.fits({"link": points}, {})
    assert by_buckets.seconds_per_message.estimate == pytest.approx(tau)
    assert by_buckets.seconds_per_byte.estimate == pytest.approx(1 / rate)
    assert by_buckets.explained == pytest.approx(1)
    assert by_tensors.explained < 1
    (scaled, _) = fit.fits({"link": points}, {"link": 0.1})
    assert scaled.seconds_per_byte.estimate == pytest.approx(10 / rate)
    assert fit.fits({"link": points[:2]}, {}) == []


def numbers_with(seconds: float) -> CellNumbers:
    exact = Interval(estimate=seconds, low=None, high=None)
    stall = StudyStall(seconds_per_iteration=exact, percent=None, percent_of="solo", against="")
    return CellNumbers(
        provenance=Provenance.PREDICTED,
        profile="x.json",
        steps={},
        stalls={"communication": stall},
        epoch_seconds=exact,
        epoch_usd=None,
        memory_percent=None,
    )
