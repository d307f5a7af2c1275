"""The page of a study of several domains, which leads to each domain's own."""

import dataclasses
import shutil
from pathlib import Path
from urllib.parse import unquote

import plotly.graph_objects
import pytest

from pipeline.goals.ratio.answering_laws import ONE_RATIO
from pipeline.show.report.pages import write_pages
from pipeline.study.artifacts import Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import Study
from tests.pipeline.show.report.report_study import HOSTILE_CORPUS, Page, whole_study


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A study of two domains, of which the second has no answer; its pages are written."""
    one, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    folder = tmp_path_factory.mktemp("domains") / "two"
    own = Study(folder, f"answers/{HOSTILE_CORPUS}")
    (folder / own.answer("")).mkdir(parents=True)
    for name in ("plan.jsonl", "points.parquet"):
        shutil.copy(one.folder / name, folder / name)
    for name in ("recommendation.json", "confirmation.json"):
        shutil.copy(one.folder / name, folder / own.answer(name))
    corpora = dataclasses.replace(question.corpora, domains=[HOSTILE_CORPUS, "law"])
    (folder / "tables.html").write_text("here")
    made = Context(dataclasses.replace(question, corpora=corpora), own)
    write_pages(made)
    return made


@pytest.fixture(scope="module")
def study(context: Context) -> Study:
    return context.study


def _links(page: Page) -> list[str]:
    links = [of["href"] or "" for tag, of in page.elements if tag == "a"]
    return [unquote(link) for link in links if not link.startswith("#")]


def test_it_says_every_answer_and_leads_to_its_page(study: Study) -> None:
    page = Page(study.folder / "report.html")
    content = Recommendation.read(study)
    share = f"{100 * (content.mixture or {})[HOSTILE_CORPUS]:.1f}".removesuffix(".0") + "%"
    assert f"{share} {HOSTILE_CORPUS}" in page.words
    assert "2 domains, each beside general: 1 answered" in page.words
    folder = study.word
    steps = [f"cptlaw {verb} {folder} corpora.domain=law" for verb in ("fit", "recommend")]
    assert f"law: not answered; run {steps[0]}, then {steps[1]}." in page.words
    assert "confirmation: as predicted, by one seed" in page.words
    own = f"answers/{HOSTILE_CORPUS}/report.html"
    # The card's, and that of what lies beside.
    assert _links(page) == [own, "tables.html", own]
    assert all((study.folder / link).exists() for link in _links(page))
    (spec,) = page.specs
    plotly.graph_objects.Figure(spec)
    assert "img" not in [tag for tag, _ in page.elements]


def test_a_ratio_that_is_not_known_or_not_bound_is_no_number(context: Context, tmp_path: Path) -> None:
    shutil.copytree(context.study.folder, tmp_path / "two")
    own = dataclasses.replace(context.study, folder=tmp_path / "two")
    (own.folder / own.answer("confirmation.json")).unlink()
    content = Recommendation.read(own)
    one = f"all runs for the fit are at one domain ratio, 30%: {ONE_RATIO}"
    everything = {"mixture": {"general": 0.0, HOSTILE_CORPUS: 1.0}, "low": 1.0, "high": 1.0}
    for changes, written, absent in (
        ({"warnings": [one]}, f"{HOSTILE_CORPUS}: {one}.", f"{content.low:.1%}"),
        (everything, "confirmed it yet (every ratio is within the tolerance).", "100.0% to 100.0%"),
    ):
        dataclasses.replace(content, **changes).write(own)
        for path in write_pages(Context(context.question, own)):
            words = Page(path).words
            assert absent not in words
        assert written in words


def test_a_domains_page_leads_back(study: Study) -> None:
    path: Path = study.folder / study.answer("report.html")
    links = _links(Page(path))
    assert links == ["../../report.html", "../../tables.html"]
    assert all((path.parent / link).exists() for link in links)
