"""Mixture weights for continual pre-training on several domains: the choice of the law, and runs at random mixtures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.goals.weights.artifacts import WeightsRecommendation
from pipeline.goals.weights.methods.continual import (
    SURROGATES,
    RandomRuns,
    best_surrogate,
    end_columns,
    selection_notes,
)
from pipeline.study.folder import study_of
from tests.conftest import tiny_spec
from training.schedule import Piece, learning_rates
from training.spec import Initial, RunSpec

NAMES = ("general", "code", "law")
STEPS = 120
COUNT = 18
AT = (12, 40, 60, 80, 120)


@pytest.fixture
def like() -> RunSpec:
    """A run that the planted points are of."""
    return tiny_spec(
        phase="continual", initial=Initial("run", run="0" * 16, step=300), corpora=dict.fromkeys(NAMES, ""),
        mixture=dict.fromkeys(NAMES, "1/3"), steps=STEPS, schedule=(Piece("cosine", 1e-3, 1e-4),),
        learning_rate_before=1e-3,
    )  # fmt: skip


def planted(law: str, like: RunSpec) -> RandomRuns:
    """Points of all corpora at random mixtures, as a surrogate has them, with a tenth of a percent of noise."""
    rates = learning_rates(like.schedule, STEPS, like.learning_rate_before)
    mixtures = fitting.dirichlet_mixtures(np.ones(3), COUNT, concentration=(2, 9))
    rows = [
        {f"mixture.{name}": weight for name, weight in zip(NAMES, row)}
        | {"run": f"run-{i:02}", "step": step, "seed": 0}
        for i, row in enumerate(mixtures.tolist())
        for step in AT
    ]
    schedules = {f"run-{i:02}": fitting.schedule.Schedule(rates, 1e-3, np.full(300, 1e-3)) for i in range(COUNT)}
    table = fitting.with_areas(pd.DataFrame(rows), schedules, 0.5)
    rng, parts = np.random.default_rng(0), []
    for corpus, before in zip(NAMES, (3.0, 5.0, 4.0)):
        part = table.assign(corpus=corpus, r=table[f"mixture.{corpus}"], rho=float(corpus == "general"))
        part = part.assign(loss_before=before, N=1e-4, D=part["step"] * like.tokens_per_step / 1e9)
        parts.append(part.assign(loss=_loss(law, part, corpus) * np.exp(0.001 * rng.standard_normal(len(part)))))
    return RandomRuns(pd.concat(parts, ignore_index=True), like, schedules)


def _loss(law: str, points: pd.DataFrame, corpus: str) -> np.ndarray:
    if law == "data-mixing":
        other = NAMES[(NAMES.index(corpus) + 1) % 3]
        power = -2 * points[f"mixture.{corpus}"] - 1.2 * points[f"mixture.{other}"]
        return (2 + 1.5 * np.exp(power) + 0.2 * (1 - points["step"] / STEPS)).to_numpy()
    if law == "dcpt":
        of_r = 0.8 * (points["r"] + 0.02) ** -0.4
        return (1.5 + 0.0005 * points["r"] ** 1.5 * points["D"] ** -0.4 + of_r).to_numpy()
    way = np.log((points["rho"] + 0.05) / (points["r"] + 0.05))
    fell = 3e2 * points["s2"] + 0.1 * np.log1p(points["s1"] / points["s1_pretrain"])
    return (points["loss_before"] - fell + 0.3 * way * np.log1p(50 * points["s1"])).to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("law", SURROGATES)
def test_the_law_that_made_the_points_predicts_held_out_mixtures_best(law: str, like: RunSpec) -> None:
    errors = planted(law, like).held_out_errors()
    assert set(errors["reason"]) == {""}
    assert best_surrogate(errors, longer=False) == law
    means = errors[errors["split"] == "mixtures"].groupby("law")["error"].mean()
    assert means[law] < 0.004 < 2.5 * means.drop(law).min()
    lines = selection_notes(errors, law)
    assert lines[0] == f"predicted by {law}"
    assert lines[1].startswith(f"mean error on held-out mixtures: {law} ")


@pytest.mark.slow
def test_held_out_mixtures_are_not_fitted(like: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.goals.weights.methods.continual.SURROGATES", ("data-mixing",))
    random = planted("data-mixing", like)
    points, before = random.points, random.held_out_errors()
    order = np.random.default_rng(0).permutation(COUNT)[::3]
    runs = points.sort_values(sorted(f"mixture.{corpus}" for corpus in NAMES))["run"].unique()
    spoiled = points["run"].isin(runs[order])
    after = replace(random, points=points.assign(loss=points["loss"] * np.where(spoiled, 1.1, 1))).held_out_errors()
    # What the laws predict stays, so that the error grows by what the held-out losses have grown.
    of = [table[table["split"] == "mixtures"]["error"] for table in (before, after)]
    assert (of[1] - (1 - 1 / 1.1)).abs().max() < 0.01


def test_a_law_that_cannot_be_fitted_is_said_and_another_answers(like: RunSpec) -> None:
    random = planted("data-mixing", like)
    errors = replace(random, points=random.points[random.points["step"] == STEPS]).held_out_errors()
    assert best_surrogate(errors, longer=True) == "data-mixing"
    assert any(line.startswith("dcpt on general") for line in selection_notes(errors, "data-mixing"))


def test_the_fitted_law_is_asked_at_the_end_of_the_target_run(like: RunSpec) -> None:
    random = planted("transfer-anchored", like)
    points = random.on("code")
    law, ends = random.fit("transfer-anchored", points), points[points["step"] == STEPS]
    columns, last = end_columns(law, points, like), ends.iloc[0]
    for name in set(columns) - {"s2"}:
        assert columns[name] == pytest.approx(last[name]), name
    assert law.predict(ends.assign(**columns)) == pytest.approx(ends["loss"].to_numpy(), rel=0.005)
    assert end_columns(law, points, replace(like, steps=2 * STEPS))["s1"] == pytest.approx(2 * last["s1"], rel=0.01)


def test_the_length_of_a_run_is_known_to_the_law_of_all_shares_too(like: RunSpec) -> None:
    random = planted("transfer-anchored", like)
    points = random.on("general")
    ends = points[points["step"] == STEPS]
    predicted = random.fit("data-mixing", points[points["step"] <= 60]).predict(ends)
    factor = random.fit_length(points, like, step=60).factor(ends["r"].to_numpy())
    alone, both = (np.abs(losses / ends["loss"] - 1).mean() for losses in (predicted, predicted * factor))
    assert both < 0.01
    assert alone > 3 * both


CONTINUAL = [
    *("name=many", "bootstrap=10", "pretrain.steps=20", "target.global_batch=4", "continual.evaluation.every=2"),
    *("continual.evaluation.decay=0.2", "law.dcpt.from_step=2", "goal.tolerance=0.05", "weights.phase=continual"),
    *("weights.methods=[continual,data-mixing,regmix,uniform]", "weights.concentration=[2,10]", "weights.mixtures=10"),
    *("weights.base={general: 0.5, domain: 0.25, third: 0.25}", "weights.scales=[12]", "weights.target=16"),
]


@pytest.mark.slow
def test_three_methods_read_the_same_random_runs(words: list[str]) -> None:
    words = [*words, *CONTINUAL]
    for verb in ("prepare", "plan", "train", "recommend"):
        assert run([verb, *words]) == 0, verb
    study = study_of(read_question(words))
    plan = study.read_plan()
    assert [planned.role for planned in plan] == ["pretrain", *["fit"] * 11]
    assert all(planned.parent == plan[0].spec.hash for planned in plan[1:])
    proposals = {row.method: row for row in WeightsRecommendation.read(study).proposals}
    assert list(proposals) == ["continual", "data-mixing", "regmix", "uniform"]
    for name in ("continual", "data-mixing", "regmix"):
        row = proposals[name]
        assert sorted(row.runs) == sorted(planned.name for planned in plan[1:])
        assert row.tokens == 11 * 12 * 4 * 16
        assert sum(row.weights.values()) == pytest.approx(1)
        assert min(row.weights.values()) >= 0
    best = proposals["continual"]
    assert all(best.low[name] <= weight <= best.high[name] for name, weight in best.weights.items())
    limit = best.details.numbers["general_before"] * 1.05
    assert best.predicted["general"] <= limit * (1 + 1e-6) or best.lines[0].startswith("infeasible")
    assert {row["law"] for row in best.details.numbers["held_out"]} == set(SURROGATES)
    # More mixtures are trained beside those that there are.
    assert run(["plan", *words, "weights.mixtures=12"]) == 0
    assert {planned.name for planned in plan} < {planned.name for planned in study.read_plan()}
    assert len(study.read_plan()) == 14
