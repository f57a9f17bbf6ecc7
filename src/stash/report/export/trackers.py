"""Writes profiles to TensorBoard, MLflow and Weights & Biases, each behind its own extra."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stash.errors import StashError
from stash.report.export.scalars import clean, facts, results, series
from stash.report.names import names_of
from stash.results.profile import Profile

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPERIMENT = "stash"
#: What MLflow's servers take at once.
METRICS_AT_ONCE, FACTS_AT_ONCE = 1000, 100


def to_tensorboard(profiles: Sequence[Profile], folder: Path) -> list[Path]:
    """One run a profile: its results as scalars, and block times over rounds."""
    with _extra("tensorboard"):
        from tensorboard.summary import Writer
    written = []
    for profile in profiles:
        run = folder / clean(f"{profile.workload.name}-{profile.id}").replace("/", "_")
        with _errors(f"Cannot write to {folder}"):
            writer = Writer(str(run))
            for name, value in results(profile).items():
                writer.add_scalar(name, value, 0)
            for name, number, _, value in series(profile):
                writer.add_scalar(name, value, number)
            writer.close()
        written.append(run)
    return written


def to_mlflow(profiles: Sequence[Profile], address: str) -> list[str]:
    """One finished run a profile in the experiment `stash`; returns the ids of the runs."""
    with _extra("mlflow"):
        from mlflow.tracking import MlflowClient
    with _errors(f"MLflow at {address} did not take the profiles"):
        client = MlflowClient(tracking_uri=address)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
        return [_mlflow_run(client, experiment, profile) for profile in profiles]


def _mlflow_run(client: MlflowClient, experiment: str, profile: Profile) -> str:
    from mlflow.entities import Metric, Param

    created = int(profile.created.timestamp() * 1000)
    run: str = client.create_run(
        experiment,
        start_time=created,
        run_name=f"{names_of([profile])[0]} {clean(profile.id)}",
        tags={"stash.provenance": profile.provenance.value},
    ).info.run_id
    params = [Param(clean(name), value) for name, value in facts(profile).items()]
    metrics = [Metric(name, value, created, 0) for name, value in results(profile).items()]
    metrics += [
        Metric(name, value, created + int(1000 * at), number)
        for name, number, at, value in series(profile)
    ]
    for start in range(0, len(params), FACTS_AT_ONCE):
        client.log_batch(run, params=params[start : start + FACTS_AT_ONCE])
    for start in range(0, len(metrics), METRICS_AT_ONCE):
        client.log_batch(run, metrics=metrics[start : start + METRICS_AT_ONCE])
    client.set_terminated(run)
    return run


def to_wandb(profiles: Sequence[Profile], folder: Path) -> list[Path]:
    """One offline run a profile; `wandb sync FOLDER` sends it, nothing is sent from here."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would reach for the network
    with _extra("wandb"):
        import wandb
    written = []
    with _errors(f"Cannot write W&B runs to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for profile in profiles:
            run = wandb.init(
                project=EXPERIMENT,
                name=names_of([profile])[0],
                mode="offline",
                dir=str(folder),
                config={**facts(profile)},
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
            by_round: dict[int, dict[str, float]] = {}
            for name, number, _, value in series(profile):
                by_round.setdefault(number, {})[name] = value
            for number, values in sorted(by_round.items()):
                run.log(values, step=number)
            run.summary.update(results(profile))
            written.append(Path(run.dir).parent)
            run.finish()
    return written


@contextmanager
def _extra(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise StashError(
            f"The package {error.name} is not installed. "
            f"Install it with `pip install '.[{name}]'` in the folder of Stash."
        ) from None


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Trackers raise errors of their own kinds; a user gets one message."""
    try:
        yield
    except StashError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise StashError(f"{what}: {type(error).__name__}: {first[:300]}.") from error
