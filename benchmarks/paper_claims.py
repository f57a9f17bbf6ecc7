"""The paper's claims on interconnect and network, predicted with buckets and per tensor.

    python benchmarks/paper_claims.py --data FOLDER [--page docs/paper.md]

The authors' scripts sent every tensor by itself, without buckets, so both are predicted. Public
measurements stand beside them where there are any. Verdicts follow from the figures by rules that
stand in this file.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from stash.hardware import catalog, topologies
from stash.predict import communication, compute, facts, memory, times
from stash.predict.communication import Link, Links
from stash.predict.constants import FITTED

MODELS = (
    "alexnet",
    "mobilenet_v2",
    "squeezenet1_0",
    "shufflenet_v2_x0_5",
    "resnet18",
    "resnet50",
    "vgg11",
)
BATCHES = (32, 64, 96, 128)
IMAGENET, SQUAD = 1_281_167, 130_319
HOW = ("buckets", "tensors")
DTYPE = "amp"  # the authors' runs


@dataclass(frozen=True)
class Claim:
    """One claim beside what we find."""

    id: str
    text: str
    buckets: str
    tensors: str
    measured: str
    verdict: str


@dataclass(frozen=True)
class Time:
    """Seconds per iteration of one worker alone, of all without exchange, and of all together."""

    alone: float
    unsynced: float
    together: float

    @property
    def stall(self) -> float:
        return 100 * (self.together / self.alone - 1)


@cache
def predicted(
    model: str,
    name: str,
    batch: int,
    how: str,
    nodes: int = 1,
    link: Link | None = None,
    gpus: int | None = None,
) -> Time:
    """One configuration of the paper's machines."""
    instance = catalog.find(name, catalog.PAPER)
    known, gpu = facts.find(model), instance.accelerator
    assert gpu is not None
    topology = topologies.find(instance.topology) if instance.topology else None
    here = gpus or instance.gpus
    inside = link or communication.inside(topology, gpu, here)
    layers = compute.layer_seconds(
        known, np.array([float(batch)]), compute.devices([gpu], [DTYPE], FITTED), FITTED
    )
    between = communication.between(instance) if nodes > 1 else None
    found = times.iteration_seconds(
        layers,
        communication.messages(known, how),
        np.array([float(here)]),
        np.array([float(nodes)]),
        Links.of([inside], [between], FITTED),
        FITTED,
    )
    return Time(float(found.alone[0]), float(found.unsynced[0]), float(found.together[0]))


def fits(model: str, name: str, batch: int) -> bool:
    gpu = catalog.find(name, catalog.PAPER).accelerator
    assert gpu is not None
    return memory.peak_bytes(facts.find(model), batch, DTYPE) <= memory.usable_bytes(gpu)


def cases(*names: str) -> list[tuple[str, str, int]]:
    every = [(m, n, b) for m in MODELS for n in names for b in BATCHES]
    return [case for case in every if fits(*case)]


def both(make: Callable[[str], str]) -> tuple[str, str]:
    return make(HOW[0]), make(HOW[1])


def network_stall(model: str, batch: int, how: str) -> float:
    """Two p3.8xlarge against one p3.16xlarge: the same eight workers."""
    spread = predicted(model, "p3.8xlarge", batch, how, nodes=2).together
    return 100 * (spread / predicted(model, "p3.16xlarge", batch, how).together - 1)


def slice_stalls(model: str, batch: int, how: str) -> list[tuple[float, float]]:
    """Interconnect stall of p3.8xlarge on every kind of slice, with its chance."""
    instance = catalog.find("p3.8xlarge", catalog.PAPER)
    assert instance.accelerator is not None
    found = []
    for topology, chance in communication.slices(instance, 4):
        link = communication.inside(topology, instance.accelerator, 4)
        found.append((chance, predicted(model, "p3.8xlarge", batch, how, link=link).stall))
    return found


def public_stalls(data: Path, model: str, gpu: str, instance: str = "") -> list[float]:
    """Measured interconnect stalls at 8 GPUs of one node, whatever the software."""
    with (data / "scaling.csv").open(encoding="utf-8", newline="") as file:
        return sorted(
            float(row["interconnect_stall_pct"])
            for row in csv.DictReader(file)
            if row["interconnect_stall_pct"]
            and row["total_gpus"] == "8"
            and model in row["model"].lower()
            and gpu in row["gpu"].lower()
            and instance in row["instance"]
        )


def _range(values: list[float]) -> str:
    if not values:
        return "none"
    return f"{len(values)} rows, {values[0]:.0f} to {values[-1]:.0f} %"


def claim_1(data: Path) -> Claim:
    def worst(how: str) -> tuple[float, str]:
        machines = ("p2.8xlarge", "p2.16xlarge", "p3.8xlarge", "p3.16xlarge")
        stalls = {case: predicted(*case, how).stall for case in cases(*machines)}
        case = max(stalls, key=stalls.__getitem__)
        return stalls[case], f"{case[0]}, {case[1]}, batch {case[2]}"

    def words(how: str) -> str:
        most, where = worst(how)
        time = predicted("resnet50", "p2.16xlarge", 32, how)
        p3 = predicted("resnet50", "p3.16xlarge", 32, how)
        cost = epoch_usd("p2.16xlarge", 32, time.together)
        other = epoch_usd("p3.16xlarge", 32, p3.together)
        return (
            f"largest {most:.0f} % ({where}); ResNet50 on p2.16xlarge {time.stall:.0f} %, "
            f"${cost:.2f} an epoch, {100 * (cost / other - 1):.0f} % over p3.16xlarge"
        )

    measured = _range(public_stalls(data, "resnet-50", "k80"))
    reached = max(worst(how)[0] for how in HOW)
    resnet = max(predicted("resnet50", "p2.16xlarge", 32, how).stall for how in HOW)
    verdict = (
        "holds"
        if resnet >= 375 and reached <= 180
        else "does not hold as printed: stalls far beyond 90 % are predicted"
        if reached > 180
        else "does not hold as printed"
    )
    if resnet < 375:
        verdict += "; ResNet50's 750 % is neither predicted nor measured by others"
    return Claim(
        "C1",
        "interconnect stall up to 90 % of single-GPU time on P2 and P3; ResNet50 on "
        "P2 750 %, $41 an epoch, 2000 % over P3",
        *both(words),
        f"ResNet-50, 8 K80: {measured}",
        verdict,
    )


def epoch_usd(name: str, batch: int, seconds: float, samples: int = IMAGENET) -> float:
    instance = catalog.find(name, catalog.PAPER)
    assert instance.price_usd_per_hour is not None
    return samples / (batch * instance.gpus) * seconds / 3600 * instance.price_usd_per_hour


def claim_2(data: Path) -> Claim:
    def most(how: str) -> tuple[float, str]:
        stalls = {(m, b): network_stall(m, b, how) for m, n, b in cases("p3.8xlarge")}
        case = max(stalls, key=stalls.__getitem__)
        return stalls[case], f"{case[0]}, batch {case[1]}"

    values = {how: most(how) for how in HOW}
    reached = max(value for value, _ in values.values())
    verdict = (
        "holds"
        if 250 <= reached <= 1000
        else "does not hold as printed: larger stalls are predicted"
        if reached > 1000
        else "does not hold"
    )

    def words(how: str) -> str:
        others = ", ".join(
            f"{model} {network_stall(model, 32, how):.0f} %"
            for model in ("mobilenet_v2", "resnet18", "resnet50", "vgg11")
        )
        return f"largest {values[how][0]:.0f} % ({values[how][1]}); at batch 32 {others}"

    return Claim(
        "C2",
        "two p3.8xlarge against one p3.16xlarge: network stall up to 500 %",
        *both(words),
        "none on these machines",
        verdict,
    )


def claim_3(data: Path) -> Claim:
    def ratio(how: str) -> list[float]:
        return [
            predicted(m, "p2.16xlarge", b, how).together
            / predicted(m, "p2.8xlarge", b, how, nodes=2).together
            for m, _, b in cases("p2.16xlarge")
        ]

    def words(how: str) -> str:
        found = ratio(how)
        return (
            f"p2.16xlarge slower in {sum(r > 1 for r in found)} of {len(found)} cases, "
            f"{min(found):.2f} to {max(found):.2f} times"
        )

    slower = [r > 1 for how in HOW for r in ratio(how)]
    verdict = (
        "holds"
        if all(slower)
        else "does not hold"
        if not any(slower)
        else "holds only if the network delivers more than the 10 Gbit/s that one flow gets"
    )
    return Claim(
        "C3", "p2.16xlarge is slower than two networked p2.8xlarge", *both(words), "none", verdict
    )


def claim_4(data: Path) -> Claim:
    def words(how: str) -> str:
        parts = []
        for model in ("shufflenet_v2_x0_5", "resnet50", "vgg11"):
            here = predicted(model, "p3.16xlarge", 32, how).stall
            kinds = ", ".join(
                f"{stall:.1f} % ({100 * chance:.0f} % of slices)"
                for chance, stall in slice_stalls(model, 32, how)
            )
            parts.append(f"{model}: p3.16xlarge {here:.1f} %, p3.8xlarge {kinds}")
        return "; ".join(parts)

    def more(how: str, best: bool) -> list[bool]:
        pick = min if best else max
        return [
            pick(s for _, s in slice_stalls(m, b, how)) > predicted(m, "p3.16xlarge", b, how).stall
            for m, _, b in cases("p3.8xlarge")
        ]

    on_best = [x for how in HOW for x in more(how, True)]
    on_worst = [x for how in HOW for x in more(how, False)]
    verdict = (
        "holds"
        if np.mean(on_best) > 0.9
        else "holds only if the instance is one of the slices without a full set of rings "
        f"(then in {100 * np.mean(on_worst):.0f} % of cases; on the best slice in "
        f"{100 * np.mean(on_best):.0f} %)"
        if np.mean(on_worst) > 0.5
        else "does not hold"
    )
    return Claim(
        "C4",
        "p3.8xlarge has more interconnect stall than p3.16xlarge, most for small "
        "models and batches",
        *both(words),
        "none on these machines",
        verdict,
    )


def claim_5(data: Path) -> Claim:
    def words(how: str) -> str:
        pairs = [
            (
                predicted(m, "p3dn.24xlarge", b, how).together,
                predicted(m, "p3.16xlarge", b, how).together,
            )
            for m, _, b in cases("p3.16xlarge")
        ]
        ratios = [a / b for a, b in pairs]
        double, single = bert(how)
        return (
            f"p3dn over p3.16xlarge {min(ratios):.2f} to {max(ratios):.2f}; BERT-large at batch "
            f"8 there {100 * (1 - double[0] / single[0]):.0f} % faster, ${double[1]:.2f} "
            f"against ${single[1]:.2f}"
        )

    faster = [100 * (1 - bert(how)[0][0] / bert(how)[1][0]) for how in HOW]
    dearer = all(bert(how)[0][1] > bert(how)[1][1] for how in HOW)
    verdict = "holds" if min(faster) > 5 else "does not hold for BERT-large"
    if not dearer:
        verdict += " for time; not for cost: the larger batch is predicted to be the cheaper one"
    return Claim(
        "C5",
        "p3dn.24xlarge is no faster than p3.16xlarge; BERT-large at double batch "
        "there 12.8 % faster, $2.37 against $2.10",
        *both(words),
        "none",
        verdict,
    )


def bert(how: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds and dollars of an epoch of SQuAD: batch 8 on p3dn, batch 4 on p3.16xlarge."""
    found = []
    for name, batch in (("p3dn.24xlarge", 8), ("p3.16xlarge", 4)):
        each = predicted("bert-large", name, batch, how).together
        found.append((SQUAD / (batch * 8) * each, epoch_usd(name, batch, each, SQUAD)))
    return found[0], found[1]


def exchange(model: str, how: str, network: bool) -> float:
    """Milliseconds of exchange at batch 32: inside p3.16xlarge, or what two p3.8xlarge add."""
    node = predicted(model, "p3.16xlarge", 32, how)
    if network:
        return 1e3 * (predicted(model, "p3.8xlarge", 32, how, nodes=2).together - node.together)
    return 1e3 * (node.together - node.unsynced)


def claim_9(data: Path) -> Claim:
    resnets, vggs = ("resnet18", "resnet50", "resnet152"), ("vgg11", "vgg16", "vgg19")

    def words(how: str) -> str:
        return "; ".join(
            f"{m}: {exchange(m, how, False):.1f} ms inside, {exchange(m, how, True):.0f} ms network"
            for m in (*resnets, *vggs)
        )

    def order(how: str) -> bool:
        low = exchange("vgg16", how, False) < exchange("resnet152", how, False)
        return low and exchange("vgg16", how, True) > exchange("resnet152", how, True)

    def grows(how: str) -> bool:
        return all(
            exchange(a, how, n) < exchange(b, how, n)
            for family in (resnets, vggs)
            for n in (False, True)
            for a, b in itertools.pairwise(family)
        )

    verdict = (
        "holds"
        if all(order(h) and grows(h) for h in HOW)
        else "holds only if every tensor is sent by itself, as the authors' scripts did"
        if order("tensors") and not order("buckets")
        else "the order holds, growth with depth does not in every case"
        if all(order(h) for h in HOW)
        else "does not hold"
    )
    return Claim(
        "C9",
        "VGG: low interconnect stall, high network stall; ResNet the reverse; both grow with depth",
        *both(words),
        f"VGG16, 8 GPUs: {_range(public_stalls(data, 'vgg16', ''))}; ResNet-152: "
        f"{_range(public_stalls(data, 'resnet152', ''))}",
        verdict,
    )


def claim_10(data: Path) -> Claim:
    def change(variant: str, how: str) -> float:
        return 100 * (
            exchange(f"resnet50-{variant}", how, False) / exchange("resnet50", how, False) - 1
        )

    def words(how: str) -> str:
        return (
            f"without batch norm {change('nobn', how):+.0f} % of the stall's time, without "
            f"residual links {change('nores', how):+.0f} %"
        )

    drops = {how: change("nobn", how) < -10 and abs(change("nores", how)) < 15 for how in HOW}
    verdict = (
        "holds"
        if all(drops.values())
        else "holds only if every tensor is sent by itself, as the authors' scripts did"
        if drops["tensors"]
        else "does not hold"
    )
    return Claim(
        "C10",
        "removing batch norm lowers ResNet's communication stall; removing residual links does not",
        *both(words),
        "none",
        verdict,
    )


CLAIMS = (claim_1, claim_2, claim_3, claim_4, claim_5, claim_9, claim_10)

INTRODUCTION = """# The paper's claims, predicted

Written by `python benchmarks/paper_claims.py --data FOLDER --page docs/paper.md`. Everything in the
columns *buckets* and *per tensor* is **predicted** by the model that [validation.md](validation.md)
checks, from specifications (nothing was run on these machines). *buckets* is how PyTorch's DDP
sends gradients; *per tensor* is what the authors' released scripts did by mistake: one message for
every tensor. *measured by others* is **cited**. Models, batches (32 to 128), mixed precision and
prices are the paper's; machines are its Table I, with the network that the provider's own interface
tells (10 Gbit/s for p3.8xlarge, one flow). The rule for each verdict stands in the script.

A predicted stall is off by the amounts on that page: read *holds* as "our model says the same".

| | claim | predicted, buckets | predicted, per tensor | measured by others | verdict |
|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    found = [make(options.data) for make in CLAIMS]
    rows = [
        f"| {c.id} | {c.text} | {c.buckets} | {c.tensors} | {c.measured} | **{c.verdict}** |"
        for c in found
    ]
    page = INTRODUCTION + "\n".join(rows) + "\n"
    if options.page is not None:
        options.page.write_text(page, "utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
