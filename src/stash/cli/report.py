"""`stash report`: profiles as one HTML page, and its charts as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.advise.recommendation import Recommendation
    from stash.results.profile import Profile

MISSING = (
    "The report needs packages that are not installed ({name}). "
    "Install them with `pip install '.[report]'` in the folder of Stash."
)


def report(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(help="Files, names, starts of ids, or `last` (the default)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page (default: report.html).")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write every chart as SVG, PNG and PDF to this folder.")
    ] = None,
    advice: Annotated[
        Path | None,
        typer.Option(help="Also show what to rent: a file of `stash recommend --out`."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Report on a profile that comes with Stash.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where profiles are kept (default: stash-profiles).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Write one self-contained page that shows where the time goes; open it in any browser."""
    from stash.cli.output import print_json
    from stash.cli.show import load_profiles
    from stash.report.characters import harmless

    rent = _load_advice(advice)
    found: Sequence[Profile] = []
    if profiles or sample or rent is None:
        found = load_profiles(profiles, folder, sample=sample)
    written = _write(found, rent, output, figures, force=force)
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        print(f"Written to {harmless(str(path))}")


def _load_advice(path: Path | None) -> Recommendation | None:
    if path is None:
        return None
    from stash.advise.recommendation import Recommendation

    return Recommendation.load(path)


def _write(
    profiles: Sequence[Profile],
    advice: Recommendation | None,
    output: Path | None,
    figures: Path | None,
    *,
    force: bool,
) -> list[Path]:
    """The page where one is asked for or nothing else is, and the charts where asked for."""
    from stash.errors import StashError

    written = []
    try:
        if output is not None or figures is None:
            from stash.report.page import page_of, save_page

            target = output or Path("report.html")
            written.append(save_page(page_of(profiles, advice), target, force=force))
        if figures is not None:
            from stash.report.charts.files import save_figures

            written += save_figures(profiles, advice, figures, force=force)
    except ModuleNotFoundError as error:
        raise StashError(MISSING.format(name=error.name)) from None
    return written
