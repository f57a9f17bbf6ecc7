"""What a prediction needs to know of a model: work, traffic and gradients of every layer.

Facts of the zoo come with the package (`python -m stash.predict.facts` writes them anew); those of
any other model are found once by running it without memory, and kept in the user's cache. Changes
when the models of compute, communication or memory need another fact.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import stash
from stash.errors import UsageError

if TYPE_CHECKING:
    from stash.workloads.layers import LayerList

Array = NDArray[np.float64]

#: Work and traffic grow by the same amount with every sample, so two batch sizes tell all.
FEW, MORE = 2, 4
DATA_FILE = "layers.json.gz"


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """A model as its layers: each figure is `fixed + per_sample * batch`."""

    name: str
    flops: Array  # [2, layers]: fixed, per sample; of the forward pass
    bytes: Array  # [2, layers]
    convolution: NDArray[np.bool_]  # [layers]: reduced precision is the default for these alone
    gradients: tuple[tuple[int, int], ...]  # (layer, elements) in the order of the forward pass
    parameters: int
    activation_bytes: tuple[float, float]  # fixed, per sample
    optimizer: str
    batch_size: int  # what the zoo trains with on an accelerator

    @property
    def gradient_bytes(self) -> int:
        """In fp32, as DDP sends them."""
        return 4 * sum(elements for _, elements in self.gradients)

    def as_document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "flops": _whole(self.flops),
            "bytes": _whole(self.bytes),
            "convolution": [int(one) for one in self.convolution],
            "gradients": [list(one) for one in self.gradients],
            "parameters": self.parameters,
            "activation_bytes": list(self.activation_bytes),
            "optimizer": self.optimizer,
            "batch_size": self.batch_size,
        }


def from_document(document: dict[str, Any]) -> ModelFacts:
    return ModelFacts(
        name=document["name"],
        flops=np.array(document["flops"], dtype=float),
        bytes=np.array(document["bytes"], dtype=float),
        convolution=np.array(document["convolution"], dtype=bool),
        gradients=tuple((int(layer), int(count)) for layer, count in document["gradients"]),
        parameters=int(document["parameters"]),
        activation_bytes=(document["activation_bytes"][0], document["activation_bytes"][1]),
        optimizer=document["optimizer"],
        batch_size=int(document["batch_size"]),
    )


def of_layers(
    name: str, list_at: Callable[[int], LayerList], optimizer: str, batch_size: int
) -> ModelFacts:
    """Facts from the layers at two batch sizes."""
    few, more = list_at(FEW), list_at(MORE)
    if len(few.layers) != len(more.layers):
        raise UsageError(
            f"{name} runs other layers at batch {MORE} than at batch {FEW}; "
            "such a model can be measured, but not predicted."
        )

    def line(low: float, high: float) -> tuple[float, float]:
        slope = (high - low) / (MORE - FEW)
        return low - FEW * slope, slope

    pairs = list(zip(few.layers, more.layers, strict=True))
    flops = [line(a.forward_flops, b.forward_flops) for a, b in pairs]
    moved = [line(a.forward_bytes, b.forward_bytes) for a, b in pairs]
    return ModelFacts(
        name=name,
        flops=np.array(flops).T,
        bytes=np.array(moved).T,
        convolution=np.array([any(len(p.shape) > 2 for p in a.parameters) for a, _ in pairs]),
        gradients=tuple(
            (position, parameter.count)
            for position, (layer, _) in enumerate(pairs)
            for parameter in layer.parameters
            if parameter.trainable
        ),
        parameters=few.parameter_count,
        activation_bytes=line(few.activation_bytes, more.activation_bytes),
        optimizer=optimizer,
        batch_size=batch_size,
    )


def find(workload: str, data: Path | None = None) -> ModelFacts:
    """Facts of a model of the zoo, or of a user's `file.py:factory`, which may need its data."""
    plain = workload.lower().replace("_", "-")
    packaged = _packaged()
    if plain in packaged:
        return packaged[plain]
    if ":" in workload:
        return _of_factory(workload, data)
    from stash.workloads import zoo

    return packaged.get(zoo.get(workload).name.replace("_", "-")) or of_zoo(workload)


def of_zoo(name: str) -> ModelFacts:
    """Facts of a model of the zoo, found anew."""
    from stash.workloads import zoo

    entry = zoo.get(name)
    kind = getattr(entry.optimizer, "func", entry.optimizer)
    return of_layers(
        entry.name, lambda size: zoo.layers(entry.name, size), kind.__name__, entry.batch_size
    )


def _of_factory(spec: str, data: Path | None) -> ModelFacts:
    path = Path(spec.rpartition(":")[0])
    kept = cache_folder() / f"{_key(path, spec, data)}.json" if path.is_file() else None
    if kept is not None and kept.is_file():
        try:
            return from_document(json.loads(kept.read_text("utf-8")))
        except (OSError, ValueError, KeyError, IndexError):
            pass  # a damaged cache is as good as none
    facts = _trace_factory(spec, data)
    if kept is not None:
        _keep(facts, kept)
    return facts


def _key(path: Path, spec: str, data: Path | None) -> str:
    """All that layers depend on and that can be seen without building the model."""
    parts = [spec, stash.__version__, metadata.version("torch")]
    if data is not None:
        changed = data.stat().st_mtime_ns if data.exists() else 0
        parts += [str(data.resolve()), str(changed)]
    seen = hashlib.sha256(path.read_bytes())
    seen.update("\0".join(["", *parts]).encode())
    return seen.hexdigest()[:24]


def _trace_factory(spec: str, data: Path | None) -> ModelFacts:
    from dataclasses import replace

    from stash.workloads import factory, train

    workload = factory.call_factory(factory.load_factory(spec), data=data)
    optimizer = getattr(workload.optimizer, "func", workload.optimizer)
    return of_layers(
        workload.name,
        lambda size: train.layers_of(replace(workload, batch_size=size)),
        getattr(optimizer, "__name__", "optimizer"),
        workload.batch_size,
    )


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stash" / "layers"


def _keep(facts: ModelFacts, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts.as_document()), "utf-8")
    except OSError:
        pass  # without a cache the next prediction is only slower


@cache
def _packaged() -> dict[str, ModelFacts]:
    source = resources.files("stash.predict").joinpath("data").joinpath(DATA_FILE)
    if not source.is_file():
        return {}
    documents = json.loads(gzip.decompress(source.read_bytes()))
    found = [from_document(document) for document in documents]
    return {facts.name.lower().replace("_", "-"): facts for facts in found}


def _whole(values: Array) -> list[list[float]]:
    return [[int(v) if v == int(v) else float(v) for v in row] for row in values]


def write_packaged() -> None:
    """Write the facts of the whole zoo into the package."""
    from stash.workloads import zoo

    documents = [of_zoo(name).as_document() for name in zoo.names()]
    text = json.dumps(documents, separators=(",", ":"))
    path = Path(__file__).parent / "data" / DATA_FILE
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    write_packaged()
