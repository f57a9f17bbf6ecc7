"""The building blocks of every document of Stash: strict, immutable, bounded, read safely."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stash.errors import StashError, UsageError

#: A larger file is no document of ours; profiles of 10,000 rounds on 64 workers stay below it.
MAX_FILE_BYTES = 512 * 2**20


class Model(BaseModel):
    """A value object: frozen, no unknown fields, no silent conversions, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def to_json(self) -> str:
        """The document as text, the same wherever it is shown."""
        return self.model_dump_json(by_alias=True, indent=1)


#: Bounds keep a damaged or hostile file from reaching arithmetic or a terminal.
Text = Annotated[str, Field(max_length=4096)]
Name = Annotated[str, Field(min_length=1, max_length=512)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Positive = Annotated[int, Field(ge=1, le=10**15)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
SignedSeconds = Annotated[float, Field(ge=-1e9, le=1e9)]
Quantity = Annotated[float, Field(ge=0, le=1e18)]
Signed = Annotated[float, Field(ge=-1e18, le=1e18)]


class Interval(Model):
    """An estimate with its 95 % interval; no interval where there were too few rounds for one."""

    estimate: Signed
    low: Signed | None
    high: Signed | None


def derived(estimate: float, low: float | None = None, high: float | None = None) -> Interval:
    """A number made from those of a document; the bounds of documents are not its business."""
    return Interval.model_construct(estimate=estimate, low=low, high=high)


M = TypeVar("M", bound=Model)


def read_file(path: Path) -> bytes:
    """The bytes of a document, within reason."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise StashError(f"{path} is larger than any profile ({MAX_FILE_BYTES >> 20} MiB).")
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise StashError(
            f"Cannot read {path}: {reason}. `stash list` shows the profiles there are.",
            exit_code=2,
        ) from None


def parse_object(text: str | bytes, source: str) -> dict[str, Any]:
    """A JSON object, before anything is known about its fields."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StashError(
            f"{source} is not a complete JSON document ({error}). It may be truncated; "
            "measure again or restore the file."
        ) from None
    if not isinstance(document, dict):
        raise StashError(f"{source} is not a profile: expected a JSON object.")
    return document


def validated(model: type[M], text: str | bytes, source: str) -> M:
    """A document with every field checked; errors name the field."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise StashError(_explain(error, source)) from None
    except RecursionError:
        raise StashError(f"{source} is nested deeper than any profile.") from None


def from_options(model: type[M], options: Mapping[str, str], values: Mapping[str, Any]) -> M:
    """A document from what a user gave; what is out of bounds is told by the option's name."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, problem = str(first["loc"][0]), str(first["msg"])
        raise UsageError(
            f"{options.get(field, field)} is {str(first['input'])[:80]}; "
            f"{problem[:1].lower()}{problem[1:]}."
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _explain(error: ValidationError, source: str) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{source}: field '{field}': {first['msg']}{more}."
