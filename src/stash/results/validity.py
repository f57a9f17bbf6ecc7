"""Checks that only finished rounds can answer: do the numbers mean what they say?"""

from __future__ import annotations

from collections.abc import Sequence

from stash.results import statistics
from stash.results.estimates import Times
from stash.results.pace import Worker, Workers, own_pace_steps, workers_of
from stash.results.recording import Block, Check, MachineFacts, Round
from stash.results.steps import STEP_BY_NAME, Who, missing_for_epochs, whole_iteration

STEAL_FRACTION = 0.02
#: Of the processors: a machine that only keeps itself running uses less.
OTHERS_FRACTION = 0.1
#: An emulation whose real work needs more than half of the machine distorts what it emulates.
EMULATION_CPU_FRACTION = 0.5
COLD_PROVEN = (0.9, 1.5)  # bytes read from storage over bytes that had to be read
WARM_PROVEN = 0.1
#: An epoch on several nodes that is known less well than this is told of.
PUT_TOGETHER_FRACTION = 0.03
#: A network that changes by less than this part of an iteration, or in fewer rounds, is steady.
STEADY_FRACTION, STEADY_ROUNDS = 0.05, 10


def checks_of(rounds: Sequence[Round], machine: MachineFacts) -> list[Check]:
    """All checks over the blocks of a run."""
    blocks = [block for one in rounds for block in one.blocks]
    checks = [_steal(blocks, machine), *_other_programs(blocks, machine)]
    if machine.device.startswith("emulated"):
        checks.append(_emulation_headroom(blocks, machine))
    checks += _page_cache(blocks)
    if machine.nodes > 1:
        checks += _pace(blocks, machine)
        checks += _put_together(rounds, machine.nodes)
        checks += _steady(rounds)
    return checks


def stolen_fraction(blocks: Sequence[Block], machine: MachineFacts) -> float:
    """The part of the processors' time that a host gave to others."""
    return _cpu_fraction(blocks, machine, "cpu_steal_seconds")


def _steal(blocks: Sequence[Block], machine: MachineFacts) -> Check:
    fraction = stolen_fraction(blocks, machine)
    if fraction <= STEAL_FRACTION:
        return Check(
            name="steal",
            status="pass",
            message=f"Other tenants took {fraction:.1%} of the processors while measuring.",
        )
    return Check(
        name="steal",
        status="warn",
        message=f"Other tenants took {fraction:.1%} of the processors while measuring.",
        next="Workers that exchange gradients wait for one whose core was taken, which can read as "
        "communication or contention. Where these matter, measure on a quieter machine.",
    )


def _other_programs(blocks: Sequence[Block], machine: MachineFacts) -> list[Check]:
    """Whether something that is not of this run worked on its cores, such as another profile."""
    seen = [block for block in blocks if block.disturbance.other_cpu_seconds is not None]
    if not seen or _nodes_share_cores(machine):
        return []
    fraction = _cpu_fraction(seen, machine, "other_cpu_seconds")
    # Counters are read one after the other, and round: nothing can come out a little below zero.
    message = (
        f"Programs that are not of this run used {max(0.0, fraction):.0%} of the processors while "
        "measuring."
    )
    if fraction < OTHERS_FRACTION:
        return [Check(name="other programs", status="pass", message=message)]
    return [
        Check(
            name="other programs",
            status="warn",
            message=message + " They slow workers and loaders, which reads as a stall.",
            next="End them, or measure when they have ended: `top` names them. Two profiles at "
            "once on a machine disturb each other, whatever their ports are.",
        )
    ]


def _nodes_share_cores(machine: MachineFacts) -> bool:
    """Hosts of the lab: workers of other nodes are no others' programs, but look like it."""
    names = [host.partition(" ")[0] for host in machine.hosts]
    return names[:1] != [] and names[0] in names[1:]


def _emulation_headroom(blocks: Sequence[Block], machine: MachineFacts) -> Check:
    by_step: dict[str, list[Block]] = {}
    for block in blocks:
        # Preprocessing may use every core, as on a real machine; the emulation itself may not.
        step = STEP_BY_NAME.get(block.step)
        if step is not None and step.who is not Who.FIRST and not step.feed.is_real:
            by_step.setdefault(block.step, []).append(block)
    fraction = max(
        (_cpu_fraction(own, machine, "cpu_busy_seconds") for own in by_step.values()), default=0.0
    )
    message = f"Processors were {fraction:.0%} busy while emulated devices exchanged gradients."
    if fraction <= EMULATION_CPU_FRACTION:
        return Check(name="emulation headroom", status="pass", message=message)
    return Check(
        name="emulation headroom",
        status="warn",
        message=message + " Above 50 % this emulation is not valid: they slow what is emulated.",
        next="Use fewer workers, or scale bytes down (--device emulated:<gpu>:bytes=0.1); "
        "`communication` then shrinks unless the link is slowed by as much.",
    )


def _pace(blocks: Sequence[Block], machine: MachineFacts) -> list[Check]:
    """Whether a node or a worker is slower than the others where it waits for nobody."""
    found = next(
        (
            workers
            for step in own_pace_steps(machine.workers_per_node)
            if (workers := workers_of(step, [b for b in blocks if b.step == step])) is not None
        ),
        None,
    )
    if found is None:
        return []
    slow = [worker for worker in found.workers if worker.slow]
    if not slow:
        message = f"All {len(found.workers)} workers compute at the same pace."
        return [Check(name="pace", status="pass", message=message)]
    return [
        Check(
            name="pace",
            status="warn",
            message=" ".join(_slow_words(slow, found, machine)),
            next="Look at clocks, heat, neighbours and cores there: all others wait for the "
            "slowest, which reads as a stall of its own kind in every step that it takes part in.",
        )
    ]


def _slow_words(slow: Sequence[Worker], all_of: Workers, machine: MachineFacts) -> list[str]:
    """A node by its name where all of its workers are slow, else worker by worker."""
    per_node = machine.workers_per_node
    words = []
    for node in range(machine.nodes):
        own = [worker for worker in slow if worker.number // per_node == node]
        if not own:
            continue
        where = f"node {node}" + (f" ({machine.hosts[node]})" if machine.hosts else "")
        lag = max(worker.lag.estimate for worker in own) / all_of.mean_seconds_per_iteration
        numbers = ", ".join(str(worker.number) for worker in own)
        who = f"All workers of {where} are" if len(own) == per_node else f"On {where}, worker "
        if len(own) < per_node:
            who += f"{numbers} is" if len(own) == 1 else f"{numbers} are"
        words.append(f"{who} slower than the mean of all workers, by up to {lag:.0%}.")
    return words


def _put_together(rounds: Sequence[Round], nodes: int) -> list[Check]:
    """Data was fed on one node: what that means for an iteration on all of them."""
    times = Times.of(rounds)
    missing = missing_for_epochs(times.steps)
    if missing:
        return [_not_put_together(missing)]
    whole = whole_iteration(times.steps, nodes=nodes)
    if whole is None or len(whole) == 1:
        return []
    most = times.iteration(whole).value
    least = max(times.step(step).value for step in ("scaleout", "warm"))
    message = (
        "An iteration of an epoch is put together: scaleout on all nodes, and prep and fetch as "
        f"the first node has them. That is {1e3 * most:.3g} ms; where loaders work on while "
        f"gradients travel, it can be as short as {1e3 * least:.3g} ms."
    )
    level = most - least <= PUT_TOGETHER_FRACTION * most
    return [Check(name="epochs", status="pass" if level else "warn", message=message)]


def _not_put_together(missing: Sequence[str]) -> Check:
    """A step of one node tells nothing of an epoch on all of them."""
    names = " and ".join(missing)
    return Check(
        name="epochs",
        status="warn",
        message=f"An iteration of all nodes is not known without {names}: epochs, waiting, shares "
        "of stalls and their dollars are left out.",
        next=f"Add {names} to --steps, or leave --steps out.",
    )


def _steady(rounds: Sequence[Round]) -> list[Check]:
    """Whether exchange across nodes took as long in the second half of the run as in the first."""
    times = Times.of(rounds)
    across = next((step for step in ("scaleout", "cluster") if step in times.steps), None)
    if across is None or "node" not in times.steps or len(rounds) < STEADY_ROUNDS:
        return []
    extra = [one for launch in times.combine(((+1, across), (-1, "node"))) for one in launch]
    half = len(extra) // 2
    before, after = (statistics.estimate([part]) for part in (extra[:half], extra[half:]))
    assert before.low is not None and before.high is not None
    assert after.low is not None and after.high is not None
    apart = before.high < after.low or after.high < before.low
    change = abs(after.value - before.value) / times.iteration_seconds
    message = (
        f"Crossing nodes took {1e3 * before.value:.3g} ms of an iteration in the first half of "
        f"the run, {1e3 * after.value:.3g} ms in the second."
    )
    if not apart or change < STEADY_FRACTION:
        return [Check(name="steady network", status="pass", message=message)]
    return [
        Check(
            name="steady network",
            status="warn",
            message=message,
            next="Look whether a link changed or was shared; the stalls are means over both.",
        )
    ]


def _page_cache(blocks: Sequence[Block]) -> list[Check]:
    checks = []
    cold = _read_ratio(blocks, "cold")
    if cold is not None:
        checks.append(cold_check(cold))
    warm = _read_ratio(blocks, "warm")
    if warm is not None:
        proven = warm <= WARM_PROVEN
        checks.append(
            Check(
                name="warm",
                status="pass" if proven else "warn",
                message=f"Warm blocks read {warm:.2f} of their files' bytes from storage"
                + ("." if proven else ": the page cache did not hold them."),
                next="" if proven else "Free memory, or use a smaller window of data.",
            )
        )
    return checks


def cold_check(cold: float) -> Check:
    """Whether reads that should have come from storage did, from their bytes over files' bytes."""
    proven = COLD_PROVEN[0] <= cold <= COLD_PROVEN[1]
    return Check(
        name="cold",
        status="pass" if proven else "warn",
        message=f"Cold blocks read {cold:.2f} of their files' bytes from storage"
        + (" (page-cache cold, not device cold)." if proven else ": cold is unproven."),
        next=""
        if proven
        else "Mapped files, network and FUSE file systems keep caches that cannot be "
        "emptied from here: read `fetch` as a lower bound.",
    )


def _read_ratio(blocks: Sequence[Block], step: str) -> float | None:
    own = [b for b in blocks if b.step == step and b.loader_read_bytes is not None]
    expected = sum(b.loader_file_bytes or 0 for b in own)
    return sum(b.loader_read_bytes or 0 for b in own) / expected if expected else None


def _cpu_fraction(blocks: Sequence[Block], machine: MachineFacts, field: str) -> float:
    wall = sum(block.disturbance.wall_seconds for block in blocks)
    if wall == 0:
        return 0.0
    used: float = sum(getattr(block.disturbance, field) for block in blocks)
    return used / wall / machine.cores
