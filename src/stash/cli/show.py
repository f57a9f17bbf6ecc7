"""`stash show`: one profile as a terminal report or as its document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.results.links import Links
    from stash.results.profile import Profile


def show(
    profile: Annotated[
        str, typer.Argument(help="A file, the name of one, the start of an id, or `last`.")
    ] = "last",
    sample: Annotated[
        bool, typer.Option("--sample", help="Show a profile that comes with Stash.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document itself.")] = False,
) -> None:
    """Show where the time goes in one profile."""
    from stash.cli.output import print_document, report_console

    if (links := _links(profile, folder)) is not None:
        from stash.report.links import print_links

        print_document(links) if as_json else print_links(links, report_console())
        return
    (found,) = load_profiles([profile], folder, sample=sample)
    if as_json:
        print_document(found)
        return
    from stash.report.terminal import print_profile

    print_profile(found, report_console())


def _links(reference: str, folder: Path | None) -> Links | None:
    """The links document of this name, where it is one and no profile."""
    from stash.results import store
    from stash.results.links import Links

    if reference == "last":
        return None
    path = store.find(reference, folder or store.DEFAULT_FOLDER)
    return Links.load(path) if store.is_links(path) else None


def load_profiles(
    references: Sequence[str] | None, folder: Path | None, *, sample: bool = False
) -> list[Profile]:
    """Profiles by what people call them; the sample, or the last one where none is named."""
    if sample:
        return [load_sample()]
    return [_load(reference, folder) for reference in references or ["last"]]


def load_sample() -> Profile:
    """The profile that comes with Stash, recorded on a real machine."""
    from importlib import resources

    from stash.errors import StashError
    from stash.results.profile import Profile

    source = resources.files("stash.results") / "samples" / "sample.json"
    try:
        text = source.read_bytes()
    except OSError:
        raise StashError(
            "The sample profile is missing from this installation. Install Stash again."
        ) from None
    return Profile.from_json(text, source="the sample profile")


def _load(reference: str, folder: Path | None) -> Profile:
    from stash.cli.output import NOTHING_MEASURED
    from stash.errors import UsageError
    from stash.results import store
    from stash.results.profile import Profile

    where = folder or store.DEFAULT_FOLDER
    if reference == "last" and not any(where.glob("*.json")):
        raise UsageError(NOTHING_MEASURED.format(folder=where))
    return Profile.load(store.find(reference, where))
