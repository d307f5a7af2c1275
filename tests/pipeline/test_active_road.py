"""An active design through the command line: real training in rounds, a kill on the way, an answer, one more round."""

import io
import signal
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.active.history import BUDGET, CONFIRMATION, TOLERANCE, DesignRound, read_rounds
from pipeline.study.artifacts import Recommendation
from pipeline.study.folder import Study
from tests.pipeline.small import CPTLAW, refused, small_words, study_in, wait_until
from tests.processes import Forked

DESIGN = (
    *("design=active", "design.ratios=[0.2,0.5,0.8]", "design.lengths=[0.5,1]", "design.batch=2"),
    *("design.tolerance=0.001", "design.budget=1.2e10", "launcher.workers=1"),
    # Trained long enough that general is forgotten, and not all of it may be.
    *("pretrain.steps=200", "target.peak_learning_rate=6e-3", "goal.tolerance=0.1", "bootstrap=4"),
    "confirm.neighbour=0",
)


@pytest.fixture(scope="module")
def words(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return small_words(texts, tmp_path_factory.mktemp("active"), *DESIGN)


def _fit_runs(study: Study) -> set[str]:
    return {planned.name for planned in study.read_plan() if planned.role == "fit"}


@dataclass(frozen=True)
class Trained:
    """A study whose training was killed and given again, and what it had chosen then."""

    study: Study
    rounds: list[DesignRound]
    plan: set[str]


@pytest.fixture(scope="module")
def trained(words: list[str]) -> Trained:
    study = study_in(words)
    assert run(["prepare", *words]) == 0
    with redirect_stdout(io.StringIO()) as out:
        assert run(["plan", *words]) == 0
    assert "at most 1.2e+10 FLOPs" in out.getvalue()
    first = _fit_runs(study)
    assert len(first) == 2
    assert read_rounds(study) == []
    driver = Forked([*CPTLAW, "train", *words])
    wait_until(lambda: len(read_rounds(study)) > 1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert run(["train", *words]) == 0
    rounds = read_rounds(study)
    assert {chosen.run for chosen in rounds[0].chosen} == first
    return Trained(study, rounds, {planned.name for planned in study.read_plan()})


@pytest.mark.slow
def test_rounds_a_kill_an_answer_and_one_more_round(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    study, rounds = trained.study, trained.rounds
    assert rounds[-1].stop in (BUDGET, TOLERANCE)
    assert 0 < rounds[-1].spent <= 1.2e10
    names = [chosen.run for one in rounds for chosen in one.chosen]
    assert len(names) == len({*names}) > 2
    assert _fit_runs(study) == {*names}
    assert {study.state(planned) for planned in study.read_plan()} == {"done"}
    for verb in ("collect", "fit", "recommend", "confirm"):
        assert run([verb, str(study.folder)]) == 0, verb
    confirmed = {planned.name for planned in study.read_plan() if planned.role == "confirm"}
    assert confirmed
    before = Recommendation.path(study).read_bytes()
    capsys.readouterr()
    assert run(["refine", str(study.folder)]) == 0
    said = capsys.readouterr().out
    assert "confirmation runs are points for the fit now" in said
    assert "before: domain ratio" in said
    assert "now:    domain ratio" in said
    more = read_rounds(study)
    assert more[: len(rounds)] == rounds
    assert [one.reason == CONFIRMATION for one in more[len(rounds) :]] == [True, False]
    assert confirmed < _fit_runs(study)
    assert Recommendation.path(study).read_bytes() != before


@pytest.mark.slow
def test_two_machines_that_train_one_study_choose_and_train_as_one_does(trained: Trained, words: list[str]) -> None:
    both = study_in(words, "both")
    assert run(["prepare", *words, "name=both"]) == 0
    drivers = [Forked([*CPTLAW, "train", *words, "name=both"]) for _ in range(2)]
    assert [driver.wait() for driver in drivers] == [0, 0]
    chosen, expected = read_rounds(both), trained.rounds
    assert [[one.run for one in each.chosen] for each in chosen] == [
        [one.run for one in each.chosen] for each in expected
    ]
    assert chosen[-1].stop == expected[-1].stop
    assert {planned.name for planned in both.read_plan()} == trained.plan
    attempts = {
        planned.name: len([*(both.runs / planned.name / "attempts").glob("*.json")]) for planned in both.read_plan()
    }
    assert {*attempts.values()} == {1}, attempts


def test_a_goal_without_a_design_cannot_be_refined(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    grid = [word for word in words if not word.startswith("design")]
    error = refused(["refine", *grid, "goal=compute", "goal.flops=1e9"], capsys, 2)
    assert error == "goal.kind: 'compute' cannot be refined; allowed: trade-off, limited-data, balance"
