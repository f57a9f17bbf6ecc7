"""Fit the predictor's constants to other people's measurements: all of them, or all but some.

    python benchmarks/predictor_fit.py --data FOLDER

Compute constants are fitted to rows of one GPU, communication constants to rows of several with
the row of one GPU known. Every source weighs the same, whatever its number of rows.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import public_rows
from public_rows import Row
from scipy.optimize import least_squares

from stash.hardware import gpus
from stash.predict import compute, facts, times
from stash.predict.communication import BUCKET_BYTES, Links, Message, messages
from stash.predict.constants import FITTED, TRANSPORTS, Constants
from stash.predict.facts import ModelFacts

FUSION_BYTES = 64 * 2**20  # Horovod's buffer
PULL = 0.05


@cache
def facts_of(model: str, length: int | None) -> ModelFacts:
    """Facts of the zoo's model, at the sequence length of the source."""
    known = facts.find(model)
    if length is None or length == 384:
        return known
    kept = facts.cache_folder() / f"{model}-{length}.json"
    if kept.is_file():
        return facts.from_document(json.loads(kept.read_text("utf-8")))
    found = facts.of_layers(model, lambda size: _bert_layers(model, length, size), "AdamW", 8)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found.as_document()), "utf-8")
    return found


def _bert_layers(model: str, length: int, size: int):
    from stash.workloads import zoo
    from stash.workloads.layers import list_layers

    entry = zoo.get(model)
    batch = {
        key: value[:, :length] if value.dim() > 1 else value
        for key, value in zoo.example_batch(model, size).items()
    }
    return list_layers(entry.builder, entry.loss, batch)


@cache
def sent_of(model: str, length: int | None, how: str) -> tuple[Message, ...]:
    known = facts_of(model, length)
    if how == "fusion":
        return messages(known, "buckets", FUSION_BYTES)
    return messages(known, how, BUCKET_BYTES)


@dataclass(frozen=True, eq=False)
class Cases:
    """Rows with what does not change while communication constants are fitted."""

    rows: list[Row]
    alone: np.ndarray  # seconds of one GPU: measured, or predicted
    compute: Constants

    @cached_property
    def prepared(self) -> list[tuple[np.ndarray, ...]]:
        """Rows with few messages apart from rows with many, each padded to the same number."""
        counts = np.array([len(sent_of(r.model, r.length, r.messages)) for r in self.rows])
        groups = [
            np.flatnonzero(counts <= 16),
            np.flatnonzero((counts > 16) & (counts <= 64)),
            np.flatnonzero(counts > 64),
        ]
        return [self._prepare(g, int(counts[g].max())) for g in groups if len(g)]

    def _prepare(self, index: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
        ready, sizes = np.zeros((len(index), most)), np.zeros((len(index), most))
        backward = np.zeros(len(index))
        for place, number in enumerate(index):
            row = self.rows[number]
            known, sent = (
                facts_of(row.model, row.length),
                sent_of(row.model, row.length, row.messages),
            )
            device = compute.devices([row.gpu], [row.dtype], self.compute)
            layers = compute.layer_seconds(known, np.array([row.batch]), device, self.compute)
            layers = layers.scaled(self.alone[number : number + 1] / layers.whole)
            backward[place] = layers.backward.sum()
            when = times.ready_seconds(layers, sent)[0] if row.overlap else backward[place]
            ready[place, : len(sent)] = when
            sizes[place, : len(sent)] = [m.elements * row.bytes_per_element for m in sent]
        gpus_per_node = np.array([self.rows[i].gpus_per_node for i in index], dtype=float)
        nodes = np.array([self.rows[i].nodes for i in index], dtype=float)
        return index, ready, sizes, backward, gpus_per_node, nodes

    def seconds(self, constants: Constants) -> np.ndarray:
        """Predicted seconds per iteration of every row."""
        result = np.zeros(len(self.rows))
        for index, ready, sizes, backward, gpus_per_node, nodes in self.prepared:
            links = Links.of(
                [self.rows[i].inside for i in index],
                [self.rows[i].between for i in index],
                constants,
            )
            exposed = times.exposed_seconds(
                ready, sizes, backward, gpus_per_node, nodes, links, constants
            )
            beside = times.beside(gpus_per_node * nodes, gpus_per_node, constants)
            result[index] = self.alone[index] * beside + exposed
        return result


def alone_seconds(rows: Sequence[Row], constants: Constants) -> np.ndarray:
    """Predicted seconds of one GPU alone, from specifications."""
    result = np.zeros(len(rows))
    for (model, length), index, kinds, which, batch in _by_model(tuple(rows)):
        few = compute.devices([gpu for gpu, _ in kinds], [dtype for _, dtype in kinds], constants)
        device = compute.Devices(*(getattr(few, field.name)[which] for field in fields(few)))
        layers = compute.layer_seconds(facts_of(model, length), batch, device, constants)
        result[index] = layers.whole
    return result


@cache
def _by_model(rows: tuple[Row, ...]) -> list[tuple]:
    """Rows of one model together, each with the number of its GPU and precision."""
    places: dict[tuple[str, int | None], list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault((row.model, row.length), []).append(number)
    grouped = []
    for key, index in places.items():
        here = [rows[i] for i in index]
        names = sorted({(row.gpu.key, row.dtype) for row in here})
        kinds = [(gpus.find(name), dtype) for name, dtype in names]
        which = np.array([names.index((row.gpu.key, row.dtype)) for row in here])
        grouped.append((key, index, kinds, which, np.array([row.batch for row in here])))
    return grouped


def weights(rows: Sequence[Row]) -> np.ndarray:
    """Every source weighs the same."""
    count = Counter(row.source for row in rows)
    return np.array([1 / count[row.source] for row in rows]) ** 0.5


COMPUTE_BOUNDS = ((0.05, 2.0),) * 3 + ((0.05, 1.0),) * 4 + ((1e-6, 300e-6), (1e-5, 0.01))


def _with_compute(base: Constants, x: np.ndarray) -> Constants:
    kinds = ("fp32", "tf32", "amp")
    return replace(
        base,
        convolution_efficiency=dict(zip(kinds, map(float, x[:3]), strict=True)),
        other_efficiency=dict(zip(kinds, map(float, x[3:6]), strict=True)),
        memory_efficiency=float(x[6]),
        layer_seconds=float(x[7]),
        iteration_seconds=float(x[8]),
    )


def fit_compute(rows: Sequence[Row], base: Constants = FITTED) -> Constants:
    singles = [row for row in rows if row.workers == 1 and not row.has_slow_single]
    measured = np.log([row.seconds for row in singles])
    weight = weights(singles)

    def residuals(x: np.ndarray) -> np.ndarray:
        return weight * (np.log(alone_seconds(singles, _with_compute(base, x))) - measured)

    start = np.array([0.8, 0.4, 0.4, 0.6, 0.4, 0.4, 0.7, 30e-6, 1e-3])
    return _with_compute(base, _fit(residuals, start, COMPUTE_BOUNDS))


COMMUNICATION_BOUNDS = ((0.02, 1.0),) * 7 + (
    (0.3, 30.0),
    (1e-6, 2e-3),
    (1e-3, 1.0),
    (1e-4, 0.2),
    (1e-5, 0.05),
    (0.01, 1.5),
)


def _with_communication(base: Constants, x: np.ndarray) -> Constants:
    return replace(
        base,
        bandwidth_efficiency=dict(zip(TRANSPORTS, map(float, x[:7]), strict=True)),
        latency_factor=float(x[7]),
        message_seconds=float(x[8]),
        contention=float(x[9]),
        straggling=float(x[10]),
        sharing=float(x[11]),
        pcie_sharing=float(x[12]),
    )


def fit_communication(cases: Cases, base: Constants) -> Constants:
    """Rows count by their time with the row of one GPU known; rows of a source whose row of one
    GPU is slow count by their time over that of one node."""
    measured = np.log([row.seconds for row in cases.rows])
    place = {row.id: number for number, row in enumerate(cases.rows)}
    over = np.array([place.get(node_row(row), -1) for row in cases.rows])
    slow = np.array([row.has_slow_single for row in cases.rows])
    weight = weights(cases.rows) * ~(slow & (over < 0))

    def residuals(x: np.ndarray) -> np.ndarray:
        error = np.log(cases.seconds(_with_communication(base, x))) - measured
        return weight * (error - np.where(slow, error[over], 0.0))

    return _with_communication(base, _fit(residuals, COMMUNICATION_START, COMMUNICATION_BOUNDS))


def node_row(row: Row) -> str:
    """The row of one node that a row of several may be compared with, if its own is of several."""
    if row.nodes == 1:
        return ""
    return row.same or (row.weak if row.gpus_per_node > 1 else None) or ""


#: Before any row is seen: what link sweeps and NCCL's own model suggest.
COMMUNICATION_START = np.array(
    [0.6, 0.6, 0.5, 0.5, 0.8, 0.8, 0.6, 2.0, 5e-5, 0.2, 0.02, 0.003, 0.3]
)


def _fit(residuals, start, bounds) -> np.ndarray:
    """Least squares in logarithms, with a weak pull to the start values.

    The pull decides only what the rows leave open, such as a transport that none of them uses.
    """
    low, high = (np.log(side) for side in zip(*bounds, strict=True))

    def pulled(x: np.ndarray) -> np.ndarray:
        return np.concatenate([residuals(np.exp(x)), PULL * (x - np.log(start))])

    # From the start values and from links half as good: one of the two may end in a side valley.
    tried = [
        least_squares(
            pulled,
            np.clip(begin, low + 1e-9, high - 1e-9),
            bounds=(low, high),
            diff_step=1e-4,
            max_nfev=40,
        )
        for begin in (
            np.log(start),
            np.where(np.array(start) < 1, np.log(start) - 0.7, np.log(start)),
        )
    ]
    return np.exp(min(tried, key=lambda one: one.cost).x)


def calibrated_cases(rows: dict[str, Row], compute_constants: Constants) -> Cases:
    """Rows of several GPUs whose row of one GPU is known."""
    chosen = [row for row in rows.values() if row.workers > 1 and row.single in rows]
    alone = np.array([rows[row.single].seconds for row in chosen])
    return Cases(chosen, alone, compute_constants)


def fit(rows: dict[str, Row]) -> Constants:
    """All constants from these rows."""
    found = fit_compute(list(rows.values()))
    return fit_communication(calibrated_cases(rows, found), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    rows, _ = public_rows.read(parser.parse_args().data)
    print(json.dumps(asdict(fit(rows)), indent=1))


if __name__ == "__main__":
    main()
