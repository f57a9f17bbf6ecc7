"""How numbers are written for people: never with more digits than their interval justifies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.results.document import Interval
from stash.results.document import derived as derived

#: Beyond this a longer number tells a reader nothing, however narrow its interval.
MAX_SIGNIFICANT_DIGITS = 5
MAX_PLACES = 9
#: What a number without an interval is given: it may well be off by more.
DIGITS_WITHOUT_INTERVAL = 2
DIGITS_OF_EXACT_NUMBERS = 3


@dataclass(frozen=True)
class Figure:
    """An estimate and its interval as text, all rounded to the same place."""

    estimate: str
    low: str | None
    high: str | None

    @property
    def range(self) -> str:
        """The interval in words, or that there is none."""
        return "no interval" if self.low is None else f"{self.low} to {self.high}"


def figure(value: Interval, factor: float = 1.0) -> Figure:
    """Round an estimate and its interval, after a change of unit."""
    low, high = value.low, value.high
    if low is None or high is None:
        places = _places(value.estimate * factor, DIGITS_WITHOUT_INTERVAL)
        return Figure(_write(value.estimate * factor, places), None, None)
    numbers = [value.estimate * factor, low * factor, high * factor]
    half_width = max(abs(numbers[1] - numbers[0]), abs(numbers[2] - numbers[0]))
    largest = max(abs(number) for number in numbers)
    if half_width == 0:
        places = _places(largest, DIGITS_OF_EXACT_NUMBERS)
    else:
        places = min(_justified(half_width), _places(largest, MAX_SIGNIFICANT_DIGITS))
    estimate, low_text, high_text = (_write(number, places) for number in numbers)
    return Figure(estimate, low_text, high_text)


def plain(value: float) -> str:
    """A number that has no interval, with the digits of one, and never with an exponent."""
    return figure(derived(value)).estimate


def price_figure(usd: float) -> str:
    """Dollars and cents; less than a dime with as many digits as tell it from nothing."""
    return f"{usd:.2f}" if usd == 0 or usd >= 0.1 else plain(usd)


def format_with_interval(estimate: float, low: float | None, high: float | None, unit: str) -> str:
    """`24.1 ms (22.3 to 25.9)`; a currency sign goes in front."""
    return written(derived(estimate, low, high), unit)


def written(value: Interval, unit: str, factor: float = 1.0) -> str:
    """An estimate with its interval, as it stands in a sentence."""
    rounded = figure(value, factor)
    number = with_unit(rounded.estimate, unit)
    return number if rounded.low is None else f"{number} ({rounded.range})"


def with_unit(number: str, unit: str) -> str:
    """A rounded number with its unit where a reader expects it."""
    if unit == "$":
        return f"-${number[1:]}" if number.startswith("-") else f"${number}"
    return f"{number} {unit}".rstrip()


def percentage(share: Interval) -> str:
    """A share of the time as `38 % (35 to 41)`."""
    return written(share, "%", 100.0)


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which a table of times near this one reads best, and its factor."""
    if abs(seconds) >= 10:
        return "s", 1.0
    return ("ms", 1e3) if abs(seconds) >= 1e-3 else ("us", 1e6)


def duration_unit(seconds: float) -> tuple[str, float]:
    """The same for whole epochs."""
    for name, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= 2 * size:
            return name, 1 / size
    return "s", 1.0


def duration(seconds: float) -> str:
    """A length of time that needs no interval, such as how long a run took."""
    unit, factor = duration_unit(seconds)
    places = min(1, _places(seconds * factor, 2))
    return f"{_write(seconds * factor, places)} {unit}"


def large_count(count: int) -> str:
    """A count in thousands, millions or billions, three digits at most."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e5)):
        if count >= size:
            size = 1e3 if unit == "k" else size
            return f"{_write(count / size, max(0, _places(count / size, 3)))} {unit}"
    return str(count)


def size_in_bytes(count: float) -> str:
    """Bytes in the decimal units that disks are sold in."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_write(count / size, max(0, _places(count / size, 2)))} {unit}"
    return f"{count:.0f} B"


def _justified(half_width: float) -> int:
    """Decimal places down to the half-width's first digit, or its second where the first is 1."""
    first_digit, exponent = _leading(half_width)
    return -exponent + (1 if first_digit == "1" else 0)


def _places(number: float, digits: int) -> int:
    """Decimal places that leave a number this many significant digits."""
    return digits - 1 - _leading(number)[1] if number else 0


def _leading(number: float) -> tuple[str, int]:
    """First significant digit and power of ten, as decimal notation has them."""
    if not math.isfinite(number):
        return "9", 0
    mantissa, exponent = f"{abs(number):.12e}".split("e")
    return mantissa[0], int(exponent)


def _write(number: float, places: int) -> str:
    places = min(places, MAX_PLACES)
    rounded = round(number, places) + 0.0  # no negative zero
    if abs(rounded) >= 1e7 or 0 < abs(rounded) < 1e-6:
        return f"{rounded:.3g}"
    return f"{rounded:.{max(0, places)}f}"
