"""Axes show what matters, and words beside points do not lie on each other."""

import dataclasses

import pytest

from pipeline.show.report.answer_figures import trade_off_curve
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import limits, notes
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
