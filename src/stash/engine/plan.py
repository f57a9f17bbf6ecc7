"""What a gang is asked to measure: written by the launcher, read by every worker."""

from __future__ import annotations

from pathlib import Path

from stash.results.document import Count, Model, Name, Positive, Quantity, Seconds, Text

#: In the run folder, beside the plan: what the gang records, and samples it could not read.
RECORDING = "recording.jsonl"
UNREADABLE = "unreadable.txt"
#: Before these are done, no interval is trusted to end a run.
MIN_ROUNDS = 20


class LinksPlan(Model):
    """What to probe besides workers' exchange and copies."""

    message_bytes: tuple[Positive, ...]
    folder: Text | None = None  # files to read cold, or where to make some; none: no storage
    makes_files: bool = False


class Plan(Model):
    """One launch: which steps, how sure, how long, and what is known about the machine."""

    launch: Count = 0
    seed: Count = 0
    steps: tuple[Name, ...]
    half_width: Quantity = 0.03  # of an iteration, for every stall
    min_rounds: Positive = MIN_ROUNDS
    max_rounds: Positive | None = None
    max_seconds: Seconds | None = None  # from the first iteration on
    max_usd: Quantity | None = None
    timeout_seconds: Seconds = 300.0

    workload: Name
    data: Text = ""
    data_folder: Text | None = None  # whose files `cold` may evict, where opens cannot be seen
    dtype: Name | None = None  # none: what the loop is seen to compute in
    device: Name = "cpu"
    pin_cores: bool = False
    keep_tracking: bool = False  # whether experiment trackers of the script stay on
    instance: Text | None = None
    price_usd_per_hour: Quantity | None = None
    nodes: Positive = 1
    hosts: tuple[Name, ...] = ()  # one a node, where there are several
    earlier_rounds: Count = 0  # of the profile that this one continues
    links: LinksPlan | None = None  # probe links, and train nothing

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Read the plan that the launcher wrote."""
        return cls.model_validate_json(path.read_text())
