"""`stash show`, `stash list` and the frame around all commands, through the real entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import stash.cli.main as frame
from profiles import profile_of
from stash.cli.main import main
from stash.errors import StashError
from stash.results import store
from stash.results.profile import Profile

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of()


@pytest.fixture
def folder(profile: Profile, tmp_path: Path) -> Path:
    store.save(profile, tmp_path)
    return tmp_path


def test_show_prints_the_last_profile(folder: Path, capsys: Captured) -> None:
    assert main(["show", "--folder", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "Your 2 workers wait" in output and "3f2a9c01" in output


@pytest.mark.parametrize("reference", ["last", "3f2a", "3f2a9c01"])
def test_show_finds_a_profile_by_what_people_call_it(
    folder: Path, capsys: Captured, reference: str
) -> None:
    assert main(["show", reference, "--folder", str(folder)]) == 0
    assert "3f2a9c01" in capsys.readouterr().out


def test_show_takes_a_path(folder: Path, capsys: Captured) -> None:
    path = next(folder.glob("*.json"))
    assert main(["show", str(path)]) == 0
    assert "resnet18" in capsys.readouterr().out


def test_show_json_is_the_document_itself(folder: Path, profile: Profile, capsys: Captured) -> None:
    assert main(["show", "--json", "--folder", str(folder)]) == 0
    assert capsys.readouterr().out == profile.to_json() + "\n"


def test_show_sample_needs_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["show", "--sample"]) == 0
    assert "wait" in capsys.readouterr().out


def test_an_empty_store_says_what_to_run(tmp_path: Path, capsys: Captured) -> None:
    assert main(["show", "--folder", str(tmp_path)]) == 2
    assert "stash profile" in capsys.readouterr().err
    assert main(["list", "--folder", str(tmp_path)]) == 0
    assert "stash profile" in capsys.readouterr().out
    assert main(["list", "--json", "--folder", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_profile_that_is_not_there_is_wrong_usage(folder: Path, capsys: Captured) -> None:
    assert main(["show", "zzz", "--folder", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("stash: 'zzz' is no profile")
    assert captured.out == ""


def test_errors_are_json_where_json_was_asked_for(folder: Path, capsys: Captured) -> None:
    assert main(["show", "zzz", "--json", "--folder", str(folder)]) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert set(document) == {"error", "exit_code"}
    assert document["exit_code"] == 2 and "zzz" in document["error"]
    assert captured.err == ""


def test_a_damaged_profile_names_its_field_and_never_a_traceback(
    folder: Path, capsys: Captured
) -> None:
    path = next(folder.glob("*.json"))
    document = json.loads(path.read_text())
    document["machine"]["cores"] = "\x1b[31mmany"
    document["\x1b[2J"] = 1
    path.write_text(json.dumps(document))
    assert main(["show", str(path)]) == 1
    error = capsys.readouterr().err
    assert "field 'machine.cores'" in error
    assert "\x1b" not in error and "Traceback" not in error


def test_list_shows_every_profile_and_every_file_that_is_none(
    folder: Path, capsys: Captured
) -> None:
    (folder / "torn.json").write_text('{"schema"')
    assert main(["list", "--folder", str(folder)]) == 0
    output = capsys.readouterr().out
    words = " ".join(output.split())
    for cell in ("resnet18", "2 x cuda", "prep", "measured", "3f2a9c01", "2025-03-04"):
        assert cell in words
    assert "unreadable: torn.json" in words
    assert max(map(len, output.splitlines())) <= 80


def test_list_json_has_numbers_and_errors(folder: Path, profile: Profile, capsys: Captured) -> None:
    (folder / "torn.json").write_text('{"schema"')
    assert main(["list", "--json", "--folder", str(folder)]) == 0
    torn, good = json.loads(capsys.readouterr().out)
    assert "not a complete JSON document" in torn["error"]
    assert profile.waiting.later is not None
    assert good["waiting_share"] == profile.waiting.later.estimate
    assert good["largest_stall"] == "prep" and good["workers"] == 2


@pytest.mark.parametrize(
    "arguments", [["show", "--nonsense"], ["nonsense"], ["list", "extra"], ["show", "a", "b"]]
)
def test_wrong_usage_is_exit_code_2_with_where_to_look(
    arguments: list[str], capsys: Captured
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("stash: ") and "--help` tells more" in error
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_no_command_at_all_shows_the_help(capsys: Captured) -> None:
    assert main([]) == 2
    output = capsys.readouterr().out
    assert "show" in output and "list" in output


def test_the_version_is_shown(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stash ")


@pytest.fixture
def with_command(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The real frame around a command that fails as told."""
    trial = typer.Typer(pretty_exceptions_enable=False)

    @trial.command("fail")
    def fail(how: str) -> None:
        errors: dict[str, BaseException] = {
            "stash": StashError("It failed. Do this next.", exit_code=1),
            "interrupt": KeyboardInterrupt(),
            "abort": typer.Abort(),
            "exit": typer.Exit(3),
            "bug": ZeroDivisionError("first line\nsecond line"),
        }
        raise errors[how]

    @trial.command("fine")
    def fine() -> None:
        """Typer makes a group of two commands, as the real one is."""

    monkeypatch.setattr(frame, "app", trial)
    return trial


@pytest.mark.parametrize(
    ("how", "exit_code", "message"),
    [
        ("stash", 1, "stash: It failed. Do this next.\n"),
        ("interrupt", 3, "stash: Interrupted.\n"),
        ("abort", 3, "stash: Interrupted.\n"),
        ("exit", 3, ""),
        ("bug", 1, "stash: Unexpected ZeroDivisionError: first line (`stash --debug ...` "),
    ],
)
@pytest.mark.usefixtures("with_command")
def test_every_failure_is_one_message_and_its_exit_code(
    how: str, exit_code: int, message: str, capsys: Captured
) -> None:
    assert main(["fail", how]) == exit_code
    error = capsys.readouterr().err
    assert error.startswith(message) and "Traceback" not in error
    assert len(error.splitlines()) <= 1


@pytest.mark.parametrize("arguments", [["--debug", "fail", "bug"], ["fail", "bug", "--debug"]])
@pytest.mark.usefixtures("with_command")
def test_debug_shows_the_traceback_wherever_it_stands(
    arguments: list[str], capsys: Captured
) -> None:
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.usefixtures("with_command")
def test_debug_behind_the_separator_belongs_to_the_script(capsys: Captured) -> None:
    assert main(["fail", "--", "stash", "--debug"]) == 2  # one argument too many for this command
    assert "Traceback" not in capsys.readouterr().err


def test_output_for_a_stream_without_unicode_is_ascii(tmp_path: Path, profile: Profile) -> None:
    workload = profile.workload.model_copy(update={"name": "модель"})
    store.save(profile.model_copy(update={"workload": workload}), tmp_path)
    for command in (["show"], ["show", "--json"], ["list"], ["list", "--json"]):
        run = subprocess.run(
            [sys.executable, "-c", RUN_MAIN, *command, "--folder", str(tmp_path)],
            env=environment(PYTHONIOENCODING="ascii"),
            capture_output=True,
            check=True,
        )
        assert run.stdout.isascii() and rb"\u043c" in run.stdout


RUN_MAIN = "import sys; from stash.cli.main import main; sys.exit(main())"
HEAVY = ("torch", "numpy", "scipy", "pydantic")


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **changes}


def test_help_imports_nothing_heavy_and_is_quick() -> None:
    program = (
        "import sys, time; from stash.cli.main import main; main(['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], time.process_time())"
    )
    used = []
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment(), capture_output=True, check=True
        )
        modules, seconds = run.stdout.decode().splitlines()[-1].rsplit(" ", 1)
        assert modules == "[]"
        used.append(float(seconds))
    assert min(used) < 0.5
