"""The command `stash`: registers one module per command, turns each failure into one message."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from stash.cli import catalog as catalog_command
from stash.cli import characterize as characterize_command
from stash.cli import compare as compare_command
from stash.cli import doctor as doctor_command
from stash.cli import export as export_command
from stash.cli import lab as lab_command
from stash.cli import launch as launch_command
from stash.cli import links as links_command
from stash.cli import list as list_command
from stash.cli import predict as predict_command
from stash.cli import profile as profile_command
from stash.cli import recommend as recommend_command
from stash.cli import report as report_command
from stash.cli import share as share_command
from stash.cli import show as show_command
from stash.cli import whatif as whatif_command
from stash.cli.output import print_error
from stash.errors import StashError

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 3
#: What the command line library makes of Ctrl-C.
SHELL_INTERRUPTED = 130

app = typer.Typer(
    name="stash",
    help="Where does training time (and money) go while the accelerators wait?",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("profile")(profile_command.profile)
app.command("show")(show_command.show)
app.command("report")(report_command.report)
app.command("export")(export_command.export)
app.command("list")(list_command.list_profiles)
app.command("doctor")(doctor_command.doctor)
app.command("links")(links_command.links)
app.command("predict")(predict_command.predict)
app.command("compare")(compare_command.compare)
app.command("whatif")(whatif_command.whatif)
app.command("share")(share_command.share)
app.command("recommend")(recommend_command.recommend)
app.add_typer(characterize_command.app, name="characterize")
app.add_typer(catalog_command.app, name="catalog")
app.add_typer(launch_command.app, name="launch")
app.add_typer(lab_command.app, name="lab")


def _print_version(wanted: bool) -> None:
    if wanted:
        from stash import __version__

        print(f"stash {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Where does training time (and money) go while the accelerators wait?"""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")  # empty where the library has printed it already
        raise typer.Exit(WRONG_USAGE)


def run() -> NoReturn:
    """`stash`, as a program of its own."""
    codes: list[int] = []
    atexit.register(_end_at_once, codes)  # first, so it comes after what libraries want at the end
    codes.append(main())
    sys.exit(codes[0])


def _end_at_once(codes: Sequence[int]) -> None:
    """Without Python's own end, which takes all apart that torch has made: up to a second."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return  # whoever read it is gone; Python's own end has a code for that
    if codes:
        os._exit(codes[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no traceback reaches a user unasked."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    debug, as_json = "--debug" in own, "--json" in own
    if debug:
        # Accepted before and after the command's name, like `--json`; after `--` it is a script's.
        given.remove("--debug")
    try:
        return _exit_code(app(given, prog_name="stash", standalone_mode=False))
    except KeyboardInterrupt:
        return _interrupted(as_json)
    except Exception as error:
        if debug:
            traceback.print_exc()
        message, exit_code = _explain(error)
        print_error(message, exit_code, as_json=as_json)
        return exit_code


def _exit_code(result: object) -> int:
    if result == SHELL_INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _interrupted(as_json: bool) -> int:
    print_error("Interrupted.", INTERRUPTED, as_json=as_json)
    return INTERRUPTED


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, StashError):
        return error.message, error.exit_code
    if isinstance(error, typer.Abort):
        return "Interrupted.", INTERRUPTED
    wrong_usage = getattr(error, "format_message", None)
    if wrong_usage is not None:
        return f"{wrong_usage()} `{_command_path(error)} --help` tells more.", WRONG_USAGE
    first_line = next(iter(str(error).splitlines()), "")
    return (
        f"Unexpected {type(error).__name__}: {first_line} (`stash --debug ...` shows the "
        "traceback; please report it as a bug)",
        FAILED,
    )


def _command_path(error: Exception) -> str:
    path = getattr(getattr(error, "ctx", None), "command_path", None)
    return path if isinstance(path, str) else "stash"
