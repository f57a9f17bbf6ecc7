"""Does an unchanged script read the same stalls as the zoo? Same model, data and batch.

Launches of the two alternate, so that slow drift of the machine meets both. Stalls are compared in
parts of each launch's own iteration: cores of shared machines are faster in one minute than in the
next.

With an emulated device, compute sleeps in both, which shows the two ways of running apart from the
noise of cores.

    python benchmarks/agreement.py [--data DIR] [--workers 0] [--pairs 3] [--minutes 3]
    python benchmarks/agreement.py --model resnet18 --device emulated:v100:bytes=0.05:time=8
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import stash
from stash.results.profile import Profile
from stash.results.steps import fullest_step

SCRIPT = Path(__file__).with_name("agreement_script.py")
BOUND = 0.03  # of an iteration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of pictures; generated if not given")
    parser.add_argument("--model", default="tinycnn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=3.0)
    options = parser.parse_args()
    zoo, script = [], []
    with tempfile.TemporaryDirectory(prefix="stash-agreement-") as folder:
        common = {
            "nproc_per_node": 2,
            "half_width": 0.02,
            "max_minutes": options.minutes,
            "out": folder,
        }
        for _ in range(options.pairs):
            zoo.append(
                stash.profile(
                    options.model,
                    data=options.data,
                    batch_size=options.batch_size,
                    num_workers=options.workers,
                    device=options.device,
                    **common,
                )
            )
            arguments = [options.model, "--batch-size", options.batch_size]
            arguments += ["--device", options.device]
            arguments += ["--workers", options.workers]
            arguments += [] if options.data is None else ["--data", options.data]
            script.append(
                stash.profile(
                    str(SCRIPT), script_arguments=tuple(str(one) for one in arguments), **common
                )
            )
            print(json.dumps(_compared(zoo[-1], script[-1])), flush=True)
    for stall in zoo[0].stalls:
        gaps = [_gap(a, b, stall) for a, b in zip(zoo, script, strict=True)]
        mean = statistics.fmean(gaps)
        parts = [statistics.fmean(_part(p, stall) for p in side) for side in (zoo, script)]
        print(
            f"{stall}: zoo {100 * parts[0]:.2f}, script {100 * parts[1]:.2f}, script - zoo "
            f"{100 * mean:+.2f} % of an iteration; bound {100 * BOUND:.0f} %"
        )


def _compared(zoo: Profile, script: Profile) -> dict[str, object]:
    return {
        "rounds": [zoo.run.rounds, script.run.rounds],
        "half_widths": [zoo.run.half_width_reached, script.run.half_width_reached],
        "gaps": {stall: round(_gap(zoo, script, stall), 4) for stall in zoo.stalls},
    }


def _gap(zoo: Profile, script: Profile, stall: str) -> float:
    """Difference of a stall, in parts of an iteration."""
    return _part(script, stall) - _part(zoo, stall)


def _part(profile: Profile, stall: str) -> float:
    iteration = profile.steps[fullest_step(set(profile.steps))].seconds_per_iteration.estimate
    return profile.stalls[stall].seconds_per_iteration.estimate / iteration


if __name__ == "__main__":
    main()
