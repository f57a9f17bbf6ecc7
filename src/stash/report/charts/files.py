"""All charts of some profiles as files, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import vl_convert

from stash.advise.recommendation import Recommendation
from stash.errors import StashError
from stash.report.charts import pictures_of
from stash.report.charts.overview import overview_picture
from stash.report.charts.picture import Picture
from stash.report.charts.rent import rent_picture
from stash.report.names import names_of
from stash.results.profile import Profile


def save_figures(
    profiles: Sequence[Profile], advice: Recommendation | None, folder: Path
) -> list[Path]:
    """Every chart in every format; of several profiles each in a folder of its own."""
    rent = None if advice is None else rent_picture(advice)
    written = [] if rent is None else save_picture(rent, folder)
    return written + _figures_of(profiles, folder)


def _figures_of(profiles: Sequence[Profile], folder: Path) -> list[Path]:
    if len(profiles) == 1:
        return [path for one in pictures_of(profiles[0]) for path in save_picture(one, folder)]
    names = names_of(profiles)
    overview = overview_picture(profiles, names)
    written = [] if overview is None else save_picture(overview, folder)
    for name, profile in zip(names, profiles, strict=True):
        own = folder / name.split(" ")[0]
        written += [path for one in pictures_of(profile) for path in save_picture(one, own)]
    return written


def save_picture(picture: Picture, folder: Path) -> list[Path]:
    """One chart in every format, with its title."""
    svg = picture.alone()
    drawn = {
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(svg, scale=2),
        "pdf": vl_convert.svg_to_pdf(svg),
    }
    return [_write(folder / f"{picture.name}.{kind}", drawn[kind]) for kind in drawn]


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise StashError(
            f"Cannot write {path}: {error.strerror or error}. Name a writable folder.", exit_code=2
        ) from None
    return path
