"""Other people's measurements, as configurations that the predictor understands.

Rows are chosen by named values of `flag` and `trust`; every row that is left out is counted with
its reason. Nothing here looks at a measured value to decide, but one flag does: `very_high` marks
rows by how large their stall is. Those are no part of any fit, and are scored apart.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stash.hardware import gpus, topologies
from stash.hardware.gpus import Gpu
from stash.predict.communication import (
    CLOUD_FLOW_BYTES_PER_SECOND,
    Link,
    has_peer_to_peer,
    inside,
    through_switch,
)

TRUSTED = ("A", "B")
#: Its row of one GPU does extra work (data/README.md, trap 4): its network stalls are trusted, its
#: interconnect stalls are not. So nothing is compared with its rows of one GPU.
SLOW_SINGLE = "siasosp23/artifacts"
FLAG_BY_VALUE = "very_high"
LEFT_OUT_FLAGS = ("parameter_server", "grad_accumulation", FLAG_BY_VALUE)
GBIT = 1e9 / 8

#: (pattern in the row's model, model of the zoo, sequence length where the source has its own)
MODELS = (
    (r"^resnet-?50(v1\.5)?( \(imagenet\))?$|/resnet50v1\.5$|/rn50v1\.5$", "resnet50", None),
    (r"^resnet-?152$", "resnet152", None),
    (r"^resnet18 \(cifar-10\)$", "resnet18-cifar", None),
    (r"^vgg16$", "vgg16", None),
    (r"^alexnet$", "alexnet", None),
    (r"^inception(3|v3)$", "inception_v3", None),
    (r"^densenet161$", "densenet161", None),
    (r"^bert-base \(squad fine-tune\)$|^bert-base-squad$", "bert-base", 384),
    (r"^bert-large-squad$", "bert-large", 384),
)
#: BERT-base of two sources without its length in the name: from their pages.
BERT_LENGTHS = {"Oneflow-Inc/DLPerf": 128, "HKBU-HPML/ddl-benchmarks": 64}

#: (pattern in the row's GPU, key in our table). A Quadro RTX 8000 is a 6000 with more memory.
GPUS = (
    (r"k80", "k80"),
    (r"p100-sxm2", "p100-sxm2-16gb"),
    (r"^p100$", "p100-pcie-16gb"),
    (r"v100.*pcie", "v100-pcie-32gb"),
    (r"v100.*(32gb|sxm3)", "v100-sxm2-32gb"),
    (r"v100", "v100-sxm2-16gb"),
    (r"^t4$", "t4"),
    (r"a100.*pcie.*80|a100[-_ ]80gb[-_ ]pcie", "a100-pcie-80gb"),
    (r"a100.*pcie", "a100-pcie-40gb"),
    (r"a100.*80", "a100-sxm4-80gb"),
    (r"a100", "a100-sxm4-40gb"),
    (r"a40$", "a40"),
    (r"max-q|laptop|super", None),
    (r"2080[ _]?ti", "rtx-2080-ti"),
    (r"1080[ _]?ti", "gtx-1080-ti"),
    (r"rtx[ _]?3090", "rtx-3090"),
    (r"rtx[ _]?4090", "rtx-4090"),
    (r"a6000", "rtx-a6000"),
    (r"6000[ _]ada", "rtx-6000-ada"),
    (r"quadro[ _]rtx[ _](6000|8000)|^rtx 8000$", "quadro-rtx-6000"),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One measurement with the rows that it may be compared with."""

    id: str
    source: str
    model: str
    length: int | None  # of sequences, where it is not the zoo's
    gpu: Gpu
    dtype: str
    bytes_per_element: float  # of gradients on their way
    messages: str
    overlap: bool
    batch: float
    gpus_per_node: int
    nodes: int
    inside: Link | None
    between: Link | None
    seconds: float  # measured, per iteration
    real_data: bool
    group: str
    single: str | None = None  # row of one GPU
    same: str | None = None  # row of one node with as many GPUs
    weak: str | None = None  # row of one node

    @property
    def workers(self) -> int:
        return self.gpus_per_node * self.nodes

    @property
    def has_slow_single(self) -> bool:
        return self.source == SLOW_SINGLE


def read(folder: Path) -> tuple[dict[str, Row], Counter[str]]:
    """All rows that can be predicted, by id, and how many were left out for what."""
    kept: dict[str, Row] = {}
    left_out: Counter[str] = Counter()
    for record in _records(folder):
        made = _row(record)
        if isinstance(made, str):
            left_out[made] += 1
        else:
            kept[made.id] = made
    return kept, left_out


def flagged(folder: Path, flag: str) -> dict[str, Row]:
    """Rows that could be predicted, and are left out for this flag alone."""
    made = [
        _row({**record, "flag": record["flag"].replace(flag, "")})
        for record in _records(folder)
        if flag in record["flag"].split(";")
    ]
    return {row.id: row for row in made if isinstance(row, Row)}


def _records(folder: Path) -> Iterator[dict[str, str]]:
    with (folder / "scaling.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _row(record: dict[str, str]) -> Row | str:
    flags = [flag for flag in record["flag"].split(";") if flag]
    for flag in LEFT_OUT_FLAGS:
        if flag in flags:
            return f"flag {flag}"
    if record["trust"] not in TRUSTED:
        return f"trust {record['trust'] or 'none'}"
    if record["metric"] not in ("throughput", "step_time"):
        return f"metric {record['metric']}"
    model = _model(record)
    if model is None:
        return "a model that the zoo lacks"
    key = _gpu(record["gpu"])
    if key is None:
        return "a GPU that the table lacks"
    if not record["batch_per_gpu"] or not record["value"]:
        return "no batch size"
    if "parameter_server" in record["framework"]:
        return "parameter server, without the flag"
    if "without NCCL" in record["framework"]:
        return "gradients gathered on one GPU, not all-reduced"
    gpu = gpus.find(key)
    nodes = int(record["nodes"])
    gpus_per_node = int(record["total_gpus"]) // nodes
    network = _between(record)
    if nodes > 1 and network is None:
        return "several nodes, network not told"
    name, length = model
    single, same, weak = _references(record)
    dtype = _dtype(record, gpu)
    return Row(
        id=record["row_id"],
        source=_source(record["source"]),
        model=name,
        length=length,
        gpu=gpu,
        dtype=dtype,
        bytes_per_element=_bytes_per_element(record, dtype),
        messages=_messages(record["framework"]),
        overlap="no_overlap" not in flags,
        batch=float(record["batch_per_gpu"]),
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        inside=_inside(record, gpu, gpus_per_node),
        between=network,
        seconds=_seconds(record),
        real_data="real_data" in flags,
        group=record["group"],
        single=single,
        same=same,
        weak=weak,
    )


def _source(text: str) -> str:
    return text.split(" ")[0]


def _model(record: dict[str, str]) -> tuple[str, int | None] | None:
    text = record["model"].lower()
    if text == "bert-base":
        return "bert-base", BERT_LENGTHS[_source(record["source"])]
    for pattern, name, length in MODELS:
        if re.search(pattern, text):
            return name, length
    return None


def _gpu(text: str) -> str | None:
    for pattern, key in GPUS:
        if re.search(pattern, text.lower()):
            return key
    return None


def _dtype(record: dict[str, str], gpu: Gpu) -> str:
    precision = record["precision"].lower()
    if precision in ("", "fp32"):
        # NVIDIA's containers compute everything in TF32 on Ampere.
        in_container = "NGC" in record["framework"]
        return "tf32" if in_container and gpu.flops["tf32"] > gpu.flops["fp32"] else "fp32"
    return "tf32" if precision == "tf32" else "amp"


def _bytes_per_element(record: dict[str, str], dtype: str) -> float:
    """PyTorch's DDP sends fp32 gradients under autocast; others send what they have."""
    if dtype != "amp" or "PyTorch" in record["framework"] or "fp32" in record["precision"].lower():
        return 4.0
    return 2.0


def _messages(framework: str) -> str:
    if "MG-WFBP" in framework or "BSP" in framework:
        return "buckets"
    if "orovod" in framework:
        return "fusion"
    if "TensorFlow 1" in framework or "TF 1" in framework or "replicated" in framework:
        return "tensors"
    return "buckets"


def _inside(record: dict[str, str], gpu: Gpu, gpus_per_node: int) -> Link | None:
    if gpus_per_node < 2:
        return None
    text = f"{record['interconnect']} {record['instance']}".lower()
    if "bridge" in text and "no nvlink" not in text:
        # Pairs are bridged; a ring of more than two crosses PCIe all the same.
        if gpus_per_node == 2 and gpu.nvlink_bytes_per_second:
            return Link("nvlink", gpu.nvlink_bytes_per_second * 0.8)
        return Link("pcie", _pcie(gpu))
    if "sxm" in gpu.key and "pcie" not in record["interconnect"].lower():
        return _sxm(gpu, gpus_per_node, text)
    if gpu.key == "t4":
        return inside(topologies.find("aws-g4dn.12xlarge"), gpu, gpus_per_node)
    return Link("pcie" if has_peer_to_peer(gpu) else "host", _pcie(gpu))


def _sxm(gpu: Gpu, gpus_per_node: int, text: str) -> Link | None:
    if gpu.key.startswith("p100"):
        # DGX-1 with P100: four NVLinks a GPU at 18 GB/s; two rings of eight, one ring of a quad.
        return Link("nvlink", {2: 18e9, 8: 72e9}.get(gpus_per_node, 36e9))
    if "nvswitch" in text:
        return through_switch(gpu)
    return inside(None, gpu, gpus_per_node)


def _pcie(gpu: Gpu) -> float:
    return (gpu.pcie_bytes_per_second or 15.75e9) * 12.0 / 15.75


def _between(record: dict[str, str]) -> Link | None:
    if int(record["nodes"]) < 2:
        return None
    text = record["network"].lower()
    if "10gbe" in text:
        return Link("tcp", 10 * GBIT)
    if "50 gbit/s tcp" in text:
        return Link("cloud", CLOUD_FLOW_BYTES_PER_SECOND)
    if "100gbib" in text or "100 gbit/s edr, 1 nic" in text:
        return Link("rdma", 100 * GBIT)
    if "infiniband (dgx)" in text or "infiniband on dgx" in text:
        return Link("rdma", (8 * 200 if "A100" in record["gpu"] else 4 * 100) * GBIT)
    if found := re.search(r"infiniband 100 gb/sec \(4x edr\) x(\d+)", text):
        return Link("rdma", 100 * int(found[1]) * GBIT)
    return None


def _references(record: dict[str, str]) -> tuple[str | None, str | None, str | None]:
    named = iter(record["ref_row"].split())
    columns = ("stall_pct", "net_stall_same_gpus_pct", "net_stall_weak_pct")
    single, same, weak = (next(named, None) if record[column] else None for column in columns)
    return single, same, weak


def _seconds(record: dict[str, str]) -> float:
    value = float(record["value"])
    if record["metric"] == "step_time":
        return value / 1000 if record["unit"] == "ms" else value
    return float(record["batch_per_gpu"]) * int(record["total_gpus"]) / value
