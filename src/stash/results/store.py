"""The store: a folder of profile documents. Writes are atomic and never replace a file unasked."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError
from stash.results.links import Links
from stash.results.profile import Profile

DEFAULT_FOLDER = Path("stash-profiles")


#: Links documents lie beside profiles and are told from them by their names.
LINKS_SUFFIX = ".links.json"


def file_name(document: Profile | Links) -> str:
    """A name that sorts by time and tells what was measured."""
    what = "links" if isinstance(document, Links) else document.workload.name
    workers = f"{document.machine.workers}x{document.machine.device}"
    words = [document.created.strftime("%Y%m%d-%H%M%S"), what, workers, document.id]
    name = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word)[:60] for word in words)
    return name + (LINKS_SUFFIX if isinstance(document, Links) else ".json")


def save(
    document: Profile | Links, folder: Path, *, name: str | None = None, force: bool = False
) -> Path:
    """Write a document so that a reader sees all of it or nothing."""
    target = folder / (name or file_name(document))
    try:
        write_whole(document.to_json(), target, force=force)
    except FileExistsError:
        raise will_not_overwrite(target) from None
    except OSError as error:
        raise StashError(
            f"Cannot write the profile to {folder}: {error.strerror or error}. "
            "Name a writable folder with --out."
        ) from None
    return target


@dataclass(frozen=True)
class Kept:
    """Where a document was written, and why it is not where it should be."""

    path: Path
    problem: str | None = None


def keep(document: Profile | Links, folder: Path, run_folder: Path) -> Kept:
    """In the folder; where that has become full or unwritable meanwhile, in the next best place.

    Where there is none, the error tells where the recording is, which then must stay.
    """
    try:
        return Kept(save(document, folder))
    except StashError as error:
        problem = error.message
    for place in _other_places(run_folder):
        with contextlib.suppress(StashError):
            path = save(document, place)
            return Kept(path, f"{problem} It was kept as {path}.")
    goes_on = (
        f"; `--resume {run_folder}` goes on with them" if isinstance(document, Profile) else ""
    )
    raise StashError(
        f"{problem} No other place took it either. Its rounds are recorded in "
        f"{run_folder}{goes_on}."
    )


def _other_places(run_folder: Path) -> list[Path]:
    """Beside the logs, or where another disk, or memory, may have room."""
    places = [run_folder, Path("/dev/shm")]
    with contextlib.suppress(OSError, RuntimeError):
        places[1:1] = [Path(tempfile.gettempdir()), Path.home()]
    return [place for place in places if place.is_dir()]


def will_not_overwrite(path: Path) -> StashError:
    """The error for a file that is there already."""
    return StashError(f"Will not overwrite {path} without --force.")


def write_whole(text: str, target: Path, *, force: bool) -> None:
    """Give a file its name only once all of it is on the disk; FileExistsError unless forced."""
    temporary = None
    try:
        if target.parent.exists() and not target.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent))
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".stash-", suffix=".tmp", dir=target.parent)
        os.chmod(temporary, 0o644)  # temporary files are private; a store is for colleagues, too
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if force:
            Path(temporary).replace(target)
            temporary = None
        else:
            _claim(Path(temporary), target)
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _claim(temporary: Path, target: Path) -> None:
    """Give a finished file its name, or fail where the name is taken."""
    try:
        os.link(temporary, target)  # unlike a rename, fails where the target exists
    except FileExistsError:
        raise
    except OSError:
        # Some network and FAT file systems have no hard links: reserve the name, then replace it.
        target.open("x").close()
        temporary.replace(target)


def ensure_writable(folder: Path) -> None:
    """Fail before measuring rather than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StashError(
            f"Cannot write profiles to {folder}: {error.strerror or error}. "
            "Name a writable folder with --out.",
            exit_code=2,
        ) from None


def entries(folder: Path) -> list[tuple[Path, Profile | StashError]]:
    """Every profile of a folder, oldest first; unreadable ones as their error."""
    if not folder.is_dir():
        return []
    found: list[tuple[Path, Profile | StashError]] = []
    for path in _profiles_in(folder):
        try:
            found.append((path, Profile.load(path)))
        except StashError as error:
            found.append((path, error))
    return found


def _profiles_in(folder: Path) -> list[Path]:
    """Files of profiles, oldest first."""
    found = folder.glob("*.json") if folder.is_dir() else ()
    return sorted((path for path in found if not is_links(path)), key=_age)


def is_links(path: Path) -> bool:
    """Whether a file is named as a links document."""
    return path.name.endswith(LINKS_SUFFIX)


def _age(path: Path) -> tuple[bool, str]:
    """Sorts by the time in the name; files that were renamed have none and count as older."""
    return re.match(r"\d{8}_\d{6}-", path.name) is not None, path.name


def _id_of(path: Path) -> str:
    """The id that ends the name of a document."""
    return path.name.removesuffix(LINKS_SUFFIX).removesuffix(".json").split("-")[-1]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have, or a folder that may not be read
        return False


def find(reference: str, folder: Path) -> Path:
    """A document by path, file name, or the beginning of its id; `last` is the newest profile."""
    direct = Path(reference)
    if _is_file(direct):
        return direct
    profiles = _profiles_in(folder)
    if reference == "last" and profiles:
        return profiles[-1]
    matches = [
        path
        for path in (*profiles, *folder.glob(f"*{LINKS_SUFFIX}"))
        if path.name == reference or (reference and _id_of(path).startswith(reference))
    ]
    if len(matches) == 1:
        return matches[0]
    problem = "matches several profiles" if matches else "is no profile"
    raise StashError(
        f"{reference!r} {problem} (looked for a file and in {folder}). "
        "`stash list` shows the profiles there are.",
        exit_code=2,
    )
