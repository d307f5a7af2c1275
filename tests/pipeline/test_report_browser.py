"""report.html as a browser shows it, on a desk and on a telephone."""

import os
from pathlib import Path

import pytest

from pipeline.report import write_report
from tests.pipeline.report_study import whole_study

pytestmark = pytest.mark.browser
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
TEXTS = """() => {
  const box = (element, of) => {
    const {left, right, top, bottom} = element.getBoundingClientRect();
    return {words: element.textContent, of, left, right, top: top + scrollY, bottom: bottom + scrollY};
  };
  const groups = [];
  document.querySelectorAll(".panel").forEach((panel, at) => groups.push([...panel.querySelectorAll(
    "h4, .xtick text, .ytick text, .xtitle, .ytitle, .annotation-text")].map(e => box(e, "panel " + at))));
  document.querySelectorAll("figure").forEach((figure, at) => groups.push([...figure.querySelectorAll(
    "figcaption, .key li, h3, .panel")].map(e => box(e, "figure " + at))));
  groups.push([...document.querySelectorAll("h1, .mixture, #answer, .card, header .scroll, nav a, section")]
    .map(e => box(e, "page")));
  return groups;
}"""


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        why = f"{CHROMIUM} is missing; apt-get install chromium"
        if os.environ.get("CI_REQUIRE_BROWSER") == "1":
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_report(*whole_study(tmp_path_factory.getbasetemp() / "report"))


@pytest.fixture(scope="module", params=[1280, 390])
def shown(request, browser, path):
    """The page at one width, and what it said and asked for while it loaded."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
    page.on("request", lambda wanted: asked.append(wanted.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]", timeout=30_000)
    yield page, said, asked
    page.close()


def test_every_figure_is_drawn(shown):
    page, _, _ = shown
    drawn = page.evaluate(
        """() => [...document.querySelectorAll(".plot")].map(plot =>
           plot.querySelectorAll(".main-svg .scatterlayer .trace path").length)"""
    )
    assert len(drawn) == 21
    assert min(drawn) >= 3


def test_nothing_is_complained_of_and_nothing_fetched(shown):
    page, said, asked = shown
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert len([url for url in asked if url.startswith("file://")]) == 1
    assert page.title().startswith("<b>study")


def test_no_text_lies_on_another(shown):
    page, _, _ = shown
    groups = page.evaluate(TEXTS)
    assert sum(len(group) for group in groups) > 300
    touching = [
        f"{first['of']}: {first['words'][:40]!r} on {second['words'][:40]!r}"
        for group in groups
        for at, first in enumerate(group)
        for second in group[at + 1 :]
        if min(first["right"], second["right"]) - max(first["left"], second["left"]) > 1
        and min(first["bottom"], second["bottom"]) - max(first["top"], second["top"]) > 1
    ]
    assert touching == []


def test_the_page_is_as_wide_as_the_screen(shown):
    page, _, _ = shown
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = [
        text["words"][:40]
        for group in page.evaluate(TEXTS)
        for text in group
        if text["left"] < -1 or text["right"] > width + 1
    ]
    assert outside == []
