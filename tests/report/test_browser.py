"""The page in a real browser: drawn, readable at any width, by keyboard and by ear, and silent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import stash
from pages import hostile_profile
from profiles import HAND_WORKED, noisy, profile_of
from stash.advise.recommendation import Recommendation
from stash.report.page import page_of, save_page
from stash.report.rent import Limit, rent_of

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]' enables it")
Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: `make system` installs it")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (360, 768, 1440)
CHARTS = 6


class Visit:
    """A page in a browser, with everything that it asked for or complained about."""

    def __init__(self, context: sync_api.BrowserContext, address: str) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(address)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sync_api.BrowserContext]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"),
            executable_path=CHROMIUM,
            args=FLAGS,
            timeout=60_000,
        )
        browser.set_default_timeout(60_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of some reports, each written once."""
    folder = tmp_path_factory.mktemp("pages")
    priced = profile_of(
        noisy({**HAND_WORKED, "unsynced": 0.1}, rounds=30),
        machine_changes={"price_usd_per_hour": 24.48},
    )
    emulated = profile_of(noisy(HAND_WORKED, seed=3), machine_changes={"device": "emulated:v100"})
    reports = {
        "one": [priced],
        "several": [priced, emulated],
        "hostile": [hostile_profile()],
    }
    written = {name: page_of(profiles) for name, profiles in reports.items()}
    written["rent"] = page_of([priced], recommended())
    return {
        name: save_page(page, folder / f"{name}.html").as_uri() for name, page in written.items()
    }


def recommended(deadline: float | None = None, budget: float | None = None) -> Recommendation:
    return stash.recommend(
        "resnet50",
        samples=1_281_167,
        epochs=90,
        clouds=["aws", "gcp"],
        max_nodes=4,
        deadline_hours=deadline,
        budget_usd=budget,
    )


@pytest.fixture
def visit(
    context: sync_api.BrowserContext, pages: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Visit]:
    found = Visit(context, pages[getattr(request, "param", "one")])
    yield found
    assert found.requests == [found.page.url.partition("#")[0]], "the page asked for something"
    assert found.complaints == []
    found.page.close()


DRAWN = """figures => figures.map(figure => [...figure.querySelectorAll("svg")]
  .filter(svg => svg.checkVisibility())
  .map(svg => ({
    width: svg.getBoundingClientRect().width,
    height: svg.getBoundingClientRect().height,
    marks: svg.querySelectorAll("path, line, text").length,
    text: Math.min(...[...svg.querySelectorAll("text")]
      .map(text => text.getBoundingClientRect().height)),
  })))"""


@pytest.mark.parametrize("visit", ["rent", "several", "hostile"], indirect=True)
def test_charts_are_drawn_and_readable_at_every_width(visit: Visit) -> None:
    for width in WIDTHS:
        visit.page.set_viewport_size({"width": width, "height": 800})
        figures = visit.page.eval_on_selector_all("figure.chart", DRAWN)
        assert len(figures) >= 5
        for shown in figures:
            (chart,) = shown  # one of the two drawings, the one for this width
            assert 250 < chart["width"] <= width and chart["height"] > 40
            assert chart["marks"] > 8 and chart["text"] >= 10
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"the page is {wide} wide on a screen of {width}"


@pytest.mark.parametrize(
    ("visit", "scheme"),
    [("one", "light"), ("several", "dark"), ("rent", "light"), ("rent", "dark")],
    indirect=["visit"],
)
def test_nothing_stands_in_the_way_of_any_reader(visit: Visit, scheme: str) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.set_viewport_size({"width": 768, "height": 800})
    visit.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    found = Axe().run(visit.page, options={"resultTypes": ["violations"]}).response["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not grave, [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in grave]


def test_cards_open_and_close_by_keyboard(visit: Visit) -> None:
    card = visit.page.locator("details.card[data-stall=contention]")
    assert card.get_attribute("open") is None, "it is not significant, so nobody needs it open"
    card.locator("summary").focus()
    visit.page.keyboard.press("Enter")
    assert card.get_attribute("open") is not None
    assert card.locator(".remark").is_visible()
    visit.page.keyboard.press("Space")
    assert card.get_attribute("open") is None


def test_everything_is_reached_by_tab(visit: Visit) -> None:
    wanted = visit.page.locator("summary:visible, button:visible, a:visible").count()
    reached = set()
    for _ in range(wanted + 20):
        visit.page.keyboard.press("Tab")
        where = "e => e.tagName + '|' + (e.id || e.textContent.slice(0, 60))"
        reached.add(visit.page.evaluate(f"({where})(document.activeElement)"))
    assert sum(one.startswith("SUMMARY|") for one in reached) >= 8
    assert any(one.startswith("A|") for one in reached) and "BUTTON|theme" in reached


def test_the_theme_can_be_chosen(visit: Visit) -> None:
    visit.page.emulate_media(color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    before = visit.page.evaluate(colour)
    visit.page.locator("#theme").click()
    dark = visit.page.evaluate(colour)
    visit.page.locator("#theme").click()
    assert visit.page.evaluate(colour) == before != dark


def test_numbers_can_be_copied(visit: Visit) -> None:
    raw = visit.page.locator("details.raw").first
    raw.locator("summary").click()
    raw.locator("button").click()
    visit.page.wait_for_function(
        "document.querySelector('details.raw button').textContent.startsWith('Copied')"
    )
    assert visit.page.evaluate("getSelection().toString()").startswith("profile,created")


def test_the_page_can_be_printed(visit: Visit, tmp_path: Path) -> None:
    visit.page.evaluate(
        "addEventListener('beforeprint', () => window.printed = "
        "document.querySelectorAll('details.card:not([open])').length)"
    )
    document = visit.page.pdf()
    assert document.startswith(b"%PDF") and document.count(b"/Type /Page\n") >= 2
    assert visit.page.evaluate("window.printed") == 0, "what is closed would not be on paper"
    assert visit.page.locator("details.card:not([open])").count() > 0


def move(visit: Visit, limit: Limit, position: int) -> None:
    """By keyboard: to the first position, then step by step."""
    visit.page.locator(f"#rent-{limit.name}").focus()
    visit.page.keyboard.press("Home")
    for _ in range(position):
        visit.page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("visit", ["rent"], indirect=True)
def test_the_limits_that_a_reader_moves_choose_what_stash_recommend_would(visit: Visit) -> None:
    rent = rent_of(recommended())
    taken = set()
    last = (len(rent.deadline.values) - 1, len(rent.budget.values) - 1)
    for deadline, budget in ((last[0], 3), (4, last[1]), (2, 5), (last[0] - 1, 4), (0, 0), last):
        move(visit, rent.deadline, deadline)
        move(visit, rent.budget, budget)
        asked = rent_of(recommended(rent.deadline.values[deadline], rent.budget.values[budget]))
        told = visit.page.locator(".choice").inner_text()
        marked = visit.page.locator("tr.chosen th").all_inner_texts()
        drawn = visit.page.locator("svg:visible g.mark[visibility=visible]").count()
        if asked.choice is None:
            assert told.startswith("No way keeps these limits") and not marked and not drawn
            continue
        assert told == asked.choice.sentence
        assert len(marked) == drawn == 1 and marked[0].startswith(asked.choice.name)
        spoken = visit.page.locator("#rent-deadline").get_attribute("aria-valuetext")
        assert spoken == rent.deadline.labels[deadline]
        taken.add(told)
    assert len(taken) >= 4, "the sliders must change what is taken"


@pytest.mark.parametrize("visit", ["hostile"], indirect=True)
def test_markup_in_names_does_nothing(visit: Visit) -> None:
    visit.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    assert visit.page.evaluate("window.hacked") is None
    assert "</script><script>window.hacked=1" in visit.page.inner_text("main")
