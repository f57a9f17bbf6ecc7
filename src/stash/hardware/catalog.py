"""The catalog of machines for rent: what each has, what it costs, where and when that was read.

Rows come with the package; a user's own files (imported, refreshed) stand before them. Changes
when a row can say something else.
"""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path

from stash.errors import StashError, UsageError
from stash.hardware import gpus
from stash.hardware.gpus import Gpu
from stash.hardware.topologies import names as topology_names

CURRENT, PAPER = "2026-08", "paper-2022"
GIB = 2**30
GBIT_BYTES = 1e9 / 8
#: Files of the user's folder, the first read last: what a user says stands before all else.
IMPORTED, REFRESHED = "imported.csv", "refreshed.csv"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One machine type of one cloud, as it stood at one time."""

    snapshot: str
    cloud: str
    name: str
    status: str  # available or retired: a retired type may still have a list price
    last_seen: str = ""
    gpu: str = ""  # key in the GPU table; empty where there is none
    gpu_name: str = ""
    gpus: int = 0
    gpu_memory_gib: float | None = None
    vcpus: float | None = None
    memory_gib: float | None = None
    price_usd_per_hour: float | None = None  # on demand
    price_region: str = ""
    price_date: str = ""
    spot_usd_per_hour: float | None = None
    spot_region: str = ""
    spot_date: str = ""
    interconnect: str = ""
    topology: str = ""  # name in the table of topologies; empty where none is published
    network_gbit_per_second: float | None = None  # as advertised
    network_baseline_gbit_per_second: float | None = None  # what is guaranteed
    network_burst_gbit_per_second: float | None = None
    rdma: str = ""
    rdma_gbit_per_second: float | None = None
    nvme_gb: float | None = None
    nvme_read_mb_per_second: float | None = None
    disk_mb_per_second: float | None = None
    disk_baseline_mb_per_second: float | None = None
    source_specs: str = ""
    source_price: str = ""
    source_spot: str = ""  # where it is another than that of the price on demand
    source_network: str = ""
    source_interconnect: str = ""
    source_storage: str = ""
    note: str = ""

    @property
    def accelerator(self) -> Gpu | None:
        """Its GPU, where the table knows it."""
        return gpus.find(self.gpu) if self.gpu else None

    @property
    def has_rdma(self) -> bool:
        return self.rdma not in ("", "none")

    @property
    def network_bytes_per_second(self) -> float | None:
        """What a node can be expected to send: RDMA where there is some, else peak, not advert.

        Advertised rates are not delivered rates (p3.16xlarge: 25 Gbit/s advertised, 10 at most).
        """
        if self.has_rdma and self.rdma_gbit_per_second:
            return self.rdma_gbit_per_second * GBIT_BYTES
        gbit = self.network_burst_gbit_per_second or self.network_gbit_per_second
        return None if gbit is None else gbit * GBIT_BYTES

    @property
    def memory_bytes(self) -> int | None:
        return None if self.memory_gib is None else round(self.memory_gib * GIB)


NUMBERS = frozenset(field.name for field in fields(Instance) if str(field.type).startswith("float"))
COLUMNS = tuple(field.name for field in fields(Instance))
#: Prices by the start of their columns, in words.
PRICES = {"price": "a price", "spot": "a spot price"}
#: What a cell of a row may hold; a number beyond it is in another unit, or a slip of the pen.
RANGES = {
    "gpu_memory_gib": (1.0, 1024.0),
    "vcpus": (1.0, 4096.0),
    "memory_gib": (1.0, 65536.0),
    "price_usd_per_hour": (0.001, 10_000.0),
    "spot_usd_per_hour": (0.001, 10_000.0),
    "network_gbit_per_second": (0.1, 100_000.0),
    "network_baseline_gbit_per_second": (0.1, 100_000.0),
    "network_burst_gbit_per_second": (0.1, 100_000.0),
    "rdma_gbit_per_second": (1.0, 100_000.0),
    "nvme_gb": (0.0, 1_000_000.0),  # 0: there is none
    "nvme_read_mb_per_second": (10.0, 1_000_000.0),
    "disk_mb_per_second": (1.0, 1_000_000.0),
    "disk_baseline_mb_per_second": (1.0, 1_000_000.0),
}
#: What a refresh may change.
PRICE_COLUMNS = tuple(
    column
    for column in COLUMNS
    if column.startswith(("price_", "spot_")) or column in ("source_price", "source_spot")
)

#: Snapshot, cloud and name of a row; its cells that somebody has given.
Key = tuple[str, str, str]
Cells = dict[str, str]


def instances(snapshot: str = CURRENT) -> tuple[Instance, ...]:
    """All machine types of one snapshot, the user's own rows included."""
    rows = _rows()
    found = tuple(row for row in rows if row.snapshot == snapshot)
    if not found:
        known = ", ".join(sorted({row.snapshot for row in rows}))
        raise UsageError(f"There is no snapshot {snapshot!r} of the catalog; there are {known}.")
    return found


def find(name: str, snapshot: str = CURRENT) -> Instance:
    """A machine type by its name, with or without `cloud:` before it."""
    cloud, _, bare = name.strip().rpartition(":")
    known = instances(snapshot)
    for one in known:
        if one.name.lower() == bare.lower() and cloud.lower() in ("", one.cloud):
            return one
    raise UsageError(
        f"Unknown instance {name!r}. Nearest names: {', '.join(_nearest(bare, known))}. "
        "`stash catalog list` shows all; `stash catalog import FILE` adds your own."
    )


def user_folder() -> Path:
    """Where a user's own rows are kept."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "stash" / "catalog"


def import_rows(path: Path) -> list[Instance]:
    """Take a user's rows into the user's catalog; all of them are checked before any is kept."""
    base = _with_refreshed()
    kept = _given(user_folder() / IMPORTED, base)
    new = _read(path, base, kept)
    _write_user_file(IMPORTED, {**kept, **{key: cells for key, cells, _ in new}})
    return list({key: one for key, _, one in new}.values())


def save_refreshed(rows: Sequence[Instance]) -> Path:
    """Keep refreshed prices beside earlier ones; the package's own file is never touched."""
    kept = _given(user_folder() / REFRESHED, _by_key(packaged()))
    for one in rows:
        key = (one.snapshot, one.cloud, one.name)
        cells = dict(zip(COLUMNS, _cells(one), strict=True))
        fresh = {column: cells[column] for column in PRICE_COLUMNS if cells[column]}
        kept[key] = {**kept.get(key, {}), **fresh}
    return _write_user_file(REFRESHED, kept)


def read_overrides(path: Path, base: Sequence[Instance]) -> list[Instance]:
    """Rows of a user's CSV: `name` is needed, other columns replace or add to what is known."""
    return [one for _, _, one in _read(path, _by_key(base), {})]


def _read(
    path: Path, base: Mapping[Key, Instance], earlier: Mapping[Key, Cells]
) -> list[tuple[Key, Cells, Instance]]:
    """Rows of a CSV with the cells that are given there or were given earlier."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}.") from None
    reader = csv.DictReader(text.splitlines())
    unknown = sorted(set(reader.fieldnames or ()) - set(COLUMNS))
    if unknown or "name" not in (reader.fieldnames or ()):
        problem = f"unknown columns {', '.join(unknown)}" if unknown else "no column `name`"
        raise UsageError(f"{path}: {problem}. Known columns: {', '.join(COLUMNS)}.")
    given, rows = dict(earlier), []
    for number, values in enumerate(reader, start=2):
        cells = {column: text for column, text in values.items() if column and text}
        try:
            key = _key(cells, [*base, *given])
            is_new = key not in base and key not in given
            sourced = _sourced(cells, path.name, is_new=is_new)
            given[key] = {**given.get(key, {}), **sourced}
            one = _overridden(key, given[key], base.get(key))
            # A price of one's own with the date and region of another would say what is not so.
            if wrong := dict.fromkeys([*_unlabelled_prices(sourced), *problems(one)]):
                raise ValueError(f"{one.name}: {'; '.join(wrong)}")
            rows.append((key, given[key], one))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}.") from None
    return rows


@cache
def packaged() -> tuple[Instance, ...]:
    """The rows that come with Stash."""
    text = resources.files("stash.hardware").joinpath("data/instances.csv").read_text("utf-8")
    return tuple(_instance(values) for values in csv.DictReader(text.splitlines()))


def problems(one: Instance) -> list[str]:
    """What is wrong with a row, in words; empty where nothing is."""
    found = []
    if one.status not in ("available", "retired"):
        found.append(f"status is {one.status!r}, not available or retired")
    if one.gpus and not one.gpu:
        found.append("it has GPUs, but no `gpu` names their row in the GPU table")
    if one.gpu and one.gpu not in gpus.names():
        found.append(f"no GPU {one.gpu!r} in the GPU table")
    if one.topology and one.topology not in topology_names():
        found.append(f"no topology {one.topology!r}")
    if not one.source_specs:
        found.append("no source")
    if one.gpus < 0 or one.gpus > 1024:
        found.append(f"{one.gpus} GPUs")
    cells = dict(zip(COLUMNS, _cells(one), strict=True))
    return [*found, *_unlabelled_prices(cells), *_out_of_range(one)]


def _unlabelled_prices(given: Cells) -> list[str]:
    """Prices of which these cells do not say when, where and by whom they were read."""
    found = []
    for kind, words in PRICES.items():
        if not given.get(f"{kind}_usd_per_hour"):
            continue
        if missing := [c for c in (f"{kind}_date", f"{kind}_region") if not given.get(c)]:
            found.append(f"{words} without its date and region (add {', '.join(missing)})")
        if not (given.get(f"source_{kind}") or given.get("source_price")):
            found.append(f"{words} without its source (add source_{kind})")
    return found


def _out_of_range(one: Instance) -> list[str]:
    found = []
    for name, (least, most) in RANGES.items():
        value = getattr(one, name)
        if value == 0 and name.endswith("usd_per_hour"):
            found.append(f"{name} is 0; leave the price empty: it is then counted in device-hours")
        elif value is not None and not least <= value <= most:
            found.append(f"{name} is {value:g}, expected {least:g} to {most:g}")
    return found


@cache
def _rows() -> tuple[Instance, ...]:
    return tuple(_over(IMPORTED, _with_refreshed()).values())


def _with_refreshed() -> dict[Key, Instance]:
    return _over(REFRESHED, _by_key(packaged()))


def forget() -> None:
    """Read the user's files again at the next question."""
    _rows.cache_clear()


def _by_key(rows: Sequence[Instance]) -> dict[Key, Instance]:
    return {(one.snapshot, one.cloud, one.name): one for one in rows}


def _over(file_name: str, base: Mapping[Key, Instance]) -> dict[Key, Instance]:
    """What is known, with a user's file over it."""
    path = user_folder() / file_name
    rows = _read(path, base, {}) if path.is_file() else []
    return {**base, **{key: one for key, _, one in rows}}


def _given(path: Path, base: Mapping[Key, Instance]) -> dict[Key, Cells]:
    """The cells of a user's file, and no others."""
    return {key: cells for key, cells, _ in _read(path, base, {})} if path.is_file() else {}


def _write_user_file(name: str, rows: Mapping[Key, Cells]) -> Path:
    path = user_folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            for (snapshot, cloud, machine), cells in rows.items():
                place = {"snapshot": snapshot, "cloud": cloud, "name": machine}
                writer.writerow({**cells, **place})
        temporary.replace(path)
    except OSError as error:
        raise StashError(f"Cannot write {path}: {error.strerror or error}.") from None
    forget()
    return path


def _cells(one: Instance) -> list[str]:
    values = (getattr(one, column) for column in COLUMNS)
    return [
        "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
        for value in values
    ]


def _key(given: Cells, known: Sequence[Key]) -> Key:
    """Which row is meant: of the cloud that is given, else of one that has such a name."""
    if "name" not in given:
        raise ValueError("no name")
    snapshot, name = given.get("snapshot", CURRENT), given["name"]
    clouds = [key[1] for key in known if (key[0], key[2]) == (snapshot, name)]
    return snapshot, given.get("cloud") or (clouds[0] if clouds else "own"), name


def _sourced(given: Cells, source: str, *, is_new: bool) -> Cells:
    """Cells of a user's file, with that file as the source of what has no other."""
    own = f"own file {source}"
    sources = {"source_specs": own} if is_new else {}
    sources |= {f"source_{kind}": own for kind in PRICES if f"{kind}_usd_per_hour" in given}
    gpu = {"gpu": gpus.find(given["gpu"]).key} if "gpu" in given else {}
    return {**sources, **given, **gpu}


def _overridden(key: Key, given: Cells, base: Instance | None) -> Instance:
    defaults: Cells = {"status": "available"}
    if base is not None:
        cells = dict(zip(COLUMNS, _cells(base), strict=True))
        defaults = {column: text for column, text in cells.items() if text}
    snapshot, cloud, name = key
    return _instance({**defaults, **given, "snapshot": snapshot, "cloud": cloud, "name": name})


def _instance(values: dict[str, str]) -> Instance:
    typed: dict[str, object] = dict(values)
    for column in NUMBERS & values.keys():
        typed[column] = _number(values[column], column)
    typed["gpus"] = int(_number(values.get("gpus", "") or "0", "gpus") or 0)
    return Instance(**typed)  # type: ignore[arg-type]


def _number(text: str, column: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{column} is {text!r}, not a number") from None


def _nearest(name: str, known: Sequence[Instance]) -> list[str]:
    names = {one.name.lower(): one.name for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=5, cutoff=0.4)
    return [names[one] for one in near] or sorted(names.values())[:5]
