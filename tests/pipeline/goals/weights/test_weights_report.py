"""report.html of a question about weights: what it says, at every stage, and how a browser shows it."""

import dataclasses
import html
from pathlib import Path

import pytest

from pipeline.cli.trainers.plan import training_plan
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.question.schema import Question
from pipeline.show.report.pages import write_pages
from pipeline.show.report.weights_figures import domain_curves
from pipeline.show.weights_tables import (
    comparison_items,
    comparison_tables,
    difference,
    reference_warning,
    weights_table,
)
from pipeline.study.context import Context
from pipeline.study.folder import Study
from tests.pipeline.goals.weights.weights_study import (
    DOMAINS,
    GOAL,
    HOSTILE_DOMAIN,
    make_study,
    recommended,
    whole_study,
)
from tests.pipeline.show.report.page_scripts import marks_drawn, opened, touching
from tests.pipeline.show.report.test_browser import browser as browser


def _page(study: Study, question: Question) -> Path:
    (path,) = write_pages(Context(question, study))
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return _page(*whole_study(tmp_path_factory.getbasetemp() / "weights-report"))


def test_it_says_what_is_missing_at_every_stage(tmp_path: Path) -> None:
    study, setting = make_study(tmp_path)
    study.write_plan(GOAL.runs(setting))
    page = html.unescape(_page(study, setting.question).read_text())
    assert f"There is no recommendation yet: run cptlaw recommend {study.word}." in page
    recommended(study, setting)
    page = html.unescape(_page(study, setting.question).read_text())
    assert "There is no recommendation yet" not in page
    assert f"The weights are not compared yet: run cptlaw confirm {study.word}." in page


def test_an_answer_that_measured_worse_is_not_the_headline(tmp_path: Path) -> None:
    study, question = whole_study(tmp_path)
    whole = WeightsConfirmation.read(study)
    for low, worse in ((0.01, True), (-0.01, False)):
        measured = {"difference": 0.02, "low": low, "high": 0.05}
        methods = [dataclasses.replace(row, **(measured if row.recommended else {})) for row in whole.methods]
        comparison = dataclasses.replace(whole, methods=methods)
        comparison.write(study)
        page = _page(study, question).read_text()
        assert ("33.3% general" in page.split("</h1>")[0].split("<h1>")[1]) == worse
        line = "weights, recommended before confirmation, are worse than uniform"
        assert (line in page) == worse == bool(reference_warning(comparison))
        plan = training_plan(question, study, devices=1, micro_batch=1)
        expected = dict.fromkeys(DOMAINS, 1 / 3) if worse else WeightsRecommendation.read(study).mixture
        assert {corpus.name: corpus.weight for corpus in plan.corpora} == pytest.approx(expected)
        assert any(fact.endswith("Use uniform's weights: they are written") for fact in plan.facts) == worse
    assert (plan.model, plan.steps, plan.peak) == ("MODEL", 720, question.pretrain.peak_learning_rate)
    assert plan.facts[0] == "weights by autoscale, for a run of qwen2-0.05m"
    assert plan.facts[2].startswith("confirmation: mean loss ")


def test_an_optimum_of_no_weight_is_drawn_at_the_left_end(tmp_path: Path) -> None:
    study, _ = whole_study(tmp_path)
    content = WeightsRecommendation.read(study)
    row = next(row for row in content.proposals if row.method == "autoscale")
    domain, (first, *others) = next(iter(content.mixture)), row.details.designs
    without = dataclasses.replace(first, weights=first.weights | {domain: 0.0})
    details = dataclasses.replace(row.details, designs=[without, *others])
    panel = next(
        iter(domain_curves(dataclasses.replace(content, proposals=[dataclasses.replace(row, details=details)])).panels)
    )
    marks = [
        mark for mark in panel.whole["data"] if mark["mode"] == "markers" and "optimum: 0%" in mark["hovertemplate"]
    ]
    assert [mark["marker"]["symbol"] for mark in marks] == ["triangle-left"]
    assert 0 < marks[0]["x"][0] <= min(first.factors)


def test_names_are_never_markup(path: Path) -> None:
    page = path.read_text()
    assert HOSTILE_DOMAIN not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_tables_of_the_terminal_hold_every_method(tmp_path_factory: pytest.TempPathFactory) -> None:
    from rich.console import Console

    study, _ = whole_study(tmp_path_factory.getbasetemp() / "weights-report")
    comparison = WeightsConfirmation.read(study)
    console = Console(width=80, record=True)
    with console.capture() as shown:
        console.print(weights_table(WeightsRecommendation.read(study)))
        console.print(*comparison_tables(comparison))
    for method in ("autoscale *", "autoscale-offsets", "ddo", "uniform"):
        assert shown.get().count(method) >= 3
    # A terminal of 80 columns has room for every number.
    assert "…" not in shown.get()
    for row in comparison.methods:
        assert f"{row.value:.4f}" in shown.get()
        assert difference(row) in shown.get()
    (line,) = (one for one in comparison_items(comparison) if isinstance(one, str))
    autoscale = next(row for row in comparison.methods if row.method == "autoscale")
    assert f"autoscale {autoscale.predicted:.4f} ({autoscale.loss / autoscale.predicted - 1:+.2%})" in line


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_draws_every_figure_and_no_text_lies_on_another(browser, path: Path) -> None:
    width = 390
    with opened(browser, path, width) as (page, said, _):
        drawn = marks_drawn(page)
        # Weights, two paths, three domains, losses by method, losses while training.
        assert len(drawn) == 8
        assert min(drawn) >= 3
        assert touching(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
