"""Rates, sizes and times as people write them: `1gbit`, `20MB/s`, `512MiB`, `5ms`."""

from __future__ import annotations

import re

from stash.errors import UsageError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)(/s)?\s*", re.IGNORECASE)


def bits_per_second(words: str) -> float:
    """`1gbit`, `125mbit/s`; bytes (`20MB/s`) are taken at eight bits each."""
    number, unit, _ = _split(words, "a rate such as 1gbit or 20MB/s")
    if unit.endswith("bit"):
        return _positive(words, number * _factor(words, unit.removesuffix("bit")))
    return 8 * bytes_per_second(words)


def bytes_per_second(words: str) -> float:
    """`20MB/s`, `100MiB/s`; bits (`1gbit`) are eight to a byte."""
    number, unit, per_second = _split(words, "a rate such as 20MB/s or 1gbit")
    if unit.endswith("bit"):
        return bits_per_second(words) / 8
    if not per_second:
        raise UsageError(f"{words!r} is an amount, not a rate; write {words.strip()}/s.")
    return _positive(words, _bytes(words, number, unit))


def byte_count(words: str) -> int:
    """`512MiB`, `2GB`."""
    number, unit, per_second = _split(words, "a size such as 512MiB")
    if per_second or unit.endswith("bit"):
        raise UsageError(f"{words!r} is a rate, not a size; write a size such as 512MiB.")
    return int(_positive(words, _bytes(words, number, unit)))


def seconds(words: str) -> float:
    """`5ms`, `0.2s`, `80us`; `10min`, `6h`, `2d`."""
    number, unit, per_second = _split(words, "a time such as 5ms")
    if per_second or unit not in _SECONDS:
        raise UsageError(f"{words!r} is no time; write it as 5ms, 0.2s, 10min or 6h.")
    return number * _SECONDS[unit]


def cores(words: str) -> tuple[int, ...]:
    """`0,2-3`."""
    found: set[int] = set()
    try:
        for part in words.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if not numbers:
                raise ValueError
            found |= set(numbers)
    except ValueError:
        raise UsageError(f"{words!r} is no set of cores; write it as 0,2-3.") from None
    return tuple(sorted(found))


def _split(words: str, wanted: str) -> tuple[float, str, bool]:
    match = _WRITTEN.fullmatch(words)
    if match is None:
        raise UsageError(f"{words!r} is not {wanted}.")
    unit = match[2]
    if unit.endswith("b") and unit != unit.lower():  # `Mb` is bits to some, bytes to others
        raise UsageError(f"{words!r}: write {unit[:-1]}bit for bits, {unit[:-1]}B for bytes.")
    return float(match[1]), unit.lower(), match[3] is not None


def _bytes(words: str, number: float, unit: str) -> float:
    if not unit.endswith("b"):
        raise UsageError(f"{words!r}: the unit {unit!r} is not known; use MB, MiB, mbit and such.")
    return number * _factor(words, unit.removesuffix("b"))


def _factor(words: str, prefix: str) -> float:
    factor = {**_PREFIXES, **_BINARY}.get(prefix)
    if factor is None:
        raise UsageError(f"{words!r}: the prefix {prefix!r} is not known; use k, M, G, T, Ki, Mi.")
    return factor


def _positive(words: str, value: float) -> float:
    if value <= 0:
        raise UsageError(f"{words!r} is nothing; it must be more than zero.")
    return value
