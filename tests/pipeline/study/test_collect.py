"""What collect says of schedules: the areas that the laws read."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from fitting import areas
from fitting.schedule import lifted
from pipeline.study.collect import DECAY, OPEN_S1, collect, schedules
from pipeline.study.folder import PlannedRun, Study
from tests.conftest import tiny_spec
from tests.pipeline.small import write_losses
from training.evaluation_steps import EvaluationPolicy
from training.schedule import Piece, learning_rates
from training.spec import Initial, RunSpec

STEPS = 10
FIRST = tiny_spec(
    mixture={"general": "1", "code": "0"},
    steps=STEPS,
    schedule=(Piece("linear", end=3e-3, steps=3), Piece("constant"), Piece("linear", end=3e-4, steps=4)),
    evaluation=EvaluationPolicy("dense", every=1),
)
NEXT = dataclasses.replace(
    FIRST,
    phase="continual",
    initial=Initial("run", run=FIRST.hash, step=8),
    mixture={"general": "1/2", "code": "1/2"},
    schedule=(Piece("constant", 1e-3),),
    learning_rate_before=float(learning_rates(FIRST.schedule, STEPS)[7]),
)
NEXT_RATES = learning_rates(NEXT.schedule, STEPS, NEXT.learning_rate_before)
OPEN = dataclasses.replace(NEXT, initial=Initial("directory", fingerprint="ab" * 16), learning_rate_before=0.0)

LONGER = dataclasses.replace(
    OPEN, initial=Initial("run", run=OPEN.hash, step=5, moments=True), learning_rate_before=1e-3
)


def _planned(role: str, spec: RunSpec) -> PlannedRun:
    return PlannedRun(f"{role}-{spec.hash[:8]}", role, "tiny", "", spec)


@pytest.fixture(scope="module")
def plan() -> list[PlannedRun]:
    return [_planned("pretrain", FIRST), _planned("fit", NEXT), _planned("fit", OPEN), _planned("fit", LONGER)]


@pytest.fixture(scope="module")
def points(plan: list[PlannedRun], tmp_path_factory: pytest.TempPathFactory):
    study = Study(Path(tmp_path_factory.mktemp("study")))
    study.write_plan(plan)
    for run in plan:
        write_losses(study, run, [(step, "code", 5.0) for step in range(STEPS + 1)])
    return collect(study, "general").set_index(["run", "step"])


def test_a_run_starts_from_the_areas_of_the_step_that_it_continues(plan, points) -> None:
    own = points.loc[plan[1].name]
    past = learning_rates(FIRST.schedule, STEPS)[:8]
    risen = lifted(past)
    assert risen.tolist() == pytest.approx([3e-3] * 6 + past[6:].tolist()), "the warm-up anneals nothing"
    s1, s2 = areas(NEXT_RATES, DECAY, NEXT.learning_rate_before)
    assert own["s1_pretrain"].to_numpy() == pytest.approx(past.sum())
    assert own["s2_pretrain"].to_numpy() == pytest.approx(areas(risen, DECAY, risen[0])[1][-1])
    assert own["s1"].to_numpy() == pytest.approx([0.0, *s1])
    assert own["s2"].to_numpy() == pytest.approx([0.0, *s2])
    assert own[["r", "ratio", "replay", "rho", "loss_before"]].drop_duplicates().to_numpy().tolist() == [
        [0.5, 0.5, 0.5, 0.0, 5.0]
    ]
    assert own["D"].to_numpy() == pytest.approx(own["tokens"].to_numpy() / 1e9)


def test_pretraining_walks_in_its_own_areas(plan, points) -> None:
    own = points.loc[plan[0].name]
    rates = learning_rates(FIRST.schedule, STEPS)
    assert own["s1_pretrain"].to_numpy() == pytest.approx([0.0, *np.cumsum(rates)])
    assert own["s2_pretrain"].to_numpy() == pytest.approx([0.0, *areas(lifted(rates), DECAY, 3e-3)[1]])
    assert (own[["s1", "s2"]] == 0).all(axis=None)


def test_of_an_open_model_nothing_is_known_but_that_it_was_long(plan, points) -> None:
    own, longer = points.loc[plan[2].name], points.loc[plan[3].name]
    for run in (own, longer):
        assert (run["s1_pretrain"] == OPEN_S1).all()
        assert (run["s2_pretrain"] == 0).all()
        assert (run["rho"] == 0).all()
    assert own["s1"].iloc[-1] == pytest.approx(STEPS * 1e-3)
    assert longer["s1"].iloc[-1] == pytest.approx((5 + STEPS) * 1e-3)


def test_schedules_tell_what_fit_takes(plan) -> None:
    first, then, open_model, _ = schedules(plan).values()
    assert first.is_pretraining
    assert not then.is_pretraining
    assert first.pretrain is None
    assert then.pretrain.tolist() == first.rates[:8].tolist()
    assert then.before == first.rates[7]
    assert open_model.pretrain is None
