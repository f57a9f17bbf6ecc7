"""A file that the launcher looks at: what a worker is at, and since when."""

from __future__ import annotations

import os
import time
from pathlib import Path


def beat(run_folder: Path, rank: int, doing: str) -> None:
    """Tell that this worker has moved on."""
    path = run_folder / f"heartbeat-{rank}"
    path.write_text(f"{os.getpid()} {time.monotonic():.3f} {doing}")
