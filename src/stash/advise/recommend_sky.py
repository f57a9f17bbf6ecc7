"""The chosen machine as a SkyPilot task. Changes when SkyPilot's files do."""

from __future__ import annotations

from stash.advise.recommendation import Recommendation
from stash.errors import StashError, UsageError
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


def sky_names(machine: str) -> tuple[str, str | None]:
    """Machine type, and GPUs that Google attaches to it: n1-standard-8 and T4:1."""
    bare, _, attached = machine.partition("+")
    count, _, gpu = attached.partition("x")
    return bare, f"{gpu}:{count}" if attached else None


def sky_task(found: Recommendation) -> str:
    """A task that rents the chosen machine and starts one training process a GPU."""
    best = found.choice
    if best is None:
        raise StashError("Nothing was chosen, so there is no SkyPilot task to write.")
    if best.cloud not in SKY_CLOUDS:
        raise UsageError(
            f"SkyPilot rents from {', '.join(SKY_CLOUDS)}, and {best.name} is of "
            f"{best.cloud}: no task was written."
        )
    machine, accelerators = sky_names(best.machine)
    options = SkyOptions(
        infra=best.cloud,
        instance=machine,
        accelerators=accelerators,
        spot=found.assumptions.spot,
    )
    why = "".join(c for c in " ".join(found.words.split()) if c.isprintable())
    return f"# {why}\n{task_of(f'stash-{found.id}', best.nodes, options, RUN)}"
