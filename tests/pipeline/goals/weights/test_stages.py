"""Which runs a question about weights wants, what they share, and what comes out of a law that is known."""

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from pipeline.goals.weights.goal import confirmation_runs
from pipeline.goals.weights.methods.ddo import factors_of, one_at_a_time, perturbed, whole_step_weights
from pipeline.goals.weights.methods.registry import METHODS
from pipeline.goals.weights.mixtures import Search
from pipeline.question.messages import ConfigError
from pipeline.show.weights_tables import stages_table
from pipeline.study.folder import StudyError
from tests.pipeline.goals.weights import weights_study
from tests.pipeline.goals.weights.weights_study import DOMAINS, GOAL, compared, loss, make_study, recommended, trained
from training.evaluation_steps import evaluation_steps


def test_only_the_tokens_of_one_domain_change(tmp_path: Path) -> None:
    _, setting = make_study(tmp_path)
    assert factors_of(Search(setting)) == [Fraction(1, 3), 1, 3]
    runs = one_at_a_time(Search(setting), Search(setting).base, 90)
    tokens = {
        key: {domain: Fraction(run.spec.mixture[domain]) * run.spec.tokens for domain in DOMAINS}
        for key, run in runs.seeds[0].items()
    }
    base = tokens["general", Fraction(1)]
    for (domain, factor), of_run in tokens.items():
        assert of_run == {name: count * (factor if name == domain else 1) for name, count in base.items()}
    assert len(runs.runs) == 2 * (1 + 2 * 3)
    assert {run.spec.steps for run in runs.runs} == {90, 150, 70}
    # The schedule follows the length: every run ends where its own decay does.
    assert all(evaluation_steps(run.spec.evaluation, run.spec.steps)[-1] == run.spec.steps for run in runs.runs)


def test_a_part_of_a_step_is_taken_from_the_domain_alone() -> None:
    weights, steps = perturbed({"a": Fraction(3, 10), "b": Fraction(7, 10)}, "a", Fraction(1, 3), 101)
    assert steps == 81
    assert weights["b"] * steps == Fraction(7, 10) * 101
    assert sum(weights.values()) == 1


@pytest.mark.parametrize("steps", [90, 180])
def test_weights_of_a_later_round_make_whole_steps(steps: int) -> None:
    factors = [Fraction(1, 3), Fraction(1), Fraction(3)]
    weights = whole_step_weights({"a": 0.611, "b": 0.317, "c": 0.072}, steps, factors)
    assert sum(weights.values()) == 1
    for weight in weights.values():
        assert all(((factor - 1) * weight * steps).denominator == 1 for factor in factors)
    assert float(weights["a"]) == pytest.approx(0.611, abs=1.5 / steps)


def test_runs_that_two_methods_want_are_one(tmp_path: Path) -> None:
    _, setting = make_study(tmp_path)
    runs = GOAL.runs(setting)
    of = {name: {run.spec.hash for run in METHODS[name].runs(Search(setting))} for name in ("ddo", "autoscale")}
    assert of["ddo"] < of["autoscale"] == {run.spec.hash for run in runs}
    assert len(runs) == len({run.name for run in runs}) == 28
    lines = {stage.name: stage for stage in GOAL.plan_notes(setting, []).stages}
    assert lines["shared, counted once"].runs == -14
    assert lines["all"].runs == 28 + 4 * 3
    long = dataclasses.replace(lines["all"], tokens=1_258_291_200)
    assert stages_table([lines["all"], long]).rows[-1][-1] == "1.26 B"
    assert lines["all"].tokens == sum(run.spec.tokens for run in runs) + 12 * setting.question.weights.target * 20 * 128
    for method in (METHODS["ddo"], METHODS["autoscale"]):
        tokens = {run.spec.hash: run.spec.tokens for run in method.runs(Search(setting))}
        assert method.count(Search(setting)) == (len(tokens), sum(tokens.values()))


def test_equal_weights_are_compared_by_the_base_run_where_it_is_as_long(tmp_path: Path) -> None:
    _, setting = make_study(tmp_path, "weights.methods=[ddo,uniform]", "weights.target=90", "weights.base={}")
    uniform = METHODS["uniform"].propose(Search(setting))
    known = {run.spec.hash for run in GOAL.runs(setting)}
    assert [run.spec.hash in known for run in confirmation_runs(setting, uniform)] == [True, True, False]
    assert {stage.name: stage.runs for stage in GOAL.plan_notes(setting, []).stages}["all"] == 14 + 2 * 3 - 2


def test_another_method_and_a_wider_grid_keep_what_is_there(tmp_path: Path) -> None:
    _, setting = make_study(tmp_path, "weights.methods=[ddo]")
    first = {run.name for run in GOAL.runs(setting)}
    _, wider = make_study(tmp_path, "weights.factors=[1/3,1,3,2]", "weights.seeds=3")
    assert first < {run.name for run in GOAL.runs(wider)}


def test_later_rounds_follow_from_earlier_ones(tmp_path: Path) -> None:
    study, setting = make_study(tmp_path, "weights.rounds=2", "weights.methods=[ddo]")
    first = GOAL.runs(setting)
    half = trained(study, setting, first[:-1])
    assert {run.name for run in GOAL.runs(half)} == {run.name for run in first}
    losses, early = Search(half), Search(half)
    early.points = losses.points[losses.points["step"] < losses.points["step"].max()]
    assert [losses.is_done(first[0]), early.is_done(first[0])] == [True, False]
    with pytest.raises(StudyError, match=f"1 of 14 runs.*{first[-1].name}"):
        GOAL.recommend(half, list)
    both = GOAL.runs(trained(study, setting, first))
    assert (len(both), sum(run.spec.tokens for run in both)) == METHODS["ddo"].count(Search(setting))
    assert len(both) == 28
    content = recommended(study, setting)
    rounds = content.proposals[0].details.designs
    assert len(rounds) == 2
    assert rounds[1].base == pytest.approx(rounds[0].weights, abs=1.5 / 90)
    # What is read again is what was decided before.
    again = GOAL.runs(setting.fresh())
    assert {run.name for run in again} == {run.name for run in both}


def test_a_known_law_is_found_and_continued(tmp_path: Path) -> None:
    study, setting = make_study(tmp_path, "weights.rounds=2")
    content = recommended(study, setting)
    assert content.method == "autoscale"
    assert [row.method for row in content.proposals] == ["autoscale", "autoscale-offsets", "ddo", "uniform"]
    tokens = content.target.tokens

    def mean(values: np.ndarray) -> float:
        weights = dict(zip(DOMAINS, np.abs(values) / np.abs(values).sum()))
        return sum(loss(domain, weights, tokens) for domain in DOMAINS) / 3

    best = minimize(mean, np.full(3, 1 / 3), method="Nelder-Mead").fun
    comparison = compared(study, setting)
    rows = {row.method: row for row in comparison.methods}
    autoscale, ddo, uniform = (rows[name] for name in ("autoscale", "ddo", "uniform"))
    assert uniform.value > ddo.value > best - 1e-3
    assert autoscale.value == pytest.approx(best, rel=0.005)
    assert autoscale.high < 0
    assert autoscale.difference == pytest.approx(autoscale.value - uniform.value)
    assert uniform.difference is uniform.speed.speed_up is uniform.speed.tokens_saved is None
    assert autoscale.speed.speed_up > 1.1
    assert autoscale.speed.tokens_saved == pytest.approx(tokens * (1 - 1 / autoscale.speed.speed_up))
    assert min(row.above_best for row in rows.values()) == 0
    for row in rows.values():
        assert row.loss == pytest.approx(np.mean(row.values))
        assert row.worst_perplexity == pytest.approx(np.exp(max(row.losses.values())))
    # The curves of the larger scale, a quarter of the target.
    assert autoscale.predicted == pytest.approx(autoscale.loss, rel=0.01)
    assert uniform.predicted is None
    assert uniform.search_tokens == 0 < ddo.search_tokens < autoscale.search_tokens


def test_without_an_effect_of_the_domains_no_path_is_extrapolated(tmp_path: Path, monkeypatch) -> None:
    for domain in DOMAINS:
        monkeypatch.setitem(weights_study.USEFUL, domain, 1.0)
    study, setting = make_study(tmp_path)
    rows = {row.method: row for row in recommended(study, setting).proposals}
    for name in ("autoscale", "autoscale-offsets"):
        assert rows[name].weights == pytest.approx(dict.fromkeys(DOMAINS, 1 / 3))
        assert any(line.startswith("at 90 steps: the losses cannot tell") for line in rows[name].lines)
        assert any(line.startswith("no path is extrapolated where p is 0.05 or more") for line in rows[name].lines)
    assert any("cannot tell the domains apart" in line for line in rows["ddo"].lines)


def test_the_average_may_be_of_perplexities_and_weighted(tmp_path: Path) -> None:
    study, setting = make_study(tmp_path, "weights.average=perplexity", "weights.methods=[ddo,uniform]")
    setting.question.weights.value = {"general": 3, "code": 1}
    recommended(study, setting)
    for row in compared(study, setting).methods:
        general, code = row.losses["general"], row.losses["code"]
        assert row.value == pytest.approx(0.75 * np.exp(general) + 0.25 * np.exp(code), rel=1e-3)
        assert row.loss == pytest.approx(0.75 * general + 0.25 * code)
        assert row.value > row.perplexity == pytest.approx(np.exp(row.loss))
        assert row.predicted is None


@pytest.mark.slow
def test_a_loss_is_predicted_where_perplexities_are_minimised(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.goals.weights.methods.random_mixtures.FOLDS", 2)
    words = ("weights.average=perplexity", "weights.methods=[data-mixing,regmix,uniform]", "weights.scales=[720]")
    study, setting = make_study(tmp_path, *words)
    recommended(study, setting)
    law, trees, _ = compared(study, setting).methods
    assert law.predicted == pytest.approx(law.loss, rel=0.01)
    assert trees.predicted is None


def test_a_domain_with_few_tokens_holds_its_weight(tmp_path: Path) -> None:
    study, setting = make_study(tmp_path, tokens=700_000)
    first, offsets, ddo, _ = recommended(study, setting).proposals
    most = 700_000 / (720 * 20 * 128)
    assert max(first.details.numbers["free"].values()) > most
    for row in (first, offsets):
        assert most - 1.6e-3 < max(row.weights.values()) < most
        assert sum(row.weights.values()) == pytest.approx(1)
    assert any("is held at its cap of 698573 tokens" in line for line in first.lines)
    for row in (first, offsets, ddo):
        assert all(
            row.low[name] <= weight + 1e-12 and weight <= row.high[name] + 1e-12 for name, weight in row.weights.items()
        )
        assert max(row.high.values()) < most
    with pytest.raises(ConfigError, match=r"weights\.target: 720 steps are 1,843,200 tokens, and all domains have"):
        GOAL.runs(make_study(tmp_path, "weights.methods=[autoscale]", tokens=600_000)[1])


def test_too_few_tokens_for_a_perturbation_are_told_before_anything_is_run(tmp_path: Path) -> None:
    _, setting = make_study(tmp_path, "weights.methods=[ddo]", tokens=200_000)
    with pytest.raises(ConfigError) as wrong:
        GOAL.runs(setting)
    assert len(wrong.value.lines) == 3
    assert "230,400, 1.15 epochs; give more text, fewer steps (some 130), or allow_repeats=true" in wrong.value.lines[0]
    _, repeated = make_study(tmp_path, "weights.methods=[ddo]", "allow_repeats=true", tokens=200_000)
    assert GOAL.runs(repeated)


def test_a_domain_without_effect_is_said_and_the_rest_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(weights_study.USEFUL, "code", 0.0)
    monkeypatch.setitem(weights_study.HELPS, "code", -0.02)
    study, setting = make_study(tmp_path)
    content = recommended(study, setting)
    flat = [line for line in content.warnings if line.startswith("at 90 steps: code: more of its tokens do not")]
    assert flat == ["at 90 steps: code: more of its tokens do not lower the loss; its exponent is set to 0"]
    assert content.mixture["code"] < 0.2
