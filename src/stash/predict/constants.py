"""Every constant of the predictor that was fitted to measurements, with what it was fitted to.

`python benchmarks/predictor_fit.py --data FOLDER` fits them anew. Nothing else in this room is
tuned: what is not here comes from specifications, from PyTorch's rules, or from NCCL's own model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: How gradients travel. `pcie`: peer to peer; `host`: through the host's memory; `tcp`: on an
#: Ethernet of one's own; `cloud`: TCP on a rented network, where every flow has a limit of its own.
TRANSPORTS = ("nvlink", "nvswitch", "pcie", "host", "tcp", "cloud", "rdma")


@dataclass(frozen=True)
class Constants:
    """What specifications do not say."""

    convolution_efficiency: Mapping[str, float] = field(
        default_factory=lambda: {"fp32": 0.8, "tf32": 0.4, "amp": 0.4}
    )
    """Fraction of the peak that convolutions reach, by kind of arithmetic.

    It may exceed 1: libraries save multiplications that are counted here (Winograd's method).
    """

    other_efficiency: Mapping[str, float] = field(
        default_factory=lambda: {"fp32": 0.6, "tf32": 0.4, "amp": 0.4}
    )
    """The same of matrix products."""

    memory_efficiency: float = 0.75
    """Fraction of the memory's bandwidth that layers reach."""

    layer_seconds: float = 2e-5
    """What a layer takes at least in the forward pass: the host has to start it."""

    iteration_seconds: float = 1e-3
    """What an iteration costs besides its layers."""

    bandwidth_efficiency: Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(TRANSPORTS, 0.7)
    )
    """Fraction of a link's bandwidth that all-reduce gets out of it in training, by transport."""

    pcie_sharing: float = 0.3
    """How the rate over PCIe falls with the workers of a node: as (2 / workers) to this power.

    0 where every GPU has a path of its own, 1 where all share one.
    """

    latency_factor: float = 1.0
    """On NCCL's own latencies: a message waits for its launch, too."""

    message_seconds: float = 2e-5
    """What a message costs besides its travel."""

    contention: float = 0.1
    """Slowdown of computing while gradients travel beside it."""

    straggling: float = 0.01
    """How far iterations of workers scatter, as a fraction of computing."""

    sharing: float = 0.0
    """What each further worker of a node costs all of them, as a fraction of computing."""


#: Fitted on 2026-11-16 to 2,133 published measurements of 12 sources: the first five to rows
#: of one GPU, the others to rows of several. docs/validation.md has the errors of fits that left
#: one source out.
FITTED_ROWS = 2133
FITTED = Constants(
    convolution_efficiency={"fp32": 1.32, "tf32": 0.606, "amp": 0.634},
    other_efficiency={"fp32": 0.649, "tf32": 0.4, "amp": 0.267},
    memory_efficiency=0.598,
    layer_seconds=7.21e-05,
    iteration_seconds=0.00104,
    bandwidth_efficiency={
        "nvlink": 0.3,
        "nvswitch": 0.614,
        "pcie": 0.43,
        "host": 0.41,
        "tcp": 0.961,
        "cloud": 0.476,
        "rdma": 0.355,
    },
    pcie_sharing=0.299,
    latency_factor=3.29,
    message_seconds=6.95e-05,
    contention=0.323,
    straggling=0.0532,
    sharing=0.00433,
)
