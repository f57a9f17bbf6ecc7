"""All charts of some profiles as files, for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from stash.results.store import will_not_overwrite


def save_figures(
    profiles: Sequence[Profile], advice: Recommendation | None, folder: Path, *, force: bool
) -> list[Path]:
    """Every chart in every format; of several profiles each in a folder of its own."""
    drawn = list(_pictures(profiles, folder))
    if advice is not None and (rent := rent_picture(advice)) is not None:
        drawn.insert(0, (rent, folder))
    return [path for one, own in drawn for path in save_picture(one, own, force=force)]


def _pictures(profiles: Sequence[Profile], folder: Path) -> Iterator[tuple[Picture, Path]]:
    if len(profiles) == 1:
        yield from ((one, folder) for one in pictures_of(profiles[0]))
        return
    names = names_of(profiles)
    overview = overview_picture(profiles, names)
    if overview is not None:
        yield overview, folder
    for name, profile in zip(names, profiles, strict=True):
        yield from ((one, folder / name.split(" ")[0]) for one in pictures_of(profile))


def save_picture(picture: Picture, folder: Path, *, force: bool) -> list[Path]:
    """One chart in every format, with its title."""
    paths = {kind: folder / f"{picture.name}.{kind}" for kind in ("svg", "png", "pdf")}
    for path in paths.values():
        if path.exists() and not force:
            raise will_not_overwrite(path)
    svg = picture.alone()
    drawn = {
        "svg": svg.encode(),
        "png": vl_convert.svg_to_png(svg, scale=2),
        "pdf": vl_convert.svg_to_pdf(svg),
    }
    return [_write(path, drawn[kind]) for kind, path in paths.items()]


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise StashError(
            f"Cannot write {path}: {error.strerror or error}. Name a writable folder.", exit_code=2
        ) from None
    return path
