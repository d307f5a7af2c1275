"""What is known of an answer: an interval, a confirmation and a question that say too little are not an answer."""

import dataclasses
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from pipeline.goals.registry import goal_of, read_question
from pipeline.question.schema import Question
from pipeline.question.schema.training import ScheduleConfig
from pipeline.show import measured_beside
from pipeline.show.conclusion import Conclusion, conclude, conclusion_of
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.study_page import answer_sentence, study_page
from pipeline.show.tracking.answer import answer_summary
from pipeline.study.artifacts import MISSED_RUN, Confirmation, Interval, PredictedLoss, Recommendation, RecommendedRun
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, Study
from tests.pipeline.goals.ratio.examples import confirmation_row, recommendation
from training.schedule import Piece

QUESTION = read_question(["experiment=quickstart"])
LIMITED = {"kind": "limited-data", "domain_tokens": 3e5}
MET, MISSED = {0.5: [2.058], 0.3: [2.0]}, {0.5: [2.12], 0.3: [2.0]}
OVER = {0.5: [2.063], 0.3: [2.0]}
"""Domain ratio -> losses on general, by seed, whose increase of 3% over 2.0 is asked."""
LOWER, NOISY = {0.5: [2.058], 0.3: [2.0]}, {0.5: [2.0, 2.3], 0.3: [2.2, 2.1], 0.7: [2.1, 2.2]}
"""The same of the loss on code."""
FAR = {"predicted": 2.3457, "low": 2.3, "high": 2.4, "inside": False, "relative_error": 2.3457 / 3 - 1}
NARROW = {"low": 2.05, "high": 2.06, "predicted": 2.055}
WIDE = {"predicted": {"general": PredictedLoss(2.06, 1.9, 2.2), "code": PredictedLoss(3.0, 2.9, 3.1)}}
BELOW = {"predicted": WIDE["predicted"] | {"general": PredictedLoss(1.9, 1.7, 2.05)}}
HARDLY = "the loss on code hardly depends on it"
FAR_AHEAD = {"gain": 0.1, "gain_from": 0.1, "predicted": BELOW["predicted"] | {"code": PredictedLoss(3.0, 2.5, 3.5)}}
ALL = WIDE | {"mixture": {"general": 0.0, "code": 1.0}, "low": 0.9, "high": 1.0}
SEEDS = {0.5: [2.058, 2.062], 0.3: [2.0, 2.001]}
BESIDE = {"warnings": [f"the loss on general {MISSED_RUN}: a run of the fit at 60%"]}
NOTHING = {"low": 0.0, "high": 1.0, "identified": False}
TRAIN, UNKNOWN = "train qwen2-0.7m on 50% code and 50% general", "the domain ratio of code is not known yet"
KEEPS = "train qwen2-0.7m on 49% code and 51% general; by the runs this keeps to the tolerance; "
LOSS = "the loss on code is 3.0000, predicted 2.9000 to 3.1000"
ROSE = "where the loss on general rose by 6.00%, 3% is allowed"


def _answer(question: Question, **changes: Any) -> Recommendation:
    steps = question.target.steps
    target = RecommendedRun(question.model.name, 7e-4, steps * question.tokens_per_step() / 1e9, steps)
    predicted = {"general": PredictedLoss(2.06, 2.0, 2.1), "code": PredictedLoss(3.0, 2.9, 3.1)}
    made = recommendation(target=target, goal=question.goal, predicted=predicted)
    return dataclasses.replace(made, **changes)


def _conclusion(
    folder: Path, losses: dict[float, list[float]] | None, domain: dict[str, Any] | None = None, **changes: Any
) -> Conclusion:
    """What is known of half code, asked for the quickstart or few tokens, by the losses measured on its corpus."""
    few, others = changes.pop("few", False), changes.pop("others", {})
    tolerance = changes.pop("tolerance", QUESTION.goal.tolerance)
    goal = dataclasses.replace(QUESTION.goal, **(LIMITED if few else {"tolerance": tolerance}))
    question = dataclasses.replace(QUESTION, goal=goal, studies=str(folder))
    answer, confirmation = _answer(question, **changes), None
    answer.write(Study(folder))
    if losses:
        rows = []
        for ratio, seeds in losses.items():
            rows.append(confirmation_row("general", ratio, seeds))
            rows.append(confirmation_row("code", ratio, seeds if few else [3.0], before=3.0, **(domain or {})))
        outcome = goal_of(question).outcome(question, answer, rows, others)
        confirmation = Confirmation(0.9, rows, outcome, None, answer.identity)
        confirmation.write(Study(folder))
    known = conclude(Context(question, Study(folder)), answer, confirmation)
    assert not losses or known == conclusion_of(Context(question, Study(folder)))
    return known


@pytest.mark.parametrize(
    ("losses", "changes", "start", "verdict"),
    [
        (None, {}, f"{TRAIN} by prediction; no run has confirmed it yet", "not yet"),
        (None, NOTHING, f"{UNKNOWN}: 90% interval 0.0% to 100.0%", "not yet"),
        (None, {"low": 0.2, "high": 0.99}, UNKNOWN, "not yet"),
        (MET, NOTHING, UNKNOWN, "as predicted, by one seed, which says little"),
        (MET, {}, f"{TRAIN}; the loss on general rose by 2.90%, 3% is allowed; {LOSS}", "as predicted, by one"),
        (
            MET,
            WIDE,
            "50% code is not confirmed: the change of the loss on general is predicted as -5.0% to +10.0%, where 3% is "
            "allowed; the run itself measured +2.90%",
            "not confirmed: the prediction is too wide",
        ),
        (None, BESIDE, f"{UNKNOWN}, since the loss on general {MISSED_RUN}: a run of the fit at 60%", "not yet"),
        # The run itself says more than its neighbour.
        (MET, BESIDE, f"{TRAIN}; the loss on general rose by 2.90%", "as predicted, by one"),
        (None, WIDE, "whether 50% code keeps to the tolerance is not known yet: the change of the loss on", "not yet"),
        (None, BELOW, f"{TRAIN} by prediction; no run has confirmed it yet", "not yet"),
        ({1.0: [2.02], 0.85: [2.0]}, ALL, "train qwen2-0.7m on 100% code and 0% general; the loss on", "as predicted"),
        ({1.0: [2.0, 2.001], 0.85: [2.1, 2.101]}, ALL, "train qwen2-0.7m on 100% code and 0% general;", "confirmed"),
        (OVER, {}, KEEPS, "as"),
        (
            {0.5: [2.063]},
            {},
            f"{TRAIN}; the loss on general rose by 3.15%, 3% is allowed: 0.15 points more, inside its 90% ",
            "as",
        ),
        (
            {0.5: [1.9604]},
            {"tolerance": -0.02, "predicted": WIDE["predicted"] | {"general": PredictedLoss(1.96, 1.95, 1.97)}},
            f"{TRAIN}; the loss on general fell by 1.98%, 2% was asked: 0.02 points short, ",
            "as predicted, by one",
        ),
        (MET, BELOW, f"{TRAIN}; the loss on general rose by 2.90%, 3% is allowed", "as predicted, by one"),
        (SEEDS, WIDE, f"{TRAIN}; the loss on general rose by 3.00%", "confirmed"),
        (MISSED, {"low": 0.35}, f"about 40% code, not 50%, {ROSE}", "within its interval, but misses"),
        (MISSED, {"low": 0.45}, f"about 40% code, not 50%, {ROSE}", "not confirmed"),
        ({0.5: [2.12]}, {}, f"50% code is too much: {ROSE.removeprefix('where ')}", "not confirmed"),
        (MET, {"domain": FAR}, "50% code is not confirmed: the predicted loss on code is 21.8% too low", "not con"),
        ({0.5: [2.2, 2.201], 0.3: [2.1, 2.1]}, {}, "50% code is too much: the loss", "not confirmed"),
        ({0.5: [2.01, 2.011], 0.7: [2.03, 2.031]}, {}, "50% code is too little: the loss", "not confirmed"),
        (None, {"gain": 0.001, "gain_from": 0.1}, f"any ratio from 10% to 50% code will do: {HARDLY}", "not yet"),
        # Below the smallest fitted ratio no run has said so.
        (None, {"gain": 0.001}, f"{TRAIN} by prediction; no run has confirmed it yet", "not yet"),
        # Far ahead all ratios have errors in common that are wider than what lies between them.
        (None, FAR_AHEAD, f"{TRAIN} by prediction; no run has confirmed it yet", "not yet"),
        (None, {"mixture": None, "low": None, "high": None}, "no mixture keeps qwen2-0.7m within", "not yet"),
        (
            LOWER,
            {"few": True, "domain": NARROW},
            "50% is not confirmed: the loss on code is 0.0580 lower at 30%",
            "not",
        ),
        # Others of the study, beside which a run of the answer may be alone.
        (
            {0.5: [2.058]},
            {"few": True, "domain": NARROW, "others": {0.3: 2.0}},
            "50% is not confirmed: the loss on code is 0.0580 lower at 30%",
            "not",
        ),
        (
            {0.5: [2.0]},
            {"few": True, "others": {0.3: 2.001, 0.7: 2.1}},
            f"{TRAIN}; the loss on code is 0.0010 higher at 30%, the lowest beside",
            "as predicted, by one seed",
        ),
        (
            NOISY,
            {"few": True},
            f"{TRAIN}; 30% to 70% differ by 0.0000 nats, no more than the noise",
            "as predicted, but",
        ),
        (
            {one: losses[:1] for one, losses in NOISY.items()},
            {"few": True},
            f"{TRAIN}; 30% to 70% differ by 0.2000 nats, by one seed, whose noise is not known",
            "as predicted, by one seed",
        ),
    ],
)
def test_the_headline_says_what_is_known(losses: Any, changes: dict[str, Any], start, verdict, tmp_path) -> None:
    known = _conclusion(tmp_path, losses, **changes)
    assert known.headline.startswith(start)
    assert known.verdict.startswith(verdict)
    assert known.is_known == ("train" in start or "will do" in start)
    if none := start.startswith("no mixture"):
        assert known.remedy == f"Give another tolerance: {shlex.join(['cptlaw', *known.command])}."
        assert known.command[0] == "recommend"
    asked = not (known.is_known or none)
    first = "confirm" if losses is None and start.startswith("whether") else "refine"
    assert known.remedy.startswith(f"What would tell: cptlaw {first}") == asked
    assert none or known.command == ((first, *known.command[1:]) if asked else ())
    assert ("cptlaw confirm" in known.remedy) == (asked and losses is None)


def test_just_above_the_tolerance_the_ratio_that_the_runs_keep_to_is_what_to_train_on(tmp_path: Path) -> None:
    known = _conclusion(tmp_path, OVER)
    assert known.headline.startswith(
        f"{KEEPS}at the predicted 50% code the loss on general rose by 3.15%, 3% is allowed"
    )
    assert known.domain_ratio == 0.49
    made, answer = Confirmation.read(Study(tmp_path)), Recommendation.read(Study(tmp_path))
    outside = [dataclasses.replace(row, inside=row.corpus != "general") for row in made.confirmations]
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    also = conclude(Context(question, Study(tmp_path)), answer, dataclasses.replace(made, confirmations=outside))
    assert also.domain_ratio == 0.49
    assert "0.15 points more, outside its 90% interval" in also.headline
    evidence = Evidence(Context(dataclasses.replace(QUESTION, studies=str(tmp_path)), Study(tmp_path)))
    beside = "predicted 50%, 90% interval 40.0% to 60.0%"
    assert f"tokens on 49% code and 51% general (domain ratio: {beside})." in answer_sentence(evidence)
    assert " These losses are those of the predicted ratio, 50%. " in answer_sentence(evidence)
    evidence.study.write_plan([])
    page = study_page(evidence)
    assert f"49% code by the runs; {beside}</span>" in page
    assert "51% general</span>" in page
    assert '<div class="interval">' not in page
    assert answer_summary(evidence)["domain_ratio_by_runs"] == 0.49
    assert _conclusion(tmp_path, MET).domain_ratio is None


def test_rounds_are_no_remedy_where_the_ratio_is_known_and_the_change_alone_is_not(tmp_path: Path) -> None:
    narrow = _conclusion(tmp_path, None, **WIDE, low=0.46, high=0.54)
    assert narrow.command == ("confirm", str(tmp_path))
    assert narrow.headline.endswith("; up to 46% code, the lower end of its interval, it does with 95% probability")
    assert narrow.remedy == f"What would tell: cptlaw confirm {tmp_path} measures it."
    assert "cptlaw refine" in _conclusion(tmp_path, None, **WIDE, low=0.44, high=0.56).remedy


def test_runs_for_the_fit_that_are_left_would_tell_first(tmp_path: Path) -> None:
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    context = Context(question, Study(tmp_path))
    left: Any = SimpleNamespace(name="left", role="fit")
    context.__dict__["plan"] = [left]
    known = conclude(context, _answer(question, **NOTHING), None)
    assert known.command == ("train", str(tmp_path))
    assert known.remedy == f"What would tell: cptlaw train {tmp_path} trains the runs for the fit that are left."


def test_which_run_would_narrow_the_answer_of_imported_ones_is_named(tmp_path: Path) -> None:
    model = dataclasses.replace(QUESTION.model, path=IMPORTED)
    question = dataclasses.replace(QUESTION, model=model, studies=str(tmp_path))
    known = conclude(Context(question, Study(tmp_path)), _answer(question, **NOTHING), None)
    nearer = f"runs nearer to the one asked about ({model.name}, {QUESTION.target.steps:,} steps, domain_ratio=0.500)"
    assert known.remedy == f"What would tell: {nearer}, brought by cptlaw import."
    assert known.command[-1] == "domain_ratio=0.500"
    rows = [confirmation_row(corpus, 0.5, [2.058]) for corpus in ("general", "code")]
    answer = _answer(question, **NOTHING)
    outcome = goal_of(question).outcome(question, answer, rows)
    made = Confirmation(0.9, rows, outcome, None, answer.identity)
    beside = conclude(Context(question, Study(tmp_path)), answer, made)
    assert beside.remedy.startswith("What would tell: runs beside domain_ratio=0.500 (")
    assert beside.command[-1] == "domain_ratio=RATIO"


def test_refine_corrects_what_the_runs_measured_outside_the_interval(tmp_path: Path) -> None:
    for low, improve in ((0.35, "narrow"), (0.45, "correct")):
        remedy = _conclusion(tmp_path, MISSED, low=low).remedy
        assert f" trains the runs that should {improve} it most, and answers again" in remedy


def test_a_loss_outside_its_interval_is_in_the_headline(tmp_path: Path) -> None:
    missed = {"predicted": 3.05, "low": 3.01, "high": 3.1, "inside": False}
    known = _conclusion(tmp_path, MET, missed)
    assert known.verdict == "general as predicted, code not, by one seed"
    assert known.headline.endswith("the loss on code is 3.0000, predicted 3.0100 to 3.1000; 2 of 4 losses as predicted")


@pytest.mark.parametrize(
    ("losses", "changes", "why"),
    [
        (
            {0.5: [2.09], 0.3: [2.0]},
            {"high": 0.51},
            "All measured losses are inside their 90% intervals, but that of the loss on general is -0.50% to +9.50%, "
            "where 3% is allowed: to lie inside does not confirm 50% code.",
        ),
        (MET, {"domain": FAR}, "2 of 4 measured losses are inside their 90% intervals."),
        (
            LOWER,
            {"few": True, "domain": NARROW},
            "All measured losses are inside their 90% intervals, but they do not say where the loss on code is least.",
        ),
        (MET, {}, ""),
    ],
)
def test_what_holds_of_a_refuted_answer_is_said(losses: Any, changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    known = _conclusion(tmp_path, losses, **changes)
    assert known.why == why
    assert known.inside.endswith(", 3% is allowed") != changes.get("few", False), "the card has the reason"
    assert known.lines[1:] == [line for line in (why, known.remedy) if line]


def _target(**keys: Any) -> dict[str, Any]:
    return {"target": dataclasses.replace(QUESTION.target, **keys)}


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"goal": dataclasses.replace(QUESTION.goal, tolerance=0.05)}, "goal.tolerance=0.03, goal.tolerance=0.05"),
        (_target(steps=900), "target.steps=600, target.steps=900"),
        (_target(global_batch=32), "target.global_batch=16, target.global"),
        (_target(peak_learning_rate=1e-4), "target.peak_learning_rate=0.0006, target.peak_learning_rate=0.0001"),
        (_target(schedule=ScheduleConfig([Piece("constant", 1.0)])), "'target.schedule.pieces=[{shape:cosine,"),
        (
            {"design": dataclasses.replace(QUESTION.design, peaks=[0.5, 2.0])},
            "'design.peaks=[1]', 'design.peaks=[0.5,2]' is",
        ),
        ({"model": dataclasses.replace(QUESTION.model, name="other")}, "model.name=qwen2-0.7m, model.name=other"),
    ],
)
def test_an_answer_to_another_question_is_no_answer(asked: dict[str, Any], line: str, tmp_path: Path) -> None:
    answer = _answer(QUESTION, asked=QUESTION.target, peak_learning_rate=QUESTION.target.peak_learning_rate)
    context = Context(dataclasses.replace(QUESTION, **asked), Study(tmp_path))
    known = conclude(context, answer, None)
    assert not known.is_known
    assert f"out of date: it answers {line}" in known.headline
    of_no_rate = dataclasses.replace(answer, asked=_target(peak_learning_rate=0.0)["target"])
    assert "out of date: it answers" in conclude(context, of_no_rate, None).headline


def test_an_answer_without_the_losses_of_its_corpora_is_no_answer(tmp_path: Path) -> None:
    answer = _answer(QUESTION)
    for lacking in ("loss_before", "predicted", "mixture"):
        other = {corpus: value for corpus, value in getattr(answer, lacking).items() if corpus != "code"}
        known = conclude(Context(QUESTION, Study(tmp_path)), dataclasses.replace(answer, **{lacking: other}), None)
        assert not known.is_known
        assert "out of date: it lacks losses or the ratio of" in known.headline


@pytest.mark.parametrize(
    "changes",
    [
        {"mixture": {"general": 0.4, "code": 0.6}},
        {"goal": dataclasses.replace(QUESTION.goal, tolerance=0.05)},
        {"target": RecommendedRun("m", 1e-4, 1e-3, 20)},
        {"target": RecommendedRun("other", 1e-4, 1e-3, 9)},
        {"peak_learning_rate": 1e-4},
        {"predicted": {"general": PredictedLoss(2.0, 1.9, 2.1)}},
    ],
)
def test_a_confirmation_of_another_answer_counts_for_nothing(changes: dict[str, Any]) -> None:
    answer = recommendation()
    rows = [confirmation_row("general", 0.5, [2.06]), confirmation_row("code", 0.5, [3.0])]
    made = Confirmation(0.9, rows, goal_of(QUESTION).outcome(QUESTION, answer, rows), None, answer.identity)
    other = dataclasses.replace(answer, **changes)
    assert made.is_of(answer, "code")
    assert not made.is_of(other, "code")
    at = dataclasses.replace(made.outcome, places=[dataclasses.replace(made.outcome.places[0], domain_ratio=0.45)])
    assert not dataclasses.replace(made, outcome=at).is_of(answer, "code")
    assert not any(
        dataclasses.replace(made, confirmations=lost).is_of(answer, "code") for lost in ([], rows[:1], rows[1:])
    )
    # What older versions wrote is judged by its places.
    older = dataclasses.replace(made, answer="")
    assert older.is_of(answer, "code")
    assert older.is_of(other, "code") == (not {"mixture", "goal", "target"} & {*changes})


def test_what_runs_of_another_answer_measured_is_said(tmp_path: Path) -> None:
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    before = _answer(question)
    rows = [confirmation_row("general", ratio, [loss]) for ratio, loss in ((0.5, 2.06), (0.35, 2.01))]
    rows = [dataclasses.replace(row, model=before.target.model, steps=before.target.steps) for row in rows]
    made = Confirmation(0.9, rows, goal_of(question).outcome(question, before, rows), None, before.identity)
    now = dataclasses.replace(before, mixture={"general": 0.6, "code": 0.4})
    known = conclude(Context(question, Study(tmp_path)), now, made)
    seen = "runs measured +0.50% at 35% and +3.00% at 50% code on general"
    assert known.headline.endswith(f"no run has confirmed it yet; {seen}")
    assert known.verdict == "not yet"
    again = dataclasses.replace(before, predicted=before.predicted | {"code": PredictedLoss(3.0, 2.95, 3.05)})
    assert conclude(Context(question, Study(tmp_path)), again, made).headline.endswith("compares with this answer")
    # cptlaw refine has made them runs for the fit.
    read = Context(question, Study(tmp_path))
    shorter = SimpleNamespace(steps=1)
    fitted: list[Any] = [
        SimpleNamespace(name=row.run, role="fit", peak=1e-3, model="other", spec=shorter) for row in rows
    ]
    read.__dict__["plan"] = fitted
    assert conclude(read, again, made).headline.endswith(
        f"by prediction; no run outside the fit has confirmed it yet; {seen}, which the fit has read: cptlaw "
        "confirm trains others, of another seed"
    )
    assert conclude(read, now, made).headline.endswith(
        f"no run outside the fit has confirmed it yet; {seen}, which the fit has read"
    )
    higher = dataclasses.replace(again, peak_learning_rate=question.target.peak_learning_rate)
    assert conclude(read, higher, made).headline.endswith(f"{seen} at a peak of 0.001, which the fit has read")
    other = [dataclasses.replace(row, steps=9) for row in rows]
    assert conclude(
        Context(question, Study(tmp_path)), now, dataclasses.replace(made, confirmations=other)
    ).headline == ("train qwen2-0.7m on 40% code and 60% general by prediction; no run has confirmed it yet")


def test_what_an_earlier_confirmation_measured_is_said_too(tmp_path: Path, monkeypatch) -> None:
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    before, peak = _answer(question), question.target.peak_learning_rate
    row = confirmation_row("general", 0.2, [2.01])
    row = dataclasses.replace(row, model=before.target.model, steps=before.target.steps)
    made = Confirmation(0.9, [row], goal_of(question).outcome(question, before, [row]), None, before.identity)
    now = dataclasses.replace(before, mixture={"general": 0.6, "code": 0.4}, peak_learning_rate=peak)
    of = SimpleNamespace(steps=before.target.steps, initial=SimpleNamespace(moments=False))
    runs: list[Any] = [
        SimpleNamespace(name=f"{role}-{peak}-{ratio}", role=role, peak=peak, model=before.target.model,
                        variant="", spec=of, ratio_of=lambda _, ratio=ratio: ratio)
        for role, peak, ratio in (
            ("confirm", peak, 0.4), ("confirm", peak, 0.5), ("confirm", 2 * peak, 0.45), ("fit", peak, 0.41),
            ("confirm", peak, 0.9),
        )
    ]  # fmt: skip
    points = pd.DataFrame({"run": [run.name for run in runs], "corpus": "general", "step": before.target.steps})
    points = points.assign(loss=[2.02, 2.06, 2.05, 2.03, 2.2], role=[run.role for run in runs])
    known = Context(question, Study(tmp_path))
    shorter = SimpleNamespace(steps=1)
    known.__dict__["plan"] = [*runs, SimpleNamespace(name=row.run, role="confirm", peak=peak, model="m", spec=shorter)]
    known.__dict__["points"] = points
    laws = SimpleNamespace(at_peak=lambda _: laws, question=question, points=None, loss=lambda *_: (2.0, 1.9, 2.1))
    monkeypatch.setattr(measured_beside, "answering_laws", lambda _: laws)
    monkeypatch.setattr(measured_beside, "find_target", lambda *_: None)
    monkeypatch.setattr(Study, "state", lambda _, run: "open" if run.ratio_of("code") == 0.9 else "done")
    seen = (
        "runs measured +1.00% at 40%, +1.50% at 41% and +3.00% at 50% code on general, of which the fit has read that "
    )
    seen += "at 41%"
    line, contradicted = measured_beside.measured_beside(known, now, made)
    assert (line, contradicted) == (f"; {seen}; cptlaw confirm compares that at 40% with this answer", "")


def test_an_answer_that_a_run_beside_it_contradicts_is_not_known(tmp_path: Path) -> None:
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    before = _answer(question)
    for ratio, loss, known in ((0.51, 2.12, False), (0.51, 2.08, True), (0.6, 2.12, True)):
        row = confirmation_row("general", ratio, [loss])
        row = dataclasses.replace(row, model=before.target.model, steps=before.target.steps)
        made = Confirmation(0.9, [row], goal_of(question).outcome(question, before, [row]), None, before.identity)
        now = dataclasses.replace(before, mixture={"general": 0.501, "code": 0.499})
        found = conclude(Context(question, Study(tmp_path)), now, made)
        assert found.is_known == known
        assert ("a run at 51% changed the loss on general by +6.00%, where 0.00% to +5.00%" in found.headline) != known


def test_a_run_beside_the_answer_is_compared_with_the_prediction_at_its_own_ratio(tmp_path: Path, monkeypatch) -> None:
    question = dataclasses.replace(QUESTION, studies=str(tmp_path))
    before = _answer(question)
    rows = [confirmation_row("general", ratio, [loss]) for ratio, loss in ((0.51, 2.12), (0.41, 2.02))]
    rows = [dataclasses.replace(row, model=before.target.model, steps=before.target.steps) for row in rows]
    made = Confirmation(0.9, rows, goal_of(question).outcome(question, before, rows), None, before.identity)
    now = dataclasses.replace(before, mixture={"general": 0.501, "code": 0.499})
    monkeypatch.setattr(measured_beside, "find_target", lambda *_: None)
    for high, known in ((2.13, True), (2.11, False)):
        losses = {0.51: (2.1, 2.09, high)}
        laws = SimpleNamespace(question=question, points=None, loss=lambda *of, losses=losses: losses[of[-1]])
        monkeypatch.setattr(measured_beside, "answering_laws", lambda _, laws=laws: laws)
        found = conclude(Context(question, Study(tmp_path)), now, made)
        assert found.is_known == known
    compared = "a run at 51% changed the loss on general by +6.00%, where +4.50% to +5.50% is predicted at 51% code"
    assert f"{compared}; the runs reach 3% at about 45%; runs measured " in found.headline


def test_a_size_that_is_not_known_is_said(tmp_path: Path) -> None:
    goal = dataclasses.replace(QUESTION.goal, kind="compute", flops=6e11, domain_ratio=0.5)
    question = dataclasses.replace(QUESTION, goal=goal)
    size = {"N": Interval(1.5e-4, 1e-4, 2e-4)}
    answer = _answer(question, identified=False, optimum=size, low=0.5, high=0.5)
    known = conclude(Context(question, Study(tmp_path)), answer, None)
    assert known.headline == "the best model for code is not known yet: 90% interval of its size 100 k to 200 k"
    assert known.remedy.endswith(" confirm.seeds=3, or a smaller and a larger model in ladder.")
    assert known.command == ("confirm", *known.command[1:-1], "confirm.seeds=3")
