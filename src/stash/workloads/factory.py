"""Turns ``path/file.py:factory`` into a Workload, and the user's mistakes into clear errors.

Changes when there is a new way for users to hand over a workload.
"""

import difflib
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType

from stash.errors import StashError, UsageError
from stash.workloads.workload import Workload

# A user's file may end the process at import, as a script with argparse does.
_USER_ERRORS = (Exception, SystemExit)


def load_factory(spec: str) -> Callable[..., object]:
    """Import the function that ``path/file.py:factory`` names."""
    path_text, _, name = spec.rpartition(":")
    if not path_text or not name:
        raise UsageError(
            f"'{spec}' does not name a factory; write path/file.py:function, "
            "where the function returns a stash.Workload."
        )
    path = Path(path_text)
    if not path.is_file():
        raise UsageError(f"There is no file {path} (from '{spec}'); check the path before the ':'.")
    return _callable_in(_import_file(path.resolve()), name, path)


def call_factory(factory: Callable[..., object], **options: object) -> Workload:
    """Build the workload, passing those options that are not None and that the factory takes."""
    where = _where(factory)
    accepted = _accepted(factory, options, where)
    try:
        made = factory(**accepted)
    except _USER_ERRORS as error:
        raise _users_error(error, _source_file(factory), f"running {where}") from error
    return _as_workload(made, where)


def _import_file(path: Path) -> ModuleType:
    # The names by which Python itself would know a script and what lies beside it, so that
    # loader processes can find the user's classes again.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(path.stem)
    if known is not None and _file_of(known) == path:
        return known
    name = path.stem if known is None else f"stash_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except _USER_ERRORS as error:
        del sys.modules[name]
        raise _users_error(error, str(path), f"importing {path.name}") from error
    return module


def _callable_in(module: ModuleType, name: str, path: Path) -> Callable[..., object]:
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    if found is not None:
        raise UsageError(
            f"'{name}' in {path} is a {type(found).__name__}, not a function; "
            "name a function that returns a stash.Workload."
        )
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    nearest = difflib.get_close_matches(name, own) or sorted(own)
    hint = f"did you mean {', '.join(nearest[:5])}?" if nearest else "it defines no function."
    raise UsageError(f"There is no '{name}' in {path}; {hint}")


def _accepted(
    factory: Callable[..., object], options: Mapping[str, object], where: str
) -> dict[str, object]:
    parameters = inspect.signature(factory).parameters.values()
    given = {name: value for name, value in options.items() if value is not None}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        taken = {parameter.name for parameter in parameters if parameter.kind in keywords}
        for name in sorted(given.keys() - taken):
            warnings.warn(
                f"{where} takes no '{name}', so the value given is not used; "
                f"add a parameter '{name}' to the function to use it.",
                stacklevel=3,
            )
            del given[name]
    _refuse_missing_arguments(parameters, given, options, where)
    return given


def _refuse_missing_arguments(
    parameters: Iterable[inspect.Parameter],
    given: Mapping[str, object],
    options: Mapping[str, object],
    where: str,
) -> None:
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in variable
        and parameter.name not in given
    ]
    if missing:
        able = ", ".join(sorted(options)) or "no options"
        raise UsageError(
            f"{where} needs {', '.join(missing)}, which was not given; Stash can pass {able}. "
            "Give the option, or give the parameter a default value."
        )


def _as_workload(made: object, where: str) -> Workload:
    if isinstance(made, Workload):
        return made
    values: dict[str, object] = {}
    for field in fields(Workload):
        if isinstance(made, Mapping):
            value = made.get(field.name, MISSING)
        else:
            value = getattr(made, field.name, MISSING)
        if value is not MISSING:
            values[field.name] = value
        elif field.default is MISSING:
            raise UsageError(
                f"{where} returned a {type(made).__name__} without '{field.name}'; "
                "return a stash.Workload, or a mapping or object with the same fields."
            )
    try:
        return Workload(**values)  # type: ignore[arg-type]
    except StashError as error:
        raise UsageError(f"{where}: {error.message}") from error


def _users_error(error: BaseException, file: str | None, doing: str) -> StashError:
    message = error.message if isinstance(error, StashError) else _one_line(error)
    place, line = _users_line(error, file)
    quoted = f"\n    {line}" if line else ""
    return UsageError(f"{place}: {message}{quoted}\nThis happened while {doing}; fix it there.")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _users_line(error: BaseException, file: str | None) -> tuple[str, str]:
    """Where in the user's file it went wrong, and what is written there."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}", (error.text or "").strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if file and Path(frame.filename) == Path(file)]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}", (frame.line or "").strip()


def _where(factory: Callable[..., object]) -> str:
    name = getattr(factory, "__name__", type(factory).__name__)
    file = _source_file(factory)
    return f"{name}() in {file}" if file else f"{name}()"


def _source_file(factory: Callable[..., object]) -> str | None:
    try:
        return inspect.getsourcefile(inspect.unwrap(factory))
    except TypeError:
        return None


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None
