"""Which law answers for which corpus."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from pipeline.answers.recommend import recommend, score
from pipeline.question.goal import goal_of
from pipeline.report.write import write_report
from pipeline.study.collect import read_points
from pipeline.study.fits import read_back_test, read_fits
from tests.pipeline.report.report_study import make_study


def _tested(rows: list[tuple[str, str, str, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["law", "corpus", "split", "relative_error"])


def test_a_larger_model_for_longer_decides_where_it_could_be_asked() -> None:
    rows = [("one", "general", "size-and-tokens", -0.01), ("two", "general", "size-and-tokens", 0.02)]
    rows += [("one", "general", "tokens", 0.3), ("two", "general", "tokens", 0.1)]
    assert score(_tested(rows)) == {"general": {"one": 0.01, "two": 0.02}}
    # Of two alone `size-and-tokens` is known for one of the laws only: the other splits decide.
    assert score(_tested(rows[1:])) == {"general": {"one": 0.3, "two": 0.1}}
    assert score(_tested([])) == {}


@pytest.mark.slow
def test_each_corpus_is_answered_for_by_its_own_law(tmp_path: Path) -> None:
    study, question = make_study(tmp_path, until="fits", bootstrap=5)
    general, domain = question.corpora.general, question.corpora.domain
    tested = read_back_test(study)
    better = ((tested["law"] == "dcpt") & (tested["corpus"] == domain)) | (
        (tested["law"] == "transfer-anchored") & (tested["corpus"] == general)
    )
    tested.loc[better, "relative_error"] /= 1e3
    tested.to_parquet(study.folder / "fits" / "held_out.parquet")
    points, fits = read_points(study), read_fits(study, question)
    answer = recommend(study, question, points, fits, goal_of(question).solve)
    assert answer.law == {general: "transfer-anchored", domain: "dcpt"}
    # The share follows from the general loss alone, the domain's loss from its own law.
    assert answer.answers["transfer-anchored"].domain_ratio == pytest.approx((answer.mixture or {})[domain], abs=1e-3)
    page = write_report(study, question).read_text()
    assert f"transfer-anchored on {general}" in page
