"""The chosen machine as a SkyPilot task. Changes when SkyPilot's files do."""

from __future__ import annotations

from stash.advise.recommendation import Recommendation
from stash.errors import UsageError
from stash.launch.sky import SkyOptions, task_of

#: Clouds that SkyPilot rents from; it names them as we do.
SKY_CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod")
#: One training process a GPU; the first node is where all meet.
RUN = """\
torchrun --nnodes "$SKYPILOT_NUM_NODES" --nproc-per-node "$SKYPILOT_NUM_GPUS_PER_NODE" \\
  --node-rank "$SKYPILOT_NODE_RANK" \\
  --master-addr "$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" --master-port 29500 \\
  train.py
"""


def sky_task(found: Recommendation) -> str:
    """A task that rents the chosen machine and starts one training process a GPU."""
    best = found.choice
    if best is None:
        raise UsageError("Nothing was chosen, so there is no SkyPilot task to write.")
    if best.cloud not in SKY_CLOUDS:
        raise UsageError(
            f"SkyPilot rents from {', '.join(SKY_CLOUDS)}, and {best.name} is of "
            f"{best.cloud}: no task was written."
        )
    # Google attaches some GPUs to a machine, so their number is named beside it.
    machine, _, attached = best.machine.partition("+")
    count, _, gpu = attached.partition("x")
    options = SkyOptions(
        infra=best.cloud,
        instance=machine,
        accelerators=f"{gpu}:{count}" if attached else None,
        spot=found.assumptions.spot,
    )
    why = "".join(c for c in " ".join(found.words.split()) if c.isprintable())
    return f"# {why}\n{task_of(f'stash-{found.id}', best.nodes, options, RUN)}"
