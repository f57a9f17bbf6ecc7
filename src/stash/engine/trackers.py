"""Switches experiment trackers off: a measurement is no experiment and must not be logged as one.

Weights & Biases has a setting for it; MLflow and TensorBoard are sent to the run's own folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


def switch_off(run_folder: Path) -> None:
    """Before the script runs; what it has imported already stays as it is."""
    os.environ["WANDB_MODE"] = "disabled"
    os.environ["MLFLOW_TRACKING_URI"] = (run_folder.absolute() / "mlruns").as_uri()
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # newer versions prefer a database
    changes: dict[str, Callable[[ModuleType], None]] = {"mlflow": _keep_mlflow_here}
    for module in (
        "tensorboard.summary.writer.event_file_writer",
        "tensorboardX.event_file_writer",
    ):
        changes[module] = lambda loaded: _send_events_to(run_folder / "tensorboard", loaded)
    sys.meta_path.insert(0, _AfterImport(changes))


def _keep_mlflow_here(mlflow: ModuleType) -> None:
    """A script that names its server would undo what the environment says."""
    mlflow.set_tracking_uri = lambda uri: None  # type: ignore[attr-defined]


def _send_events_to(folder: Path, module: ModuleType) -> None:
    original = module.EventFileWriter.__init__

    def init(writer: Any, logdir: Any, *args: Any, **kwargs: Any) -> None:
        original(writer, str(folder), *args, **kwargs)

    module.EventFileWriter.__init__ = init


class _AfterImport(MetaPathFinder):
    """Changes a module right after it was imported, and imports nothing by itself."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self._changes.get(fullname)
        if change is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Changing(spec.loader, change)
        return spec


class _Changing(Loader):
    """Another loader, and a change after it."""

    def __init__(self, loader: Loader, change: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._change = change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)
