"""Which cores of a machine training itself keeps busy, so that loaders cannot have them."""

from __future__ import annotations

from stash.results.recording import MachineFacts


def training_cores(machine: MachineFacts) -> int:
    """Of one node: one for each worker with an accelerator; on a CPU, those of its threads."""
    threads = machine.threads_per_worker if machine.device == "cpu" else 1
    return machine.workers_per_node * threads
