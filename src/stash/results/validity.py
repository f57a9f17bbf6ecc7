"""Checks that only finished rounds can answer: do the numbers mean what they say?"""

from __future__ import annotations

from collections.abc import Sequence

from stash.results.recording import Block, Check, MachineFacts, Round

STEAL_FRACTION = 0.02
#: An emulation whose real work needs more than half of the machine distorts what it emulates.
EMULATION_CPU_FRACTION = 0.5
COLD_PROVEN = (0.9, 1.5)  # bytes read from storage over bytes that had to be read
WARM_PROVEN = 0.1


def checks_of(rounds: Sequence[Round], machine: MachineFacts) -> list[Check]:
    """All checks over the blocks of a run."""
    blocks = [block for one in rounds for block in one.blocks]
    checks = [_steal(blocks, machine)]
    if machine.device.startswith("emulated"):
        checks.append(_emulation_headroom(blocks, machine))
    checks += _page_cache(blocks)
    return checks


def _steal(blocks: Sequence[Block], machine: MachineFacts) -> Check:
    fraction = _cpu_fraction(blocks, machine, "cpu_steal_seconds")
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
        next="Intervals already include this; for tighter ones measure on a quieter machine.",
    )


def _emulation_headroom(blocks: Sequence[Block], machine: MachineFacts) -> Check:
    by_step: dict[str, list[Block]] = {}
    for block in blocks:
        # Preprocessing may use every core, as on a real machine; the emulation itself may not.
        if block.step in ("node", "unsynced", "again"):
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
