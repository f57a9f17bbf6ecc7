"""From profiles to the text of the page: collects what the report room says, and fills a template.

Everything shown is text from a document only after it has been made harmless, and the template
escapes it again; pictures are the only markup that is passed through.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from stash import __version__
from stash.advise.recommendation import Recommendation
from stash.report import facts, words
from stash.report.advice import Advice, advise
from stash.report.cards import Card, cards
from stash.report.characters import harmless
from stash.report.charts import pictures_of
from stash.report.charts.overview import overview_picture
from stash.report.charts.palette import COLOURS
from stash.report.charts.picture import NARROW, WIDE, Picture
from stash.report.charts.rent import rent_picture
from stash.report.export.tables import as_csv, block_times, number_rows
from stash.report.figures import price_figure, written
from stash.report.links import link_lines
from stash.report.method import how_it_was_measured
from stash.report.names import NAME_LIMIT, names_of
from stash.report.rent import rent_of
from stash.report.side_by_side import side_by_side
from stash.results.profile import Profile, Provenance
from stash.results.recording import Check
from stash.results.steps import STEP_BY_NAME

#: Profiles whose every chart is drawn; of more, the page would be long and slow.
MAX_WITH_CHARTS = 6
MESSAGE_LIMIT = 2000
#: Raw block times that a page carries along; more are for files.
MAX_BLOCK_TEXT = 2_000_000


@dataclass(frozen=True)
class Figure:
    """A picture for the page, at two widths."""

    name: str
    title: str
    words: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class Section:
    """Everything that the page says about one profile."""

    key: str  # unique on the page
    name: str
    provenance: str
    banner: str | None
    facts: Sequence[str]
    headline: Sequence[str]
    absent: Sequence[str]
    figures: dict[str, Figure]
    cards: Sequence[Card]
    nothing: Advice | None  # where there is nothing to advise
    steps: Sequence[tuple[str, str, str, int]]
    epochs: Sequence[str]
    rates: Sequence[tuple[str, str]]
    telemetry: Sequence[tuple[str, Sequence[str]]]
    links: Sequence[str]
    machine: Sequence[tuple[str, str]]
    checks: Sequence[Check]
    method: Sequence[str]
    failure: str
    numbers: str
    blocks: str
    document: str


def page_of(profiles: Sequence[Profile], advice: Recommendation | None = None) -> str:
    """The whole page of one or several profiles, of what to rent, or of both."""
    names = names_of(profiles)
    detailed = len(profiles) <= MAX_WITH_CHARTS
    sections = [
        _section(f"p{index}", name, profile, detailed=detailed)
        for index, (name, profile) in enumerate(zip(names, profiles, strict=True))
    ]
    compared, overview = None, None
    if len(profiles) > 1:
        compared = side_by_side(profiles, names)
        overview = overview_picture(profiles, names)
    rent = None if advice is None else rent_of(advice)
    front = None if advice is None else rent_picture(advice)
    script, style = _asset("page.js"), _asset("style.css")
    return (
        _template()
        .render(
            title=_title(names),
            sections=sections,
            compared=compared,
            overview=None if overview is None else _figure(overview),
            rent=rent,
            rent_figure=None if front is None else _figure(front),
            detailed=detailed,
            charts_limit=MAX_WITH_CHARTS,
            kinds=COLOURS,
            numbers="" if len(profiles) <= 1 else _table(_all_rows(profiles)),
            version=__version__,
            style=Markup(style + _colours()),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
        .lstrip()
    )


def _section(key: str, name: str, profile: Profile, *, detailed: bool) -> Section:
    measured = profile.provenance is Provenance.MEASURED
    advice = advise(profile)
    pictures = pictures_of(profile) if detailed else []
    return Section(
        key=key,
        name=name,
        provenance=profile.provenance.value,
        banner=None if measured else words.NOT_MEASURED[profile.provenance],
        facts=facts.what_was_measured(profile, _name, _name),
        headline=words.headline(profile),
        absent=words.absent(profile),
        figures={one.name: _figure(one) for one in pictures},
        cards=cards(profile),
        nothing=next((one for one in advice if one.stall is None), None),
        steps=list(_steps(profile)),
        epochs=facts.epoch_lines(profile),
        rates=facts.known_rates(profile.rates),
        telemetry=list(_telemetry(profile)),
        links=_links(profile),
        machine=list(_machine(profile)),
        checks=[_harmless_check(check) for check in profile.checks],
        method=how_it_was_measured(profile),
        failure=harmless(profile.run.message, limit=MESSAGE_LIMIT, keep_newlines=True),
        numbers=_table(number_rows(profile)) if detailed else "",
        blocks=_block_times(profile) if detailed else "",
        document=_without_blocks(profile) if detailed else "",
    )


def _figure(picture: Picture) -> Figure:
    return Figure(
        name=picture.name,
        title=picture.title,
        words=picture.words,
        wide=Markup(picture.inline(WIDE)),
        narrow=Markup(picture.inline(NARROW)),
    )


def _steps(profile: Profile) -> Iterable[tuple[str, str, str, int]]:
    unit, factor = facts.iteration_unit(profile)
    for name, step in facts.steps_in_order(profile):
        known = STEP_BY_NAME.get(name)
        yield (
            _name(name),
            known.meaning if known else "",
            written(step.seconds_per_iteration, unit, factor),
            step.rounds,
        )


def _telemetry(profile: Profile) -> Iterable[tuple[str, Sequence[str]]]:
    for name, seen in profile.telemetry.items():
        device = seen.device_busy_percent
        yield (
            _name(name),
            [
                f"{seen.cpu_percent:.0f} %",
                f"{seen.steal_percent:.1f} %",
                f"{seen.memory_used_bytes / 1e9:.1f} GB",
                f"{seen.disk_read_bytes_per_second / 1e6:.1f} MB/s",
                f"{seen.network_bytes_per_second / 1e6:.1f} MB/s",
                "-" if device is None else f"{device:.0f} %",
            ],
        )


def _links(profile: Profile) -> list[str]:
    """What was probed, or what a prediction takes them to be."""
    if profile.links is not None:
        return link_lines(profile.links)
    return facts.link_lines(profile, _name)


def _machine(profile: Profile) -> Iterable[tuple[str, str]]:
    machine, workload = profile.machine, profile.workload
    price = machine.price_usd_per_hour
    values = {
        "host": ", ".join(machine.hosts) or machine.host,
        "instance": machine.instance,
        "price": None if price is None else f"${price_figure(price)} per hour and node",
        "system": machine.system,
        "processor": machine.cpu,
        "cores": f"{machine.cores}, {machine.cores_per_worker:.3g} per worker",
        "memory": f"{machine.memory_bytes / 1e9:.1f} GB",
        "devices": ", ".join(machine.devices) or machine.device,
        "nodes": f"{machine.nodes}, {machine.workers_per_node} workers each",
        "threads per worker": str(machine.threads_per_worker),
        "workers pinned to cores": "yes" if machine.pinned else "no",
        "gradients travel on": machine.backend,
        "software": f"Python {machine.python}, torch {machine.torch}, stash {machine.stash}",
        "workload": f"{workload.name}, {workload.parameters} parameters, {workload.dtype}",
        "data": workload.data,
        "batch per worker": str(workload.batch_per_worker),
        "loader workers per worker": str(workload.loader_workers),
    }
    for label, value in values.items():
        if value:
            yield label, harmless(value, limit=4 * NAME_LIMIT)


def _harmless_check(check: Check) -> Check:
    return check.model_copy(
        update={
            "name": _name(check.name),
            "message": harmless(check.message, limit=MESSAGE_LIMIT),
            "next": harmless(check.next, limit=MESSAGE_LIMIT),
        }
    )


def _without_blocks(profile: Profile) -> str:
    """The document as it is, but for the raw blocks, which have a table of their own."""
    steps = {name: step.model_copy(update={"blocks": ()}) for name, step in profile.steps.items()}
    return harmless(profile.model_copy(update={"steps": steps}).to_json(), keep_newlines=True)


def _block_times(profile: Profile) -> str:
    text = harmless(block_times(profile), keep_newlines=True)
    return text if len(text) <= MAX_BLOCK_TEXT else ""


def _table(rows: Iterable[dict[str, object]]) -> str:
    return harmless(as_csv(rows), keep_newlines=True)


def _all_rows(profiles: Sequence[Profile]) -> Iterable[dict[str, object]]:
    for profile in profiles:
        yield from number_rows(profile)


def _title(names: Sequence[str]) -> str:
    if not names:
        return "what to rent"
    return names[0] if len(names) == 1 else f"{len(names)} profiles"


def _name(text: str) -> str:
    return harmless(text, limit=NAME_LIMIT)


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("template.html"))


def _asset(name: str) -> str:
    return (resources.files("stash.report.page") / name).read_text(encoding="utf-8")


def _colours() -> str:
    """The palette as variables of the page, for either theme."""
    light = "".join(f"--{role}:{colour.light};" for role, colour in COLOURS.items())
    dark = "".join(f"--{role}:{colour.dark};" for role, colour in COLOURS.items())
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light])"
        f"{{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
    )
