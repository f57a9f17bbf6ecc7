"""A profile as a job for a batch system or a cloud: what all of them have in common."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stash.errors import StashError

#: Before the command of a node whose log brings the profile back. `exec`, so that SIGTERM comes.
CARRIED = "exec python3 -m stash.launch.carry"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One `stash profile` on every node."""

    workload: str
    options: tuple[str, ...]  # of `stash profile`, the workload among them
    script_arguments: tuple[str, ...] = ()
    nodes: int = 1
    workers_per_node: int | None = None

    @property
    def name(self) -> str:
        """Short, and made of what every platform allows in a name."""
        stem = Path(self.workload.partition(":")[0]).stem or self.workload
        words = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
        return f"stash-{words[:40].strip('-') or 'job'}"

    def command(
        self, program: Sequence[str], endpoint: str, rank: str, own: Sequence[str] = ()
    ) -> str:
        """The shell command of one node; endpoint and rank are the platform's variables.

        Everything that a user has named is quoted, so that it stays one word.
        """
        words = [shlex.join([*program, "profile", *self.options, *own])]
        if self.nodes > 1:
            words.append(f"--nnodes {self.nodes} --node-rank {rank} --rdzv-endpoint {endpoint}")
        if self.script_arguments:
            words.append(shlex.join(["--", *self.script_arguments]))
        return " ".join(words)


def required(program: str, platform: str) -> str:
    """A platform's own program, which alone can submit."""
    found = shutil.which(program)
    if found is None:
        raise StashError(
            f"There is no `{program}` here, so nothing was submitted. Run this where {platform} "
            "is installed, or without --submit, which prints what would be.",
            exit_code=2,
        )
    return found


def as_yaml(document: Mapping[str, object]) -> str:
    """YAML in which a script stays readable: texts of several lines as blocks, nothing by alias."""
    # A dumper of its own, so that everybody else's stays as it is.
    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    dumper.add_representer(str, _text)
    text: str = yaml.dump(dict(document), Dumper=dumper, sort_keys=False, width=4096)
    return text


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)
