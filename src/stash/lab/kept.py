"""Labs that stay between commands: made by one, used by others, taken down by a last one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from stash.errors import UsageError
from stash.lab import network, registry, resources
from stash.lab.network import Host, Link
from stash.lab.registry import Lab
from stash.lab.resources import Limits

HOSTS, LIMITS = "hosts", "limits"


@dataclass(frozen=True)
class Asked:
    """What a lab shall have: hosts behind links, limits, or both."""

    hosts: int
    link: Link
    limits: Limits | None
    workers: int


def up(asked: Asked) -> Lab:
    """Make a lab that outlives this process; what cannot be completed is removed."""
    if not asked.hosts and asked.limits is None:
        raise UsageError("An empty lab: name --hosts, --storage, --cpus, --cores or --memory.")
    with registry.opened() as lab:
        if asked.hosts:
            lab = lab.with_part(HOSTS, {"count": asked.hosts, "link": asdict(asked.link)})
            network.build_hosts(lab, asked.hosts, asked.link)
        if asked.limits is not None:
            lab = lab.with_part(LIMITS, asdict(asked.limits))
            resources.build(lab, asked.limits, asked.workers)
        return lab.kept()


def find(name: str | None = None) -> Lab:
    """The lab of that name, or the only one that is up."""
    found = [lab for lab in registry.labs() if lab.owner is None and not lab.is_abandoned]
    if not found:
        raise UsageError("No lab is up; `stash lab up --hosts 2 --link 1gbit` makes one.")
    named = [lab for lab in found if name in (None, lab.name)]
    if len(named) != 1:
        names = ", ".join(lab.name for lab in found)
        raise UsageError(f"Name one of the labs that are up with --lab: {names}.")
    return named[0]


def hosts(lab: Lab) -> tuple[Host, ...]:
    """The hosts of a lab; none where it has only limits."""
    part = lab.parts.get(HOSTS)
    return network.hosts_of(lab, part["count"], Link(**part["link"])) if part else ()


def words_to_run(lab: Lab, host_name: str | None) -> tuple[list[str], dict[str, str]]:
    """What to put in front of a command, and into its environment, so that it runs in a lab."""
    words: list[str] = []
    environment: dict[str, str] = {}
    known = {host.name: host for host in hosts(lab)}
    if host_name is not None and host_name not in known:
        raise UsageError(f"Lab {lab.name} has no host {host_name!r}; it has {sorted(known)}.")
    if known:
        host = known[host_name or "h0"]
        words += host.inside
        environment |= host.environment
    if LIMITS in lab.parts:
        limited = resources.resources_of(lab, Limits(**lab.parts[LIMITS]))
        words += limited.inside
        environment |= limited.environment
    return words, environment
