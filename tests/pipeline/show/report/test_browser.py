"""report.html as a browser shows it, on a desk and on a telephone, and what its sliders say."""

import csv
import dataclasses
import io
import os
import shutil
from pathlib import Path

import pytest

from pipeline.goals.registry import goal_of
from pipeline.show.conclusion import WIDEST
from pipeline.study.context import Context
from pipeline.study.folder import Study
from pipeline.study.number_format import quantity
from tests.pipeline.show.report.page_scripts import FAINT, SET, TEXTS, marks_drawn, opened, touching
from tests.pipeline.show.report.report_study import HOSTILE_CORPUS, whole_page, whole_study

pytestmark = pytest.mark.browser
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
desk = pytest.mark.parametrize("shown", [1280], indirect=True)


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
def whole(tmp_path_factory):
    return whole_study(tmp_path_factory.getbasetemp() / "report")


@pytest.fixture(scope="module")
def path(whole):
    return whole_page(whole[0].folder.parent)


@pytest.fixture(scope="module", params=[1280, 390])
def shown(request, browser, path):
    """The page at one width, and what it said and asked for while it loaded."""
    with opened(browser, path, request.param) as page_and_logs:
        yield page_and_logs


@desk
def test_sliders_write_counts_as_the_tables_do(shown):
    counts = [0, 12, 999.4, 999.6, 1000, 999_499, 999_936, 1_536_000, 7e9, 999_999_999_999]
    assert shown[0].evaluate("counts => counts.map(quantity)", counts) == [*map(quantity, counts)]


def test_every_figure_is_drawn(shown):
    page, _, _ = shown
    drawn = marks_drawn(page)
    # Those of the sliders, and those of test_report.py.
    assert len(drawn) == 3 + 22
    assert min(drawn) >= 3
    assert page.evaluate("document.querySelectorAll('.map .contourlayer path').length") >= 3


def test_nothing_is_complained_of_and_nothing_fetched(shown):
    page, said, asked = shown
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert len([url for url in asked if url.startswith("file://")]) == 1
    assert page.title().startswith("<b>study")


def test_no_text_lies_on_another(shown):
    page, _, _ = shown
    assert sum(len(group) for group in page.evaluate(TEXTS)) > 300
    assert touching(page) == []


def test_the_page_is_as_wide_as_the_screen(shown):
    page, _, _ = shown
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = [text for group in page.evaluate(TEXTS) for text in group]
    assert [text["words"][:40] for text in texts if text["left"] < -1 or text["right"] > width + 1] == []


@desk
def test_the_sliders_say_what_recommend_says(shown, whole, tmp_path):
    page, said, _ = shown
    study, question = whole
    copy = Study(tmp_path / "copy")
    shutil.copytree(study.folder, copy.folder)
    places = page.evaluate("Object.fromEntries(Object.keys(sliders).map(name => [name, study[name].length]))")
    models, open_places = page.evaluate("study.sizes.map(size => size.model)"), []
    for asked in (
        {},
        {"tolerances": 16, "lengths": 3},
        {"sizes": models.index("qwen2-0.15m"), "lengths": places["lengths"] - 1},
        {"tolerances": places["tolerances"] - 1, "sizes": 0, "lengths": 0},
        {"tolerances": 0, "sizes": places["sizes"] - 1},
    ):
        there = page.evaluate(SET, asked)
        changed = dataclasses.replace(
            question,
            model=dataclasses.replace(question.model, name=there["model"]),
            goal=dataclasses.replace(question.goal, tolerance=there["tolerance"]),
            target=dataclasses.replace(question.target, steps=there["steps"]),
        )
        answer = goal_of(changed).recommend(Context(changed, copy), list)
        if answer.mixture is None:
            assert there["ratios"] == [None] * 3
            assert f"No domain ratio of {HOSTILE_CORPUS} for" in there["words"]
            continue
        ratio, low, high = answer.mixture[HOSTILE_CORPUS], answer.low, answer.high
        assert there["ratios"] == [round(1000 * ratio), round(1000 * low), round(1000 * high)]
        for role, corpus in (("general", "general"), ("domain", HOSTILE_CORPUS)):
            losses = [round(loss, 4) for loss in vars(answer.predicted[corpus]).values()]
            assert there[role] == losses
            assert "{:.4f} on {} ({:.4f} to {:.4f})".format(losses[0], corpus, *losses[1:]) in there["words"]
        assert f"{ratio:.1%} {HOSTILE_CORPUS} (90% interval {low:.1%} to {high:.1%})" in there["words"]
        open_places.append(high - low > WIDEST or bool(goal_of(changed).too_wide(changed, answer)))
        assert ("is not known" in there["words"]) == open_places[-1]
    assert {*open_places} == {True, False}
    assert said == []


@desk
def test_sliders_move_by_keyboard_and_come_back(shown):
    page, _, _ = shown
    page.get_by_role("button", name="Back to the question of the study").click()
    own = page.locator("#explored").text_content()
    slider = page.get_by_label("Tolerance: the allowed loss increase on general")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("own => document.getElementById('explored').textContent !== own", arg=own)
    assert slider.get_attribute("aria-valuetext") == "+3.5%"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.get_by_role("button", name="Back to").press("Enter")
    assert page.locator("#explored").text_content() == own
    assert page.evaluate("sliders.tolerances.value == study.start.tolerances")


@desk
def test_a_table_is_downloaded_as_csv(shown):
    page, said, _ = shown
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download CSV of The answer").click()
    assert waited.value.suggested_filename == "b-study-co-the-answer-qwen2-0-7m.csv"
    rows = list(csv.reader(io.StringIO(Path(waited.value.path()).read_text("utf-8-sig"))))
    table = page.locator("header table").evaluate("t => [...t.rows].map(r => [...r.cells].map(c => c.textContent))")
    assert rows == table
    assert rows[2][0] == HOSTILE_CORPUS
    risky = page.evaluate(
        """() => {
          const table = document.createElement("table");
          for (const words of ["=1+1", "+1.06%", "-x", "@a", 'a "b", c'])
            table.insertRow().insertCell().textContent = words;
          return csv(table);
        }"""
    )
    assert risky.split("\r\n") == ["'=1+1", "+1.06%", "'-x", "'@a", '"a ""b"", c"', ""]
    assert said == []


@pytest.mark.slow
@desk
def test_all_can_be_read_in_light_and_in_dark(shown):
    page, said, _ = shown
    button = page.get_by_role("button", name="Dark colours")
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}

    def seen() -> tuple[str, str | None]:
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), button.get_attribute("aria-pressed")

    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours)
        assert seen() == (paper[colours], str(colours == "dark").lower())
        assert page.evaluate(FAINT) == []
    button.click()
    assert seen() == (paper["light"], "false")
    # What was chosen holds against what the system prefers, and for the next page.
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert seen() == (paper["light"], "false")
    assert page.evaluate("localStorage.getItem('cptlaw-colours')") == "light"
    assert said == []
