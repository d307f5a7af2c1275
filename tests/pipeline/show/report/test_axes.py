"""Axes show what matters, and words beside points do not lie on each other."""

import dataclasses

import numpy as np
import pytest

from pipeline.show.report.answer_figures import trade_off_curve
from pipeline.show.report.evidence import Evidence, at_target
from pipeline.show.report.loss_figures import RATIOS
from pipeline.show.report.marks import limits, notes
from pipeline.study.artifacts import PredictedLoss
from pipeline.study.context import Context
from tests.pipeline.show.report.report_study import whole_study


def test_a_figure_is_cut_to_what_is_near_the_answer(tmp_path_factory: pytest.TempPathFactory) -> None:
    study, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    evidence = Evidence(Context(question, study))
    figure, content = trade_off_curve(evidence), evidence.recommendation
    assert figure
    assert content
    low, high = figure.panels[0].spec["layout"]["yaxis"]["range"]
    most = 100 * content.predicted["general"].high / content.loss_before["general"]
    assert low < 0 < 3 < high
    assert most - 100 < high < 2.5 * (most - 100)


def test_a_curve_is_thin_outside_the_ratios_that_its_law_was_fitted_to(tmp_path_factory) -> None:
    study, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    evidence = Evidence(Context(question, study))
    figure, colour = trade_off_curve(evidence), evidence.colours["dcpt"]
    assert figure
    curves = [of for of in figure.panels[0].spec["data"] if of.get("line", {}).get("color") == colour]
    drawn = {of["line"]["width"]: [r for r, x in zip(of["customdata"], of["x"]) if x is not None] for of in curves}
    every = RATIOS.round(2).tolist()
    assert drawn == {0.9: every, 2.5: [ratio for ratio in every if 0.1 <= ratio <= 0.9]}


def test_an_answer_of_much_domain_is_drawn_without_what_little_gives(tmp_path_factory) -> None:
    study, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    evidence, at = Evidence(Context(question, study)), np.array([0.3, 0.8])
    made = {corpus: at_target(evidence, evidence.law_of[corpus], corpus, at) for corpus in evidence.corpora}
    losses = {corpus: of[1] for corpus, of in made.items() if of}
    content, mixture = evidence.recommendation, {evidence.general: 0.2, evidence.domain: 0.8}
    assert content
    predicted = {corpus: PredictedLoss(of[1], of[1] - 0.01, of[1] + 0.01) for corpus, of in losses.items()}
    evidence.recommendation = dataclasses.replace(content, mixture=mixture, predicted=predicted)
    evidence.confirmations = []
    figure = trade_off_curve(evidence)
    assert figure
    layout = figure.panels[0].spec["layout"]
    assert layout["xaxis"]["range"][1] < losses[evidence.domain][0]
    assert {note["text"] for note in layout["annotations"]} <= {"50%", "60%", "80%"}


def test_a_confirmation_run_of_another_model_rises_from_its_own_loss_before(tmp_path_factory) -> None:
    study, question = whole_study(tmp_path_factory.getbasetemp() / "report")
    evidence = Evidence(Context(question, study))
    evidence.confirmations = [dataclasses.replace(row, before=row.measured) for row in evidence.confirmations]
    figure = trade_off_curve(evidence)
    assert figure
    diamonds = [trace for trace in figure.panels[0].spec["data"] if trace.get("marker", {}).get("symbol") == "diamond"]
    assert [trace["y"] for trace in diamonds] == [[0.0], [0.0]]


def test_words_beside_points_give_way_to_earlier_ones() -> None:
    written = notes([0.5, 0.55, 0.9, 1.2], [0.5, 0.52, 0.5, 0.5], ["a", "b", "c", "d"], [0, 1], [0, 1])
    assert [note["text"] for note in written] == ["a", "c"]


def test_another_law_that_goes_astray_does_not_flatten_a_figure() -> None:
    low, high = limits([1.0, 2.0], [1.5, 100.0])
    assert low == pytest.approx(0.94)
    assert high == pytest.approx(2.56)
