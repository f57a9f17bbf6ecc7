"""Workers in fake time: the story runs for real; only clock, loop and loader are made up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stash.engine.devices import HostMoment, Moment
from stash.engine.feed import Window
from stash.engine.measure import Measurement
from stash.engine.plan import Plan
from stash.results.recording import (
    Calibration,
    Check,
    Disturbance,
    End,
    Facts,
    MachineFacts,
    Phase,
    Rate,
    Round,
    WorkloadFacts,
)
from stash.results.steps import Feed, Step

#: (rank, step name or "idle", iteration since the switch, number of the block) -> seconds
Durations = Callable[[int, str, int, float], float]
QUEUED_ITERATIONS = 3


class ThreadGang:
    """A gang of threads; its waits cost fake time, as real ones do."""

    def __init__(self, rank: int, world: World) -> None:
        self.rank = rank
        self.size = world.size
        self._world = world

    def barrier(self) -> None:
        self._world.meet(self.rank, None)

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        return [list(v) for v in self._world.meet(self.rank, list(values))]

    def follow(self, value: int) -> int:
        return int(self._world.meet(self.rank, [float(value)])[0][0])


class FakeWorker:
    """The bench and the pipeline of one rank."""

    shapes_vary = False
    persistent = True
    replay_batches = 1
    batch_size = 8
    file_bytes = 4096

    def __init__(self, rank: int, world: World) -> None:
        self.rank = rank
        self.world = world
        self.now = 0.0
        self.free_at = 0.0  # when the device is done with what it has been given
        self.mode = "node"
        self.since_switch = 0
        self.iterations = 0
        self.met_after: set[int] = set()  # so many iterations it has waited for the others
        self.log: list[str] = []
        self.is_open = False
        self.opened_at = 0.0
        self.beats: list[str] = []
        self.waits_for = 0  # iterations of others, as its last beat tells
        self.moved_at = 0.0
        self.longest_silence = 0.0  # beyond a time-out for each of those iterations
        self.windows: list[Window] = []
        self.watched = 0  # telemetry that has begun and not ended
        self.bytes_read: int | None = 0
        self.peak: int | None = None
        self.rests = 0
        self.prepare_seconds = 1.0  # for four batches
        self.read_seconds = 0.1  # for as many samples
        self.unit = world.unit
        self.prefetched = world.prefetched

    def moved(self) -> None:
        held = self.waits_for * self.world.timeout
        self.longest_silence = max(self.longest_silence, self.now - self.moved_at - held)
        self.moved_at = self.now

    def run_iteration(self) -> None:
        self.moved()
        self.iterations += 1
        self.log.append(f"iterate {self.mode}")
        self.now += self.world.durations(self.rank, self.mode, self.since_switch, self.now)
        self.free_at = max(self.now, self.free_at) + self.world.device_seconds
        self.since_switch += 1
        # Like CUDA's queue, which holds a few iterations at most.
        self.now = max(self.now, self.free_at - QUEUED_ITERATIONS * self.world.device_seconds)

    def set(self, step: Step) -> None:
        self.log.append(f"set {step.name}")
        self.mode, self.since_switch = step.name, 0
        assert not (step.feed.is_real and self.is_open), "the queue must be empty before a block"

    def idle(self) -> None:
        self.mode, self.since_switch = "idle", 0

    def moment(self) -> Moment:
        return HostMoment(max(self.now, self.free_at))

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.now = max(self.now, self.free_at)

    def available_batches(self) -> int | None:
        return self.world.available

    def use_window(self, window: Window) -> None:
        self.windows.append(window)

    def empty_page_cache(self) -> None:
        self.log.append("evict")
        assert not self.is_open

    def open(self) -> None:
        self.log.append("open")
        self.is_open = True
        self.opened_at = self.now

    def drain(self) -> int:
        self.log.append("drain")
        self.is_open = False
        return 0

    def storage_bytes_read(self) -> int | None:
        return self.bytes_read

    def seconds_to_start(self) -> float | None:
        return 0.5

    def seconds_to_prepare(self) -> tuple[int, float]:
        self.now += self.prepare_seconds
        return 4, self.prepare_seconds

    def seconds_to_read(self) -> tuple[float, float]:
        self.now += self.read_seconds
        return 32.0, self.read_seconds

    def start_telemetry(self) -> None:
        self.now += self.world.overhead
        self.watched += 1

    def stop_telemetry(self) -> Disturbance:
        self.now += self.world.overhead
        self.watched -= 1
        return QUIET

    def heartbeat(self, doing: str, *, waits_for: int = 0) -> None:
        self.now += self.world.overhead
        self.moved()
        self.waits_for = waits_for
        self.beats.append(doing)

    def rest(self) -> None:
        self.rests += 1
        self.now += self.world.overhead

    def facts(self, calibration: Calibration, rates: tuple[Rate | None, Rate | None]) -> Facts:
        return Facts(
            launch=0,
            workload=WORKLOAD,
            machine=MACHINE.model_copy(update={"workers_per_node": self.world.size}),
            calibration=calibration,
            preprocessing=rates[0],
            storage=rates[1],
            checks=(),
        )

    def final_checks(self) -> tuple[Check, ...]:
        return ()

    def peak_bytes(self) -> int | None:
        return self.peak


@dataclass
class World:
    """All workers of one launch, and what their iterations cost."""

    durations: Durations
    size: int = 2
    unit: int = 1
    prefetched: int = 2
    available: int | None = 1000
    overhead: float = 0.0  # of everything that must stay outside timed parts
    meeting: float = 0.0  # of waiting for each other, beside that
    timeout: float = 300.0  # the longest that one iteration may take
    device_seconds: float = 0.0  # of every iteration, on a device that works beside its host
    events: list[Facts | Phase | Round | End] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = [FakeWorker(rank, self) for rank in range(self.size)]
        self.all_held = False  # at any meeting: nobody would be found to hang
        self._slots: list[Any] = [None] * self.size
        self._barrier = threading.Barrier(self.size, timeout=20)

    def write(self, event: Facts | Phase | Round | End) -> None:
        self.events.append(event)

    def meet(self, rank: int, value: Any) -> list[Any]:
        """Everybody arrives; everybody leaves at the time of the last, plus what meeting costs."""
        self.workers[rank].met_after.add(self.workers[rank].iterations)
        self._slots[rank] = (value, self.workers[rank].now)
        self._barrier.wait()
        arrived = list(self._slots)
        self.all_held |= all(worker.waits_for for worker in self.workers)
        self._barrier.wait()
        self.workers[rank].now = max(now for _, now in arrived) + self.overhead + self.meeting
        return [value for value, _ in arrived]

    def run(self, plan: Plan, earlier: Sequence[Round] = ()) -> World:
        """The whole story on every rank, to its end."""
        errors: list[BaseException] = []

        def worker(rank: int) -> None:
            own = self.workers[rank]
            sink: Any = self if rank == 0 else _Nowhere()
            story = Measurement(
                plan,
                ThreadGang(rank, self),
                own,
                own,
                sink,
                clock=lambda: own.now,
                earlier=earlier if rank == 0 else (),
            ).story()
            try:
                for _ in story:
                    own.run_iteration()
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return self

    @property
    def rounds(self) -> list[Round]:
        return [event for event in self.events if isinstance(event, Round)]

    @property
    def facts(self) -> Facts:
        return next(event for event in self.events if isinstance(event, Facts))

    @property
    def end(self) -> End:
        return next(event for event in self.events if isinstance(event, End))


class _Nowhere:
    def write(self, event: object) -> None: ...


QUIET = Disturbance(
    wall_seconds=1.0,
    cpu_busy_seconds=0.5,
    cpu_steal_seconds=0.0,
    disk_read_bytes=0,
    network_bytes=0,
    memory_used_bytes=0,
    clock_mhz=None,
    device_busy_percent=None,
    device_memory_used_bytes=None,
)
WORKLOAD = WorkloadFacts(
    name="fake",
    parameters=1,
    gradient_bytes=4,
    optimizer="SGD",
    batch_per_worker=8,
    samples=800,
    data="none",
    data_bytes=None,
    loader_workers=1,
    dtype="fp32",
)
MACHINE = MachineFacts(
    host="fake",
    system="fake",
    cpu="fake",
    cores=2,
    memory_bytes=1,
    device="cpu",
    devices=("fake",),
    device_memory_bytes=None,
    nodes=1,
    workers_per_node=2,
    cores_per_worker=1.0,
    threads_per_worker=1,
    pinned=True,
    backend="gloo",
    python="3",
    torch="2",
    stash="0",
)


def steady(**seconds: float) -> Durations:
    """Every iteration of a step costs the same; catching up costs as much as solo."""
    table = {"idle": seconds.get("solo", 0.1), **seconds}
    return lambda rank, mode, since, now: table[mode]


ALL = ("solo", "unsynced", "node", "warm", "cold")


def plan_of(*steps: str, **options: Any) -> Plan:
    return Plan(steps=steps or ALL, workload="fake", **options)


__all__ = ["ALL", "Feed", "World", "plan_of", "steady"]
