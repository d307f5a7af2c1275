"""Evaluations keep to `evaluation_budget`, a part of a run's FLOPs; plan says what they skip."""

import pytest

from pipeline.goals.registry import load_question, read_question
from pipeline.plan.cost import evaluation_note, run_flops
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, question_yaml
from training.evaluation_steps import evaluation_steps
from training.parameters import model_size

DENSE = ["experiment=quickstart", "mixture=ratios", "target.steps=200", "continual.evaluation.policy=dense"]
BRANCH = "continual.branches=[{step: 40, steps: 20, schedule: {pieces: [{shape: linear, end: 0}]}}]"


def runs_of(question: Question) -> list[PlannedRun]:
    return planned_runs(estimate(question))


def evaluated_part(run: PlannedRun) -> float:
    """Part of a run's FLOPs that its evaluations take."""
    spec = run.spec
    training = spec.tokens * model_size(spec.model, spec.sequence_length).flops_per_token
    return 1 - training / run_flops(spec)


@pytest.mark.parametrize(("every", "budget"), [(1, 0.05), (7, 0.2), (1, 0.4)])
def test_no_run_evaluates_more_than_its_budget(budget: float, every: int) -> None:
    question = read_question([*DENSE, f"continual.evaluation.every={every}", f"evaluation_budget={budget}", BRANCH])
    for run in runs_of(question):
        steps = evaluation_steps(run.spec.evaluation, run.spec.steps)
        assert (steps[0], steps[-1]) == (0, run.spec.steps)
        assert len(steps) == 2 or evaluated_part(run) <= budget + 1e-12, run.name
        # One evaluation more would exceed it, where any was left out.
        if run.role == "fit" and len(steps) > 2 and run.spec.evaluation.policy == "explicit":
            assert evaluated_part(run) * (len(steps) + 1) / len(steps) > budget * 0.95


def test_without_a_limit_and_for_a_list_the_steps_are_those_asked_for() -> None:
    unlimited = read_question([*DENSE, "continual.evaluation.every=1", "evaluation_budget=1"])
    runs = [run for run in runs_of(unlimited) if run.role == "fit"]
    assert {len(evaluation_steps(run.spec.evaluation, 100)) for run in runs} == {101}
    listed = [*DENSE[:3], "continual.evaluation.policy=explicit", f"continual.evaluation.steps={[*range(50)]}"]
    question = read_question([word.replace(" ", "") for word in listed])
    runs = [run for run in runs_of(question) if run.role == "fit"]
    assert {run.spec.evaluation.steps for run in runs} == {tuple(range(50))}
    assert evaluation_note(runs, question).startswith("evaluation takes 58% of the FLOPs of the continual runs, more")


def test_the_note_names_a_number_of_windows_that_keeps_to_the_budget() -> None:
    words = [*DENSE, "continual.evaluation.every=100", "evaluation_budget=0.1"]
    question = read_question([*words, "validation_windows=400"])
    lines = evaluation_note(runs_of(question), question).splitlines()
    for line, (part, phase) in zip(lines, [("10%", "pre-training"), ("25%", "continual")], strict=True):
        over = f"evaluation takes {part} of the FLOPs of the {phase} runs, more than evaluation_budget=0.1: "
        assert line.startswith(over)
    assert lines[1].endswith(" keeps to it, and makes each loss a mean over fewer windows")
    advised = next(word for word in lines[1].split() if word.startswith("validation_windows="))
    follows = read_question([*words, advised])
    assert evaluation_note(runs_of(follows), follows) == ""


def test_plan_says_how_many_runs_skip_steps() -> None:
    few = read_question([*DENSE, "continual.evaluation.every=50"])
    assert evaluation_note(runs_of(few), few) == ""
    question = read_question([*DENSE, "continual.evaluation.every=50", "pretrain.evaluation.every=1"])
    (line,) = evaluation_note(runs_of(question), question).splitlines()
    assert line.startswith("evaluation takes 25% of the FLOPs of the pre-training runs: 4 of 4 runs skip steps of ")
    both = read_question([*DENSE, "continual.evaluation.every=5", "pretrain.evaluation.every=1"])
    lines = evaluation_note(runs_of(both), both).splitlines()
    assert lines[0] == line
    assert lines[1] == (
        "evaluation takes 24% of the FLOPs of the continual runs: 24 of 24 runs skip steps of their policy, to keep to "
        "evaluation_budget=0.25 (1: no limit)"
    )


def test_plan_says_the_windows_that_were_chosen() -> None:
    own = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b", "mixture=ratios"]
    short = read_question([*own, "target.steps=160", "target.global_batch=8", "continual.evaluation.every=40"])
    line = f"validation_windows={short.validation_windows} of each corpus: as many of 16 to 96 as evaluation_budget="
    assert evaluation_note(runs_of(short), short) == f"{line}{short.evaluation_budget:g} allows"
    # Neither the most, which the budget does not limit, nor a number that was given.
    for words in ([], ["target.steps=160", "target.global_batch=8", "validation_windows=20"]):
        question = read_question([*own, *words])
        assert "of each corpus" not in evaluation_note(runs_of(question), question)


def test_short_runs_have_fewer_windows_and_a_study_keeps_its_number(tmp_path) -> None:
    own = ["experiment=own", "corpora.sources.general.path=a", "corpora.sources.domain.path=b", "mixture=ratios"]
    assert read_question(own).validation_windows == 96
    short = read_question([*own, "target.steps=160", "target.global_batch=8"])
    # A fourth of 80 steps of 8 sequences is 160, of which a forward pass takes a third; 10 evaluations of 2 corpora.
    assert short.validation_windows == 160 * 3 // 20
    tiny = read_question([*own, "target.steps=8", "target.global_batch=8"])
    assert tiny.validation_windows == 16
    (tmp_path / "study.yaml").write_text(question_yaml(short))
    assert load_question(tmp_path / "study.yaml", ["target.steps=800"]).validation_windows == 24
