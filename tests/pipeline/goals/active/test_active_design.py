"""Rounds of chosen runs on losses from a known law: what is chosen, when it stops, and stops at any moment."""

import dataclasses
import io
import itertools
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fitting import LAWS
from pipeline import steps
from pipeline.done import awaits_refine
from pipeline.goals.active import rounds
from pipeline.goals.active.candidates import (
    CandidateRun,
    asked_run,
    candidate_points,
    candidate_runs,
    deciding_laws,
    losses_before,
    own_cost,
    run_beyond,
)
from pipeline.goals.active.history import (
    BUDGET,
    CANDIDATES,
    CONFIRMATION,
    TOLERANCE,
    DesignRound,
    beyond_reason,
    history_file,
    read_rounds,
    write_rounds,
)
from pipeline.goals.active.outlook import again_lines, begins_again, plan_lines
from pipeline.goals.active.rounds import (
    add_confirmation_runs,
    chosen_runs,
    design_runs,
    ended_by,
    is_answered,
    most_telling,
    next_round,
)
from pipeline.goals.ratio import answer_warnings, law_goal
from pipeline.goals.ratio.asked import asked_lines
from pipeline.goals.ratio.confirm import Place, confirmation_runs
from pipeline.goals.ratio.law_goal import _of_missed_peak
from pipeline.goals.registry import goal_of, read_question
from pipeline.next_command import next_command
from pipeline.plan.cost import run_flops
from pipeline.plan.runs import pretraining_runs
from pipeline.plan.write import add_to_plan
from pipeline.question.design import candidate_peaks
from pipeline.question.messages import ConfigError
from pipeline.question.schema import LawConfig
from pipeline.show.conclusion import Conclusion
from pipeline.steps import step_after
from pipeline.study.artifacts import MISSED_RUN, Recommendation
from pipeline.study.collect import collect, measured_points
from pipeline.study.context import Context
from pipeline.study.fitted_points import selected
from pipeline.study.folder import Study, StudyError, study_of
from pipeline.study.number_format import at_least
from tests.pipeline.goals.active.active_study import all_rounds, asking, setting_of, train, words_of
from tests.pipeline.goals.ratio.examples import recommendation
from tests.pipeline.show.report.report_study import write_runs


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Context, Study]:
    """A study whose rounds have reached the tolerance."""
    setting = setting_of(tmp_path_factory.mktemp("ended"), "design.tolerance=0.006")
    all_rounds(setting)
    return setting, study_of(setting.question)


@pytest.fixture
def copied(ended: tuple[Context, Study], tmp_path: Path) -> tuple[Context, Study]:
    """A copy of that study, to change."""
    setting, study = ended
    shutil.copytree(study.folder, tmp_path / study.folder.name)
    question = dataclasses.replace(setting.question, studies=str(tmp_path))
    return Context(question, study_of(question), setting.manifest, setting.precision), study_of(question)


def test_candidates_have_the_columns_that_their_points_will_have(ended: tuple[Context, Study]) -> None:
    setting, study = ended
    plan = study.read_plan()
    measured = measured_points(study, plan, "general")
    runs = [run for run in plan if run.role == "fit"]
    section = LawConfig(60, 0.1)
    candidates = [CandidateRun(run.model, 0.5, run.spec.steps, run.spec.seed, None, [], [run]) for run in runs]
    planned = candidate_points(setting, candidates, losses_before(measured), "general", section, setting.models)
    names = sorted({name for law in ("dcpt", "transfer-replay") for name in LAWS[law].columns} | {"s2_pretrain"})
    rows = planned.set_index(["run", "step"])[names]
    same = measured[(measured["corpus"] == "general")].set_index(["run", "step"])[names].loc[rows.index]
    # The loss before CPT is that of the end of pre-training, which the run repeats.
    assert rows.to_numpy() == pytest.approx(same.to_numpy(), rel=1e-9)
    assert (planned["step"] >= 60).all()
    assert (planned["r"] >= 0.1).all()
    costs = planned.groupby("run")["cost"].unique()
    assert {name: cost.item() for name, cost in costs.items()} == {
        run.name: run_flops(run.spec) for run in runs if run.name in costs.index
    }


def test_rounds_end_at_the_tolerance(ended: tuple[Context, Study]) -> None:
    setting, study = ended
    rounds = read_rounds(study)
    assert [one.round for one in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[0].half_width is None
    assert rounds[-1].stop == TOLERANCE
    assert (rounds[-1].half_width or 1) <= 0.006 < min(one.half_width or 1 for one in rounds[:-1])
    names = [run.run for one in rounds for run in one.chosen]
    assert len(names) == len({*names}) > 2
    costs = [sum(run.cost for run in one.chosen) for one in rounds]
    assert [one.spent for one in rounds] == pytest.approx([sum(costs[:n]) for n in range(len(rounds))])
    assert {run.name for run in study.read_plan() if run.role == "fit"} == {*names}
    models = {run.model for one in rounds for run in one.chosen} | {"qwen2-0.7m"}
    assert {run.model for run in study.read_plan() if run.role == "pretrain"} == models
    line = rounds[-1].line()
    assert line.startswith(f"after {len(rounds) - 1} rounds: ")
    assert line.endswith(" (design.tolerance=0.006); the ratio is known closely enough")
    assert " of at most 8e+13 FLOPs so far; domain ratio " in line
    assert plan_lines(setting, study.read_plan()) == [
        f"{len(rounds) - 1} rounds of runs so far, {rounds[-1].spent:.2g} FLOPs; no more follow: "
        "the ratio is known closely enough (design.tolerance=0.006)"
    ]
    assert next_round(setting) is None


def test_runs_for_a_large_run_are_apart_in_ratio_as_long_as_they_can_be(tmp_path: Path) -> None:
    words = ["ladder=[]", "large.tokens=1e6", "large.lengths=[0.5,1]", "design.budget=4e13", "design.tolerance=0.001"]
    rounds = all_rounds(setting_of(tmp_path, *words, "design.ratios=[0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]"), 3)
    ratios = sorted(run.domain_ratio for one in rounds for run in one.chosen)
    # By the laws alone .5, .7, .3 and .4 come first.
    assert len(ratios) == 3
    assert all(other - one > 0.29 for one, other in itertools.pairwise(ratios))
    apart = " cost, among domain ratios 0.3 or more from those of other runs, since laws may err elsewhere"
    assert [one.line().endswith(apart) for one in rounds] == [bool(one.chosen) for one in rounds]
    # A run that is not at the ratio nearest to the answer of those that it was chosen among has a reason.
    assert any(run.why for one in rounds for run in one.chosen)


def test_a_length_that_is_added_for_a_large_run_is_chosen(tmp_path: Path) -> None:
    words = ["ladder=[]", "large.tokens=1e6", "design.budget=4e13", "design.tolerance=0.001", "design.ratios=[0.3,0.5]"]
    assert all_rounds(setting_of(tmp_path, *words, "large.lengths=[0.5]"), 8)[-1].stop == CANDIDATES
    added = next_round(setting_of(tmp_path, *words, "large.lengths=[0.25,0.5]"))
    assert added is not None
    assert {run.steps for run in added.chosen} == {150}


@pytest.mark.parametrize(("budget", "given"), [("1e14", True), ("8e12", False)])
def test_a_large_run_begins_with_the_runs_that_are_given(tmp_path: Path, budget: str, given: bool) -> None:
    first = "large.first=[{domain_ratio: 0.9, length: 0.8}, {domain_ratio: 0.3, length: 0.25}]"
    words = ["ladder=[]", "large.tokens=1e6", "large.lengths=[0.5]", f"design.budget={budget}", first]
    (one,) = all_rounds(setting_of(tmp_path, *words), 1)
    chosen = {(run.domain_ratio, run.steps) for run in one.chosen}
    assert (chosen == {(0.9, 480), (0.3, 150)}) == one.line().endswith(" steps; as large.first has them") == given
    assert chosen


def test_a_run_at_an_answer_beyond_all_runs_is_trained(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    candidates = candidate_runs(setting)
    chosen = [dataclasses.replace(run, domain_ratio=0.5) for one in read_rounds(study) for run in one.chosen]
    one = run_beyond(setting, candidates, chosen, 0.97)
    assert one is not None
    assert (one.domain_ratio, one.model, one.steps) == (0.9, setting.question.model.name, setting.question.target.steps)
    assert run_beyond(setting, candidates, chosen, 0.5) is None
    assert run_beyond(setting, [one for one in candidates if one.domain_ratio < 0.6], chosen, 0.97) is None


@pytest.mark.parametrize("recommended", [None, (0.98, 0.002, False), (0.99, 0.001, True)])
def test_a_narrow_answer_beyond_all_runs_gets_a_run(recommended, copied, monkeypatch) -> None:
    setting, study = copied  # Its runs are at 0 to .9.
    write_rounds(study, read_rounds(study)[:-1])
    by_laws = rounds.design
    monkeypatch.setattr(
        rounds, "design", lambda *words, **keys: dataclasses.replace(by_laws(*words, **keys), answer=0.99, before=0.0)
    )
    added = next_round(asking(setting, ratios=[*setting.question.design.ratios, 1.0]), recommended=lambda: recommended)
    assert [run.domain_ratio for run in added.chosen] == [1.0]
    assert (added.answer, added.half_width) == (recommended[:2] if recommended else (0.99, 0.0))
    by = "" if recommended else " by the posterior"
    known = f"; domain ratio {added.answer:.3f}{by}, within design.tolerance=0.006, but it is beyond all runs, "
    assert f"{known}above the largest domain ratio trained (0.9), so one more round" in added.line()
    assert "by the laws" not in added.line()
    low = beyond_reason(0.1, [dataclasses.replace(run, domain_ratio=0.25) for run in added.chosen])
    assert low == "it is beyond all runs, below the smallest domain ratio trained (0.25)"
    # Whether it may confirm the next one.
    assert added.unsettled == (recommended is None or not recommended[2])
    # No run of the others takes anything off a half-width of 0.
    write_rounds(study, read_rounds(study)[:-1])
    added = next_round(setting, recommended=lambda: recommended)
    assert (added.chosen, added.stop) == ([], CANDIDATES)


def test_a_run_that_a_law_leaves_out_is_trained_beyond_all_others(copied: tuple[Context, Study], monkeypatch) -> None:
    setting, study = copied
    write_rounds(study, read_rounds(study)[:-1])
    by_laws = rounds.design
    monkeypatch.setattr(
        rounds, "design", lambda *words, **keys: dataclasses.replace(by_laws(*words, **keys), answer=0.99, before=0.0)
    )
    asked = asking(setting, ratios=[*setting.question.design.ratios, 1.0])
    # Without general text there is nothing that dcpt, say, can be fitted to.
    law = {name: dataclasses.replace(one, min_ratio=0.1) for name, one in asked.question.law.items()}
    added = next_round(asked.asking(dataclasses.replace(asked.question, law=law)), recommended=lambda: None)
    assert ([run.domain_ratio for run in added.chosen], added.is_beyond) == ([1.0], True)


def test_more_runs_are_at_the_peak_of_an_answer_that_a_run_beside_it_contradicts(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    asked = asking(setting, peaks=[0.5, 1.0, 2.0])
    peaks = candidate_peaks(asked.question)
    assert {one.peak for one in candidate_runs(_of_missed_peak(asked))} == {*peaks}
    answer = recommendation(peak_learning_rate=peaks[2])
    answer.write(study)
    assert {one.peak for one in candidate_runs(_of_missed_peak(asked))} == {*peaks}
    dataclasses.replace(answer, warnings=[f"the loss on general {MISSED_RUN}: a run"]).write(study)
    assert {one.peak for one in candidate_runs(_of_missed_peak(asked))} == {peaks[2]}


def test_between_two_rounds_train_is_next(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    chosen = read_rounds(study)
    assert step_after("status", setting) != "train"
    # As while train fits what is measured, or was killed there.
    write_rounds(study, chosen[:-1])
    assert [step_after(verb, setting.fresh()) for verb in ("status", "fit", "report")] == ["train"] * 3
    write_rounds(study, [dataclasses.replace(one, more=True) for one in chosen[:-1]])
    assert step_after("status", setting.fresh()) != "train"


def test_refine_goes_on_only_where_a_run_of_its_rounds_is_done(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    write_rounds(study, [dataclasses.replace(one, more=True) for one in read_rounds(study)[:-1]])
    assert awaits_refine(setting.fresh())
    assert next_command("plan", setting.fresh(), ())[0] == "refine"
    # Planned anew, on other text.
    for done in study.runs.glob("*/DONE"):
        done.unlink()
    assert not awaits_refine(setting.fresh())
    assert next_command("status", setting.fresh(), ())[0] == "train"


def test_what_runs_confirm_needs_no_more_rounds(copied: tuple[Context, Study], monkeypatch) -> None:
    setting, _ = copied
    asked = asking(setting, tolerance=0.003)
    assert next_command("confirm", asked, ()) == ["train", str(asked.study.folder)]
    for known, command, then in (
        (Conclusion("", True), (), "report"),
        (Conclusion("", False, command=("recommend", "else")), ("recommend", "else"), "recommend"),
        (Conclusion("", False, command=("refine", "study")), (), "train"),
    ):
        monkeypatch.setattr("pipeline.next_command.is_answer_confirmed", lambda _: True)
        monkeypatch.setattr("pipeline.next_command.conclusion_of", lambda _, known=known: known)
        assert next_command("confirm", asked, ())[0] == then
        assert not command or next_command("confirm", asked, ()) == [*command]


def test_a_smaller_tolerance_goes_on(copied: tuple[Context, Study]) -> None:
    within = {"tolerance": 0.003, "budget": 1.0001 * chosen_runs(copied[0]).spent}
    settings = [copied[0], asking(copied[0], **within), asking(copied[0], tolerance=0.003)]
    assert [step_after("status", setting) == "train" for setting in settings] == [False, False, True]
    assert not [*again_lines(settings[0])]
    (line,) = again_lines(settings[2])
    assert re.search(r": cptlaw train finds out whether this one needs more, at most \d\.?\d?e\+13 FLOPs$", line)
    added = next_round(asking(copied[0], tolerance=0.003))
    assert added.chosen
    # The round that reached the tolerance had no runs.
    assert added.round == len(read_rounds(copied[1])) - 1
    assert added.line().startswith(f"round {added.round}: ")
    runs = copied[1].read_plan()
    (line,) = plan_lines(asking(copied[0], tolerance=0.003), runs)
    assert line.startswith(f"{added.round} rounds of runs so far, ")
    assert "; more rounds follow until the domain ratio is known within design.tolerance=0.003, at most 8e+13" in line
    spent = sum(run.cost for one in read_rounds(copied[1]) for run in one.chosen)
    (line,) = plan_lines(asking(copied[0], tolerance=0.003, budget=1.0001 * spent), runs)
    assert re.search(r"; no more follow: what is left of [\d.e+]+ FLOPs is enough for no other run$", line)


@pytest.mark.parametrize("stop", [TOLERANCE, BUDGET, None])
def test_train_answers_whatever_ended_the_rounds(copied: tuple[Context, Study], stop: str | None, monkeypatch) -> None:
    setting, study = copied
    setting.question.bootstrap = 2
    monkeypatch.setattr(steps, "context_of", lambda question: setting.asking(question).fresh())
    *earlier, last = read_rounds(study)
    write_rounds(study, [*earlier, dataclasses.replace(last, stop=stop)] if stop else earlier)
    steps.answer_trained(setting.question, Console(file=(fitted := io.StringIO()), width=200))
    assert ("by the laws fitted to all points the domain ratio is " in fitted.getvalue()) == (stop is not None)
    # Of rounds that go on train finds out more.
    assert Recommendation.path(study).exists() == (stop is not None)
    if stop:
        assert step_after("train", setting.fresh()) == "confirm"
        steps.answer_trained(setting.question, Console(file=(shown := io.StringIO())))
        assert not shown.getvalue()


def test_the_budget_is_at_least_that_of_the_runs_that_are_there(copied: tuple[Context, Study]) -> None:
    setting, _ = copied
    spent = chosen_runs(setting).spent
    allowed = rf"{at_least(spent)} or more, the cost of the runs chosen so far, or null".replace("+", r"\+")
    with pytest.raises(ConfigError, match=rf"design.budget: 1e\+09 FLOPs \(by design.*\); allowed: {allowed}"):
        plan_lines(asking(setting, budget=1e9), design_runs(setting))
    # What cptlaw refine chooses counts in no budget, and in what all costs.
    within = asking(setting, budget=1.0001 * spent)
    more = next_round(within, more=True)
    assert more is not None
    runs = design_runs(within)
    (line,) = plan_lines(within, runs)
    assert line.endswith(f"no more follow: the runs so far cost more than {spent:.2g} FLOPs (design.budget)")
    after = dataclasses.replace(more, more=False, spent=chosen_runs(within).spent, chosen=[], stop=BUDGET)
    assert "of at most" not in after.line()
    assert after.line().endswith("; budget spent; a larger design.budget lets cptlaw train go on")
    (cost,) = (line for line in asked_lines(within, runs) if line.startswith("the runs for the fit cost at most "))
    times = chosen_runs(within).spent / own_cost(within, asked_run(within))
    assert f"at most {times:.3g} times that run" in cost


@pytest.mark.slow
def test_the_tolerance_is_reached_only_when_the_recommendation_says_so(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    rounds = read_rounds(study)
    asked: list[float] = []

    def round_after(answer: tuple[float, float] | None) -> DesignRound:
        write_rounds(study, rounds[:-1])
        return next_round(setting, recommended=lambda: asked.append(0.0) or (answer and (*answer, True)))

    wide = round_after((0.4, 0.02))
    assert wide.stop is None
    assert (wide.answer, wide.half_width) == (0.4, 0.02)
    assert ", half of its 90% interval 0.020 (design.tolerance=0.006)" in wide.line()
    assert len(wide.chosen) == 2  # Though the posterior wants none.
    unknown = round_after(None)
    assert unknown.stop is None
    assert unknown.half_width == rounds[-1].half_width
    # Runs of the target's model and length are at 0 to .7.
    assert round_after((0.694, 0.006)).stop == TOLERANCE
    beyond = round_after((0.695, 0.006))
    assert beyond.stop is None
    assert len(beyond.chosen) == 2
    assert (
        "0.695, within design.tolerance=0.006, but neither runs around it nor the round before confirm that, so"
        in beyond.line()
    )
    assert "half of its" not in dataclasses.replace(beyond, chosen=[], stop=BUDGET).line()
    rounds[-2] = dataclasses.replace(rounds[-2], answer=0.69, half_width=0.006)
    assert round_after((0.6961, 0.006)).stop is None
    assert round_after((0.6959, 0.006)).stop == TOLERANCE
    # A round whose recommendation was too wide, or none, confirms nothing, however narrow the posterior was; nor does
    # one of refine, which asks for no recommendation.
    for changes in ({"unsettled": unknown.unsettled}, {"more": True}, {"half_width": 0.0061}):
        before, rounds[-2] = rounds[-2], dataclasses.replace(rounds[-2], **changes)
        assert round_after((0.6959, 0.006)).stop is None
        rounds[-2] = before
    assert len(asked) == 9


def test_a_question_that_was_settled_before_another_one_is_settled_still(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    last = read_rounds(study)[-1]
    write_rounds(study, [*read_rounds(study), dataclasses.replace(last, state="of another goal")])
    assert ended_by(setting.fresh(), chosen_runs(setting.fresh()).rounds) == last
    assert not begins_again(setting.fresh())
    assert next_round(setting.fresh()) is None


def test_a_model_that_is_new_in_the_ladder_may_be_chosen(copied: tuple[Context, Study]) -> None:
    setting, question = copied[0], copied[0].question
    assert next_round(setting) is None
    assert ended_by(setting, read_rounds(copied[1]))
    longer = setting.asking(
        dataclasses.replace(question, ladder=words_of("ladder=[qwen2-0.05m,qwen2-0.15m,qwen2-0.3m]").ladder)
    )
    assert not ended_by(longer, read_rounds(copied[1]))
    assert next_round(longer) is not None


def test_of_two_machines_that_choose_the_first_one_counts(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    *before, last = read_rounds(study)
    write_rounds(study, before)
    other = dataclasses.replace(last, stop=None, reason="chosen on another processor", chosen=before[-1].chosen[:1])

    def meanwhile() -> tuple[float, float, bool]:
        write_rounds(study, [*before, other])
        return 0.694, 0.006, True

    assert next_round(setting, recommended=meanwhile) == other
    assert read_rounds(study) == [*before, other]


def test_recommend_names_the_runs_that_refine_would_choose(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    before = history_file(study).read_bytes()
    named = most_telling(setting)
    assert history_file(study).read_bytes() == before
    found = next_round(setting, more=True)
    assert f"next: {named}; by the laws these narrow it most" in found.line()
    known = dataclasses.replace(found, half_width=1.05 * (found.chosen[-1].half_width or 0.0))
    assert known.line().endswith("but little: what is left is how well the laws hold, which cptlaw confirm measures")
    # Of a round that train chose by itself too.
    stopped = dataclasses.replace(found, more=False, half_width=0.5, chosen=[], stop=BUDGET)
    known_by = f"domain ratio {found.answer:.3f} by the posterior, half of its 90% interval 0.500 (design.tolerance="
    assert known_by in stopped.line()
    by_laws = "by the laws these narrow it most for their cost"
    assert dataclasses.replace(known, more=False).line().endswith(by_laws)
    first = dataclasses.replace(known, more=False, answer=None, half_width=None)
    assert "; by what the laws assume before any measurement these narrow it most" in first.line()
    far = dataclasses.replace(known, chosen=[dataclasses.replace(known.chosen[0], why="one at 0.9 takes less")])
    assert " steps (one at 0.9 takes less); expected half of " in far.line()
    assert "; by the laws this narrows it most for its cost" in far.line()
    assert named.startswith(f"{found.chosen[0].model} at {found.chosen[0].domain_ratio:g} for ")


@pytest.mark.slow
def test_a_wide_answer_is_that_of_fits_to_all_points_and_says_how_it_becomes_narrower(copied, monkeypatch) -> None:
    setting, study = copied
    question, lines = dataclasses.replace(setting.question, bootstrap=2), []
    goal, context = goal_of(question), setting.asking(question)
    ratio, half_width, settled = goal._recommended(context, lines.append) or (0.0, 0.0, False)
    assert settled
    content = Recommendation.read(study)
    assert ratio == (content.mixture or {})["code"]
    assert half_width == pytest.approx(((content.high or 0) - (content.low or 0)) / 2)
    assert 0.0 < half_width < 0.3
    assert "the domain ratio may be known within design.tolerance=0.006" in lines[0]
    (line,) = goal.what_would_sharpen(context.fresh(), content, list)
    assert line.endswith(f"design.tolerance is 0.006: cptlaw refine {study.folder} trains what should narrow it most")
    assert not [*goal.what_would_sharpen(asking(context, tolerance=0.5), content, list)]
    # A narrow ratio whose loss may be anything answers nothing.
    with monkeypatch.context() as patch:
        patch.setattr(goal, "too_wide", lambda question, answer: "the loss may be anything")
        assert goal._recommended(context.fresh(), lines.append) == (ratio, half_width, False)
    assert (
        lines[-2] == f"by the laws fitted to all points the domain ratio is {ratio:.3f}, half of its 90% interval "
        f"{half_width:.3f} (design.tolerance=0.006)"
    )
    follows = "another round follows, as far as design.budget allows"
    assert lines[-1].endswith(f"keeps to goal.tolerance is not known yet: the loss may be anything; {follows}")
    # Without held-out ratios the next line has the ratio by the posterior, which is another one.
    with monkeypatch.context() as patch:
        untested = dataclasses.replace(content, held_out=[])
        patch.setattr(law_goal, "answer_rounds", lambda *_: untested)
        assert goal._recommended(context.fresh(), lines.append) is None
    assert lines[-1].endswith(f"so the ratio by the posterior decides; {follows}")
    # Nor is it known where the laws miss a run that was measured near it.
    with monkeypatch.context() as patch:
        missed = f"the loss on general {MISSED_RUN}: a run of the fit at 90%"
        patch.setattr(answer_warnings, "_missed", lambda *_: iter([missed]))
        assert goal._recommended(context.fresh(), lines.append) == (ratio, half_width, False)
    assert lines[-1] == f"{missed}: the laws do not hold there yet; {follows}"
    law = {"dcpt": LawConfig(min_ratio=1.1)}
    assert goal._recommended(setting.asking(dataclasses.replace(question, law=law)), lines.append) is None


def test_the_law_behind_the_points_is_found(ended: tuple[Context, Study]) -> None:
    """The ratio at which runs of the target's size and length, from the same law, lose what is tolerated."""
    setting, study = ended
    last = read_rounds(study)[-1]
    dense = [Place("qwen2-0.7m", ratio / 100, 600) for ratio in range(20, 60)]
    runs = confirmation_runs(setting, dense)
    copy = Study(study.folder.with_name("dense"))
    copy.write_plan([*setting.once(pretraining_runs).values(), *runs])
    write_runs(copy, setting.question, copy.read_plan())
    points = collect(copy, "general")
    ends = points[(points["corpus"] == "general") & (points["step"] == 600)].sort_values("ratio")
    increase = np.polynomial.Polynomial.fit(ends["ratio"], ends["loss"] / ends["loss_before"] - 1.03, 1)
    (crossing,) = increase.roots()
    assert last.answer == pytest.approx(crossing, abs=0.02)


def test_a_stop_at_any_moment_changes_no_choice(ended: tuple[Context, Study], tmp_path: Path) -> None:
    """Another study, whose command is stopped between any two steps and started again, chooses the same."""
    setting, whole = ended
    question = dataclasses.replace(setting.question, studies=str(tmp_path))
    again = Context(question, study_of(question), setting.manifest, setting.precision)
    study = study_of(question)
    for _ in range(len(read_rounds(whole))):
        found = next_round(again)
        written = history_file(study).read_bytes()
        if found is None or found.stop:
            break
        assert next_round(again) is None  # Stopped before the plan was written.
        names = [run.run for run in found.chosen]
        train(again, *names)
        assert next_round(again) is None  # Stopped before a run ended.
        train(again, names[-1])
        assert next_round(again) is None  # Stopped before the last one ended.
        (study.folder / ".design.jsonl.0.part").write_text("half a li")
        train(again)
        study.plan_file.unlink()  # The points decide, not what was planned or collected of them.
        assert history_file(study).read_bytes() == written
    assert history_file(study).read_bytes() == history_file(whole).read_bytes()


def test_more_is_chosen_beyond_tolerance_and_budget(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    before = read_rounds(study)
    found = next_round(asking(setting, budget=1e12), more=True)
    assert len(found.chosen) == 2
    assert found.more
    # What is asked for by hand keeps to no budget.
    assert f": {found.spent:.2g} FLOPs so far; domain ratio " in found.line()
    assert not {run.run for run in found.chosen} & {run.run for one in before for run in one.chosen}
    # A second start goes on with these, and the answer follows before there are others.
    assert next_round(setting, more=True) is None
    assert not is_answered(setting)
    train(setting)
    assert not is_answered(setting)
    points = measured_points(study, study.read_plan(), "general")
    laws = setting.question.law.items()
    fitted = {corpus: {law: len(selected(points, corpus, own)) for law, own in laws} for corpus in ("general", "code")}
    for counts in ({}, {"code": {"dcpt": 3}}, {**fitted, "general": {"transfer-anchored": 9}}):
        recommendation(fit_points=counts).write(study)
        assert not is_answered(setting)
    path = recommendation(fit_points=fitted).write(study)
    os.utime(path, (1, 1))  # Whatever the clocks of two hosts make of the dates of the files.
    assert is_answered(setting)


def test_finished_confirmation_runs_become_points(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    runs = confirmation_runs(setting, [Place("qwen2-0.7m", 0.693, 600), Place("qwen2-0.7m", 0.543, 600)])
    add_to_plan(study, runs)
    write_runs(study, setting.question, study.read_plan()[:-1])
    (learned,) = add_confirmation_runs(setting)
    assert learned.name == runs[0].name
    assert add_confirmation_runs(setting) == []
    assert read_rounds(study)[-1].reason == CONFIRMATION
    plan = design_runs(setting)
    assert next(run for run in plan if run.spec.hash == runs[0].spec.hash).role == "fit"
    # What a fit has seen confirms nothing.
    seen = {run.spec.hash for run in plan}
    others = confirmation_runs(setting, [Place("qwen2-0.7m", 0.693, 600)], seen)
    assert [run.spec.seed for run in others] == [1]


def test_rounds_of_another_question_are_kept_and_not_counted(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    written = read_rounds(study)
    other = setting.asking(dataclasses.replace(setting.question, seed=5))
    assert chosen_runs(other).runs == []
    found = next_round(other)
    assert [run.seed for run in found.chosen] == [5, 5]
    assert found.round == 1
    assert read_rounds(study) == [*written, found]
    assert chosen_runs(setting).rounds == written


def test_a_file_that_is_damaged_or_lost_rounds_is_refused(copied: tuple[Context, Study]) -> None:
    setting, study = copied
    file, rounds = history_file(study), read_rounds(study)
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    write_rounds(study, rounds[:2])
    first = file.read_bytes().splitlines(keepends=True)[0]
    for content, problem in (
        (b"", "cut off, "),
        (whole[:-1], "cut off, "),
        (lines[0] + lines[1][:50], "cut off, "),
        (lines[0], f": 1 of {len(lines)} lines are left; "),
        (first + b"{\n", "line 2: not a JSON line"),
        (first + b'{"schema": 7, "lines": 2}\n', "line 2: schema 7; this version reads 1"),
        (first + b'{"schema": 1, "round": "two", "lines": 2}\n', "line 2: round = 'two'"),
    ):
        file.write_bytes(content)
        with pytest.raises(
            StudyError, match=f"^{file}.*{problem}.*delete the file to choose anew, the finished runs are"
        ):
            next_round(setting)


@pytest.mark.parametrize(
    ("words", "laws"),
    [
        ([], ["transfer-open-saturating"]),
        (
            ["target.steps=1200", "design.lengths=[0.05,0.1]"],
            ["transfer-open-saturating", "transfer-open", "transfer-open-read"],
        ),
    ],
)
def test_a_law_for_far_targets_weighs_runs_where_the_target_is_far(words: list[str], laws: list[str]) -> None:
    texts = [f"corpora.sources.{name}.path=texts" for name in ("general", "domain")]
    question = read_question(["experiment=base-model", "model.path=model", *texts, *words])
    assert [law.name for law in deciding_laws(question)[1]] == laws
