"""What an active design can choose among, what it costs, and where it ends."""

import dataclasses
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.goals.active.candidates import (
    beside_nearest,
    budget,
    candidate_runs,
    chain_of,
    cost_of,
    losses_before,
    planned_again,
    planned_points,
    pretrained,
    target_row,
    unit,
)
from pipeline.goals.active.history import BUDGET, CANDIDATES, ChosenRun, history_file, read_rounds
from pipeline.goals.active.outlook import plan_lines
from pipeline.goals.active.rounds import chosen_runs, design_runs, first_round, next_round
from pipeline.goals.ratio.answer_warnings import beyond_ratios_at_peak
from pipeline.goals.ratio.answering_laws import with_tried_peaks
from pipeline.goals.ratio.asked import asked_lines
from pipeline.goals.registry import goal_of, read_question
from pipeline.plan.cost import START_SECONDS, run_flops, run_seconds
from pipeline.plan.duration import wall_seconds
from pipeline.plan.kept_steps import kept_steps
from pipeline.plan.runs import continual_run, estimate, planned_runs, pretraining_runs
from pipeline.question.messages import ConfigError
from pipeline.study.artifacts import Machine
from pipeline.study.collect import measured_points, schedules
from pipeline.study.context import Context
from pipeline.study.folder import study_of
from pipeline.study.number_format import duration
from tests.pipeline.goals.active.active_study import all_rounds, asking, setting_of, train
from tests.pipeline.show.report.report_study import long_corpora
from tests.pipeline.small import with_tokens
from training.schedule import learning_rates


def test_a_run_that_is_nearly_as_good_is_no_remark() -> None:
    ratios = {"near": 0.4, "chosen": 0.3}
    said = [beside_nearest(0.41, "chosen", {"near": gain, "chosen": 1.0}, ratios) for gain in (1.0, 0.997, 0.95, 0.94)]
    assert said == ["", "", "", "one at 0.4, nearest to the answer, would narrow it 94% as much for its cost"]


def test_candidates_are_models_lengths_and_ratios(tmp_path: Path) -> None:
    setting = setting_of(tmp_path)
    runs = [one.run for one in candidate_runs(setting)]
    assert {(run.model, run.spec.steps) for run in runs} == {
        (model, steps) for model in setting.models for steps in (300, 600)
    }
    assert len(runs) == len({run.name for run in runs}) == 3 * 2 * 5
    assert {run.role for run in runs} == {"fit"}
    small = candidate_runs(asking(setting, target_size=False, lengths=[0.5, 0.5001]))
    assert {run.model for run in small} == {*setting.question.ladder}
    assert len(small) == 2 * 5


def test_candidates_of_base_models_have_their_names_in_tables() -> None:
    sources = [f"corpora.sources.{name}.path=/tmp" for name in ("general", "domain")]
    words = ["experiment=own", *sources, "ladder=[Qwen/Qwen1.5-0.5B]", "model.path=Qwen/Qwen1.5-1.8B"]
    setting = estimate(read_question([*words, "model.name=large"]), "fp32")
    assert {one.model for one in candidate_runs(setting)} == {"qwen1.5-0.5b", "large"}


@pytest.mark.parametrize("factors", [[0.5], [0.5, 1.0, 1.0]])
def test_candidates_at_other_peaks_are_runs_of_their_own(factors: list[float], tmp_path: Path) -> None:
    setting = asking(setting_of(tmp_path), peaks=factors, ratios=[0.5], lengths=[1.0])
    peaks = {factor * setting.question.target.peak_learning_rate for factor in factors}
    runs = {one.run.name: one.run for one in candidate_runs(setting)}
    assert {run.spec.schedule[0].start for run in runs.values()} == peaks
    assert len(runs) == 3 * len(peaks)
    first = first_round(setting)
    assert {run.peak for run in first.chosen} <= peaks
    # What design.jsonl keeps plans the same runs again.
    assert [planned_again(setting, run, False) for run in first.chosen] == [runs[run.run] for run in first.chosen]


WSD = ("schedule@target.schedule=wsd", "design.lengths=[0.25,0.5,1]")


def test_a_longer_run_continues_a_shorter_one_from_where_its_rate_falls(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, *WSD)
    anew = {(one.model, one.domain_ratio, one.steps): one for one in candidate_runs(setting)}
    short = anew["qwen2-0.3m", 0.5, 150]
    chosen = ChosenRun(short.run.name, "qwen2-0.3m", 0.5, 150, short.seed, 1.0, None)
    once = {(one.model, one.domain_ratio, one.steps): one for one in candidate_runs(setting, [chosen])}
    changed = {cell for cell, one in once.items() if one.run != anew[cell].run}
    assert changed == {("qwen2-0.3m", 0.5, steps) for steps in (300, 600)}
    longer = once["qwen2-0.3m", 0.5, 300]
    assert longer.continues == [150]
    assert (longer.run.start, longer.run.spec.steps) == (f"runs/{short.run.name}/resume/step-120", 180)
    # After a warm-up of its own the rates are those of a run of that length.
    alone = anew["qwen2-0.3m", 0.5, 300].run.spec
    rates = schedules([*setting.once(pretraining_runs).values(), *longer.chain])[longer.run.name].rates
    assert rates[15:] == pytest.approx(learning_rates(alone.schedule, 300, alone.learning_rate_before)[15:], abs=1e-12)
    last = ChosenRun(longer.run.name, "qwen2-0.3m", 0.5, 300, short.seed, 1.0, None, continues=[150])
    twice = next(one for one in candidate_runs(setting, [chosen, last]) if one.continues == [150, 300])
    assert (twice.run.start, twice.run.spec.steps) == (f"runs/{longer.run.name}/resume/step-120", 360)
    assert [planned_again(setting, run, False) for run in (chosen, last)] == [short.run, longer.run]
    # The states that they start from are kept, though no run of the plan starts from them yet.
    kept = [kept_steps(setting.question, run, [])[1] for run in twice.chain]
    assert kept == [[120], [120], []]


@pytest.mark.parametrize("order", [(150, 600, 300), (600, 150), (300, 600, 150)])
def test_a_run_that_was_chosen_stays_the_same_candidate(order: tuple[int, ...], tmp_path: Path) -> None:
    setting, chosen = setting_of(tmp_path, *WSD), list[ChosenRun]()
    for steps in order:
        cells = {(one.model, one.domain_ratio, one.steps): one for one in candidate_runs(setting, chosen)}
        one = cells["qwen2-0.3m", 0.5, steps]
        chosen.append(ChosenRun(one.run.name, one.model, 0.5, steps, one.seed, 1.0, None, continues=one.continues))
    # Under another name it would be trained twice, and counted as two runs.
    assert {one.run for one in chosen} <= {one.run.name for one in candidate_runs(setting, chosen)}


@pytest.mark.parametrize("words", [("design.lengths=[0.25,0.5,1]",), (*WSD, "design.extend=false")])
def test_every_run_begins_anew_without_a_constant_rate_or_if_asked_to(words, tmp_path: Path) -> None:
    setting = setting_of(tmp_path, *words)
    anew = candidate_runs(setting)
    chosen = ChosenRun(anew[0].run.name, anew[0].model, anew[0].domain_ratio, anew[0].steps, anew[0].seed, 1.0, None)
    assert candidate_runs(setting, [chosen]) == anew
    assert kept_steps(setting.question, anew[0].run, []) == ([150], [])


def test_points_of_a_run_that_continues_another_are_planned_as_they_are_collected(tmp_path: Path) -> None:
    words = *WSD, "ladder=[qwen2-0.05m]", "design.tolerance=0.002", "design.ratios=[0.5,0.8]", "design.budget=4e13"
    setting = setting_of(tmp_path, *words)
    all_rounds(setting, 4)
    study = study_of(setting.question)
    chosen = [run for one in read_rounds(study) for run in one.chosen]
    longer = [run for run in chosen if run.continues]
    assert {len(run.continues) for run in longer} == {1, 2}
    # Its cost is that of its own steps.
    first = longer[0]
    alone = continual_run(setting, setting.models[first.model], first.domain_ratio, first.steps, first.seed, "fit")
    assert first.cost < run_flops(alone.spec)
    measured = measured_points(study, study.read_plan(), "general")
    before = losses_before(measured)
    table = planned_points(setting, [chain_of(setting, run) for run in longer], before, "general")
    columns = ["N", "D", "r", "rho", "s1", "s2", "s1_pretrain", "loss_before"]
    rows = table.set_index(["run", "step"])[columns]
    same = measured[measured["corpus"] == "general"].set_index(["run", "step"])[columns]
    assert rows.to_numpy() == pytest.approx(same.loc[rows.index].to_numpy(), rel=1e-9)
    assert len(rows) == len(same[same.index.get_level_values("run").isin([run.run for run in longer])])


def test_an_answer_is_at_a_peak_that_one_of_the_longest_runs_was_made_with(tmp_path: Path) -> None:
    # Its first rates are the peak, in a run of any length.
    setting = asking(setting_of(tmp_path, "schedule@target.schedule=constant"), peaks=[0.5, 1.0, 2.0, 4.0])
    peak = setting.question.target.peak_learning_rate
    assert with_tried_peaks(setting.question, []) is setting.question
    small, target = "qwen2-0.05m", setting.question.model.name

    def peaks_after(*runs: tuple[str, int, float]) -> list[float]:
        plan = [
            continual_run(setting, setting.models[model], 0.5, steps, 0, "fit", peak=peak * factor)
            for model, steps, factor in runs
        ]
        return with_tried_peaks(setting.question, plan).design.peaks

    assert peaks_after((small, 100, 0.5), (small, 100, 2.0), (small, 50, 4.0)) == [0.5, 2.0]
    # Runs of the target's model count before those of others, however long.
    assert peaks_after((small, 200, 4.0), (target, 50, 0.5), (target, 100, 1.0), (target, 100, 2.0)) == [1.0, 2.0]


def test_laws_that_read_no_learning_rates_are_left_out_of_the_average_beside_several_peaks(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, "law=[dcpt,transfer-anchored]")
    small, target = "qwen2-0.05m", setting.question.model.name

    def left_out(*runs: tuple[str, float], fitted: Sequence[str] = ("dcpt", "transfer-anchored")) -> list[str]:
        peak = setting.question.target.peak_learning_rate
        plan = [
            continual_run(setting, setting.models[model], 0.5, 100, 0, "fit", peak=peak * factor)
            for model, factor in runs
        ]
        setting.study.write_plan(plan)
        context = setting.fresh()
        vars(context)["fits"] = dict.fromkeys(context.corpora, dict.fromkeys(fitted))
        return context.laws_without_peaks

    assert left_out((small, 1.0), (target, 2.0)) == []
    assert left_out((small, 1.0), (small, 2.0)) == ["dcpt"]
    assert left_out((small, 1.0), (small, 2.0), fitted=["dcpt"]) == []
    # All are at a ratio of .5.
    seen, peak = setting.fresh(), setting.question.target.peak_learning_rate
    assert not beyond_ratios_at_peak(seen, 0.5, 2 * peak)
    line = f"80% code at a peak of {2 * peak:g} is beyond the points: runs for the fit with it have 50%"
    assert beyond_ratios_at_peak(seen, 0.8, 2 * peak) == line


def test_the_target_is_the_end_of_the_run_that_the_answer_is_for(tmp_path: Path) -> None:
    row = target_row(setting_of(tmp_path), {"qwen2-0.7m": {"general": 2.5}}, "general")
    assert "r" not in row
    (values,) = row.to_dict("records")
    expected = {"step": 600, "tolerance": 0.03, "general_before": 2.5, "loss_before": 2.5}
    assert expected.items() <= values.items()
    assert values["D"] == pytest.approx(600 * 16 * 128 / 1e9)


def test_text_too_short_leaves_runs_out(tmp_path: Path) -> None:
    setting = setting_of(tmp_path)
    short = with_tokens(setting, 400_000, "code")
    runs = [one.run for one in candidate_runs(short)]
    assert 0 < len(runs) < len(candidate_runs(setting))
    assert max(Fraction(run.spec.mixture["code"]) * run.spec.tokens for run in runs) <= 400_000
    with pytest.raises(ConfigError, match=r"corpora\.sources\.code"):
        candidate_runs(asking(short, ratios=[0.9], lengths=[1.0]))


def test_the_budget_is_never_exceeded(tmp_path: Path) -> None:
    # The least one is named at once, whatever unit a number so small was meant in.
    given = r"FLOPs \(by design.budget_unit=auto; or give device-hours or tokens\)"
    for word, number in {"0.1": "0.1", "1e9": r"1e\+09"}.items():
        with pytest.raises(
            ConfigError, match=rf"design.budget: {number} {given}; allowed: 3.14e\+12 or more, the cost"
        ):
            first_round(setting_of(tmp_path, f"design.budget={word}"))
    assert first_round(setting_of(tmp_path, "design.budget=3.14e12")).chosen
    setting = setting_of(tmp_path, "design.tolerance=0.001", "design.budget=6e12")
    rounds = all_rounds(setting)
    assert rounds[-1].stop == BUDGET
    assert 3e12 < rounds[-1].spent <= 6e12
    assert next_round(setting) is None
    found = next_round(asking(setting, budget=1.2e13))
    assert found.chosen
    assert found.spent + sum(run.cost for run in found.chosen) <= 1.2e13


def test_no_more_runs_than_should_reach_the_tolerance(tmp_path: Path) -> None:
    many = first_round(setting_of(tmp_path, "design.batch=8", "design.tolerance=0.001"))
    widths = [run.half_width or 0.0 for run in many.chosen]
    assert len(widths) == 8
    few = first_round(setting_of(tmp_path, "design.batch=8", f"design.tolerance={widths[2] + 1e-9}"))
    assert few.chosen == many.chosen[:3]
    assert few.reason.endswith("the first 3 of them should reach design.tolerance")


def test_without_a_budget_it_is_the_cost_of_the_grid(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, "design.budget=null", "mixture=ratios")
    grid = planned_runs(setting)
    assert setting.once(budget) == sum(run_flops(run.spec) for run in grid if run.model != "qwen2-0.7m")
    none = setting_of(tmp_path, "design.budget=null")
    ratios = f"mixture.domain_ratio={none.question.design.ratios}"
    assert none.once(budget) == setting_of(tmp_path, "design.budget=null", ratios).once(budget)


def test_candidates_may_run_out(tmp_path: Path) -> None:
    few = ("design.ratios=[0.3,0.7]", "design.lengths=[1]", "design.target_size=false", "design.tolerance=0.001")
    rounds = all_rounds(setting_of(tmp_path, *few, "design.budget=1e20"))
    assert rounds[-1].stop == CANDIDATES
    assert sum(len(one.chosen) for one in rounds) == 2 * 2


def test_a_grid_can_have_further_rounds(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, "design=grid", "mixture.domain_ratio=[0.3,0.7]")
    assert not goal_of(setting.question).is_staged(setting.question)
    study = train(setting)
    assert not history_file(study).exists()
    found = next_round(setting, more=True)
    assert found.half_width
    plan = design_runs(setting)
    assert {run.run for run in found.chosen} == {run.name for run in plan} - {run.name for run in study.read_plan()}


def test_each_domain_has_its_own_rounds_and_the_plan_has_all(tmp_path: Path) -> None:
    setting = setting_of(tmp_path)
    corpora = setting.question.corpora
    sources = {**corpora.sources, "law": corpora.sources["code"]}
    corpora = dataclasses.replace(corpora, domains=["code", "law"], sources=sources)
    question = dataclasses.replace(setting.question, corpora=corpora)
    manifest = long_corpora(study_of(question), *corpora.sources)
    for domain in corpora.domains:
        one = dataclasses.replace(question, corpora=dataclasses.replace(corpora, domain=domain))
        study = study_of(one)
        assert next_round(Context(one, study, manifest, "fp32"))
        assert history_file(study) == study.folder / "answers" / domain / "design.jsonl"
    plan = design_runs(Context(question, study_of(question), manifest, "fp32"))
    assert {name for run in plan if run.role == "fit" for name in run.spec.corpora} == {"general", "code", "law"}


@pytest.mark.parametrize("goal", ["trade-off", "limited-data"])
def test_the_first_round_needs_no_points(goal: str, tmp_path: Path) -> None:
    words = ["law=[dcpt,transfer-anchored]", f"goal={goal}"]
    words += ["goal.domain_tokens=3e5"] if goal == "limited-data" else []
    setting = setting_of(tmp_path, *words)
    assert len(first_round(setting).chosen) == 2
    assert first_round(setting) == first_round(setting)


def test_a_model_is_pretrained_when_a_run_of_it_is_chosen(tmp_path: Path) -> None:
    setting = setting_of(tmp_path, "design.batch=1", "design.budget=1e14")
    study = train(setting)
    (chosen,) = first_round(setting).chosen
    planned = {run.model for run in study.read_plan() if run.role == "pretrain"}
    assert planned == {chosen.model, "qwen2-0.7m"} != {*setting.models}
    run = continual_run(setting, setting.models["qwen2-0.3m"], 0.5, 300, 0, "fit")
    dear, cheap = (cost_of(setting, run, pretrained(setting, begun)) for begun in ([], ["qwen2-0.3m"]))
    assert dear == cheap + run_flops(setting.once(pretraining_runs)["qwen2-0.3m"].spec)
    assert pretrained(setting, []) == {"qwen2-0.7m"}
    assert pretrained(asking(setting, kind="grid"), []) == {*setting.models}


def test_a_budget_in_tokens_or_device_hours_chooses_by_that_cost(tmp_path: Path) -> None:
    tokens = setting_of(tmp_path, "design.budget_unit=tokens", "design.budget=3e6")
    run = continual_run(tokens, tokens.models["qwen2-0.3m"], 0.5, 300, 0, "fit")
    assert cost_of(tokens, run, ["qwen2-0.3m"]) == run.spec.tokens
    assert cost_of(tokens, run, []) == run.spec.tokens + tokens.once(pretraining_runs)["qwen2-0.3m"].spec.tokens
    rounds = all_rounds(tokens)
    assert rounds[-1].unit == "tokens"
    assert 0 < rounds[-1].spent <= 3e6
    assert " of at most 3 M tokens so far" in rounds[-1].line()
    # What was chosen in one unit is counted in the other when that is asked for.
    flops = asking(tokens, budget_unit="FLOPs", budget=1e20)
    chosen = chosen_runs(flops)
    assert chosen.runs
    begun = [flops.once(pretraining_runs)[model] for model in {run.model for run in chosen.runs} - {"qwen2-0.7m"}]
    assert chosen.spent == pytest.approx(sum(run_flops(run.spec) for run in [*chosen.runs, *begun]))

    words = ("design.budget_unit=device-hours", "design.budget=0.2")
    hours = setting_of(tmp_path / "hours", *words)
    with pytest.raises(ConfigError, match="prepare has measured none; use precision=auto and prepare again"):
        cost_of(hours, run, ["qwen2-0.3m"])
    study = study_of(hours.question)
    study.folder.mkdir(parents=True)
    speeds = {model: 10_000 for model in hours.models}
    Machine("fp32", speeds, {"fp32": 10_000}, "a CPU").write(study)
    hours = hours.fresh()
    seconds = START_SECONDS + (run_seconds(run.spec, 10_000) or 0.0)
    assert cost_of(hours, run, ["qwen2-0.3m"]) == pytest.approx(seconds / 3600)
    assert "device-hours" in first_round(hours).line()
    line = r", by device-hours, \w+ min on \d+ workers? at the speed that prepare measured, without waits of later "
    line += "rounds, beside"
    assert re.search(line, asked_lines(hours, [])[1])
    # A run of the first round may take one worker longer than all workers have by the budget.
    wall = duration(wall_seconds(hours, [run]) or 0.0)
    assert f", by device-hours, {wall} on " in asked_lines(asking(hours, budget=1e-4), [run])[1]
    # Of jobs, whose devices may be others.
    jobs = dataclasses.replace(hours.question, launcher=dataclasses.replace(hours.question.launcher, kind="slurm"))
    queued = hours.asking(jobs)
    assert ", by device-hours at the speed that prepare measured on a CPU, beside" in asked_lines(queued, [])[1]
    (line,) = plan_lines(queued, [])
    assert line.startswith("first round, of up to 2 runs side by side (design.batch); ")
    # Where no unit is asked for, what is measured decides; a budget without a unit is in FLOPs.
    auto = [asking(hours, budget_unit="auto", budget=None), asking(hours, budget_unit="auto", budget=1e13), tokens]
    assert [one.once(unit) for one in auto] == ["device-hours", "FLOPs", "tokens"]
    Machine("fp32", {"qwen2-0.7m": 10_000}, {"fp32": 10_000}, "a CPU").write(study)
    assert asking(hours, budget_unit="auto", budget=None).once(unit) == "FLOPs"


def test_no_worker_of_this_machine_is_left_without_a_run(tmp_path: Path) -> None:
    """Though one run should be enough for this tolerance."""
    words = ("design.tolerance=0.35", "launcher.workers=3")
    assert len(first_round(setting_of(tmp_path, *words)).chosen) == 1
    own = setting_of(tmp_path, *words, "design.batch=null")
    assert len(first_round(own).chosen) == 3
    question = dataclasses.replace(own.question, launcher=dataclasses.replace(own.question.launcher, kind="slurm"))
    assert len(first_round(Context(question, study_of(question), own.manifest, own.precision)).chosen) == 1
