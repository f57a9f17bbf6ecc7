"""The words of `--device`: cpu, cuda, and emulated:<gpu>[:bytes=S][:time=K]."""

from __future__ import annotations

from dataclasses import dataclass

from stash.errors import UsageError
from stash.hardware import gpus


@dataclass(frozen=True)
class DeviceName:
    """A parsed device; for an emulated one, what it emulates and how it is scaled."""

    kind: str  # cpu, cuda or emulated
    gpu: str | None = None
    byte_scale: float = 1.0  # gradients and bucket sizes are multiplied by this
    time_scale: float = 1.0  # every duration of the device is multiplied by this

    def __str__(self) -> str:
        if self.kind != "emulated":
            return self.kind
        scales = [("bytes", self.byte_scale), ("time", self.time_scale)]
        return f"emulated:{self.gpu}" + "".join(f":{k}={v:.12g}" for k, v in scales if v != 1.0)


def parse(text: str) -> DeviceName:
    """Understand a device name, or say which there are."""
    kind, *words = text.strip().split(":")
    if kind in ("cpu", "cuda") and not words:
        return DeviceName(kind)
    if kind != "emulated" or not words:
        raise UsageError(
            f"Unknown device {text!r}. There are: cpu, cuda, and emulated:<gpu> such as "
            "emulated:v100 (scaled: emulated:v100:bytes=0.1:time=2)."
        )
    gpu = gpus.find(words[0])
    scales = {"bytes": 1.0, "time": 1.0}
    for word in words[1:]:
        name, _, value = word.partition("=")
        if name not in scales:
            raise UsageError(f"Unknown option {name!r} of {text!r}. There are: bytes=S, time=K.")
        scales[name] = _positive(value, text)
    return DeviceName("emulated", gpu.key, scales["bytes"], scales["time"])


def _positive(value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise UsageError(f"{value!r} in {text!r} is not a scale: expected a number above 0.")
    return number
