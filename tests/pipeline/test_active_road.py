"""An active design through the command line: real training in rounds, a kill on the way, an answer, one more round."""

import re
import signal
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.goals.active.history import BUDGET, CONFIRMATION, TOLERANCE, read_rounds
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
def words(texts: Path, tmp_path_factory) -> list[str]:
    return small_words(texts, tmp_path_factory.mktemp("active"), *DESIGN)


def _fit_runs(study: Study) -> set[str]:
    return {planned.name for planned in study.read_plan() if planned.role == "fit"}


@pytest.mark.slow
def test_rounds_of_two_machines_a_kill_an_answer_and_one_more_round(words: list[str], capsys) -> None:
    study = study_in(words)
    for verb in ("prepare", "plan"):
        assert run([verb, *words]) == 0
    assert "at most 1.2e+10 FLOPs" in capsys.readouterr().out
    first = _fit_runs(study)
    assert len(first) == 2
    assert read_rounds(study) == []
    machines = [Forked([*CPTLAW, "train", *words]) for _ in range(2)]
    wait_until(lambda: len(read_rounds(study)) > 1)
    machines[0].send_signal(signal.SIGKILL)
    assert [machine.wait() for machine in machines] == [-signal.SIGKILL, 0]
    assert run(["train", *words]) == 0
    rounds = read_rounds(study)
    assert {chosen.run for chosen in rounds[0].chosen} == first
    assert rounds[-1].stop in (BUDGET, TOLERANCE)
    assert 0 < rounds[-1].spent <= 1.2e10
    names = [chosen.run for one in rounds for chosen in one.chosen]
    assert len(names) == len({*names}) > 2
    assert _fit_runs(study) == {*names}
    plan = study.read_plan()
    assert {study.state(planned) for planned in plan} == {"done"}

    # One machine that nobody disturbs chooses and trains the same.
    assert run(["prepare", *words, "name=alone"]) == 0
    capsys.readouterr()
    assert run(["train", *words, "name=alone"]) == 0
    assert re.search(r"\n[^\n]+ domain [^\n]+\.\n.*next: cptlaw (confirm|refine) \S+\n$", capsys.readouterr().out, re.S)
    alone = study_in(words, "alone")
    chosen = [[[run.run for run in one.chosen] for one in read_rounds(of)] for of in (alone, study)]
    assert chosen[0] == chosen[1]
    assert read_rounds(alone)[-1].stop == rounds[-1].stop
    assert {planned.name for planned in alone.read_plan()} == {planned.name for planned in plan}

    # Whatever ended the rounds, there is an answer.
    for verb in ("confirm", "collect", "fit", "recommend"):
        assert run([verb, str(study.folder)]) == 0, verb
    confirmed = {planned.name for planned in study.read_plan() if planned.role == "confirm"}
    assert confirmed
    before = Recommendation.path(study).read_bytes()
    capsys.readouterr()
    assert run(["refine", str(study.folder)]) == 0
    said = capsys.readouterr().out
    for part in ("confirmation runs are points for the fit now, at ", "before: domain ratio", "now:    domain ratio"):
        assert part in said
    more = read_rounds(study)
    assert more[: len(rounds)] == rounds
    assert [one.reason == CONFIRMATION for one in more[len(rounds) :]] == [True, False]
    assert confirmed < _fit_runs(study)
    assert Recommendation.path(study).read_bytes() != before


def test_a_goal_without_a_design_cannot_be_refined(words: list[str], capsys) -> None:
    grid = [word for word in words if not word.startswith("design")]
    error = refused(["refine", *grid, "goal=compute", "goal.flops=1e9"], capsys, 2)
    assert error == "goal.kind: 'compute' cannot be refined; allowed: trade-off, limited-data, balance"
