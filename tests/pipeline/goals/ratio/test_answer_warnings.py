"""A run with a spike is named, and a domain loss that does not depend on the ratio is said."""

import dataclasses
import json
from fractions import Fraction

import pandas as pd
import pytest

from fitting import LawAverage
from fitting.law_average import AVERAGE
from pipeline.cli import predict
from pipeline.goals.ratio import law_goal
from pipeline.goals.ratio.answer_warnings import (
    UNFOLLOWED,
    _harmed,
    _missed,
    _spikes,
    answer_warnings,
    beyond_ratios,
    beyond_runs,
    by_weight,
    faded,
    unfollowed,
)
from pipeline.goals.ratio.answering_laws import AnsweringLaws, answering_laws, ratio_of_run
from pipeline.goals.ratio.trade_off_goal import TradeOffGoal
from pipeline.goals.registry import goal_of
from pipeline.question.design import candidate_peaks
from pipeline.show.console import LineConsole
from pipeline.show.tables import recommendation_table
from pipeline.study.artifacts import MISSED_RUN, Recommendation
from pipeline.study.collect import collect
from pipeline.study.context import Context
from pipeline.study.number_format import percent
from pipeline.study.target import Target
from tests.pipeline.show.report.report_study import HOSTILE_CORPUS


@pytest.mark.slow
def test_the_run_with_a_spike_and_a_flat_loss_are_named(changeable) -> None:
    study, question = changeable
    assert not any("a spike?" in line or "is flat" in line for line in Recommendation.read(study).warnings)
    runs = [run for run in study.read_plan() if run.role == "fit"]
    odd = next(run for run in runs if run.model == "qwen2-0.3m")
    for run in runs:
        path = study.runs / run.name / "points.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if line["corpus"] == HOSTILE_CORPUS and line["step"]:
                line["loss"] = 4.0 - line["step"] * 1e-4 + line["loss"] * 1e-4
            if run.name == odd.name and line["step"] == run.spec.steps and line["corpus"] == "general":
                line["loss"] *= 1.3
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    context = Context(dataclasses.replace(question, bootstrap=4), study)
    collect(study, "general")
    assert goal_of(question).fit(context, list).notes[0].startswith("the answer is of an average of the laws: ")
    answer = goal_of(question).recommend(context.fresh(), list)
    assert answer.warnings[0].startswith(f"{odd.name}: a spike? Its loss on general at step {odd.spec.steps}, ")
    assert answer.warnings[0].endswith("; the fit limits the weight of such points: leave the run as it is")
    assert sum("a spike?" in line for line in answer.warnings) == 1
    assert any(line.startswith(f"the loss on {HOSTILE_CORPUS} is flat: ") for line in answer.warnings)
    assert abs(answer.gain or 1.0) < 0.1
    # Its laws read no run without the domain.
    assert answer.gain_from == min(filter(None, (run.ratio_of(HOSTILE_CORPUS) for run in runs)))


def test_laws_that_miss_held_out_losses_by_more_than_their_mean_are_named(whole, monkeypatch, capsys) -> None:
    made, question = whole
    context = Context(question, made)
    tested, laws = context.tested.copy(), answering_laws(context)
    assert [*unfollowed(context, laws)] == []
    ratio = (tested["corpus"] == "general") & (tested["split"] == "ratio")
    errors = dict(zip(laws.weights["general"], (0.5, 0.4)))
    assert len(errors) == 2
    tested.loc[ratio, "relative_error"] = tested["law"].map(errors)
    monkeypatch.setattr(Context, "tested", tested)
    (line,) = unfollowed(context.fresh(), laws)
    named = ", ".join(f"{law} (error {error:.2%})" for law, error in errors.items())
    assert line.startswith(f"the losses on general {UNFOLLOWED} {named} on a ratio that was not run: the mean of ")
    monkeypatch.setattr(predict, "question_of_study", lambda *_: question)
    predict.carry_out([str(made.folder), "domain_ratio=0.5"], LineConsole(), lambda _: None)
    assert f"note: {line}\n" in capsys.readouterr().out
    assert line.endswith(", less than every law of this answer; runs at more ratios tell more")
    best = tested[ratio].drop_duplicates(["run", "step"]).assign(law="power", relative_error=0.0)
    monkeypatch.setattr(Context, "tested", pd.concat([tested, best], ignore_index=True))
    (line,) = unfollowed(context.fresh(), laws)
    assert line.endswith("; power predicts them: cptlaw fit with law=[power] answers by it alone")


@pytest.mark.parametrize("corpus", ["general", HOSTILE_CORPUS])
def test_a_smooth_curve_and_a_run_without_that_text_have_no_spike(corpus: str, whole, monkeypatch) -> None:
    """The law misses all losses of one run on general; one on the domain, of a run that reads none of it."""
    made, question = whole
    context = Context(question, made)
    points, laws = context.points.copy(), answering_laws(context)
    of_corpus = (points["corpus"] == corpus) & (points["role"] == "fit") & (points["r"] > 0)
    odd = points.loc[of_corpus, "run"].iloc[-1]
    own = (points["run"] == odd) & (points["corpus"] == corpus)
    if corpus == "general":
        points.loc[own & (points["step"] > 0), "loss"] *= 1.2
        why = " does not follow the curve of this run. Its loss on general at step"
    else:
        points.loc[own, "r"] = 0.0
        points.loc[own & (points["step"] == points.loc[own, "step"].max()), "loss"] *= 1.5
        why = f": the run reads no {HOSTILE_CORPUS}, and "
    monkeypatch.setattr(Context, "points", points)
    (line,) = (line for line in _spikes(context.fresh(), laws) if f"on {corpus} at step" in line)
    assert line.startswith(f"{odd}: ")
    assert why in line
    assert "spike" not in line
    assert line.endswith("leave the run as it is")


def test_a_ratio_beyond_the_fitted_ones_is_said_once(whole) -> None:
    made, question = whole
    laws, law = answering_laws(Context(question, made)), next(iter(question.law))
    # Ratios of the corpus itself, so that both are fitted at 10 to 90% of the domain.
    fits = {
        corpus: {law: dataclasses.replace(of[law], ranges={**of[law].ranges, "r": (0.1, 0.9)})}
        for corpus, of in laws.fits.items()
    }
    laws = dataclasses.replace(laws, fits=fits, law=dict.fromkeys(laws.corpora, law))
    assert beyond_ratios(laws, 0.1) == beyond_ratios(laws, 0.9) == ""
    # Hardly.
    assert beyond_ratios(laws, 0.901) == beyond_ratios(laws, 0.091) == ""
    fitted = f"the loss on general and {HOSTILE_CORPUS} was fitted at 10% to 90%"
    assert beyond_ratios(laws, 1.0) == f"100% {HOSTILE_CORPUS} is beyond the points: {fitted}"
    assert beyond_ratios(laws, 0.05).endswith(fitted)


def test_how_long_the_runs_near_the_answer_are_is_in_the_line_of_its_ratio(whole) -> None:
    made, question = whole
    context = Context(question, made)
    laws = answering_laws(context)
    answer = goal_of(question).solve(laws)
    ratio = answer.domain_ratio
    assert ratio is not None

    def lines(*lengths: tuple[float, float]) -> list[str]:
        """Those of runs for the fit with these ratios, and parts of the length of the run asked about."""
        (run, *_) = (run for run in Context(question, made).plan if run.role == "fit")
        context.__dict__["plan"] = [
            dataclasses.replace(
                run,
                spec=dataclasses.replace(
                    run.spec,
                    mixture={"general": str(1 - at), HOSTILE_CORPUS: str(at)},
                    steps=round(part * answer.target.D * 1e9 / run.spec.tokens_per_step),
                ),
            )
            for at, part in lengths
        ]
        return [line for line in answer_warnings(context, laws, answer, None) if "beyond the points" in line]

    shown = percent(ratio_of_run(ratio))
    assert not any("in length" in line for line in lines((0.36, 0.5), (0.4, 0.25), (0.6, 0.5)))
    assert not any("in length" in line for line in lines((0.36, 1.0), (0.4, 0.25), (0.9, 1.5)))
    (line,) = (line for line in lines((0.36, 0.25), (0.4, 0.5), (0.6, 0.75), (0.8, 1.0)) if "in length" in line)
    near = (
        "the longest run for the fit within 10 points of it is 50% as long as the run asked about, one at 80% is 100%"
    )
    assert line == f"{shown} {HOSTILE_CORPUS} is beyond the points in length: {near}"


def test_an_answer_beyond_all_runs_for_the_fit_is_said(whole) -> None:
    made, question = whole
    context = Context(question, made)
    ratios = [(run, float(Fraction(run.spec.mixture.get(HOSTILE_CORPUS, "0")))) for run in context.plan]
    left = [(run, ratio) for run, ratio in ratios if run.role == "fit" and ratio < 1]
    context.__dict__["plan"] = [run for run, _ in left]
    most = max(ratio for _, ratio in left)
    assert beyond_runs(context, most + 0.01) == ""
    assert beyond_runs(context, 1.0) == f"; no run for the fit is above {100 * most:.0f}% {HOSTILE_CORPUS}"
    context.__dict__["question"] = dataclasses.replace(question, general_from=["studies/other"])
    assert beyond_runs(context, 1.0) == ""


def test_a_run_of_the_fit_that_the_laws_miss_beside_the_answer_is_said(whole) -> None:
    made, question = whole
    context = Context(question, made)
    laws = answering_laws(context)
    answer = goal_of(question).solve(laws)
    assert not [*_missed(context, laws, answer)]
    # Its runs for the fit are of other models; those that confirm stand for some of its own.
    context.__dict__["plan"] = [dataclasses.replace(run, role="fit") for run in made.read_plan()]
    at_the_end = (laws.points["step"] == answer.target.steps) & (laws.points["corpus"] == "general")
    below, at = sorted({*laws.points.loc[at_the_end & (laws.points["role"] == "confirm"), "ratio"]})
    answer = dataclasses.replace(answer, domain_ratio=at - 0.01)
    for factor, ratios in ((1.0, []), (1.5, [at]), (1.5, [below]), (1.5, [below, at])):
        other = at_the_end & laws.points["ratio"].isin(ratios)
        losses = laws.points["loss"].where(~other, laws.points["loss"] * factor)
        lines = [*_missed(context, dataclasses.replace(laws, points=laws.points.assign(loss=losses)), answer)]
        missed = f"the loss on general {MISSED_RUN} is not as predicted: a run of the fit at"
        starts = [f"{missed} {percent(ratio)} " for ratio in ratios]
        assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * len(ratios)
    # Runs of several seeds are judged by their mean.
    seeds = laws.points[at_the_end & (laws.points["ratio"] == at)]
    far = [seeds.assign(loss=seeds["loss"] * factor) for factor in (0.5, 1.5)]
    for others, lines in ((far, 0), (far[1:], 1)):
        points = pd.concat([laws.points, *others], ignore_index=True)
        assert len([*_missed(context, dataclasses.replace(laws, points=points), answer)]) == lines
    # A third run is not beside it, while there is one on each side.
    answer = dataclasses.replace(answer, domain_ratio=at + 0.01)
    other = at_the_end & (laws.points["ratio"] == below)
    losses = laws.points["loss"].where(~other, laws.points["loss"] * 1.5)
    assert not [*_missed(context, dataclasses.replace(laws, points=laws.points.assign(loss=losses)), answer)]


def test_the_loss_on_the_domain_makes_no_ratio_of_a_trade_off_unknown_but_the_peak(whole) -> None:
    made, question = whole
    context = Context(question, made)
    laws = answering_laws(context)
    answer = goal_of(question).solve(laws)
    context.__dict__["plan"] = [dataclasses.replace(run, role="fit") for run in made.read_plan()]
    of_domain = (laws.points["step"] == answer.target.steps) & (laws.points["corpus"] == HOSTILE_CORPUS)
    laws = dataclasses.replace(laws, points=laws.points.assign(loss=laws.points["loss"].where(~of_domain, 9.0)))
    for peaks, decides in (([1.0], False), ([0.5, 1.0], True)):
        asked = dataclasses.replace(question, design=dataclasses.replace(question.design, peaks=peaks))
        lines = [*_missed(context, dataclasses.replace(laws, question=asked), answer)]
        assert lines
        assert [MISSED_RUN in line for line in lines] == [decides] * len(lines)


def test_a_law_that_counts_less_at_the_answer_is_named(whole, monkeypatch, capsys) -> None:
    made, question = whole
    laws = answering_laws(Context(question, made))
    answer = goal_of(question).solve(laws)
    assert [*faded(laws, answer.domain_ratio)] == []
    average = laws.fit("general")
    assert isinstance(average, LawAverage)
    first, *others = average.fits
    ranges = {law: {**fit.ranges, "r": (0.0, 1.0)} for law, fit in average.fits.items()}
    # Half of its way from the ratio at which the others begin.
    ranges[first]["r"] = (0.2, 1.0)
    part = {law: dataclasses.replace(fit, ranges=ranges[law]) for law, fit in average.fits.items()}
    fits = {**laws.fits, "general": {**part, AVERAGE: dataclasses.replace(average, fits=part)}}
    laws = dataclasses.replace(laws, fits=fits)
    (line,) = faded(laws, 0.9)
    weight, rest = average.weights[first], sum(average.weights[law] for law in others)
    now = 0.5 * weight / (0.5 * weight + rest)
    assert line == f"{first} was fitted to no run below 20% general: at 10% its weight is {now:.0%}, not {weight:.0%}"
    monkeypatch.setattr(predict, "answering_laws", lambda _: laws)
    monkeypatch.setattr(predict, "question_of_study", lambda *_: question)
    predict.carry_out([str(made.folder), "domain_ratio=[0.5,0.9]"], LineConsole(), lambda _: None)
    assert capsys.readouterr().out.count(f"note: {line}\n") == 1
    # The recommendation holds the weights of its own ratio.
    monkeypatch.setattr(law_goal, "answering_laws", lambda _: laws)
    monkeypatch.setattr(TradeOffGoal, "solve", lambda *_: dataclasses.replace(answer, domain_ratio=0.9))
    monkeypatch.setattr(Recommendation, "write", lambda *_: None)
    content = TradeOffGoal().recommend(Context(question, made), list)
    assert content.weights["general"][first] == pytest.approx(now)
    shown = next(row for row in recommendation_table(content, question).rows if row[0] == "average on general")
    assert f"{first} {now:.0%}" in shown[1]


@pytest.mark.parametrize(("alone", "noted"), [(4.9, True), (5.1, False)])
def test_predict_notes_a_loss_that_rises_because_other_laws_count(
    alone: float, noted: bool, whole, monkeypatch, capsys
) -> None:
    made, question = whole
    monkeypatch.setattr(predict, "question_of_study", lambda *_: longer)
    longer = dataclasses.replace(question, target=dataclasses.replace(question.target, steps=1200))

    def loss(laws: AnsweringLaws, target: Target, corpus: str, ratio: float) -> tuple[float, float, float]:
        far = 6.0 if laws.law[corpus] == AVERAGE else alone
        return far if target.steps == 1200 and corpus == "general" else 5.0, 1.0, 9.0

    monkeypatch.setattr(AnsweringLaws, "loss", loss)
    predict.carry_out([str(made.folder), "domain_ratio=0.2"], LineConsole(), lambda _: None)
    line = f"note: at 20% {HOSTILE_CORPUS} the loss on general is predicted above that of 300 steps, 5.0000, though no "
    assert (line in capsys.readouterr().out) == noted


def test_a_run_of_the_fit_above_the_tolerance_at_the_answer_itself_is_said(whole) -> None:
    made, question = whole
    context = Context(question, made)
    laws = answering_laws(context)
    context.__dict__["plan"] = [dataclasses.replace(run, role="fit") for run in made.read_plan()]
    points, answer = laws.points, goal_of(question).solve(laws)
    of_run = (points["step"] == answer.target.steps) & (points["corpus"] == "general") & (points["role"] == "confirm")
    at, before = points.loc[of_run, "ratio"].max(), answer.target.before["general"]
    for change, ratio, measured in ((0.01, at, True), (-0.01, at, False), (0.01, at + 0.01, False)):
        loss = points["loss"].where(~of_run, before * (1 + question.goal.tolerance + change))
        there = dataclasses.replace(laws, points=points.assign(loss=loss))
        lines = [*_missed(context, there, dataclasses.replace(answer, domain_ratio=ratio))]
        line = f"at {percent(at)} runs of the fit measured {question.goal.tolerance + 0.01:+.2%} on general"
        assert [line in one for one in lines if "tolerance" in one] == [True] * measured


def test_a_law_without_learning_rates_has_no_part_in_the_answer_beside_several_peaks(whole) -> None:
    made, question = whole
    context = Context(question, made)
    named = next(iter(question.law))
    assert all(named in of_law for of_law in answering_laws(context).weights.values())
    context = context.fresh()
    vars(context)["laws_without_peaks"] = [named]
    laws = answering_laws(context)
    assert not any(named in of_law for of_law in (*laws.weights.values(), laws.law.values()))
    answer = goal_of(question).solve(laws)
    assert f"{named}: not in the average, since no learning" in "\n".join(answer_warnings(context, laws, answer, None))


def test_an_answer_at_an_end_of_the_tried_peaks_is_said(whole) -> None:
    made, question = whole
    context = Context(question, made)
    laws = answering_laws(context)
    design = dataclasses.replace(question.design, peaks=[0.5, 1.0, 2.0])
    tried = dataclasses.replace(laws, question=dataclasses.replace(laws.question, design=design))
    low, middle, high = candidate_peaks(tried.question)
    solved = goal_of(question).solve(laws)
    for peak, end in ((low, "smallest"), (middle, ""), (high, "largest")):
        answer = dataclasses.replace(solved, peak=peak)
        lines = [line for line in answer_warnings(context, tried, answer, None) if line.startswith("its peak")]
        said = f"its peak learning rate is the {end} of those tried ({low:g}, {middle:g}, {high:g}): one beyond may be "
        assert [line.startswith(said) for line in lines] == [True] * bool(end)
    # Of peaks that no full run has had, it is not known.
    wider = dataclasses.replace(question, design=dataclasses.replace(question.design, peaks=[0.5, 1.0, 2.0, 4.0]))
    answer = dataclasses.replace(solved, peak=high)
    (line,) = (line for line in answer_warnings(Context(wider, made), tried, answer, None) if "tried" in line)
    said = (
        f"those tried ({low:g}, {middle:g}, {high:g}): design.peaks has {2 * high:g} too, not tried and maybe better; "
    )
    assert line.startswith(f"its peak learning rate is the largest of {said}cptlaw refine '{made.folder}' may choose ")
    assert line.endswith(" such a run, and so may cptlaw train with a larger design.budget")


def test_a_peak_that_harms_the_model_is_said(whole, monkeypatch: pytest.MonkeyPatch) -> None:
    made, question = whole
    context = Context(question, made)
    assert not [*_harmed(context)]
    points = context.points.copy()
    worse = [
        run.name for run in context.plan if run.role == "fit" and float(Fraction(run.spec.mixture["general"])) < 0.6
    ]
    ends = points["run"].isin(worse) & (points["corpus"] == HOSTILE_CORPUS)
    points.loc[ends, "loss"] = points.loc[ends, "loss_before"] + 0.1
    monkeypatch.setattr(Context, "points", points)
    (line,) = _harmed(context.fresh())
    assert line.startswith(f"{len(worse)} of ")
    peak = question.target.peak_learning_rate
    assert f": a peak learning rate of {peak:g} is too high for this model and batch; give a fifth, " in line
    assert line.endswith(f"target.peak_learning_rate={peak / 5:g}")
    assert by_weight(["law: a spike? 3", line])[0] == line
