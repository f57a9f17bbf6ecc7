"""The GPU table: what each accelerator can do at best, cited from public sources."""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from stash.errors import UsageError

#: What people say, where it is not simply the beginning of one row's key: the commonest row.
COMMONEST = {
    "v100": "v100-sxm2-16gb",
    "p100": "p100-sxm2-16gb",
    "a100": "a100-sxm4-40gb",
    "h100": "h100-sxm5-80gb",
    "h200": "h200-sxm-141gb",
    "b200": "b200-sxm",
    "gh200": "gh200-96gb",
}

#: What drivers say, without the vendor's words, where it is no key and no beginning of one.
DRIVER_NAMES = {
    "a100-80gb-pcie": "a100-pcie-80gb",
    "h100-80gb-hbm3": "h100-sxm5-80gb",
    "gh200-120gb": "gh200-96gb",  # named by the memory of its processor
    "gh200-480gb": "gh200-96gb",
    "b300-sxm6-ac": "b300-sxm",
    "rtx-6000-ada-generation": "rtx-6000-ada",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000-bse",
    "rtx-pro-4500-blackwell-server-edition": "rtx-pro-4500-bse",
}

#: Fractions of the peak that training kernels reach. Assumptions, not measurements: an emulated
#: device is a plausible accelerator, and every profile of one says that it is emulated.
COMPUTE_EFFICIENCY = {"fp32": 0.6, "amp": 0.35, "bf16": 0.35}
MEMORY_EFFICIENCY = 0.75


@dataclass(frozen=True)
class Gpu:
    """One row of the table."""

    key: str
    name: str
    architecture: str
    memory_bytes: int
    memory_bytes_per_second: float | None  # none where no source gives it
    flops: dict[str, float]  # by dtype: fp32, tf32, amp, bf16
    nvlink_bytes_per_second: float | None
    pcie_bytes_per_second: float | None
    confidence: str
    source: str

    def seconds(self, flops: float, moved_bytes: float, dtype: str) -> float:
        """Roofline: a layer lasts as long as the slower of arithmetic and memory traffic."""
        relative_size = 1.0 if dtype == "fp32" else 0.5
        compute = flops / (self.flops[dtype] * COMPUTE_EFFICIENCY[dtype])
        if self.memory_bytes_per_second is None:
            return compute
        memory = moved_bytes * relative_size / self.memory_bytes_per_second / MEMORY_EFFICIENCY
        return max(compute, memory)


def find(name: str) -> Gpu:
    """A GPU as people name it: `v100`, or a full key such as `v100-sxm2-32gb`."""
    table = _table()
    wanted = name.strip().lower().replace("_", "-")
    key = COMMONEST.get(wanted, wanted)
    if key not in table:
        beginning = [known for known in table if known.startswith(wanted + "-")]
        if len(beginning) == 1:
            return table[beginning[0]]
        names = [*table, *COMMONEST]
        near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.4) or beginning or list(table)
        raise UsageError(
            f"Unknown GPU {name!r}. Nearest names: {', '.join(sorted(set(near))[:8])}."
        )
    return table[key]


def recognise(driver_name: str) -> Gpu | None:
    """The row of a GPU as its driver names it: `NVIDIA A100-SXM4-40GB`, `Tesla T4`.

    What says more than a row (Laptop GPU, a slice by MIG) is another device than that row's.
    """
    words = driver_name.lower().replace("_", " ").replace("-", " ").split()
    plain = "-".join(word for word in words if word not in ("nvidia", "tesla", "geforce"))
    key = DRIVER_NAMES.get(plain, plain)
    found = [one for one in _table() if one == key]
    found = found or [one for one in _table() if one.startswith(f"{key}-")]
    return _table()[found[0]] if found else None


def names() -> tuple[str, ...]:
    """Every key of the table."""
    return tuple(_table())


@cache
def _table() -> dict[str, Gpu]:
    text = resources.files("stash.hardware").joinpath("data/gpus.csv").read_text("utf-8")
    return {row["key"]: _gpu(row) for row in csv.DictReader(text.splitlines())}


def _gpu(row: dict[str, str]) -> Gpu:
    fp32 = float(row["fp32_flops"])
    # Without tensor cores mixed precision computes at fp32's rate; its gain is in memory traffic.
    tensor = float(row["tensor_fp16_flops"] or fp32)
    return Gpu(
        key=row["key"],
        name=row["name"],
        architecture=row["architecture"],
        memory_bytes=int(row["memory_bytes"]),
        memory_bytes_per_second=_number(row["memory_bytes_per_second"]),
        flops={
            "fp32": fp32,
            "tf32": float(row["tensor_tf32_flops"] or fp32),
            "amp": tensor,
            "bf16": tensor,
        },
        nvlink_bytes_per_second=_number(row["nvlink_bytes_per_second"]),
        pcie_bytes_per_second=_number(row["pcie_bytes_per_second"]),
        confidence=row["confidence"],
        source=row["source"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
