"""Which cells a study has: the paper's lists of models, batches and machines, and parts of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from stash.errors import UsageError
from stash.hardware import catalog
from stash.hardware.catalog import Instance
from stash.predict import communication, facts
from stash.study.document import Group, Kind, StudiedModel

#: The paper's Table II, with the data set of each.
SMALL = ("alexnet", "mobilenet_v2", "squeezenet1_0", "shufflenet_v2_x0_5")
LARGE = ("resnet18", "resnet50", "vgg11")
LANGUAGE = ("bert-large",)
TABLE_TWO = (*SMALL, *LARGE, *LANGUAGE)
IMAGENET_SAMPLES, IMAGENET_BYTES = 1_281_167, 133e9
SQUAD_SAMPLES, SQUAD_BYTES = 130_319, 45e6
Batch: TypeAlias = int | Literal["max"]  # per worker; `max` is the largest that fits
BATCHES: tuple[Batch, ...] = (32, 64, 96, 128, "max")
LANGUAGE_BATCH, LANGUAGE_BATCH_WITH_MORE_MEMORY = 4, 8
MORE_MEMORY_GIB = 32.0

RESNET_DEPTHS = (10, 18, 34, 50, 101, 152)
VGG_DEPTHS = (11, 13, 16, 19)
DEPTHS = (*RESNET_DEPTHS, *VGG_DEPTHS)
MICRO_BATCH, MICRO_REPEATS = 32, 3

#: What `paper` stands for in a list of machines: Table I and the pairs of it that were joined.
PAPER_MACHINES: dict[Kind, tuple[str, ...]] = {
    "macro": (
        "p2.xlarge", "p2.8xlarge", "p2.16xlarge", "2x p2.8xlarge",
        "p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge", "2x p3.8xlarge",
    ),
    "micro": ("p3.16xlarge", "2x p3.8xlarge"),
}  # fmt: skip


@dataclass(frozen=True)
class Rented:
    """So many of one machine type."""

    instance: Instance
    nodes: int

    @property
    def name(self) -> str:
        """As it is written in a list."""
        return self.instance.name if self.nodes == 1 else f"{self.nodes}x {self.instance.name}"


@dataclass(frozen=True, kw_only=True)
class Here:
    """This machine, and how it is measured."""

    device: str | None = None
    nproc_per_node: int | None = None
    num_workers: int | None = None
    data: Path | None = None
    max_minutes: float = 3.0
    half_width: float = 0.03
    price_usd_per_hour: float | None = None
    links: Path | None = None  # what `stash links` found


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One study."""

    kind: Kind
    folder: Path
    models: tuple[str, ...]
    batches: tuple[Batch, ...] = BATCHES
    repeats: int = 1
    dtype: str = "amp"
    here: Here | None = None
    rented: tuple[Rented, ...] = ()
    samples_per_core: float | None = None
    storage_mb_per_second: float | None = None


def macro_models(asked: Sequence[str] | None) -> tuple[str, ...]:
    """Table II, or models of the zoo that were asked for."""
    return tuple(facts.find(name).name for name in asked or TABLE_TWO)


def micro_models(depths: Sequence[int] | None, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Every depth as it is, and with and without batch norm and residual links."""
    unknown = sorted(set(depths or ()) - set(DEPTHS))
    if unknown:
        raise UsageError(
            f"--depths: {', '.join(map(str, unknown))}. ResNets have "
            f"{', '.join(map(str, RESNET_DEPTHS))} layers, VGGs {', '.join(map(str, VGG_DEPTHS))}."
        )
    if asked:
        return tuple(facts.find(name).name for name in asked)
    chosen = set(depths or DEPTHS)
    resnets = [
        f"resnet{depth}{variant}"
        for variant in ("", "-nobn", "-nores")
        for depth in RESNET_DEPTHS
        if depth in chosen
    ]
    vggs = [
        f"vgg{depth}{variant}" for variant in ("", "_bn") for depth in VGG_DEPTHS if depth in chosen
    ]
    return (*resnets, *vggs)


def machines(asked: Sequence[str], kind: Kind, snapshot: str) -> tuple[Rented, ...]:
    """Machine types by name, `2x NAME` for several of one, `paper` for the paper's own."""
    found: list[Rented] = []
    for word in asked:
        if word.strip().lower() == "paper":
            found += [_rented(name, catalog.PAPER) for name in PAPER_MACHINES[kind]]
        else:
            found.append(_rented(word, snapshot))
    return tuple(dict.fromkeys(found))


def _rented(word: str, snapshot: str) -> Rented:
    parts = re.fullmatch(r"\s*(?:(\d+)\s*[x*]\s*)?(\S.*?)\s*", word)
    if parts is None or parts[1] == "0":
        raise UsageError(
            f"--instances: {word!r} is no machine; write p3.16xlarge or 2x p3.8xlarge."
        )
    instance = catalog.find(parts[2], snapshot)
    if instance.accelerator is None or instance.gpus < 1:
        raise UsageError(f"--instances: {instance.name} has no GPU in our table.")
    return Rented(instance, int(parts[1] or 1))


def studied_model(name: str, kind: Kind) -> StudiedModel:
    """What the study has to know of a model."""
    known = facts.find(name)
    depth, variant = _shape(known.name)
    language = known.name.startswith(("bert", "gpt"))
    return StudiedModel(
        name=known.name,
        group=_group(known.name, kind),
        depth=depth,
        variant=variant,
        parameters=known.parameters,
        gradient_bytes=known.gradient_bytes,
        tensors=len(known.gradients),
        messages=len(communication.messages(known)),
        samples=SQUAD_SAMPLES if language else IMAGENET_SAMPLES,
    )


def sample_bytes(model: StudiedModel) -> float:
    """Of one sample in storage: ImageNet's or SQuAD's."""
    if model.samples == SQUAD_SAMPLES:
        return SQUAD_BYTES / SQUAD_SAMPLES
    return IMAGENET_BYTES / IMAGENET_SAMPLES


def batches(plan: Plan, model: str, memory_gib: float) -> tuple[Batch, ...]:
    """Batch sizes of a model: the paper's for language models, the plan's for others."""
    if plan.kind == "macro" and model in LANGUAGE:
        more = memory_gib >= MORE_MEMORY_GIB
        return (LANGUAGE_BATCH, LANGUAGE_BATCH_WITH_MORE_MEMORY) if more else (LANGUAGE_BATCH,)
    return plan.batches


def _group(name: str, kind: Kind) -> Group:
    families: tuple[tuple[Group, tuple[str, ...]], ...] = (
        ("small", SMALL),
        ("large", LARGE),
        ("language", LANGUAGE),
    )
    if kind == "macro":
        return next((group for group, names in families if name in names), "other")
    return "resnet" if name.startswith("resnet") else "vgg" if name.startswith("vgg") else "other"


VARIANTS = {"-nobn": "no batch norm", "-nores": "no residual links", "_bn": "batch norm"}


def _shape(name: str) -> tuple[int | None, str]:
    parts = re.fullmatch(r"(?:resnet|vgg)(\d+)(.*)", name)
    if parts is None:
        return None, ""
    return int(parts[1]), VARIANTS.get(parts[2], parts[2])
