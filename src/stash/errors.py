"""The one error that reaches a user: what happened, where, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping


class StashError(Exception):
    """Carries a message for the user and the exit code of the command that failed.

    Exit codes: 1 failed, 2 wrong usage, 3 interrupted by the user.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


class UsageError(StashError):
    """The request itself cannot be served: a name, a value or a file that is not there."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


def check_positive(options: Mapping[str, float | None]) -> None:
    """Refuse what is given and not above zero, by the option's name."""
    for name, value in options.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be above 0, not {value}.")


def fraction(name: str, text: str) -> float:
    """A part of a whole, given as 3% or 0.03."""
    try:
        value = float(text.strip().rstrip("%"))
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not a size such as 3% or 0.03.") from None
    if text.strip().endswith("%"):
        value /= 100.0
    elif value >= 1:
        raise UsageError(f"{name}: {text} of an iteration is more than all of it; {text}%?")
    check_positive({name: value})
    return value
