"""Tables 5, 6 and 12 from confirmations, and the inflection ratio from points whose own is known."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.goals.registry import goal_of, read_question
from pipeline.papers.dcpt import near_zero, usages
from pipeline.papers.dcpt.points import DomainPoints
from pipeline.papers.dcpt.usages import READINGS
from pipeline.papers.make import tables_of
from pipeline.papers.show import Result
from pipeline.papers.table import PaperStudy
from pipeline.papers.verdict import HOLDS, NOT_HERE, UNKNOWN
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow
from pipeline.study.folder import Study, StudyError, study_of
from tests.pipeline.goals.ratio.examples import confirmation_row, recommendation


@functools.cache
def _question() -> Question:
    return read_question(["experiment=quickstart", "goal.domain_tokens=3e5", "goal.flops=6e11"])


def _table(folder: Path, kind: str, rows: list[ConfirmationRow], name: str, papers: Path | None = None) -> Result:
    """A table of a study whose goal of a kind has been answered and confirmed, asked of one about the trade-off."""
    about = dataclasses.replace(_question(), studies=str(folder))
    question = dataclasses.replace(about, goal=dataclasses.replace(about.goal, kind=kind))
    study = study_of(question)
    answer = recommendation(kind)
    answer.write(study)
    Confirmation(0.9, rows, goal_of(question).outcome(question, answer, rows)).write(study)
    (table,) = tables_of({kind: READINGS[kind].read(PaperStudy(study_of(about), about))}, [name], papers)
    return table


def test_usage_1_beside_the_paper(tmp_path: Path) -> None:
    losses = {0.5: [2.06, 2.061], 0.3: [2.0, 2.01], 0.7: [2.1, 2.11]}
    rows = [confirmation_row("general", *item) for item in losses.items()] + [confirmation_row("code", 0.5, [1.5, 1.5])]
    (tmp_path / usages.TABLES["dcpt-5"].file).write_text(
        "r_d,corpus,metric,value\n0.9,G,val_loss,2.9\n0.9,D,val_loss,1.7\n"
    )
    five = _table(tmp_path, "trade-off", rows, "dcpt-5", tmp_path)
    at = five.cells.set_index(["what", "corpus"])
    assert at.loc[("loss at 0.9", "D"), "paper"] == 1.7
    assert at.loc[("loss at 0.5", "G"), "ours"] == pytest.approx(2.0605)
    assert at.loc[("increase at the answer", "G"), "ours"] == pytest.approx(0.03025)
    assert at.loc[("ratio, measured", "G"), "ours"] == pytest.approx(0.495, abs=0.005)
    assert five.verdict == HOLDS
    assert five.why.startswith("The predicted optimum is confirmed: At 50% code")


@pytest.mark.parametrize(("seeds", "verdict"), [(2, HOLDS), (1, UNKNOWN)])
def test_usage_2_and_its_noise(tmp_path: Path, seeds: int, verdict: str) -> None:
    losses = {0.5: [2.0, 2.01], 0.2: [2.1, 2.11], 0.8: [2.2, 2.21]}
    rows = [confirmation_row("code", ratio, measured[:seeds]) for ratio, measured in losses.items()]
    six = _table(tmp_path, "limited-data", rows, "dcpt-6")
    at = six.cells.set_index("what")["ours"]
    assert six.verdict == verdict
    assert at["answer above the smallest of the others"] == pytest.approx(-0.1)
    assert at["ratio that may be best, smallest"] == (0.5 if seeds > 1 else 0.2)


def test_usage_3_by_size(tmp_path: Path) -> None:
    sizes = {"a": (5e-5, [2.3, 2.31]), "b": (1.5e-4, [2.1, 2.11]), "c": (3e-4, [2.0, 2.01])}
    rows = [confirmation_row("code", 0.5, losses, model=at, N=N, run=at) for at, (N, losses) in sizes.items()]
    twelve = _table(tmp_path, "compute", [rows[1], rows[0], rows[2]], "dcpt-12")
    assert twelve.verdict == NOT_HERE
    at = twelve.cells.set_index("what")["ours"]
    assert at["loss at 300 k parameters, 1 M tokens"] == pytest.approx(2.005)
    assert at["N that may be best, smallest"] == 3e-4


@pytest.mark.parametrize(("sizes", "verdict"), [((5e-5, 1.5e-4, 3e-4), HOLDS), ((1.5e-4, 3e-4, 6e-4), UNKNOWN)])
def test_an_optimum_at_a_bound_of_the_search_is_not_judged(tmp_path, sizes: tuple[float, ...], verdict: str) -> None:
    # The recommended size is 1.5e-4; it comes first.
    order = sorted(sizes, key=lambda N: (N != 1.5e-4, N))
    losses = ([1.9, 1.91], [2.1, 2.11], [2.2, 2.21])
    rows = [confirmation_row("code", 0.5, loss, model=f"m{N}", N=N, run=f"{N}") for N, loss in zip(order, losses)]
    twelve = _table(tmp_path, "compute", rows, "dcpt-12")
    assert twelve.verdict == verdict
    assert ("is a bound of the sizes" in twelve.why) == (verdict == UNKNOWN)


def test_what_is_not_confirmed_yet_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"limited-data/confirmation\.json: missing; run cptlaw confirm \S+ first"):
        READINGS["limited-data"].read(PaperStudy(Study(tmp_path), _question()))


def _near_zero(turn: float) -> DomainPoints:
    """Losses on general that rise with the tokens below a ratio and fall above it."""
    rng, parts = np.random.default_rng(0), []
    for ratio in (0.02, 0.05, 0.1, 0.25):
        for seed in range(2):
            step = np.arange(20, 301, 20)
            loss = 3 + 0.3 * (turn - ratio) * np.log(step) + 0.0005 * rng.standard_normal(len(step))
            known = {"N": 1e-4, "r": ratio, "run": f"{ratio} {seed}", "corpus": "general"}
            parts.append(pd.DataFrame({"step": step, "D": step * 2e-6, "loss": loss, **known}))
    return DomainPoints(pd.concat(parts, ignore_index=True), "general", ("law",))


def test_an_inflection_ratio_is_found_with_its_interval(monkeypatch) -> None:
    monkeypatch.setattr(near_zero, "CORPORA", ("G",))
    monkeypatch.setattr(near_zero, "REFITS", 40)
    (twelve,) = tables_of({"near-zero": _near_zero(0.07)}, ["dcpt-figure-12"], None)
    at = twelve.cells.set_index("quantity")["ours"]
    assert at["low"] < 0.07 < at["high"]
    assert at["ratio"] == pytest.approx(0.07, abs=0.01)
    assert (at["ratio below"], at["ratio above"]) == (0.05, 0.1)
    assert twelve.verdict == HOLDS


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.05, 0.02, 0.09, 0.067), HOLDS),
        ((0.05, 0.02, 0.2, 0.067), UNKNOWN),
        ((0.3, 0.2, 0.4, 0.5), NOT_HERE),
        ((0.0, 0.0, 0.0, 0.0), NOT_HERE),
        ((0.0, 0.0, 0.01, 0.01), UNKNOWN),
        ((), UNKNOWN),
    ],
)
def test_the_claim_is_of_every_domain(values: tuple[float, ...], verdict: str) -> None:
    names = ("ratio", "low", "high", "ratio above")
    rows = [("a", "G", name, value) for name, value in zip(names, (0.05, 0.04, 0.06, 0.067))]
    rows += [("b", "G", name, value) for name, value in zip(names, values)] or [("b", "D", "ratio", 0.05)]
    cells = pd.DataFrame(rows, columns=["domain", "corpus", "quantity", "ours"])
    assert near_zero.judge(cells)[0] == verdict


def test_the_experiment_is_read_for_the_inflection_alone() -> None:
    question = read_question(["experiment=near-zero"])
    assert question.mixture.replicate_at == question.mixture.domain_ratio
    assert near_zero.READING.applies(question)
    assert not near_zero.READING.applies(_question())
