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
    convolution_efficiency={"fp32": 1.51, "tf32": 0.7, "amp": 0.656},
    other_efficiency={"fp32": 0.657, "tf32": 0.4, "amp": 0.317},
    memory_efficiency=0.529,
    layer_seconds=6.92e-05,
    iteration_seconds=0.00102,
    bandwidth_efficiency={
        "nvlink": 0.253,
        "nvswitch": 0.602,
        "pcie": 0.289,
        "host": 0.299,
        "tcp": 0.918,
        "cloud": 0.454,
        "rdma": 0.418,
    },
    latency_factor=2.09,
    message_seconds=0.000138,
    contention=0.212,
    straggling=0.0208,
    sharing=0.00803,
)
