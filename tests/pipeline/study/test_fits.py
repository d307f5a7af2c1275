"""What the back test says of the laws."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from fitting import Fit, LawAverage, fit, folds, law_weights
from fitting.law_average import AVERAGE
from fitting.uncertainty.horizon import POWER, half_width
from fitting.uncertainty.misfit import AVERAGE_FACTORS, FACTORS, FLOOR, STAND_IN
from fitting.uncertainty.spread import Spread
from pipeline.cli.fit_table import fit_keys
from pipeline.goals.ratio import averaged_laws
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.ratio.trade_off_goal import TradeOffGoal
from pipeline.goals.registry import read_question
from pipeline.question.schema import LawConfig
from pipeline.study.collect import read_points, schedules
from pipeline.study.context import Context
from pipeline.study.fits import (
    POINTS,
    SPLITS,
    back_test,
    fit_all,
    fit_file,
    held_out_errors,
    held_out_file,
    horizon_weights,
    read_fits,
    refuse_other_points,
    shared_folds,
    trust,
    weights,
    with_average,
)
from pipeline.study.fitted_points import law_on, left_out, points_digest, points_for, selected
from pipeline.study.folder import Study, StudyError
from pipeline.study.number_format import NOT_KNOWN, coefficient, parameter_intervals
from pipeline.study.target import find_target
from tests.fitting.given import given
from tests.pipeline.show.report.report_study import make_study


def test_what_a_law_leaves_out_and_another_reads_is_said() -> None:
    question = read_question(["experiment=own", "law=[dcpt,transfer-anchored]"])
    rows = [("run", "general", step, r, "fit") for step, r in itertools.product((10, 100, 600), (0.05, 0.5))]
    points = pd.DataFrame(rows, columns=["run", "corpus", "step", "r", "role"])
    line = "without those before step 60 and of runs below 10% general"
    assert left_out(points, "general", question, "dcpt") == line
    assert left_out(points[points["r"] > 0.1], "general", question, "dcpt") == "without those before step 60"
    assert left_out(points, "general", question, "transfer-anchored") == ""


def test_trust_is_told_for_each_corpus_and_split() -> None:
    errors = {"dcpt": 0.04, "transfer-anchored": -0.01}
    signs = {"general": -1, "code": 1}
    rows = [
        (corpus, split, law, run, step, sign * error * (1 + run / 10))
        for (corpus, sign), split, (law, error) in itertools.product(signs.items(), SPLITS, errors.items())
        for run, step in itertools.product(range(3), (10, 20))
    ]
    tested = pd.DataFrame(rows, columns=["corpus", "split", "law", "run", "step", "relative_error"])
    tested["measured"] = 3.0 + tested["run"]
    lines = trust(tested)
    assert len(lines) == 8
    assert lines[0].startswith("general, size (a larger size): transfer-anchored errs least, 1.10% over 3")
    assert lines[7].startswith("code, size-and-tokens (a larger model trained for longer): transfer-anchored errs ")
    assert trust(tested.iloc[:0]) == []


def test_a_law_of_both_phases_reads_the_pre_training_of_the_target() -> None:
    study = Study(Path("docs/results/dynamics-small"))
    points, rates = read_points(study), schedules(study.read_plan())
    question = read_question(["experiment=dynamics-small", "law=[dynamics-replay]"])
    for corpus, law in (("general", "dynamics-replay"), ("code", "dynamics-replay-domain")):
        rows = points_for(points, corpus, question, "dynamics-replay")
        assert set(rows["model"]) == {"qwen2-0.15m"}
        assert set(rows["role"]) == {"fit", "pretrain"}
        assert law_on(question, corpus, "dynamics-replay") == law
        assert fit(rows, law, schedules=rates, bootstrap=0, few=True).metrics["r2"] > 0.98
    assert set(points_for(points, "code", read_question(["law=dcpt"]), "dcpt")["role"]) == {"fit"}


@pytest.mark.slow
def test_runs_of_one_size_are_answered_though_a_law_needs_two(tmp_path: Path) -> None:
    study, question = make_study(tmp_path, until="fits", ladder=[], bootstrap=2)
    assert set(question.law) == {"dcpt", "transfer-anchored"}
    content = TradeOffGoal().recommend(Context(question, study), list)
    assert 0 < (content.low or 0) < (content.high or 0) < 1
    assert {*(content.weights or {})["general"]} == {"dcpt", "transfer-anchored"}
    file = study.folder / "fits" / "held_out.parquet"
    tested = pd.read_parquet(file)
    tested[tested["law"] != "dcpt"].to_parquet(file)
    fit_all(study, question, read_points(study), schedules(study.read_plan()), (lines := []).append)
    noted = [line for line in lines if line.startswith("  one size only")]
    assert len(noted) == 1
    assert noted[0].endswith("needs two or more; the prior decides the rest (dcpt on general, dcpt on code)")
    again = TradeOffGoal().recommend(Context(question, study), list)
    assert "dcpt on general: not in the average, since no run could be held out of them" in again.warnings


def test_of_a_column_of_one_value_no_interval_is_shown(whole) -> None:
    made = Context(whole[1], whole[0]).fits["general"]["dcpt"]
    low, high = made.intervals()["alpha"]
    assert parameter_intervals(made)["alpha"] == f"{coefficient(low)} to {coefficient(high)}"
    one_size = dataclasses.replace(made, ranges={**made.ranges, "N": (1e-4, 1e-4)})
    assert parameter_intervals(one_size) == parameter_intervals(made) | {"alpha": NOT_KNOWN}
    assert fit_keys(one_size)["parameters"]["alpha"].items() >= {"low": None, "high": None}.items()  # pyright: ignore


def test_of_one_size_two_laws_of_the_average_are_the_same(whole, monkeypatch: pytest.MonkeyPatch) -> None:
    study, question = whole
    laws = {"general": {"transfer-anchored": 0.5, "transfer-scaled": 0.5}, "code": {"transfer-open-saturating": 1.0}}
    context = Context(question, study)
    held_out = Context(question, study).tested.query("law == 'dcpt'")
    names = ("transfer-open-saturating", "transfer-open", "dcpt")
    tested = pd.concat([held_out.assign(law=law) for law in names], ignore_index=True)
    ranges = {"transfer-anchored": {"r": (0.1, 1.0)}, "transfer-scaled": {"r": (0.25, 1.0)}}
    fits = {corpus: {law: SimpleNamespace(ranges=of) for law, of in ranges.items()} for corpus in laws}
    answering = SimpleNamespace(weights=laws, question=question, fits=fits)
    answering.fit = lambda corpus: context.fits[corpus]["dcpt"]
    monkeypatch.setattr(averaged_laws, "answering_laws", lambda _: answering)
    monkeypatch.setattr(Context, "tested", tested)
    average, less, beside, alone = averaged_laws.weight_lines(context)
    assert average.startswith(
        "the answer is of an average of the laws: transfer-anchored 50%, transfer-scaled 50% on general; weights go "
        "with 1 / (error of held-out size-and-tokens squared + 1.2% squared), since the answer differs from the "
        "fitted runs in size and tokens"
    )
    assert less == "transfer-scaled counts less below 25% general: it was fitted to no run there"
    assert alone == (
        "transfer-open-saturating answers alone on code: transfer-open counts only beyond 3 times, dcpt counts only up "
        "to 6 times the fitted tokens"
    )
    assert beside == (
        "transfer-anchored and transfer-scaled answer on general: transfer-open counts only beyond 3 times, dcpt "
        "counts only up to 6 times the fitted tokens"
    )
    laws["general"], two = laws["code"], laws["general"]
    (both,) = averaged_laws.weight_lines(context)
    assert both == alone.replace("on code", "on general and code")
    (several,) = averaged_laws.left_out_lines({"code": {"transfer-open-saturating": 0.5, "dcpt": 0.5}}, tested)
    only = "transfer-open counts only beyond 3 times the fitted tokens"
    assert several == f"transfer-open-saturating and dcpt answer on code: {only}"
    laws["general"] = two
    monkeypatch.setattr(Context, "points", context.points.assign(N=context.points["N"].iloc[0]))
    assert [*averaged_laws.weight_lines(context.fresh())] == [
        average,
        less,
        beside,
        alone,
        "with runs of one size transfer-scaled is transfer-anchored: nearly one law, counted twice",
    ]


def test_a_damaged_record_of_the_fitted_points_asks_for_a_fit(changeable) -> None:
    study, question = changeable
    points = read_points(study)
    file = study.folder / study.fitted(POINTS)
    file.unlink()
    for make in (Path.mkdir, lambda path: path.write_bytes(b"half \xff")):
        make(file)
        with pytest.raises(StudyError, match="fitted to other points than there are now; run cptlaw fit"):
            refuse_other_points(study, points_digest(points))
        if file.is_dir():
            file.rmdir()
    fit_all(study, dataclasses.replace(question, bootstrap=2), points, schedules(study.read_plan()), str)
    refuse_other_points(study, points_digest(points))


def test_the_line_of_a_fit_says_that_the_law_does_not_count_at_the_run_asked_about(changeable) -> None:
    study, question = changeable
    assert {*question.law} == {"dcpt", "transfer-anchored"}
    points, rates = read_points(study), schedules(study.read_plan())

    def uncounted(**changes: Any) -> set[str]:
        asked = dataclasses.replace(question, bootstrap=2, **changes)
        fit_all(study, asked, points, rates, (lines := []).append)
        ends = [line.partition("; it ")[::2] for line in lines if ": R2 " in line]
        return {f"{head.split()[0]} {why}" for head, why in ends if why}

    far = dataclasses.replace(question.target, steps=20 * question.target.steps)
    two = {law: LawConfig() for law in ("transfer-anchored", "transfer-read")}
    assert uncounted() == set()
    assert uncounted(law=two) == {"transfer-read counts only beyond 3 times the fitted tokens, so not in this answer"}
    both = {"transfer-anchored": LawConfig(), "transfer-replay": LawConfig()}
    assert uncounted(law=both, target=far) == {
        "transfer-anchored counts only up to 3 times the fitted tokens, so not in this answer"
    }
    compute = dataclasses.replace(question.goal, kind="compute", flops=1e15)
    assert uncounted(law=two, goal=compute) == set()


def test_a_law_that_cannot_be_fitted_is_left_out_with_its_reason(changeable) -> None:
    study, question = changeable
    # No run has so much of a corpus.
    law = {**question.law, "dcpt": LawConfig(min_ratio=1.0)}
    mine = dataclasses.replace(question, law=law, bootstrap=2)
    points, rates, lines = read_points(study), schedules(study.read_plan()), []
    points = points[points["r"] < 1]
    fits = fit_all(study, mine, points, rates, lines.append)
    assert {law for of in fits.values() for law in of} == {"transfer-anchored"}
    assert any(line.startswith("left out: dcpt on general (0 points): 0 points are too few") for line in lines)
    assert {*read_fits(study, mine)["general"]} == {"transfer-anchored"}
    back_test(study, mine.with_laws(fits), points, rates)
    (study.folder / study.fitted(POINTS)).unlink()  # The points that were left out are in the study.
    answer = TradeOffGoal().recommend(Context(mine, study), list)
    assert "dcpt: left out, cptlaw fit says why" in answer.warnings
    alone = dataclasses.replace(mine, law={"dcpt": law["dcpt"]})
    with pytest.raises(StudyError, match=r"dcpt on general \(0 points\).*\ndcpt on"):
        fit_all(study, alone, points, rates, str)
    with pytest.raises(StudyError, match=r"general-dcpt.json: missing; run cptlaw fit .+ first"):
        read_fits(study, alone)


def test_what_was_made_of_other_points_is_no_fit_any_more(changeable) -> None:
    study, question = changeable
    alone = dataclasses.replace(question, law={"dcpt": question.law["dcpt"]}, bootstrap=0)
    points, rates = read_points(study), schedules(study.read_plan())
    fit_all(study, alone, points, rates, str)
    assert {*read_fits(study, question)["general"]} == {"dcpt", "transfer-anchored"}
    assert held_out_file(study).exists()
    fit_all(study, alone, points.drop(index=points.index[points["role"] == "fit"][-1]), rates, str)
    assert {*read_fits(study, question)["general"]} == {"dcpt"}
    # As after a kill between the fits and the back test.
    assert not held_out_file(study).exists()


@pytest.mark.slow
def test_what_a_model_from_elsewhere_was_trained_on_is_fitted(changeable) -> None:
    study, question = changeable
    domain = question.corpora.domain
    assert "rho" not in read_fits(study, question)["general"]["transfer-anchored"].params
    mine = dataclasses.replace(question, model=dataclasses.replace(question.model, path="somewhere"), bootstrap=0)
    points = read_points(study).assign(rho=0.5)
    rates = schedules(study.read_plan())
    fits = fit_all(study, mine, points, rates, str)
    # The losses were made with rho = 1 on general and 0 on the domain, whatever the column says.
    assert fits["general"]["transfer-anchored"].params["rho"] > 0.9
    assert fits[domain]["transfer-anchored"].params["rho"] < 0.01
    assert "rho" not in fits[domain]["dcpt"].params
    tested = back_test(study, mine, points, rates)
    assert tested.loc[tested["law"] == "transfer-anchored", "relative_error"].abs().mean() < 0.01
    assert read_fits(study, mine)["general"]["transfer-anchored"].params == pytest.approx(
        fits["general"]["transfer-anchored"].params
    )


def test_the_first_step_is_a_quarter_of_a_short_run_at_most() -> None:
    steps = [0, 5, 10, 20, 40]
    points = pd.DataFrame({"role": "fit", "corpus": "general", "step": steps, "r": [0.5, 0.5, 0.5, 0.5, 0.1]})
    for law, read in ((LawConfig(60, 0.2), steps[2:4]), (LawConfig(5), steps[1:]), (LawConfig(), steps[1:])):
        assert list(selected(points, "general", law)["step"]) == read
    assert selected(points, "code", LawConfig()).empty


def _tested(*rows: tuple[str, str, int, float]) -> pd.DataFrame:
    """Held-out points of one corpus: law, split, step, log error."""
    table = pd.DataFrame(rows, columns=["law", "split", "step", "error"])
    return table.assign(corpus="general", run="a", predicted=2.0, measured=2.0 * np.exp(table["error"]))


def test_the_kind_that_all_laws_were_tested_on_decides_the_weights() -> None:
    both = [("one", "tokens", 1, 0.01), ("two", "tokens", 1, 0.03), ("one", "tokens", 2, 0.01)]
    tested = _tested(*both, ("one", "size", 1, 0.2))
    # The last point was predicted by one law only, and so was the size.
    by_tokens = law_weights({"one": np.array([0.01]), "two": np.array([0.03])})
    assert weights(tested, "general", "tokens") == weights(tested, "general", "size") == pytest.approx(by_tokens)
    assert weights(tested, "code", "tokens") == weights(tested.iloc[:0], "general", "tokens") == {}


def test_far_beyond_the_fitted_tokens_only_laws_that_see_so_far_count() -> None:
    names = ("dcpt", "transfer-anchored", "transfer-scaled", "transfer-replay")
    tested = _tested(*((name, "tokens", 1, 0.01) for name in names))
    assert weights(tested, "general", "tokens", 2.0) == pytest.approx(dict.fromkeys(names, 0.25))
    assert weights(tested, "general", "tokens", 3.0) == pytest.approx({"dcpt": 0.5, "transfer-replay": 0.5})
    assert weights(tested, "general", "tokens", 6.0) == {"transfer-replay": 1.0}
    middle = weights(tested, "general", "tokens", 24**0.5)
    assert middle == pytest.approx({"dcpt": 1 / 3, "transfer-replay": 2 / 3}, rel=1e-5)
    fitted = {"general": {name: FITTED(ranges=RANGES, reach=[(1.0, 8.0)]) for name in names}}
    for horizon, last in ((7.0, ["transfer-replay"]), (5.0, ["dcpt", "transfer-replay"])):
        far = (1.0, 8.0 * horizon)
        average = with_average(fitted, horizon_weights(fitted, tested, *far), tested)["general"][AVERAGE]
        assert isinstance(average, LawAverage)
        assert [*average.fits] == last
    alone = _tested(("transfer-anchored", "tokens", 1, 0.01))
    assert weights(alone, "general", "tokens", 20.0) == {"transfer-anchored": 1.0}
    # dcpt leaves out the longest run, of a small ratio: how far a run is is counted from those that another law reads.
    spreads = (Spread({"N": (1.0, 1.0), "D": (0.5, D)}, [(1.0, D)], 0.01, 5, {}) for D in (1.0, 4.0))
    fits: Any = {
        "general": {law: SimpleNamespace(spread=one) for law, one in zip(("dcpt", "transfer-anchored"), spreads)}
    }
    assert horizon_weights(fits, tested, 1.0, 5.0)["general"] == weights(tested, "general", "tokens", 1.25)


INSIDE, LONGER = (0.5, 4.0), (1.0, 9.0)
"""N and D of a target within the fitted ranges, and beyond the tokens."""
FITTED = partial(given, "chinchilla", {"E": 1.0, "A": 1.0, "B": 1.0, "alpha": 0.5, "beta": 0.5})
RANGES = {"N": (0.1, 1.0), "D": (1.0, 8.0)}


def _spread(tested: pd.DataFrame, fit: Fit | LawAverage) -> Spread:
    laws = fit.weights if isinstance(fit, LawAverage) else {fit.law: 1.0}
    return dataclasses.replace(fit, held_out=held_out_errors(tested, "general", laws)).spread


def test_an_average_is_judged_by_its_own_errors() -> None:
    tested = _tested(("one", "tokens", 1, 0.02), ("two", "tokens", 1, -0.02))
    fit = FITTED(ranges=RANGES)
    average = LawAverage({"one": fit, "two": fit}, {"one": 0.5, "two": 0.5})
    one = dataclasses.replace(fit, law="one")
    alone_in_average = _spread(tested, LawAverage({"one": one}, {"one": 1.0})).half_width(*INSIDE)
    assert alone_in_average == pytest.approx(_spread(tested, one).half_width(*INSIDE))
    halves = [_spread(tested, fit).half_width(*at) for fit in (average, one) for at in (LONGER, INSIDE)]
    few = stdtrit(fit.n_runs - 2, 0.95) / stdtrit(10**6, 0.95)
    residual = 0.001
    of_average, of_one = np.hypot(residual, FLOOR), np.hypot(np.hypot(residual, FLOOR), 0.02)
    by_tokens, by_ratio = AVERAGE_FACTORS["tokens"] * of_average, AVERAGE_FACTORS["ratio"] * of_average
    # Nothing was held out by ratio, so errors by tokens stand for it.
    alone = [FACTORS["tokens"] * of_one, STAND_IN * FACTORS["ratio"] * of_one]
    assert halves == pytest.approx([few * half for half in (by_tokens, by_ratio, *alone)], rel=0.02)
    assert _spread(tested.iloc[:0], average).log_errors(pd.DataFrame({"N": [0.5], "D": [4.0]})) is None


@pytest.mark.parametrize(("errors", "in_common"), [((0.02, 0.02), 1.0), ((0.02, -0.02), 0.0), ((0.02, 0.0), 0.5)])
def test_an_average_of_laws_that_err_as_one_is_as_wide_as_one(errors: tuple[float, float], in_common: float) -> None:
    tested = _tested(("one", "tokens", 1, errors[0]), ("two", "tokens", 1, errors[1]))
    fits = {name: FITTED(ranges=RANGES) for name in ("one", "two")}
    weight = {"general": {"one": 0.5, "two": 0.5}}
    average = with_average({"general": fits}, weight, tested)["general"][AVERAGE]
    assert average.spread.in_common["tokens"] == pytest.approx(in_common, abs=0.01)
    factor = {1.0: FACTORS, 0.0: AVERAGE_FACTORS, 0.5: AVERAGE_FACTORS}[in_common]["tokens"]
    alone = dataclasses.replace(average.spread, law="law", held_out=average.held_out).half_width(*LONGER)
    assert average.spread.half_width(*LONGER) == pytest.approx(alone * factor / FACTORS["tokens"], rel=0.01)


def test_errors_grow_beyond_the_longest_run_of_the_targets_size() -> None:
    tested = _tested(("one", "tokens", 1, 0.004), ("two", "tokens", 1, 0.004))
    one = dataclasses.replace(FITTED(ranges=RANGES, reach=[(0.1, 1.0), (1.0, 8.0)]), law="one")
    # The small model was run for an eighth of the tokens that the large one was.
    assert [one.spread.kind(*at) for at in ((1.0, 8.0), (0.1, 8.0), (0.1, 1.0))] == ["ratio", "tokens", "ratio"]
    at = [(1.0, 8.0), (1.0, 16.0), (0.1, 8.0), (1.0, 64.0), (1.0, 256.0)]
    halves = [_spread(tested, one).half_width(*of) for of in at]
    assert halves == sorted(halves)
    assert halves[3] == pytest.approx(halves[2])
    expected = half_width(np.array([32.0]), [0.004 / np.log(1.5) ** POWER], 0.001)[0]
    assert halves[4] == pytest.approx(expected, rel=0.02)
    both = LawAverage({"one": one, "two": one}, {"one": 0.5, "two": 0.5})
    assert _spread(tested, both).half_width(1.0, 256.0) < halves[4]


def test_a_fit_that_is_read_has_the_interval_of_the_recommendation(whole) -> None:
    study, question = whole
    context = Context(question, study)
    laws = answering_laws(context)
    target = find_target(question, context.points)
    for run, (corpus, name) in itertools.product(
        (target, target.lasting(900)), itertools.product(laws.corpora, laws.fits["general"])
    ):
        fit = laws.at(run).fits[corpus][name]
        asked = dataclasses.replace(laws, law=dict.fromkeys(laws.corpora, name))
        frame = pd.DataFrame([{**run.columns(corpus, fit), "r": 0.4}])
        ratio = 0.6 if corpus == "general" else 0.4
        if isinstance(fit, Fit):
            fit = Fit.from_json(fit_file(study, corpus, name).read_text())
        alone = [float(side[0]) for side in (fit.predict(frame), *fit.predict_interval(frame))]
        assert alone == pytest.approx(asked.loss(run, corpus, ratio), rel=1e-12)


def test_all_laws_hold_out_the_same_ratios() -> None:
    ratios = np.array([0.0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0])
    points = pd.DataFrame({"r": np.repeat(ratios, 2), "D": np.tile([1.0, 2.0], 9)})
    shared = points[points["r"] >= 0.1]
    held = {
        name: set(own["r"][fold.judged])
        for name, own in (("all", points), ("shared", shared))
        for fold in shared_folds(own, shared, "ratio")
    }
    assert held["all"] == held["shared"] == {0.33, 0.8}
    assert set(points["r"][folds(points, "ratio")[0].judged]) != held["all"]
    (by_tokens,) = shared_folds(points, shared, "tokens")
    assert set(points["D"][by_tokens.judged]) == {2.0}


@pytest.mark.slow
def test_a_law_of_both_corpora_is_judged_on_the_points_that_all_laws_admit(changeable) -> None:
    study, question = changeable
    mine = dataclasses.replace(question, law={"dcpt": LawConfig(40, 0.2), "transfer-open": LawConfig(5, 0.0)})
    points = read_points(study)
    tested = back_test(study, mine, points, schedules(study.read_plan()))
    tested = tested[tested["split"] == "size"].merge(points[["run", "step", "corpus", "r"]])
    lowest = tested.groupby(["law", "corpus"])["r"].min()
    # A run at 10% general is one at 90% of the domain, where both laws are fitted.
    assert set(lowest) == {0.25}, lowest


def test_a_law_that_fit_read_and_the_command_does_not_is_one_line(changeable) -> None:
    study, question = changeable
    # As if an earlier `cptlaw fit` had fitted another pair of laws.
    others = dataclasses.replace(question, law={"dcpt": question.law["dcpt"], "transfer-scaled": LawConfig(5, 0.0)})
    for corpus in ("general", question.corpora.domain):
        shutil.copy(*(fit_file(study, corpus, law) for law in ("transfer-anchored", "transfer-scaled")))
    with pytest.raises(StudyError, match=r"^transfer-scaled: not among .*; give law=\[dcpt,transfer-anchored\]"):
        TradeOffGoal().recommend(Context(others, study), list)
    with pytest.raises(StudyError, match=r"the average of dcpt, transfer-anchored answers, .*; give law=\[dcpt,"):
        TradeOffGoal().answer(Context(others, study))


def test_a_law_that_predicts_no_loss_at_all_counts_for_nothing() -> None:
    rows = [
        {"law": law, "corpus": "general", "split": "size", "run": f"run-{n}", "step": 1, "predicted": predicted}
        for n in range(3)
        for law, predicted in (("dcpt", 2.0), ("transfer-anchored", -1.0 if n == 0 else 2.0))
    ]
    tested = pd.DataFrame(rows).assign(measured=2.0)
    assert weights(tested, "general", "size")["dcpt"] > 0.999
    assert held_out_errors(tested, "general", {"transfer-anchored": 1.0})["size"] > 1
