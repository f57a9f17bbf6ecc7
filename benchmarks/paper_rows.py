"""Every row of `claims.csv` that can be checked, with how; the others with why not."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from stash.hardware import catalog, gpus
from stash.predict import communication, compute, facts, pipeline, times
from stash.predict.communication import Link, Links
from stash.predict.constants import FITTED

Answer = tuple[str, str]  # ours, verdict
Check = Callable[[], Answer]

#: Rows whose figure a claim of the first table has already.
BY_CLAIM = {
    "C001": "C1", "C003": "C1", "C004": "C1", "C005": "C1", "C006": "C1", "C051": "C1",
    "C002": "C2", "C017": "C2", "C007": "C3", "C008": "C3", "C012": "C4", "C013": "C5",
    "C014": "C5", "C015": "C5", "C016": "C5", "C010": "C6", "C011": "C6", "C009": "C7",
    "C019": "C7", "C021": "C8", "C018": "C9", "C023": "C9", "C024": "C9", "C027": "C10",
}  # fmt: skip
MACHINES = {
    "C030": "p4d.24xlarge", "C031": "p3.2xlarge", "C032": "p3.8xlarge", "C033": "p3.16xlarge",
    "C034": "p3dn.24xlarge", "C035": "p2.xlarge", "C036": "p2.8xlarge", "C037": "p2.16xlarge",
}  # fmt: skip
MODELS = {
    "C038": "alexnet", "C039": "mobilenet_v2", "C040": "squeezenet1_0",
    "C041": "shufflenet_v2_x0_5", "C042": "resnet18", "C043": "resnet50", "C044": "vgg11",
    "C045": "bert-large",
}  # fmt: skip
IMPLEMENTED = {
    "C022": "`stash characterize micro` runs it: batch 32, three repeats",
    "C026": "fitted by `stash characterize micro` for each link",
    "C028": "the two stalls in `results/steps.py`",
    "C029": "the batches of `stash characterize macro`",
    "C050": "mixed precision: `stash characterize` takes amp unless `--dtype` says otherwise",
    "C054": "how fast that study's GPUs are is reckoned at this batch and precision here",
    "C066": "`predict/pipeline.py`",
}
NOT_CHECKED = {
    "C047": "a count of somebody else's measurements; compared in its own page",
    "C048": "figures of other papers, no set-up told",
    "C052": "hardware of a private cluster",
    "C056": "GPU and disk told, network and preprocessing not",
    "C061": "TensorFlow and MXNet loaders", "C062": "a maximum over set-ups not told",
    "C068": "a loader of their own", "C069": "time to accuracy, on their loader",
    "C072": "BytePS is a parameter server, not all-reduce",
    "C073": "BytePS is a parameter server, not all-reduce",
    "C074": "gradient compression", "C075": "gradient compression",
    "C076": "gradient compression",
}  # fmt: skip


def machine(name: str, context: str, price: str) -> Answer:
    one = catalog.find(name, catalog.PAPER)
    numbers = {
        "GPUs": (one.gpus, r"(\d+)x[AKV]"),
        "vCPUs": (one.vcpus, r"(\d+) vCPU"),
        "RAM": (one.memory_gib, r"RAM (\d+)"),
        "network": (one.network_gbit_per_second, r"network (?:up to )?(\d+)"),
    }
    wrong = [
        what
        for what, (value, pattern) in numbers.items()
        if (found := re.search(pattern, context)) is None or float(found[1]) != value
    ]
    if float(price.strip("$")) != one.price_usd_per_hour:
        wrong.append("price")
    ours = f"${one.price_usd_per_hour:g}, {one.gpus} GPUs, {one.vcpus:g} vCPUs"
    return ours, "holds" if not wrong else f"differs: {', '.join(wrong)}"


def parameters(name: str, printed: str) -> Answer:
    millions = facts.find(name).parameters / 1e6
    off = 100 * (float(printed) / millions - 1)
    verdict = "holds" if abs(off) <= 5 else f"printed figure is {off:+.0f} % off (docs/zoo.md)"
    return f"{millions:.2f} M in torchvision or transformers", verdict


def efficiency(
    model: str, gpu: str, batch: int, dtype: str, per_node: int, nodes: int, between: Link
) -> float:
    """Percent of perfect scaling that workers of several nodes are predicted to reach."""
    known, spec = facts.find(model), gpus.find(gpu)
    layers = compute.layer_seconds(
        known, np.array([float(batch)]), compute.devices([spec], [dtype], FITTED), FITTED
    )
    found = times.iteration_seconds(
        layers,
        communication.messages(known),
        np.array([float(per_node)]),
        np.array([float(nodes)]),
        Links.of([communication.inside(None, spec, per_node)], [between], FITTED),
        FITTED,
    )
    return 100 * float(found.alone[0] / found.together[0])


def within(ours: float, cited: float, points: float = 15.0) -> str:
    return "holds" if abs(ours - cited) <= points else f"off by {ours - cited:+.0f} points"


def horovod() -> Answer:
    cited = {"inception_v3": 90.0, "resnet101": 90.0, "vgg16": 68.0}
    link = Link("rdma", 25e9 / 8)
    ours = {m: efficiency(m, "p100-pcie-16gb", 64, "fp32", 4, 128, link) for m in cited}
    told = ", ".join(f"{m} {value:.0f} %" for m, value in ours.items())
    verdict = ", ".join(f"{m}: {within(ours[m], cited[m])}" for m in cited)
    return f"{told} (P100, batch 64, fp32)", verdict


def bert_256() -> Answer:
    ours = efficiency("bert-large", "v100-sxm2-32gb", 64, "amp", 8, 32, Link("rdma", 100e9 / 8))
    return f"all-reduce {ours:.0f} % (sequences of 384)", within(ours, 70.0)


def vgg_64() -> Answer:
    ours = efficiency("vgg16", "v100-sxm2-32gb", 32, "fp32", 8, 8, Link("cloud", 10e9 / 8))
    fast = efficiency("vgg16", "v100-sxm2-32gb", 32, "fp32", 8, 8, Link("tcp", 100e9 / 8))
    return (
        f"{fast:.0f} % at 100 Gbit/s, {ours:.0f} % at what one flow gets (batch 32, fp32)",
        within(fast, 60.0),
    )


def page_cache() -> Answer:
    low, high = 100 * (1 - 0.35), 100 * (1 - pipeline.lru_hits(0.35))
    inside = low <= 85 <= high
    return f"between {low:.0f} % and {high:.0f} %", "holds" if inside else "outside our bounds"


def misses() -> Answer:
    low, high = 100 * (1 - 0.65), 100 * (1 - pipeline.lru_hits(0.65))
    inside = low <= 53 <= high and low <= 66 <= high
    return (
        f"between {low:.0f} % (never evicts) and {high:.0f} % (strict LRU)",
        "holds: 35 is the bound, 53 and 66 lie inside" if inside else "outside our bounds",
    )


def read_again() -> Answer:
    """Eight jobs that share a cache read whatever it does not hold, each for itself."""
    low, high = (8 * (1 - hits) for hits in (0.35, pipeline.lru_hits(0.35)))
    inside = low <= 7 <= high
    return (
        f"the data {low:.1f} (never evicts) to {high:.1f} (strict LRU) times",
        "holds for what is read; the search's speed is not told apart from preprocessing"
        if inside
        else "outside our bounds",
    )


def private_cluster() -> Answer:
    one = catalog.find("p3.16xlarge", catalog.PAPER)
    assert one.vcpus is not None and one.memory_gib is not None
    cores = one.vcpus / 2
    alike = one.gpus == 8 and abs(one.memory_gib / 500 - 1) <= 0.05
    return (
        f"p3.16xlarge: {one.gpus} V100, {cores:g} cores, {one.memory_gib:g} GiB",
        f"GPUs and memory {'alike' if alike else 'differ'}; {cores:g} cores against 24",
    )


def cached_speed() -> Answer:
    """What-if in our lab, at 0 to 100 % of the data in the cache."""
    middle, worst = _percentages("whatif.md", "files that stay in the page cache")
    return (
        f"in our lab, from no cache to 25 to 100 %: median {middle:g} %, worst {worst:g} % "
        "(docs/whatif.md)",
        "holds" if worst <= 4 else "not reached: the worst is above 4 %",
    )


def latency_error() -> Answer:
    """Of published measurements; a GPU of the kind was measured, or nothing was."""
    one, *_ = _percentages(
        "validation.md", "calibrated, one node against one GPU: throughput error"
    )
    several, *_ = _percentages(
        "validation.md", "calibrated, several nodes against one of them: throughput error"
    )
    blind, *_ = _percentages("validation.md", "blind, several nodes: throughput error")
    return (
        f"of throughput: {one:g} % on one node and {several:g} % on several where one GPU was "
        f"measured, {blind:g} % on several where nothing was (docs/validation.md)",
        "other set-ups than theirs; "
        + ("as near" if max(one, several) <= 8 else "as near on one node, not on several"),
    )


def _percentages(page: str, first: str) -> list[float]:
    """Cells that hold a percentage, of the line of a page's table that begins with these words."""
    text = (Path(__file__).parents[1] / "docs" / page).read_text("utf-8")
    line = next((one for one in text.splitlines() if one.startswith(f"| {first}")), None)
    if line is None:
        raise SystemExit(f"docs/{page} has no line {first!r} any more; name the one it has.")
    return [float(one) for one in re.findall(r"\| ([\d.]+) %(?= \|)", line)]


def rate_of(model: str) -> float:
    """Samples a second of one V100 in mixed precision at a large batch."""
    known = facts.find(model)
    device = compute.devices([gpus.find("v100-sxm2-32gb")], ["amp"], FITTED)
    layers = compute.layer_seconds(known, np.array([512.0]), device, FITTED)
    return 512 / float(layers.whole[0])


def io_band() -> Answer:
    """Eight V100, SSD of 530 MB/s, 35 % of ImageNet in memory that never evicts."""
    size = 133e9 / 1_281_167
    read = pipeline.reading_rate(0.35, size, 10e9, 530e6)
    models = ("alexnet", "shufflenet_v2_x0_5", "resnet18", "squeezenet1_0", "mobilenet_v2",
              "resnet50", "vgg11")  # fmt: skip
    part = {m: 100 * max(0.0, 1 - read / (8 * rate_of(m))) for m in models}
    told = ", ".join(f"{m} {value:.0f}" for m, value in part.items())
    inside = sum(10 <= value <= 70 for value in part.values())
    return (
        f"{told} % if preprocessing never limits",
        f"{inside} of {len(part)} models lie in the band; fast models lie above it without "
        "preprocessing, which is not told",
    )


def cores() -> Answer:
    rates = {m: rate_of(m) for m in ("resnet50", "resnet18", "alexnet")}
    told = ", ".join(f"{m} {value:.0f}" for m, value in rates.items())
    low, high = rates["resnet50"] / 4, rates["resnet50"] / 3
    needs = ", ".join(
        f"{m} {rates[m] / high:.0f} to {rates[m] / low:.0f}" for m in ("resnet18", "alexnet")
    )
    inside = rates["resnet18"] / high >= 12 and rates["resnet18"] / low <= 24
    return (
        f"one V100 takes {told} samples/s; with ResNet50's 3 to 4 cores the others need {needs}",
        "holds for ResNet18" if inside else "order holds; the number for ResNet18 is not in 12-24",
    )


def prep_half() -> Answer:
    implied = rate_of("resnet18") / 2 / 3
    low, high = rate_of("resnet50") / 4, rate_of("resnet50") / 3
    told = f"50 % means that a core prepared {implied:.0f} samples/s; C059 means {low:.0f} to "
    verdict = "holds" if low <= implied <= high else "above C059's, and GPUs prepared there, too"
    return f"{told}{high:.0f}", verdict if implied >= low else "below C059's"


def alexnet_cache() -> Answer:
    size = 133e9 / 1_281_167
    memory, storage = 10e9 / size, 530e6 / size
    prepared = 24 * rate_of("resnet50") / 3.5
    found = 100 * pipeline.smallest_useful_cache(prepared, memory, storage)
    return (
        f"{found:.0f} % of the data (24 cores, SSD of 530 MB/s, preprocessing as ResNet50 needs)",
        "holds" if 35 <= found <= 65 else f"off by {found - 50:+.0f} points",
    )


def no_data_stall() -> Answer:
    rate = 8 * rate_of("bert-large")
    size = 45e6 / 130_319
    return (
        f"8 V100 take {rate:.0f} samples/s, {rate * size / 1e6:.2f} MB/s",
        "holds: any disk delivers that",
    )


def price_ratio() -> Answer:
    p3, p2 = (
        catalog.find(n, catalog.PAPER).price_usd_per_hour for n in ("p3.2xlarge", "p2.xlarge")
    )
    assert p3 is not None and p2 is not None
    return f"{p3 / p2:.2f}", "holds"


def vgg_and_resnet() -> Answer:
    """The source that the paper cites tells 101 classes apart."""
    features = {"vgg16": 4096, "resnet152": 2048}
    ours = {m: facts.find(m).parameters / 1e6 for m in features}
    fewer = {m: ours[m] - (1000 - 101) * (features[m] + 1) / 1e6 for m in features}
    return (
        f"{ours['vgg16']:.1f} and {ours['resnet152']:.1f} M; with 101 classes "
        f"{fewer['vgg16']:.1f} and {fewer['resnet152']:.1f} M",
        "holds with 101 classes" if abs(fewer["vgg16"] - 134.7) < 0.1 else "does not hold",
    )


def data_sets() -> Answer:
    return "1,281,167 and 130,319 samples are used for an epoch", "taken over"


CHECKS: dict[str, Check] = {
    "C020": price_ratio, "C025": vgg_and_resnet, "C046": data_sets, "C053": private_cluster,
    "C055": io_band, "C058": read_again, "C064": cached_speed, "C078": latency_error,
    "C057": page_cache, "C059": cores, "C060": prep_half, "C063": no_data_stall,
    "C065": alexnet_cache, "C067": misses, "C070": horovod, "C071": bert_256, "C077": vgg_64,
}  # fmt: skip


def answer(
    row: Mapping[str, str], verdicts: Mapping[str, str], known: Mapping[str, Answer]
) -> Answer:
    name = row["claim_id"]
    if name in known:
        return known[name]
    if name in BY_CLAIM:
        return f"{BY_CLAIM[name]} above", verdicts[BY_CLAIM[name]]
    if name in MACHINES:
        return machine(MACHINES[name], row["text"], row["figure_quoted"])
    if name in MODELS:
        return parameters(MODELS[name], row["figure_quoted"])
    if name in IMPLEMENTED:
        return IMPLEMENTED[name], "built in"
    if name in CHECKS:
        return CHECKS[name]()
    return NOT_CHECKED[name], "not checked"


def rows_table(data: Path, verdicts: Mapping[str, str], known: Mapping[str, Answer]) -> str:
    """A section of the page; `known` has rows whose figure is part of a claim's."""
    with (data / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    answers = [(row, *answer(row, verdicts, known)) for row in rows]
    lines = [
        f"| {row['claim_id']} | {row['text'].replace('|', '/')} | {ours} | {verdict} |"
        for row, ours, verdict in answers
    ]
    left = sum(verdict == "not checked" for _, _, verdict in answers)
    return (
        "\n## Every figure in the text\n\n"
        f"The {len(rows)} rows of `claims.csv`: what the paper and DS-Analyzer say in their text, "
        f"**cited**, beside ours, **predicted** from specifications unless another page is named. "
        f"{len(rows) - left} are checked or built in; {left} cannot be, and say why.\n\n"
        "| row | text | ours | verdict |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
