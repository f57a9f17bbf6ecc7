"""The paper's figures: each holds the series of the paper's, and says where they come from."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from stash.hardware import catalog
from stash.report.charts.depths import DepthsPicture
from stash.report.charts.files import save_picture
from stash.report.charts.grouped import BarsPicture
from stash.report.charts.picture import NARROW, WIDE, Picture
from stash.report.charts.study import PAPER_NUMBERS, pictures_of_study
from stash.report.export.tables import as_csv
from stash.report.study import csv_rows
from stash.study import plan, run
from stash.study.document import Study

P2 = {"p2.xlarge", "p2.8xlarge", "p2.16xlarge"}
P3 = {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"}


@pytest.fixture(scope="module")
def macro(tmp_path_factory: pytest.TempPathFactory) -> Study:
    asked = plan.Plan(
        kind="macro",
        folder=tmp_path_factory.mktemp("macro"),
        models=plan.macro_models(None),
        rented=plan.machines(["paper"], "macro", catalog.CURRENT),
        samples_per_core=150.0,
        storage_mb_per_second=250.0,
    )
    return run.run(asked)[0]


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Study:
    asked = plan.Plan(
        kind="micro",
        folder=tmp_path_factory.mktemp("micro"),
        models=plan.micro_models(None, None),
        batches=(32,),
        rented=plan.machines(["paper"], "micro", catalog.CURRENT),
    )
    return run.run(asked)[0]


def figure(study: Study, number: int) -> Picture:
    (found,) = [o for o in pictures_of_study(study) if o.name.startswith(f"figure-{number:02d}-")]
    assert f"Figure {number} of the paper." in found.words
    assert "redicted" in found.words
    return found


def axes(picture: Picture) -> dict[str, tuple[set[str], set[str]]]:
    """By panel: groups (models with their batch) and series (machines)."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    assert isinstance(picture, BarsPicture)
    for bar in picture.bars:
        groups, series = found.setdefault(bar.panel, (set(), set()))
        groups.add(bar.group)
        series.add(bar.series)
    return found


def models(names: tuple[str, ...], batch: int) -> set[str]:
    return {f"{name} ({batch})" for name in names}


def fullest(study: Study, names: tuple[str, ...], machines: set[str]) -> set[str]:
    """Models with the largest batches that fit, from the least to the most."""
    found = set()
    for name in names:
        batches = [
            cell.batch
            for cell, _ in study.done()
            if cell.largest and cell.model == name and cell.machine in machines
        ]
        least, most = min(batches), max(batches)
        found.add(f"{name} ({least})" if least == most else f"{name} ({least} to {most})")
    return found


def value(picture: Picture, panel: str, group: str, series: str) -> float:
    assert isinstance(picture, BarsPicture)
    (bar,) = [
        one for one in picture.bars if (one.panel, one.group, one.series) == (panel, group, series)
    ]
    return bar.value.estimate


def test_every_cell_between_the_smallest_and_what_fits_has_its_figure(macro: Study) -> None:
    drawn = {
        (bar.group.split(" ")[0], bar.series)
        for picture in pictures_of_study(macro)
        if isinstance(picture, BarsPicture) and "-epoch-" in picture.name
        for bar in picture.bars
        if "that fits" in bar.panel
    }
    beyond = {(cell.model, cell.machine) for cell, _ in macro.done() if cell.largest}
    assert drawn == beyond | {("bert-large", "p3dn.24xlarge")}


def test_every_figure_is_there_and_is_drawn_with_its_labels(macro: Study, micro: Study) -> None:
    drawn = [*pictures_of_study(macro), *pictures_of_study(micro)]
    numbers = {int(one.name[7:9]) for one in drawn if one.name.startswith("figure-")}
    assert numbers == set(PAPER_NUMBERS.values()) == set(range(4, 17))
    for picture in drawn:
        for width in (WIDE, NARROW):
            image = ElementTree.fromstring(picture.inline(width))  # raises where it is not valid
            told = "".join(image.itertext())
            assert all(label in told for label in labels(picture))
            assert "nan" not in picture.inline(width)


def labels(picture: Picture) -> set[str]:
    """Names of panels: what every width has room for."""
    if isinstance(picture, DepthsPicture):
        return {point.panel for point in picture.points}
    assert isinstance(picture, BarsPicture)
    return {bar.panel for bar in picture.bars}


@pytest.mark.parametrize(
    ("number", "machines", "names"),
    [(4, P2, plan.SMALL), (8, P3, plan.SMALL), (9, P3, plan.LARGE)],
)
def test_figures_4_8_and_9_hold_cpu_and_disk_stalls(
    macro: Study, number: int, machines: set[str], names: tuple[str, ...]
) -> None:
    picture = figure(macro, number)
    found = axes(picture)
    beyond = {name: found.pop(name) for name in [*found] if name.endswith("that fits")}
    assert found == {
        f"{stall} stall, {size} batch": (models(names, batch), machines)
        for stall in ("CPU", "Disk")
        for size, batch in (("smallest", 32), ("largest", 128))
    }
    assert beyond == {
        f"{stall} stall, largest batch that fits": (fullest(macro, names, machines), machines)
        for stall in ("CPU", "Disk")
    }
    numbers = {(c.model, c.batch, c.machine): n for c, n in macro.done()}
    machine = max(machines)
    stall = numbers[names[0], 128, machine].stalls["fetch"].percent
    assert stall is not None
    shown = value(picture, "Disk stall, largest batch", f"{names[0]} (128)", machine)
    assert shown == stall.estimate


def test_figure_5_holds_interconnect_stalls_of_small_models_on_both_gpus(macro: Study) -> None:
    found = axes(figure(macro, 5))
    assert found["K80, smallest batch"] == (models(plan.SMALL, 32), P2 - {"p2.xlarge"})
    assert found["V100, largest batch"] == (models(plan.SMALL, 128), P3 - {"p3.2xlarge"})


def test_figure_11_holds_interconnect_stalls_of_large_models_and_bert(macro: Study) -> None:
    large = models(plan.LARGE, 32) | {"bert-large (4)"}
    found = axes(figure(macro, 11))
    assert found["V100, smallest batch"] == (large, P3 - {"p3.2xlarge"})
    groups, _ = found["V100, largest batch that fits"]
    beyond = fullest(macro, plan.LARGE, P3 - {"p3.2xlarge"})
    assert groups == beyond | {"bert-large (8)"}
    picture = figure(macro, 11)
    assert isinstance(picture, BarsPicture)
    assert {bar.series for bar in picture.bars if bar.group == "bert-large (8)"} == {
        "p3dn.24xlarge"
    }


@pytest.mark.parametrize(
    ("number", "machines", "names"),
    [
        (6, P2 | {"2x p2.8xlarge"}, models(plan.SMALL, 32)),
        (10, P3 | {"2x p3.8xlarge"}, models(plan.SMALL, 32)),
        (12, P3 | {"2x p3.8xlarge"}, models(plan.LARGE, 32) | {"bert-large (4)"}),
    ],
)
def test_figures_6_10_and_12_hold_time_and_cost_of_an_epoch(
    macro: Study, number: int, machines: set[str], names: set[str]
) -> None:
    picture = figure(macro, number)
    found = axes(picture)
    assert found["Training time, smallest batch"] == (names, machines)
    assert found["Training cost, smallest batch"] == (names, machines)
    group, machine = min(names), min(machines)
    seconds = value(picture, "Training time, smallest batch", group, machine)
    price = macro.machine(machine).price_usd_per_hour
    assert price is not None
    dollars = value(picture, "Training cost, smallest batch", group, machine)
    assert dollars == pytest.approx(seconds * price / 3600)


def test_figure_7_holds_the_bandwidth_of_every_p2_machine(macro: Study) -> None:
    picture = figure(macro, 7)
    assert isinstance(picture, BarsPicture)
    by = {bar.group: bar.value.estimate for bar in picture.bars}
    assert set(by) == P2
    assert by["p2.16xlarge"] < by["p2.8xlarge"] < by["p2.xlarge"]


def test_figure_13_holds_the_network_stall_of_pairs(macro: Study) -> None:
    found = axes(figure(macro, 13))
    pairs = {"2x p2.8xlarge against p2.16xlarge", "2x p3.8xlarge against p3.16xlarge"}
    groups, series = found["Smallest batch"]
    assert series == pairs
    assert groups == models(plan.TABLE_TWO[:-1], 32) | {"bert-large (4)"}


def test_figure_14_holds_both_families_on_models_that_both_have(macro: Study) -> None:
    groups, series = axes(figure(macro, 14))["Training cost, smallest batch"]
    assert series == P2 | P3 | {"2x p2.8xlarge", "2x p3.8xlarge"}
    assert groups == models((*plan.SMALL, *plan.LARGE), 32)


def test_figure_15_holds_the_memory_of_two_models_on_one_machine_a_gpu(macro: Study) -> None:
    found = axes(figure(macro, 15))
    series = {"K80: p2.xlarge", "V100: p3.2xlarge"}
    machines = {one.split(": ")[1] for one in series}
    for model in ("shufflenet_v2_x0_5", "resnet18"):
        largest = {
            str(cell.batch)
            for cell, _ in macro.done()
            if cell.largest and cell.model == model and cell.machine in machines
        }
        assert len(largest) == 2
        assert found.pop(model) == ({"32", "64", "96", "128"}, series)
        assert found.pop(f"{model}, largest batch that fits") == (largest, series)
    assert not found


def test_figure_16_holds_stall_times_by_depth_family_and_variant(micro: Study) -> None:
    picture = figure(micro, 16)
    assert isinstance(picture, DepthsPicture)
    panels = {point.panel for point in picture.points}
    assert panels == {"I/C stall, p3.16xlarge", "N/W stall, 2x p3.8xlarge"}
    for panel in panels:
        lines: dict[str, set[int]] = {}
        for point in picture.points:
            if point.panel == panel:
                lines.setdefault(point.series, set()).add(point.depth)
        resnets, vggs = set(plan.RESNET_DEPTHS), set(plan.VGG_DEPTHS)
        assert lines == {
            "ResNet": resnets,
            "ResNet, no batch norm": resnets,
            "ResNet, no residual links": resnets,
            "VGG": vggs,
            "VGG, batch norm": vggs,
        }


def test_a_figure_is_a_file_of_every_kind(macro: Study, tmp_path: Path) -> None:
    written = save_picture(figure(macro, 7), tmp_path, force=False)
    assert {path.suffix for path in written} == {".svg", ".png", ".pdf"}
    assert "p2.16xlarge" in written[0].read_text()


def test_the_spreadsheet_has_a_row_a_cell_with_intervals(macro: Study) -> None:
    lines = as_csv(csv_rows(macro)).splitlines()
    assert len(lines) == 1 + len(macro.cells)
    columns = lines[0].split(",")
    assert {"interconnect_percent", "interconnect_percent_low", "epoch_usd", "status"} <= {*columns}
