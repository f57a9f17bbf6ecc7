"""The figures of the paper, drawn from a study: same axes, machines and models as were studied.

Which figure shows what stands in one table below. Changes when a figure shows something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stash.report.charts.depths import depths_picture
from stash.report.charts.files import save_picture
from stash.report.charts.grouped import Bar, BarsPicture, Panel, grouped
from stash.report.charts.picture import Picture
from stash.report.figures import derived, written
from stash.results.document import Interval
from stash.results.profile import Provenance
from stash.study.document import Cell, CellNumbers, StudiedMachine, Study
from stash.study.repeats import averaged

Done = tuple[Cell, CellNumbers]
Value = Callable[[CellNumbers], Interval | None]

#: What is drawn, of which GPUs and models, to its number in the paper.
PAPER_NUMBERS: dict[tuple[str, ...], int] = {
    ("data", "K80", "small"): 4,
    ("interconnect", "small"): 5,
    ("epoch", "K80", "small"): 6,
    ("bandwidth", "K80"): 7,
    ("data", "V100", "small"): 8,
    ("data", "V100", "large"): 9,
    ("epoch", "V100", "small"): 10,
    ("interconnect", "large"): 11,
    ("epoch", "V100", "large"): 12,
    ("network",): 13,
    ("families",): 14,
    ("memory",): 15,
    ("depths",): 16,
}
#: Models that share a figure; language models stand beside large ones where data do not matter.
GROUPS = {"small": ("small",), "large": ("large", "language"), "other": ("other",)}
IMAGES = {"small": ("small",), "large": ("large",), "other": ("other",)}
#: The two models of figure 15: the smallest, and one with many layers.
MEMORY_MODELS = ("shufflenet_v2_x0_5", "resnet18")
#: In panels of their own: beside batches that fill a GPU, all others look like nothing.
FITS = "largest batch that fits"


def pictures_of_study(study: Study) -> list[Picture]:
    """Every figure for which a study has the numbers."""
    if study.kind == "micro":
        found: list[Picture | None] = [depths_picture(study, *_name("depths"))]
        return [one for one in found if one is not None]
    done = averaged(study)
    families = list(dict.fromkeys(machine.family for machine in study.machines))
    found = []
    for group in GROUPS:
        found.append(_interconnect(study, done, families, group))
        for family in families:
            found.append(_data(study, done, family, group))
            found.append(_epoch(study, done, family, group))
    found += [_bandwidth(study, family) for family in families]
    found += [_network(study, done), _families(study, done, families), _memory(study, done)]
    drawn = [one for one in found if one is not None]
    return sorted(drawn, key=lambda one: one.name)


def save_study_figures(study: Study, folder: Path) -> list[Path]:
    """Every figure in every format."""
    return [
        path
        for picture in pictures_of_study(study)
        for path in save_picture(picture, folder, force=True)
    ]


def _name(*what: str) -> tuple[str, str]:
    """File name and first words of a figure."""
    number = PAPER_NUMBERS.get(what)
    words = "-".join(what).lower()
    if number is None:
        return f"more-{words}", ""
    return f"figure-{number:02d}-{words}", f"Figure {number} of the paper. "


def _interconnect(
    study: Study, done: Sequence[Done], families: Sequence[str], group: str
) -> Picture | None:
    panels, bars = [], []
    for family in families:
        own = [
            one
            for one in _of(study, done, family, GROUPS[group])
            if study.machine(one[0].machine).gpus_per_node > 1
            and study.machine(one[0].machine).nodes == 1
        ]
        for size, chosen in _sizes(own):
            panel = Panel(f"{family}, {size}", "I/C stall %")
            added = _bars(study, panel, chosen, _percent("interconnect"))
            bars += added
            panels += [panel] if added else []
    title = f"Interconnect stall, {group} models"
    return _picture(_name("interconnect", group), title, bars, panels, "%")


def _data(study: Study, done: Sequence[Done], family: str, group: str) -> Picture | None:
    panels, bars = [], []
    for stall, words in (("prep", "CPU stall %"), ("fetch", "Disk stall %")):
        for size, chosen in _sizes(_of(study, done, family, IMAGES[group])):
            panel = Panel(f"{words[:-2]}, {size}", words)
            added = _bars(study, panel, chosen, _percent(stall))
            bars += added
            panels += [panel] if added else []
    title = f"CPU and disk stalls, {family}, {group} models"
    return _picture(_name("data", family, group), title, bars, panels, "%")


def _epoch(study: Study, done: Sequence[Done], family: str, group: str) -> Picture | None:
    chosen = _of(study, done, family, GROUPS[group])
    title = f"Time and cost of an epoch, {family}, {group} models"
    return _time_and_cost(study, chosen, _name("epoch", family, group), title)


def _families(study: Study, done: Sequence[Done], families: Sequence[str]) -> Picture | None:
    """GPU families against each other, on the models that are studied on all of them."""
    if len(families) < 2:
        return None
    shared = [
        {cell.model for cell, _ in _of(study, done, family, ("small", "large"))}
        for family in families
    ]
    both = set.intersection(*shared)
    chosen = [one for one in done if one[0].model in both]
    title = f"{' against '.join(families)}: time and cost of an epoch"
    return _time_and_cost(study, chosen, _name("families"), title)


def _time_and_cost(
    study: Study, chosen: Sequence[Done], name: tuple[str, str], title: str
) -> Picture | None:
    quantities: tuple[tuple[str, str, Value], ...] = (
        ("Training time", "Training time (sec)", lambda one: one.epoch_seconds),
        ("Training cost", "Training cost ($)", lambda one: one.epoch_usd),
    )
    panels, bars = [], []
    for words, axis, value in quantities:
        for size, cells in _sizes(chosen):
            panel = Panel(f"{words}, {size}", axis)
            added = _bars(study, panel, cells, value)
            bars += added
            panels += [panel] if added else []
    return _picture(name, title, bars, panels, "s and $")


def _network(study: Study, done: Sequence[Done]) -> Picture | None:
    own = [one for one in done if "network" in one[1].stalls]
    panels, bars = [], []
    for size, chosen in _sizes(own):
        panel = Panel(size.capitalize(), "N/W stall %")
        bars += _bars(study, panel, chosen, _percent("network"), _against)
        panels.append(panel)
    return _picture(_name("network"), "Network stall", bars, panels, "%")


def _bandwidth(study: Study, family: str) -> Picture | None:
    panel = Panel("All GPUs at once", "Bandwidth per GPU (GB/s)")
    bars = [
        Bar(panel.name, one.name, family, derived(one.bytes_per_second_per_gpu / 1e9), provenance)
        for one in study.machines
        if one.family == family and one.nodes == 1
        if one.bytes_per_second_per_gpu is not None
        if (provenance := one.bandwidth_provenance) is not None
    ]
    title = f"Bandwidth per GPU, {family}"
    return _picture(_name("bandwidth", family), title, bars, [panel], "GB/s", "machine")


def _memory(study: Study, done: Sequence[Done]) -> Picture | None:
    """One machine a kind of GPU: how many of them there are makes no difference."""
    smallest: dict[str, StudiedMachine] = {}
    for cell, numbers in done:
        machine = study.machine(cell.machine)
        if numbers.memory_percent is not None and machine.nodes == 1:
            kept = smallest.get(machine.family)
            if kept is None or machine.gpus_per_node < kept.gpus_per_node:
                smallest[machine.family] = machine
    machines = {one.name for one in smallest.values()}
    names = [*MEMORY_MODELS, *(f"{model}, {FITS}" for model in MEMORY_MODELS)]
    panels = [Panel(name, "GPU memory %") for name in names]
    bars = [
        Bar(
            f"{cell.model}, {FITS}" if cell.largest else cell.model,
            str(cell.batch),
            f"{study.machine(cell.machine).family}: {cell.machine}",
            derived(numbers.memory_percent),
            numbers.provenance,
        )
        for cell, numbers in _by_batch(done)
        if cell.machine in machines and cell.model in MEMORY_MODELS
        if numbers.memory_percent is not None
    ]
    shown = [panel for panel in panels if any(bar.panel == panel.name for bar in bars)]
    return _picture(_name("memory"), "GPU memory in use", bars, shown, "%", "batch per GPU")


def _picture(
    name: tuple[str, str],
    title: str,
    bars: Sequence[Bar],
    panels: Sequence[Panel],
    unit: str,
    across: str = "model (batch per GPU)",
) -> Picture | None:
    if not bars:
        return None
    file, number = name
    most = max(bars, key=lambda bar: bar.value.estimate)
    told = written(derived(most.value.estimate), unit if unit != "s and $" else "s")
    return BarsPicture(
        name=file,
        title=f"{title}: at most {told} ({most.group}, {most.series})",
        words=f"{number}{provenance_words((bar.series, bar.provenance) for bar in bars)}",
        draw=lambda width: grouped(bars, panels, width, across=across),
        bars=tuple(bars),
    )


def provenance_words(series: Iterable[tuple[str, Provenance]]) -> str:
    """Where the numbers of a figure come from."""
    by: dict[Provenance, list[str]] = {}
    for name, provenance in series:
        known = by.setdefault(provenance, [])
        if name not in known:
            known.append(name)
    told = [f"{one.value.capitalize()}: {', '.join(names)}." for one, names in by.items()]
    intervals = " Lines: intervals, where there are some."
    return " ".join(told) + intervals


def _of(study: Study, done: Sequence[Done], family: str, groups: Sequence[str]) -> list[Done]:
    return [
        one
        for one in done
        if study.machine(one[0].machine).family == family
        and study.model(one[0].model).group in groups
    ]


def _sizes(done: Sequence[Done]) -> list[tuple[str, list[Done]]]:
    """The smallest and the largest batch of each model that most machines have, as in the paper.

    And what single machines hold beyond that, each its own.
    """
    smallest, largest, beyond = [], [], []
    for model in dict.fromkeys(cell.model for cell, _ in done):
        of_model = [one for one in done if one[0].model == model]
        counts = Counter(cell.batch for cell, _ in of_model if not cell.largest)
        common = [batch for batch, count in counts.items() if count == max(counts.values())]
        smallest += [one for one in of_model if common and one[0].batch == min(common)]
        largest += [one for one in of_model if common and one[0].batch == max(common)]
        beyond += _fullest(of_model, above=max(common, default=0))
    same = [one[0] for one in smallest] == [one[0] for one in largest]
    panels = [
        ("smallest batch", smallest),
        ("largest batch", [] if same else largest),
        (FITS, beyond),
    ]
    return [(words, cells) for words, cells in panels if cells]


def _fullest(of_model: Sequence[Done], *, above: int) -> list[Done]:
    """The largest batch of every machine, where it is above this one."""
    by_machine = {cell.machine: (cell, numbers) for cell, numbers in _by_batch(of_model)}
    return [one for one in by_machine.values() if one[0].batch > above]


def _by_batch(done: Sequence[Done]) -> list[Done]:
    return sorted(done, key=lambda one: one[0].batch)


def _percent(stall: str) -> Value:
    def value(numbers: CellNumbers) -> Interval | None:
        found = numbers.stalls.get(stall)
        return None if found is None else found.percent

    return value


def _against(cell: Cell, numbers: CellNumbers) -> str:
    return f"{cell.machine} against {numbers.stalls['network'].against}"


def _machine_name(cell: Cell, numbers: CellNumbers) -> str:
    return cell.machine


def _bars(
    study: Study,
    panel: Panel,
    chosen: Sequence[Done],
    value: Value,
    series: Callable[[Cell, CellNumbers], str] = _machine_name,
) -> list[Bar]:
    order = {model.name: number for number, model in enumerate(study.models)}
    groups = _groups(chosen)
    return [
        Bar(panel.name, groups[cell.model], series(cell, numbers), found, numbers.provenance)
        for cell, numbers in sorted(chosen, key=lambda one: order[one[0].model])
        if (found := value(numbers)) is not None
    ]


def _groups(chosen: Sequence[Done]) -> dict[str, str]:
    """A model with its batch; where GPUs hold different ones, from the least to the most."""
    found: dict[str, str] = {}
    for cell, _ in chosen:
        batches = [other.batch for other, _ in chosen if other.model == cell.model]
        least, most = min(batches), max(batches)
        found[cell.model] = f"{cell.model} ({least if least == most else f'{least} to {most}'})"
    return found
