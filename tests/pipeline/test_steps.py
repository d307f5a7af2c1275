"""Which steps are left, and how they are taken: for each domain, up to what is queued, with a report after failures."""

import dataclasses
import re
import shlex
import shutil
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipeline import steps
from pipeline.cli import verbs
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.registry import goal_of, read_question
from pipeline.question.schema import LawConfig, Question
from pipeline.show.report.pages import write_pages
from pipeline.steps import STEPS, Step, go_on, next_steps
from pipeline.study import collect
from pipeline.study.artifacts import Corpora, Machine, Recommendation
from pipeline.study.context import Context
from pipeline.study.fits import POINTS
from pipeline.study.folder import Study, StudyError, question_yaml
from pipeline.study.number_format import percent
from tests.pipeline.show.report.report_study import long_corpora
from training.attempt import claim
from training.run import Exit

TWO_DOMAINS = ["experiment=dcpt-six-small", "corpora.folder=there", "corpora.domains=[law,music]", "corpora.domain=law"]
ANSWER = ("fit", "recommend", "confirm", "report")


@pytest.fixture
def confirmed(changeable, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A grid that is trained, answered and confirmed."""
    monkeypatch.setattr(Context, "is_prepared", True)
    study, question = changeable
    return context_in(study, dataclasses.replace(question, studies=str(study.folder.parent)))


def context_in(study: Study, question: Question) -> Context:
    (study.folder / "study.yaml").write_text(question_yaml(question))
    Machine("bf16", {}, {"fp32": 1, "bf16": 2}, "a CPU").write(study)
    return Context(question, study, long_corpora(study, *question.corpora.sources))


def asking(question: Question, tolerance: float) -> Question:
    return dataclasses.replace(question, goal=dataclasses.replace(question.goal, tolerance=tolerance))


def test_nothing_but_the_report_is_left_of_a_confirmed_study(confirmed: Context, monkeypatch) -> None:
    assert next_steps(confirmed) == ["report"]
    monkeypatch.setattr(Context, "is_prepared", False)
    assert next_steps(confirmed.fresh()) == list(STEPS)


def test_a_plan_written_while_confirmation_runs_train_loses_none_of_them(confirmed: Context, monkeypatch) -> None:
    study, whole = confirmed.study, confirmed.plan

    def plan_meanwhile(*_) -> Exit:
        study.write_plan([run for run in whole if run.role != "confirm"])
        return Exit.DONE

    monkeypatch.setattr(steps, "launch", plan_meanwhile)
    monkeypatch.setattr("pipeline.plan.write.planned_corpora", lambda context: context.manifest)
    of_runs = dataclasses.replace(confirmed.question.confirm, around=[0.15])
    asked = confirmed.asking(dataclasses.replace(confirmed.question, confirm=of_runs))
    assert steps.confirm(asked, Console()) == Exit.DONE
    assert {run.name for run in study.read_plan()} == {run.name for run in whole}


@pytest.mark.parametrize(
    ("left", "name"), [("confirm", "confirmation.json"), ("fit", "recommendation.json"), ("collect", "points.parquet")]
)
def test_what_is_missing_is_made_again_with_all_behind_it(confirmed: Context, left: str, name: str) -> None:
    (confirmed.study.folder / name).unlink()
    assert next_steps(confirmed) == list(STEPS)[list(STEPS).index(left) :]
    assert write_pages(confirmed)[0].exists()  # As far as there is something to show.


def test_a_law_that_the_points_do_not_suffice_for_is_not_fitted_for_ever(confirmed: Context, monkeypatch) -> None:
    study, law = confirmed.study, {**confirmed.question.law, "dcpt": LawConfig(min_ratio=1.0)}
    points = confirmed.points
    monkeypatch.setattr(Context, "points", points[(points["r"] < 1) | (points["role"] != "fit")])
    context = context_in(study, dataclasses.replace(confirmed.question, law=law, bootstrap=2))
    goal, quiet = goal_of(context.question), Console(quiet=True)
    assert next_steps(context)[0] == "fit"
    goal.fit(context, quiet.print)
    goal.recommend(context := context.fresh(), quiet.print)
    assert "dcpt" not in context.fits[confirmed.question.corpora.domain]
    assert next_steps(context)[0] == "confirm"
    # Of which the last fit does not say that points are missing.
    (study.folder / study.fitted(POINTS)).write_text(f"{context.points_digest}\n")
    assert next_steps(context.fresh())[0] == "fit"


def test_a_confirmation_of_another_answer_is_none(confirmed: Context) -> None:
    answer = Recommendation.read(confirmed.study)
    ratio = (answer.mixture or {})[confirmed.question.corpora.domain]
    moved = {"general": 1 - ratio + 0.1, confirmed.question.corpora.domain: ratio - 0.1}
    dataclasses.replace(answer, mixture=moved).write(confirmed.study)
    assert next_steps(confirmed) == ["confirm", "report"]


def test_another_question_is_planned_anew_and_an_open_run_trained(confirmed: Context) -> None:
    other = dataclasses.replace(confirmed.question, bootstrap=7)
    assert next_steps(confirmed.asking(other))[0] == "plan"
    # Fits know nothing of the tolerance.
    assert next_steps(context_in(confirmed.study, _tolerating(0.01, confirmed).question))[0] == "recommend"
    run = next(run for run in confirmed.plan if run.role == "fit")
    (confirmed.study.runs / run.name / "DONE").unlink()
    assert next_steps(context_in(confirmed.study, confirmed.question))[0] == "train"


def test_planning_another_question_says_what_changes_and_leaves_its_runs_out(confirmed: Context, capsys) -> None:
    asked, (first, second) = confirmed.question, [run for run in confirmed.plan if run.role == "confirm"]

    def planned(**target: int) -> tuple[list[str], str]:
        question = dataclasses.replace(asked, target=dataclasses.replace(asked.target, **target))
        steps.plan(confirmed.asking(question), Console(soft_wrap=True))
        return [run.name for run in confirmed.fresh().plan if run.role == "confirm"], capsys.readouterr().out

    same, printed = planned()
    assert same == [first.name, second.name]
    assert "changes" not in printed
    assert "left out" not in printed
    # A run that confirms an earlier answer and never began would be trained by the next train.
    shutil.rmtree(confirmed.study.runs / second.name)
    begun, printed = planned()
    assert begun == [first.name]
    assert "1 run is of an earlier question and left out" in printed
    assert "stay" not in printed
    kept = confirmed.fresh().plan
    other, printed = planned(global_batch=8)
    assert other == []
    assert "study.yaml: the question of later commands changes: target.global_batch=8 (was 16)" in printed
    assert "1 run is of an earlier question and left out; the files of 1 stay" in printed
    confirmed.study.write_plan(kept)
    assert planned(steps=asked.target.steps // 2)[0] == []


def test_finished_runs_of_another_precision_are_noted(confirmed: Context, capsys) -> None:
    (was,) = {run.spec.precision for run in confirmed.plan}
    other, count = {"fp32": "bf16", "bf16": "fp32"}[was], len(confirmed.plan)
    for dry_run in (True, False):
        question = dataclasses.replace(confirmed.question, precision=other, dry_run=dry_run)
        steps.plan(confirmed.asking(question), Console(soft_wrap=True))
        said = f"{other} is planned, and {count} finished runs in {was} count for nothing; precision={was} keeps them"
        assert f"note: precision: {said}\n" in capsys.readouterr().out


def _change_a_loss(context: Context) -> Context:
    points = context.points.copy()
    points.loc[points["role"] == "fit", "loss"] += 1e-6
    collect._write(points, context.study.folder / "points.parquet")
    return context.fresh()


def _miscount_the_fitted_points(context: Context) -> Context:
    for path in (context.study.folder / "fits").glob("*.json"):
        path.write_text(path.read_text().replace('"n_points": ', '"n_points": 1'))
    return context.fresh()


def _end_a_run_again(context: Context) -> Context:
    name = next(run.name for run in context.plan if run.role == "fit")
    (context.study.runs / name / "DONE").write_text('{"points": 1}')
    return context.fresh()


def _tolerating(tolerance: float, context: Context) -> Context:
    goal = dataclasses.replace(context.question.goal, tolerance=tolerance)
    return context.asking(dataclasses.replace(context.question, goal=goal))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_change_a_loss, "out of date: it was not fitted to the points that there are now; run cptlaw fit"),
        (_miscount_the_fitted_points, "out of date: the laws were fitted anew since; run cptlaw fit"),
        (_end_a_run_again, "1 of the runs for the fit, .*, ended since cptlaw collect; run cptlaw collect .*"),
        (partial(_tolerating, 0.2), "answers goal.tolerance=.*, but goal.tolerance=0.2 is asked; give goal.tolerance="),
    ],
)
def test_an_answer_that_is_out_of_date_is_not_confirmed(confirmed: Context, change, line: str) -> None:
    steps.plan(confirmed, Console(quiet=True))
    before = confirmed.study.plan_file.read_bytes()
    with pytest.raises(StudyError, match=f"^.*{line}.*$"):
        steps.confirm(change(confirmed), Console())
    assert confirmed.study.plan_file.read_bytes() == before


def test_a_confirmation_has_the_precision_of_the_plan(confirmed: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without machine.json, which is not kept everywhere: another precision would ask for another pre-training."""
    Machine.path(confirmed.study).unlink()
    plan = [dataclasses.replace(run, spec=dataclasses.replace(run.spec, precision="bf16")) for run in confirmed.plan]
    monkeypatch.setattr(Context, "plan", plan)
    monkeypatch.setattr(steps, "not_collected", lambda context: [])
    monkeypatch.setattr("pipeline.plan.write.planned_corpora", lambda context: context.manifest)
    monkeypatch.setattr(steps, "launch", lambda context, console, runs: Exit.CRASH)
    precisions: list[str] = []
    monkeypatch.setattr(LawGoal, "confirmation_runs", lambda goal, context: precisions.append(context.precision) or [])
    monkeypatch.setattr(steps, "add_to_plan", lambda study, runs: None)
    assert steps.confirm(confirmed, Console(quiet=True)) == Exit.CRASH
    assert precisions == ["bf16"]


def test_confirmation_runs_say_why_they_have_another_seed(whole) -> None:
    made, question = whole
    context = Context(question, made)
    run = next(run for run in context.plan if run.role == "fit" and run.spec.seed == question.seed)
    again = dataclasses.replace(run, role="confirm")
    other = dataclasses.replace(again, spec=dataclasses.replace(run.spec, seed=question.seed + 1))
    goal = goal_of(question)
    assert [*goal.why_these(context, [again])] == [*goal.why_these(context, [])] == []
    (line,) = goal.why_these(context, [other])
    corpus = context.corpora[1]
    same = f"{percent(float(Fraction(run.spec.mixture[corpus])))} {corpus} for {run.spec.steps} steps"
    assert line == (
        f"{same} is among the runs for the fit, with seed {question.seed}: so the confirmation runs have seed "
        f"{question.seed + 1}, another order of the text"
    )


def test_a_warning_of_a_fit_is_printed_in_one_round_alone(confirmed: Context, monkeypatch, capsys) -> None:
    rounds = iter(["a round", "another", ""])

    def collect_stage(self, context: Context, log) -> str:
        log("fitting")
        log("  one size only")
        return next(rounds)

    monkeypatch.setattr(LawGoal, "collect_stage", collect_stage)
    monkeypatch.setattr(LawGoal, "is_staged", lambda *_: True)
    monkeypatch.setattr(steps, "launch", lambda *_: Exit.DONE)
    monkeypatch.setattr(steps, "_refuse_changed_text", lambda _: None)
    plans = iter(confirmed.plan)
    monkeypatch.setattr(steps, "planned_now", lambda _: [next(plans)])
    monkeypatch.setattr(steps, "write_plan", lambda *_: [])
    with pytest.raises(StopIteration):
        steps.train(confirmed, Console())
    shown = capsys.readouterr().out
    assert shown.count("fitting\n") > 1
    assert shown.count("  one size only\n") == 1


def test_without_a_precision_the_plan_is_an_estimate(confirmed: Context, capsys: pytest.CaptureFixture[str]) -> None:
    """The text may be prepared by another study."""
    Machine.path(confirmed.study).unlink()
    context = confirmed.asking(dataclasses.replace(confirmed.question, precision="auto"))
    before = confirmed.study.plan_file.read_bytes()
    assert steps.plan(context, Console(soft_wrap=True)) == Exit.DONE
    line = "the precision of this study is not chosen yet: this is an estimate, no plan is written"
    assert f"{line}; run cptlaw prepare, then plan again" in capsys.readouterr().out
    assert confirmed.study.plan_file.read_bytes() == before
    assert steps.step_after("plan", context) == "prepare"
    confirmed.study.plan_file.unlink()
    with pytest.raises(StudyError, match=r"precision of this study is not chosen yet; next: cptlaw prepare 'a=\[\]'$"):
        verbs._refuse_too_early("train", ["a=[]"], context)


def test_a_damaged_question_is_planned_anew_aloud(confirmed: Context, capsys) -> None:
    file = confirmed.study.folder / "study.yaml"
    before = file.read_bytes()
    for content in (b"\xff", b"[" * 5000, b"", b"a: &a 1\nb: *a\n", b"a:\t*x"):
        file.write_bytes(content)
        assert steps.plan(confirmed, Console(soft_wrap=True)) == Exit.DONE
        assert f"{file}: it could not be read (" in capsys.readouterr().out
        assert file.read_bytes() == before


def test_a_damaged_file_is_refused_before_a_plan_is_written(confirmed: Context) -> None:
    target = dataclasses.replace(confirmed.question.target, global_batch=8)
    question = dataclasses.replace(confirmed.question, precision="fp32", target=target)
    files = (confirmed.study.folder / "study.yaml", confirmed.study.plan_file)
    before = [file.read_bytes() for file in files]
    Corpora.path(confirmed.study).mkdir()
    with pytest.raises(StudyError, match=r"corpora\.json: a folder, not a file"):
        steps.plan(confirmed.asking(question), Console(quiet=True))
    Machine.path(confirmed.study).write_text("{")
    with pytest.raises(StudyError, match=r"machine\.json: not JSON"):
        steps.plan(confirmed.asking(question), Console(quiet=True))
    assert [file.read_bytes() for file in files] == before


def test_laws_that_do_not_answer_may_be_left_out_of_a_confirmation(confirmed: Context) -> None:
    question, answer = confirmed.question, Recommendation.read(confirmed.study)
    used = {law for of_law in answer.weights.values() for law in of_law} or {*answer.law.values()}
    law = {name: section for name, section in question.law.items() if name in used} | {"openai": LawConfig()}
    confirmed = confirmed.asking(dataclasses.replace(question, law=law))
    assert isinstance(goal := goal_of(question), LawGoal)
    assert goal.answer(confirmed) == answer


def test_fits_of_other_points_do_not_answer(confirmed: Context) -> None:
    with pytest.raises(StudyError, match="fitted to other points than there are now; run cptlaw fit"):
        goal_of(confirmed.question).recommend(_change_a_loss(confirmed), list)


def test_points_without_a_run_for_the_fit_are_refused_in_one_line(confirmed: Context) -> None:
    confirmed.points["role"] = "pretrain"
    with pytest.raises(StudyError, match=r"^.*no point of a run for the fit; run cptlaw train.*$"):
        goal_of(confirmed.question).fit(confirmed, list)


@pytest.mark.parametrize(
    ("role", "line"), [("fit", "1; cptlaw train "), ("confirm", "1 to confirm the answer; cptlaw c")]
)
def test_status_says_how_many_runs_are_running(role: str, line: str, confirmed: Context, capsys) -> None:
    run = next(run for run in confirmed.plan if run.role == role)
    (confirmed.study.runs / run.name / "DONE").unlink()
    assert claim(confirmed.study.runs / run.name) is not None
    verbs.print_next("status", [], confirmed.question, Exit.DONE, Console(soft_wrap=True))
    said, following = capsys.readouterr().out.splitlines()
    assert said.startswith(f"running now: {line}")
    assert following.startswith("next: cptlaw status ")


def test_status_says_that_a_command_works_between_two_runs(confirmed: Context, capsys, monkeypatch) -> None:
    def said() -> str:
        verbs.print_next("status", [], confirmed.question, Exit.DONE, Console(soft_wrap=True))
        return capsys.readouterr().out

    def fit_between_rounds(*_) -> Exit:
        asked.append(said())
        return Exit.DONE

    asked = [before := said()]
    monkeypatch.setattr(verbs, "carry_out", fit_between_rounds)
    monkeypatch.setattr(verbs, "question_of", lambda verb, words: confirmed.question)
    words = [str(confirmed.study.folder)]
    for verb in ("train", "report"):
        assert verbs.run_words(verb, words, Console(), lambda: None, None) == Exit.DONE
        capsys.readouterr()
    assert "running now" not in before
    # A report trains nothing.
    assert [line.startswith("running now: a command like cptlaw train, ") for line in asked] == [False, True, False]
    assert "\nnext: cptlaw status " in asked[1]
    assert said() == before


@pytest.mark.parametrize("tolerance", [-0.01, None])
def test_a_report_on_another_question_names_recommend_with_its_words(
    tolerance: float | None, confirmed: Context, capsys
) -> None:
    study, answered = confirmed.study, confirmed.question
    asked = answered if tolerance is None else asking(answered, tolerance)
    words = [str(study.folder), f"goal.tolerance={asked.goal.tolerance}"]
    verbs.print_next("report", words, asked, Exit.DONE, Console(soft_wrap=True))
    lines = capsys.readouterr().out.splitlines()
    other = f"it answers goal.tolerance={answered.goal.tolerance}, {words[1]} is asked"
    said = [f"the recommendation is out of date: {other}", f"next: cptlaw recommend {shlex.join(words)}"]
    assert lines == said if tolerance else not {*said} & {*lines}
    # Of what study.yaml asks anew the folder is enough.
    verbs.print_next("report", words[:1], asked, Exit.DONE, Console(soft_wrap=True))
    assert other not in capsys.readouterr().out


def test_what_the_next_command_costs_is_said_before_it(confirmed: Context, monkeypatch, capsys) -> None:
    monkeypatch.setattr("pipeline.plan.write.planned_corpora", lambda context: confirmed.manifest)
    monkeypatch.setattr(Context, "manifest", confirmed.manifest)

    of_runs = dataclasses.replace(confirmed.question.confirm, around=[0.15])
    question = dataclasses.replace(confirmed.question, confirm=of_runs)

    def said() -> list[str]:
        verbs.print_next("status", [], question, Exit.DONE, Console(soft_wrap=True))
        return capsys.readouterr().out.splitlines()

    (confirmed.study.folder / "confirmation.json").unlink()
    runs = [run for run in confirmed.plan if run.role == "confirm"]
    nothing, following = said()
    assert nothing == "cptlaw confirm trains nothing: the runs are done, and it compares them with the prediction"
    assert following == f"next: cptlaw confirm {confirmed.study.word}"
    for run in runs:
        (confirmed.study.runs / run.name / "DONE").unlink()
    assert said()[0] == f"cptlaw confirm trains {len(runs)} runs: {len(runs)} times the run asked about, by tokens"
    assert len(runs) > 1
    path = confirmed.study.folder / "recommendation.json"
    path.write_text(path.read_text().replace('"identified": true', '"identified": false'))
    cost, following = said()
    assert following == f"next: cptlaw refine {confirmed.study.word}"
    assert re.match(r"cptlaw refine trains at most 2 runs: at most [\d.]+ times the run asked about, by tokens$", cost)


def test_status_names_train_until_a_job_is_submitted(confirmed: Context, capsys: pytest.CaptureFixture[str]) -> None:
    run = next(run for run in confirmed.plan if run.role == "fit")
    (confirmed.study.runs / run.name / "DONE").unlink()
    launcher = dataclasses.replace(confirmed.question.launcher, kind="slurm")
    question = dataclasses.replace(confirmed.question, launcher=launcher)
    for verb in ("train", "status"):
        verbs.print_next("status", [], question, Exit.DONE, Console(soft_wrap=True))
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"next: cptlaw {verb} ")
        (confirmed.study.folder / "jobs").mkdir(exist_ok=True)


@pytest.mark.parametrize(("verb", "kind"), [("advise", "local"), ("refine", "slurm")])
def test_a_stopped_verb_is_gone_on_with_by_what_status_names(verb: str, kind: str, confirmed: Context, capsys) -> None:
    run = next(run for run in confirmed.plan if run.role == "fit")
    (confirmed.study.runs / run.name / "DONE").unlink()
    launcher = dataclasses.replace(confirmed.question.launcher, kind=kind)
    question = context_in(confirmed.study, dataclasses.replace(confirmed.question, launcher=launcher)).question

    def following(verb: str, code: Exit, **changes: object) -> str:
        asked = dataclasses.replace(question, **changes)
        verbs.print_next(verb, ["asked=1"], asked, code, Console(soft_wrap=True))
        return capsys.readouterr().out.splitlines()[-1]

    named = f"next: cptlaw train {confirmed.study.word}"
    assert following(verb, Exit.RUN_ME_AGAIN) == following("status", Exit.DONE) == named
    # What no file of the study keeps.
    for changes in ({"run": run.name}, {"bootstrap": 7}):
        assert following(verb, Exit.RUN_ME_AGAIN, **changes) == f"next: cptlaw {verb} asked=1"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken; those before train are done, and a plan is there."""
    taken: list[str] = []

    def step(name: str) -> Step:
        def take(context: Context, console: Console) -> Exit:
            of_answer = name in ANSWER
            taken.append(f"{name} {context.question.corpora.domain}" if of_answer else name)
            return Exit.DONE

        return Step(take, lambda context: name in ("prepare", "plan"), of_answer=name in ANSWER)

    monkeypatch.setattr(steps, "STEPS", {name: step(name) for name in steps.STEPS})
    monkeypatch.setattr(steps, "report", steps.STEPS["report"].run)
    monkeypatch.setattr(Context, "plan", [SimpleNamespace(name="run")])
    monkeypatch.setattr(Study, "state", lambda *_: "done")
    return taken


def _fail(name: str, outcome: Exit | Exception, monkeypatch: pytest.MonkeyPatch, domain: str = "law") -> None:
    before = steps.STEPS[name].run

    def run(context: Context, console: Console) -> Exit:
        code = before(context, console)
        if context.question.corpora.domain != domain:
            return code
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setitem(steps.STEPS, name, Step(run, steps.STEPS[name].is_done, steps.STEPS[name].of_answer))


@pytest.mark.parametrize("outcome", [Exit.CRASH, StudyError("no fit"), RuntimeError("a bug")])
def test_what_fails_for_one_domain_leaves_the_other_its_answer(taken, monkeypatch, outcome) -> None:
    question = read_question([*TWO_DOMAINS, "~dense.code"])
    _fail("recommend", outcome, monkeypatch)
    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome), match=str(outcome)):
            go_on(question, Console(quiet=True))
    else:
        assert go_on(question, Console(quiet=True)) == outcome
    law, music = ("fit law", "recommend law", "report law"), [f"{name} music" for name in ANSWER]
    assert taken == ["train", "collect", *law, *music]


def test_a_failed_training_is_reported_for_each_domain(taken, monkeypatch) -> None:
    _fail("train", Exit.CRASH, monkeypatch)
    assert go_on(read_question([*TWO_DOMAINS, "~dense.code"]), Console(quiet=True)) == Exit.CRASH
    assert taken == ["train", "report law", "report music"]


@pytest.mark.parametrize(("launcher", "goes_on"), [("local", True), ("slurm", False)])
def test_a_job_leaves_what_it_has_queued_to_the_next_job(taken, monkeypatch, launcher: str, goes_on: bool) -> None:
    # The run has ended, but was open before: on a cluster a job is behind it.
    states = iter(["open"])
    monkeypatch.setattr(Study, "state", lambda *_: next(states, "done"))
    assert go_on(read_question(["experiment=quickstart", f"launcher={launcher}"]), Console(quiet=True)) == Exit.DONE
    assert ("collect" in taken) == goes_on
