"""The chosen machine as a SkyPilot task. Changes when SkyPilot's files do."""

from __future__ import annotations

import json

from stash.advise.recommendation import Candidate, Recommendation
from stash.errors import UsageError

#: Our clouds as SkyPilot names them.
SKY_CLOUDS = {"aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambda", "runpod": "runpod"}


def sky_task(found: Recommendation) -> str:
    """A task that rents the chosen machine and starts one training process a GPU."""
    best = found.choice
    if best is None:
        raise UsageError("Nothing was chosen, so there is no SkyPilot task to write.")
    if best.cloud not in SKY_CLOUDS:
        raise UsageError(
            f"SkyPilot rents from {', '.join(sorted(SKY_CLOUDS))}, and {best.name} is of "
            f"{best.cloud}: no task was written."
        )
    spot = "\n  use_spot: true" if found.assumptions.spot else ""
    return f"""\
# {found.words}
name: stash-{found.id}
num_nodes: {best.nodes}
resources:
{_resources(best)}{spot}
run: |
  torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node "$SKYPILOT_NUM_GPUS_PER_NODE" \\
    --node-rank "$SKYPILOT_NODE_RANK" \\
    --master-addr "$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" --master-port 29500 \\
    train.py
"""


def _resources(best: Candidate) -> str:
    """Google attaches some GPUs to a machine, so their number is named beside it."""
    machine, _, attached = best.machine.partition("+")
    lines = [f"infra: {SKY_CLOUDS[best.cloud]}", f"instance_type: {json.dumps(machine)}"]
    if attached:
        count, _, name = attached.partition("x")
        lines.append(f"accelerators: {json.dumps(f'{name}:{count}')}")
    return "\n".join(f"  {line}" for line in lines)
