"""The story of one launch: warm up, calibrate, then rounds until the stalls are known well enough.

It is a generator that runs beside the training loop: every `yield` lets the loop run one iteration,
and everything between two yields happens at the boundary between two iterations.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from stash.engine.devices import Moment
from stash.engine.feed import Window
from stash.engine.gang import Gang
from stash.engine.plan import Plan
from stash.results.estimates import Times
from stash.results.recording import (
    Block,
    Calibration,
    Check,
    Disturbance,
    End,
    Facts,
    Phase,
    Rate,
    Round,
)
from stash.results.steps import STEP_BY_NAME, Feed, Step, Who

_T = TypeVar("_T")
#: A part of the story that ends in a value.
Told = Generator[None, None, _T]

#: A block shorter than this is mostly barrier and clock.
MIN_BLOCK_SECONDS = 0.05
#: A loader block much longer than this makes rounds longer than a machine's drift.
LONG_LOADER_BLOCK_SECONDS = 2.5
#: How often a queue turns over before a block is timed: twice to forget its start; up to six times
#: where loaders are about as fast as training, so that it fills or empties slowly.
MIN_TURNOVERS, MAX_TURNOVERS = 2, 6
WARM_UP_CHUNK = 4
WARM_UP_MAX_SECONDS = 30.0
WARM_UP_MAX_ITERATIONS = 200
SETTLED_FRACTION = 0.10
RATE_REPEATS = 5
RATE_MAX_SECONDS = 20.0
REASONS = ("half-width", "max-minutes", "max-usd", "rounds")


class Pipeline(Protocol):
    """The input pipeline of one worker, as far as the story drives it (engine/feed.py)."""

    file_bytes: int  # what reading the window's files whole takes from storage
    shapes_vary: bool

    @property
    def unit(self) -> int: ...
    @property
    def prefetched(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def replay_batches(self) -> int: ...
    @property
    def persistent(self) -> bool: ...

    def available_batches(self) -> int | None: ...
    def use_window(self, window: Window) -> None: ...
    def empty_page_cache(self) -> None: ...
    def open(self) -> None: ...
    def drain(self) -> int: ...
    def storage_bytes_read(self) -> int | None: ...
    def seconds_to_start(self) -> float | None: ...
    def seconds_to_prepare(self) -> tuple[int, float]: ...
    def seconds_to_read(self) -> tuple[float, float]: ...


class Bench(Protocol):
    """What else the story can touch in its worker (engine/switchboard.py)."""

    def set(self, step: Step) -> None:
        """Turn feed and exchange to what a step wants, for the workers that run it."""

    def idle(self) -> None:
        """Replay without exchange: how workers catch up that were left out of a block."""

    def moment(self) -> Moment:
        """When the device is done with what it has been given so far; does not wait for it."""

    def synchronize(self) -> None:
        """Wait until the device is done."""

    def start_telemetry(self) -> None:
        """Begin to watch the machine."""

    def stop_telemetry(self) -> Disturbance:
        """What the machine did since."""

    def heartbeat(self, doing: str, *, waits_for: int = 0) -> None:
        """Tell the launcher what this worker is at, or how many iterations of others it awaits."""

    def facts(self, calibration: Calibration, rates: tuple[Rate | None, Rate | None]) -> Facts:
        """All that is known about workload and machine."""

    def rest(self) -> None:
        """Let the launcher show what was written; the others wait for the first worker."""

    def final_checks(self) -> tuple[Check, ...]:
        """What only the end can tell."""

    def peak_bytes(self) -> int | None:
        """Most device memory used."""


class Sink(Protocol):
    """Where events go; only the first worker has a real one."""

    def write(self, event: Facts | Phase | Round | End) -> None:
        """Keep one event."""


@dataclass
class _Lengths:
    """Iterations of the blocks of each kind of feed."""

    replay: int = 1
    across: int = 1  # replay, with gradients exchanged across nodes
    replay_lead: int = 1
    loader: Window = field(default_factory=lambda: Window(1, 1, 0))

    def of(self, step: Step) -> tuple[int, int]:
        """Untimed and timed iterations of a step's block."""
        if step.feed.is_real:
            return self.loader.lead, self.loader.timed
        across = step.exchange and step.who in (Who.SPREAD, Who.ALL)
        return self.replay_lead, self.across if across else self.replay


class Measurement:
    """One worker's part in measuring; all workers run the same story in step."""

    def __init__(
        self,
        plan: Plan,
        gang: Gang,
        bench: Bench,
        pipeline: Pipeline,
        sink: Sink,
        clock: Callable[[], float] = time.perf_counter,
        earlier: Sequence[Round] = (),
    ) -> None:
        self._plan = plan
        self._gang = gang
        self._bench = bench
        self._pipeline = pipeline
        self._sink = sink
        self._clock = clock
        self._steps = [STEP_BY_NAME[name] for name in plan.steps]
        self._random = random.Random(plan.seed * 1000 + plan.launch + 7919 * plan.earlier_rounds)
        self._lengths = _Lengths()
        self._rounds: list[Round] = list(earlier)
        self._earlier_seconds = earlier[-1].at_seconds if earlier else 0.0
        self._began = clock()

    def story(self) -> Iterator[None]:
        """Each yield is one iteration of the training loop."""
        self._phase("recording")
        self._pipeline.use_window(self._trial_window())
        self._phase("warming up")
        warm_up_iterations, settled, seconds = yield from self._warm_up()
        self._phase("calibrating")
        yield from self._calibrate(seconds)
        self._phase("loader rates")
        rates = self._rates() if self._has_real_feed else (None, None)
        calibration = self._calibration(warm_up_iterations, settled)
        self._sink.write(self._bench.facts(calibration, rates))
        self._phase("measuring")
        reason = yield from self._measure()
        peaks = self._gang.gather([_or_minus_one(self._bench.peak_bytes())])
        self._sink.write(
            End.model_validate(
                {
                    "launch": self._plan.launch,
                    "reason": reason,
                    "checks": self._bench.final_checks(),
                    "peak_device_memory_bytes": tuple(
                        None if peak < 0 else int(peak) for (peak,) in peaks
                    ),
                }
            )
        )

    def _warm_up(self) -> Told[tuple[int, bool, float]]:
        """All workers, exchange on, until two halves of the last iterations agree."""
        self._bench.set(STEP_BY_NAME["scaleout" if self._plan.nodes > 1 else "node"])
        began = self._clock()
        times: list[float] = []
        while True:
            spans: list[tuple[Moment, Moment]] = []
            for _ in range(WARM_UP_CHUNK):
                self._bench.heartbeat("warming up")
                start = self._bench.moment()
                yield
                spans.append((start, self._bench.moment()))
            self._bench.synchronize()
            times += [end.seconds_after(start) for start, end in spans]
            slowest = [max(column) for column in zip(*self._gang.gather(times), strict=True)]
            settled = _settled(slowest)
            spent = self._clock() - began > WARM_UP_MAX_SECONDS
            if self._gang.follow(settled or spent or len(times) >= WARM_UP_MAX_ITERATIONS):
                recent = slowest[-2 * WARM_UP_CHUNK :]
                return len(times), bool(self._gang.follow(settled)), sum(recent) / len(recent)

    def _calibrate(self, seconds_per_iteration: float) -> Iterator[None]:
        """Choose block lengths: replay by the clock, loaders by when their pipeline runs evenly."""
        self._lengths.across = self._lengths.replay = self._filling(seconds_per_iteration)
        if self._plan.nodes > 1:
            inside = yield from self._trial_inside()
            self._lengths.replay = self._filling(inside)
        if not self._has_real_feed:
            return
        window = yield from self._loader_window()
        self._lengths.loader = self._fitted(window)
        self._pipeline.use_window(self._lengths.loader)

    def _loader_window(self) -> Told[Window]:
        """What a loader block takes, from how a queue fills; without one, an iteration is even."""
        unit = self._pipeline.unit
        queued = max(own for (own,) in self._gang.gather([self._pipeline.prefetched]))
        if not queued and self._lengths.replay == 1:
            return Window(unit, unit, 0)
        trial = self._trial_window()
        bursts = yield from self._trial_bursts(trial)
        even = _even_after(bursts, most=max(1, trial.lead // unit))
        depth = math.ceil(self._pipeline.prefetched / unit)
        longest = math.ceil(LONG_LOADER_BLOCK_SECONDS / max(bursts[-1], 1e-6))
        least = math.ceil(MIN_BLOCK_SECONDS / max(bursts[-1], 1e-6))
        # While a queue fills, loaders work without a pause and take cores from training; and a
        # block that is shorter than the queue could live on what was prepared before it.
        full = _bursts_to_fill(bursts, depth)
        lead = unit * self._gang.follow(max(even, min(full, longest)))
        timed = unit * self._gang.follow(max(1, least, min(max(even, depth, full // 2), longest)))
        return Window(lead, timed, self._pipeline.prefetched)

    def _filling(self, seconds_per_iteration: float) -> int:
        """As many iterations as a block must have at least."""
        return self._gang.follow(
            max(1, math.ceil(MIN_BLOCK_SECONDS / max(seconds_per_iteration, 1e-6)))
        )

    def _trial_inside(self) -> Told[float]:
        """Seconds per iteration inside one node, which may be far from those across nodes."""
        seconds = 0.0
        self._turn(STEP_BY_NAME["node"])
        self._gang.barrier()
        if self._runs(Who.NODE):
            seconds = (yield from self._seconds_of(WARM_UP_CHUNK)) / WARM_UP_CHUNK
        else:
            self._bench.heartbeat("held", waits_for=WARM_UP_CHUNK)
        self._gang.barrier()
        if not self._runs(Who.NODE):
            yield from self._catch_up(0, WARM_UP_CHUNK)
        everyone = self._gather_after(Who.NODE, WARM_UP_CHUNK, [seconds], "calibrating")
        return max(own for (own,) in everyone)

    def _trial_window(self) -> Window:
        """Long enough to see a loader's queue fill and its pipeline run evenly."""
        unit, ahead = self._pipeline.unit, self._pipeline.prefetched
        return self._fitted(Window(unit + ahead, 2 * unit, ahead))

    def _fitted(self, window: Window) -> Window:
        """Shorten a window to what one epoch offers: first its tail, then its parts by bursts."""
        available = self._pipeline.available_batches()
        unit = self._pipeline.unit
        lead, timed, tail = window.lead, window.timed, window.tail
        if available is not None and lead + timed + tail > available:
            tail = max(0, min(tail, available - lead - timed))
            while lead + timed > available and (lead > unit or timed > unit):
                if timed >= lead and timed > unit:
                    timed -= unit
                else:
                    lead -= unit
        return Window(max(lead, unit), max(timed, unit), tail)

    def _trial_bursts(self, window: Window) -> Told[list[float]]:
        """Seconds of each burst of `unit` iterations from an empty queue, best of two trials."""
        trials = []
        unit = self._pipeline.unit
        count = (window.lead + window.timed) // unit
        for _ in range(2):
            bursts = [0.0] * count
            self._turn(STEP_BY_NAME["warm"])
            self._gang.barrier()
            if self._runs(Who.NODE):
                bursts = yield from self._bursts(count, unit)
            else:
                self._bench.heartbeat("held", waits_for=count * unit)
            self._gang.barrier()
            if not self._runs(Who.NODE):
                yield from self._catch_up(0, count * unit)
            everyone = self._gather_after(Who.NODE, count * unit, bursts, "calibrating")
            trials.append([max(column) for column in zip(*everyone, strict=True)])
        return [min(pair) for pair in zip(*trials, strict=True)]

    def _bursts(self, count: int, unit: int) -> Told[list[float]]:
        """Seconds of one burst after the other, from an empty queue."""
        self._pipeline.open()
        moments = [self._bench.moment()]
        for _ in range(count):
            for _ in range(unit):
                yield
            moments.append(self._bench.moment())
        self._bench.synchronize()
        bursts = [end.seconds_after(start) for start, end in itertools.pairwise(moments)]
        self._bench.set(STEP_BY_NAME["node"])
        self._pipeline.drain()
        return bursts

    def _rates(self) -> tuple[Rate | None, Rate | None]:
        """Loader alone and storage alone, all workers of the first node at once."""
        self._turn(STEP_BY_NAME["node"])
        began = self._clock()
        prepared: list[float] = []
        read: list[float] = []
        readable = self._everyone_reads()
        while len(prepared) < RATE_REPEATS:
            self._bench.heartbeat("loader rates")
            self._gang.barrier()
            prepared.append(self._gang_rate(self._prepare))
            if readable:
                self._gang.barrier()
                read.append(self._gang_rate(self._pipeline.seconds_to_read))
            late = self._clock() - began > RATE_MAX_SECONDS and len(prepared) >= 2
            if self._gang.follow(late):
                break
        storage = Rate(samples_per_second=tuple(read)) if read else None
        return Rate(samples_per_second=tuple(prepared)), storage

    def _everyone_reads(self) -> bool:
        files = self._pipeline.file_bytes if self._runs(Who.NODE) else 1
        return min(own for (own,) in self._gang.gather([files])) > 0

    def _prepare(self) -> tuple[float, float]:
        batches, seconds = self._pipeline.seconds_to_prepare()
        return batches * self._pipeline.batch_size, seconds

    def _gang_rate(self, work: Callable[[], tuple[float, float]]) -> float:
        """Samples per second of the first node's workers together, as fast as the slowest."""
        if not self._runs(Who.NODE):
            self._bench.heartbeat("held", waits_for=self._lengths.loader.batches)
        everyone = self._gang.gather(work() if self._runs(Who.NODE) else (0.0, 0.0))
        return sum(s for s, _ in everyone) / max(max(t for _, t in everyone), 1e-9)

    def _calibration(self, warm_up_iterations: int, settled: bool) -> Calibration:
        window = self._lengths.loader
        facts = {step.name: self._lengths.of(step) for step in self._steps}
        return Calibration(
            warm_up_iterations=warm_up_iterations,
            warm_up_settled=settled,
            block_iterations={name: timed for name, (_, timed) in facts.items()},
            lead_in_iterations={name: lead for name, (lead, _) in facts.items()},
            window_batches=window.batches,
            window_samples=window.batches * self._pipeline.batch_size,
            replay_batches=self._pipeline.replay_batches,
            replay_shapes_vary=self._pipeline.shapes_vary,
            loader_start_seconds=self._pipeline.seconds_to_start() if self._has_real_feed else None,
            loader_persistent=self._pipeline.persistent,
            seed=self._plan.seed,
        )

    def _measure(self) -> Told[str]:
        """Rounds until a limit; everyone follows the first worker's decision."""
        while True:
            yield from self._round()
            decision = self._gang.follow(self._decide())
            if decision:
                return REASONS[decision - 1]

    def _round(self) -> Iterator[None]:
        """One block of every step, in random order (the same on all workers)."""
        order = list(self._steps)
        self._random.shuffle(order)
        blocks = []
        for step in order:
            block = yield from self._block(step)
            blocks.append(block)
        self._rounds.append(
            Round(
                launch=self._plan.launch,
                number=len(self._rounds),
                at_seconds=self._earlier_seconds + self._clock() - self._began,
                blocks=tuple(blocks),
            )
        )
        self._tell(self._rounds[-1])

    def _block(self, step: Step) -> Told[Block]:
        """Run and time one block; workers left out wait, then catch up."""
        running = self._runs(step.who)
        lead, timed = self._lengths.of(step)
        self._bench.heartbeat(step.name)
        self._turn(step)
        if step.feed is Feed.COLD and running:
            self._pipeline.empty_page_cache()
        read_before = self._pipeline.storage_bytes_read() if step.feed.is_real else None
        self._bench.synchronize()
        self._gang.barrier()
        self._bench.start_telemetry()
        lead_seconds = seconds = held_seconds = None
        if running:
            lead_seconds, seconds = yield from self._timed(step, lead, timed)
        else:
            self._bench.heartbeat("held", waits_for=lead + timed)
        self._gang.barrier()
        disturbance = self._bench.stop_telemetry()
        if not running:
            held_seconds = yield from self._catch_up(lead, timed)
        read = self._close_feed(step, read_before) if running else 0
        own = [
            _or_minus_one(seconds),
            _or_minus_one(lead_seconds),
            _or_minus_one(held_seconds),
            _or_minus_one(read),
            float(self._pipeline.file_bytes) if running else 0.0,
        ]
        everyone = self._gather_after(step.who, lead + timed, own, step.name)
        return _block_of(step, lead, timed, everyone, disturbance)

    def _timed(self, step: Step, lead: int, timed: int) -> Told[tuple[float, float]]:
        """Seconds of the lead-in and of the timed iterations.

        In between nobody waits, neither for the device nor for each other: a host that hands work
        ahead goes on doing so, a loader's queue stays as it is, and nobody starts late.
        """
        begin = self._bench.moment()
        if step.feed.is_real:
            self._pipeline.open()
        for _ in range(lead):
            self._bench.heartbeat(step.name)
            yield
        led = self._bench.moment()
        seconds = yield from self._seconds_of(timed)
        return led.seconds_after(begin), seconds

    def _seconds_of(self, iterations: int) -> Told[float]:
        """From the device's end of what came before to its end of these iterations."""
        start = self._bench.moment()
        for _ in range(iterations):
            yield
        end = self._bench.moment()
        self._bench.synchronize()
        return end.seconds_after(start)

    def _turn(self, step: Step) -> None:
        """Switches to what a step wants; those who are left out of it rest."""
        if self._runs(step.who):
            self._bench.set(step)
        else:
            self._bench.idle()

    def _runs(self, who: Who, rank: int | None = None) -> bool:
        """Whether this worker, or another one, is one of them."""
        nodes = self._plan.nodes
        return who.includes(
            self._gang.rank if rank is None else rank,
            nodes=nodes,
            workers_per_node=self._gang.size // nodes,
        )

    def _catch_up(self, lead: int, timed: int) -> Told[float]:
        """The ledger: every worker runs every iteration number exactly once.

        How long the last ones take tells how fast a worker is when it waits for nobody.
        """
        self._bench.heartbeat("catching up")
        self._bench.idle()
        for _ in range(lead):
            yield
        return (yield from self._seconds_of(timed))

    def _gather_after(
        self, who: Who, iterations: int, own: Sequence[float], doing: str
    ) -> list[list[float]]:
        """Everybody's values after a block; who has run it waits for those who catch up."""
        all_run = all(self._runs(who, rank) for rank in range(self._gang.size))
        waits = self._runs(who) and not all_run
        if waits:
            self._bench.heartbeat("waiting", waits_for=iterations)
        everyone = self._gang.gather(own)
        if waits:
            self._bench.heartbeat(doing)
        return everyone

    def _close_feed(self, step: Step, read_before: int | None) -> int | None:
        if not step.feed.is_real:
            return None
        self._bench.set(STEP_BY_NAME["node"])
        self._pipeline.drain()
        read_after = self._pipeline.storage_bytes_read()
        if read_before is None or read_after is None or not self._pipeline.file_bytes:
            return None
        return read_after - read_before

    def _decide(self) -> int:
        """0 to go on, else one more than the index of the reason to stop."""
        plan, elapsed = self._plan, self._clock() - self._began
        done = len(self._rounds)
        next_end = elapsed + elapsed_per_round(self._rounds)
        if plan.max_rounds is not None and done >= plan.max_rounds:
            return 1 + REASONS.index("rounds")
        if done >= plan.min_rounds and self._gang.rank == 0:
            widest = Times.of(self._rounds).widest_half_width()
            if widest is not None and widest <= plan.half_width:
                return 1 + REASONS.index("half-width")
        if plan.max_seconds is not None and next_end > plan.max_seconds:
            return 1 + REASONS.index("max-minutes")
        if plan.max_usd is not None and plan.price_usd_per_hour is not None:
            usd = next_end / 3600 * plan.price_usd_per_hour * plan.nodes
            if usd > plan.max_usd:
                return 1 + REASONS.index("max-usd")
        return 0

    @property
    def _has_real_feed(self) -> bool:
        return any(step.feed.is_real for step in self._steps)

    def _phase(self, name: str) -> None:
        self._bench.heartbeat(name)
        self._tell(Phase(launch=self._plan.launch, name=name))

    def _tell(self, event: Phase | Round) -> None:
        """Write it down, and let it be shown before anything is timed again."""
        self._sink.write(event)
        if self._gang.rank == 0:
            self._bench.rest()


def elapsed_per_round(rounds: Sequence[Round]) -> float:
    """How long a round takes, from the last few."""
    recent = [one.at_seconds for one in rounds[-4:]]
    return (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else 0.0


def _settled(times: Sequence[float]) -> bool:
    """Whether the two halves of the later half of all iterations agree."""
    if len(times) < 2 * WARM_UP_CHUNK:
        return False
    recent = times[len(times) // 2 :]
    half = len(recent) // 2
    first, second = recent[:half], recent[half : 2 * half]
    a, b = sum(first) / half, sum(second) / half
    spread = math.sqrt(_variance(first) / half + _variance(second) / half)
    return abs(a - b) <= max(SETTLED_FRACTION * (a + b) / 2, 2 * spread)


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)


def _even_after(bursts: Sequence[float], *, most: int) -> int:
    """Bursts to leave untimed: from there on, every burst is close to the last ones."""
    even = sum(bursts[-2:]) / len(bursts[-2:])
    for lead in range(1, most):
        if all(abs(burst - even) <= SETTLED_FRACTION * even for burst in bursts[lead:]):
            return lead
    return most


def _bursts_to_fill(bursts: Sequence[float], depth: int) -> int:
    """Bursts until a queue of this depth has come to rest: full, or empty where loaders are slow.

    The first burst waits for its batches. What it takes beyond a later one is the shorter of two
    times, the loaders' and training's; a later one takes the longer. The nearer they are to each
    other, the longer it takes until the faster side waits for the slower.
    """
    nearness = (bursts[0] - bursts[-1]) / max(bursts[-1], 1e-6)
    turnovers = math.ceil(1 / max(1 - nearness, 1 / MAX_TURNOVERS))
    return max(MIN_TURNOVERS, turnovers) * depth


def _or_minus_one(value: float | None) -> float:
    return -1.0 if value is None else float(value)


def _block_of(
    step: Step,
    lead: int,
    timed: int,
    everyone: list[list[float]],
    disturbance: Disturbance,
) -> Block:
    seconds, leads, held, reads, files = zip(*everyone, strict=True)
    proven = step.feed.is_real and min(reads) >= 0
    return Block(
        step=step.name,
        iterations=timed,
        seconds=_known(seconds),
        lead_in_iterations=lead,
        lead_in_seconds=_known(leads),
        held_seconds=_known(held) if max(held) >= 0 else (),
        loader_read_bytes=int(sum(reads)) if proven else None,
        loader_file_bytes=int(sum(files)) if proven else None,
        disturbance=disturbance,
    )


def _known(seconds: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(None if own < 0 else own for own in seconds)
