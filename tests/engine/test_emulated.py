"""The emulated accelerator: kernels are deadlines, and gradients become ready in their order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from stash.engine.devices import Emulated
from stash.hardware.device_names import DeviceName, parse
from stash.workloads import emulated
from stash.workloads.emulated import Accelerator, DeviceClock, EmulatedModel, EmulatedOptimizer
from stash.workloads.layers import LayerList, list_layers
from stash.workloads.workload import supervised

LOOK_SECONDS = 1e-8


class FakeTime:
    """A clock that only sleeping moves, and a sleep that is late by as much as told.

    A sleep of no time, which only lets others run, takes as long as a look at a clock.
    """

    def __init__(self, late: float = 0.0) -> None:
        self.seconds = 100.0
        self.late = late
        self.sleeps = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.seconds += max(seconds, LOOK_SECONDS) + (self.late if seconds else 0.0)

    def clock(self) -> DeviceClock:
        return DeviceClock(self.now, self.sleep)


@pytest.fixture(autouse=True)
def _no_accelerator_is_left() -> Iterator[None]:
    yield
    emulated._CURRENT.clear()


@pytest.fixture(scope="module")
def layers() -> LayerList:
    """A layer with few and one with many operations, batch norm, and one without parameters."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 64, 3),
        nn.Flatten(),
        nn.Linear(64 * 12 * 12, 5),
    )
    batch = (torch.zeros(8, 3, 16, 16), torch.zeros(8, dtype=torch.long))
    return list_layers(model, supervised(nn.CrossEntropyLoss()), batch)


def accelerator_with(
    layers: LayerList, clock: DeviceClock, device: str = "emulated:v100"
) -> Accelerator:
    accelerator = Accelerator(parse(device), layers, "fp32")
    accelerator.clock = clock
    return accelerator


def run_iteration(accelerator: Accelerator, model: nn.Module) -> None:
    model(None).backward()
    accelerator.clock.enqueue(accelerator.optimizer_seconds)


def with_gradients(accelerator: Accelerator) -> list[int]:
    """Positions, counted from the last layer, of layers that have gradients to wait for."""
    last = len(accelerator.layers) - 1
    return [p for p in range(last + 1) if p == 0 or accelerator.layers[last - p].gradient_elements]


def test_queued_work_runs_one_after_the_other_beside_the_host() -> None:
    fake = FakeTime()
    clock = fake.clock()
    assert [clock.enqueue(2.0), clock.enqueue(3.0)] == [100.0, 102.0]
    assert fake.seconds == 100.0
    clock.synchronize()
    assert fake.seconds == pytest.approx(105.0, abs=2 * LOOK_SECONDS)


def test_a_device_that_has_idled_starts_at_once() -> None:
    fake = FakeTime()
    clock = fake.clock()
    clock.enqueue(1.0)
    fake.seconds = 150.0
    assert clock.enqueue(1.0) == 150.0


def test_a_device_tells_when_it_will_be_done_without_waiting_for_it() -> None:
    fake = FakeTime()
    clock = fake.clock()
    assert clock.done_at() == 100.0
    clock.enqueue(2.0)
    assert (clock.done_at(), fake.sleeps) == (102.0, 0)
    fake.seconds = 150.0
    assert clock.done_at() == 150.0


def test_the_moment_of_an_emulated_device_is_its_last_deadline(layers: LayerList) -> None:
    device = Emulated()
    fake = FakeTime()
    EmulatedModel(accelerator := accelerator_with(layers, fake.clock()))
    start = device.moment()
    accelerator.clock.enqueue(2.0)
    assert device.moment().seconds_after(start) == 2.0


def test_waiting_for_what_is_done_does_not_sleep() -> None:
    fake = FakeTime()
    fake.clock().wait_until(99.0)
    fake.clock().synchronize()
    assert fake.sleeps == 0


def test_sleeping_too_long_does_not_add_up() -> None:
    """Every sleep is 0.3 late; a hundred pieces of 1.0 last 100.3, not 130."""
    fake = FakeTime(late=0.3)
    clock = fake.clock()
    start = clock.enqueue(100.0)
    for piece in range(1, 101):
        clock.wait_until(start + piece)
        assert fake.seconds - (start + piece) == pytest.approx(0.3)
    clock.synchronize()
    assert fake.seconds == pytest.approx(200.3)


def test_the_end_of_a_queue_is_watched_for_so_that_a_late_sleep_does_not_show() -> None:
    fake = FakeTime(late=0.0003)
    clock = fake.clock()
    clock.enqueue(1.0)
    clock.synchronize()
    assert fake.seconds == pytest.approx(101.0, abs=2 * LOOK_SECONDS)


def test_the_host_goes_on_just_when_the_backward_pass_is_done(layers: LayerList) -> None:
    """Otherwise an iteration that waits for data would be longer by what a sleep is late."""
    fake = FakeTime(late=0.0003)
    accelerator = accelerator_with(layers, fake.clock(), "emulated:v100:time=5000")
    EmulatedModel(accelerator)(None).backward()
    planned = accelerator.forward_seconds + accelerator.backward_seconds
    assert fake.seconds - 100.0 == pytest.approx(planned, abs=2 * LOOK_SECONDS)


def test_sleeping_too_short_is_made_up_for() -> None:
    fake = FakeTime()
    clock = DeviceClock(fake.now, lambda seconds: fake.sleep(seconds / 2 + 1e-9))
    clock.enqueue(1.0)
    clock.synchronize()
    assert 101.0 <= fake.seconds < 101.001


def test_gradients_are_ready_when_the_costs_of_their_layers_say(layers: LayerList) -> None:
    fake = FakeTime()
    accelerator = accelerator_with(layers, fake.clock())
    model = EmulatedModel(accelerator)
    run_iteration(accelerator, model)
    positions = with_gradients(accelerator)
    assert len(positions) == 5  # the loss, a linear layer, two convolutions and batch norm
    planned = [accelerator.planned_ready_seconds[p] for p in positions]
    assert accelerator.ready_seconds == pytest.approx(planned, abs=2 * LOOK_SECONDS)
    assert planned == sorted(planned) and planned[-1] == pytest.approx(accelerator.backward_seconds)


def test_the_backward_pass_begins_when_the_forward_pass_is_done(layers: LayerList) -> None:
    fake = FakeTime()
    accelerator = accelerator_with(layers, fake.clock())
    run_iteration(accelerator, EmulatedModel(accelerator))
    whole = accelerator.forward_seconds + accelerator.backward_seconds
    assert fake.seconds - 100.0 == pytest.approx(whole, abs=2 * LOOK_SECONDS)
    accelerator.clock.synchronize()
    whole += accelerator.optimizer_seconds
    assert fake.seconds - 100.0 == pytest.approx(whole, abs=2 * LOOK_SECONDS)


def test_iterations_follow_each_other_without_a_gap(layers: LayerList) -> None:
    fake = FakeTime(late=1e-6)
    accelerator = accelerator_with(layers, fake.clock())
    model = EmulatedModel(accelerator)
    for _ in range(10):
        run_iteration(accelerator, model)
    accelerator.clock.synchronize()
    one = accelerator.forward_seconds + accelerator.backward_seconds + accelerator.optimizer_seconds
    # What a sleep is late by, the queued optimizer step hides; only the last one shows.
    assert fake.seconds - 100.0 == pytest.approx(10 * one, abs=2e-6 + 10 * 1e-6)


def test_real_time_follows_the_plan(layers: LayerList) -> None:
    """Stretched so that layers last milliseconds; wide margins, because this machine is shared."""
    accelerator = Accelerator(parse("emulated:v100:time=10000"), layers, "fp32")
    model = EmulatedModel(accelerator)
    began = time.perf_counter()
    run_iteration(accelerator, model)
    accelerator.clock.synchronize()
    seconds = time.perf_counter() - began
    planned = accelerator.forward_seconds + accelerator.backward_seconds
    planned += accelerator.optimizer_seconds
    assert planned > 0.01
    assert planned <= seconds < 3 * planned + 0.1
    ready = accelerator.ready_seconds
    wanted = [accelerator.planned_ready_seconds[p] for p in with_gradients(accelerator)]
    assert all(is_ready >= due for is_ready, due in zip(ready, wanted, strict=True))
    assert ready == sorted(ready)


def test_layers_with_more_arithmetic_last_longer(layers: LayerList) -> None:
    accelerator = Accelerator(parse("emulated:v100"), layers, "fp32")
    by_flops = sorted(
        zip(layers.layers, accelerator.layers, strict=True), key=lambda p: p[0].forward_flops
    )
    assert by_flops[-1][1].forward_seconds == max(x.forward_seconds for x in accelerator.layers)
    for layer in accelerator.layers:
        assert layer.backward_seconds == pytest.approx(2 * layer.forward_seconds)


def test_a_faster_gpu_is_faster_and_a_scaled_one_as_much_slower(layers: LayerList) -> None:
    def whole(device: str) -> float:
        accelerator = Accelerator(parse(device), layers, "fp32")
        return accelerator.forward_seconds + accelerator.backward_seconds

    assert whole("emulated:h100") < whole("emulated:v100") < whole("emulated:k80")
    assert whole("emulated:v100:time=3") == pytest.approx(3 * whole("emulated:v100"))
    assert whole("emulated:v100:bytes=0.01") == pytest.approx(whole("emulated:v100"))


def test_scaled_bytes_shrink_the_gradients_but_not_what_is_told_of_the_model(
    layers: LayerList,
) -> None:
    accelerator = Accelerator(parse("emulated:v100:bytes=0.01"), layers, "fp32")
    real = sum(p.numel() for p in EmulatedModel(accelerator).parameters())
    assert real == pytest.approx(0.01 * layers.parameter_count, rel=0.1)
    assert accelerator.parameters == layers.parameter_count
    assert accelerator.gradient_bytes == 4 * layers.parameter_count


def test_every_parameter_gets_a_gradient_of_its_own_memory(layers: LayerList) -> None:
    accelerator = accelerator_with(layers, FakeTime().clock())
    model = EmulatedModel(accelerator)
    run_iteration(accelerator, model)
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and g.is_contiguous() for g in gradients)
    before = [g.data_ptr() for g in gradients if g is not None]
    EmulatedOptimizer(model.parameters(), accelerator).zero_grad()
    run_iteration(accelerator, model)
    assert [p.grad.data_ptr() for p in model.parameters() if p.grad is not None] == before


def test_an_unscaled_model_has_the_parameters_of_the_real_one(layers: LayerList) -> None:
    accelerator = Accelerator(DeviceName("emulated", "v100-sxm2-16gb"), layers, "fp32")
    real = sum(p.numel() for p in EmulatedModel(accelerator).parameters())
    assert real == layers.parameter_count == accelerator.parameters
