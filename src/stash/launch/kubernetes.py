"""Kubernetes: a TrainJob of Kubeflow Trainer that runs `stash profile` in one pod a node.

The profile comes back through the log of the first pod. Never run on a cluster by its authors: the
manifest is checked against Trainer's published schema, and its command runs on test hosts with the
variables that Trainer sets.
"""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stash.errors import StashError
from stash.launch.job import CARRIED, Job, as_yaml, required

RUNTIME = "torch-distributed"
POLL_SECONDS = 5.0
_ENDPOINT = '"$PET_MASTER_ADDR:$PET_MASTER_PORT"'


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """Where and in what it runs."""

    image: str | None = None  # none: that of the runtime
    namespace: str | None = None
    runtime: str = RUNTIME
    gpus_per_node: int | None = None
    cpus_per_node: str | None = None
    memory_per_node: str | None = None
    setup: tuple[str, ...] = ()
    #: A second job of the same workload needs a name of its own.
    mark: str = field(default_factory=lambda: secrets.token_hex(3))


def name_of(job: Job, options: KubernetesOptions) -> str:
    """What the TrainJob is called. Names of pods are made from it, of at most 63 characters."""
    return f"{job.name[:38].strip('-')}-{options.mark}"


def manifest(job: Job, options: KubernetesOptions) -> str:
    """The TrainJob as YAML."""
    metadata = {"name": name_of(job, options), "namespace": options.namespace}
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _without_nothing(metadata),
        "spec": {
            "runtimeRef": {"name": options.runtime},
            "trainer": _trainer(job, options),
        },
    }
    return as_yaml(document)


def _trainer(job: Job, options: KubernetesOptions) -> dict[str, object]:
    command = job.command(["python3", "-m", "stash"], _ENDPOINT, '"$PET_NODE_RANK"', ["--json"])
    lines = ["set -eo pipefail", *options.setup, f"{CARRIED} {command}", ""]
    amounts = _without_nothing(
        {
            "cpu": options.cpus_per_node,
            "memory": options.memory_per_node,
            "nvidia.com/gpu": options.gpus_per_node and str(options.gpus_per_node),
        }
    )
    return _without_nothing(
        {
            "image": options.image,
            "numNodes": job.nodes,
            "numProcPerNode": job.workers_per_node,
            "command": ["bash", "-c", "\n".join(lines)],
            "resourcesPerNode": {"requests": amounts, "limits": amounts} if amounts else None,
        }
    )


def _without_nothing(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None}


def submit(text: str) -> None:
    """Give the manifest to the cluster."""
    _kubectl(["create", "-f", "-"], told=text)


def wait(job: Job, options: KubernetesOptions) -> str:
    """Until the job has ended in one way or the other; the log of its first pod."""
    state = ["get", "trainjob", name_of(job, options), *_where(options), "-o", "json"]
    while not _has_ended(_kubectl(state)):
        time.sleep(POLL_SECONDS)
    return _kubectl(_logs(job, options))


def how_to_fetch(job: Job, options: KubernetesOptions) -> str:
    """What a user types later, where nobody waits."""
    return shlex.join(["kubectl", *_logs(job, options)]) + " | stash launch fetch -"


def _logs(job: Job, options: KubernetesOptions) -> list[str]:
    first = (
        f"jobset.sigs.k8s.io/jobset-name={name_of(job, options)},"
        "jobset.sigs.k8s.io/replicatedjob-name=node,batch.kubernetes.io/job-completion-index=0"
    )
    return ["logs", "--selector", first, *_where(options), "--container=node", "--tail=-1"]


def _where(options: KubernetesOptions) -> list[str]:
    return [] if options.namespace is None else [f"--namespace={options.namespace}"]


def _has_ended(answer: str) -> bool:
    conditions = json.loads(answer).get("status", {}).get("conditions", [])
    return any(
        one.get("type") in ("Complete", "Failed") and one.get("status") == "True"
        for one in conditions
    )


def _kubectl(words: Sequence[str], *, told: str | None = None) -> str:
    kubectl = required("kubectl", "Kubernetes")
    done = subprocess.run([kubectl, *words], input=told, capture_output=True, text=True)
    if done.returncode:
        raise StashError(f"kubectl {words[0]} failed: {done.stderr.strip()}")
    return done.stdout
