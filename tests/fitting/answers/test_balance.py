"""The best schedule and mixture for two corpora."""

import numpy as np
import pytest
from scipy.optimize import differential_evolution

import fitting
from fitting.answers.balance import cosine
from fitting.answers.loss_potential import with_potential
from tests.fitting.answers.test_loss_curve import PRETRAIN
from tests.fitting.given import given

LAMBDA = 0.95
GENERAL = {
    "L0": 2.5, "A": 0.48, "C1": 1.5, "C2": 1.2, "B": 0.276, "alpha": 0.51, "E": 99.0, "beta": 0.3,
    "a1": 0.055, "a2": 3.2, "lambda": LAMBDA,
}  # fmt: skip
DOMAIN = {**GENERAL, "L0": 2.4, "C1": 1.5, "C2": 1.9, "B": -0.05, "a1": 0.04, "a2": 2.0}
OLD = {"C2": 60.0, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 500.0, "lambda": 0.9}
NEW = {**OLD, "C": 0.2, "eps": 0.1, "E": 50.0}
PRETRAIN_FIT = given("dynamics-replay", GENERAL)
DOMAIN_FIT = given("dynamics-replay-domain", DOMAIN)


def by_curve(weight, peak, steps, replay, potential):
    """The weighted loss at the end, by the predicted curves of both fits."""
    past = with_potential(PRETRAIN, potential)
    rates = peak * cosine(round(steps))
    ends = [
        fitting.loss_curve(fit, rates, before=past[-1], pretrain=past, at={"r": r})["loss"].iloc[-1]
        for fit, r in ((PRETRAIN_FIT, replay), (DOMAIN_FIT, 1 - replay))
    ]
    return weight * ends[0] + (1 - weight) * ends[1]


def test_all_free_is_as_good_as_differential_evolution():
    weight = 0.7
    ranges = {"peak": (1e-5, 3e-3), "steps": (100, 1000), "replay": (0.0, 1.0), "loss_potential": (0.0, 0.9)}
    answer = fitting.balance(PRETRAIN_FIT, DOMAIN_FIT, weight, pretraining=PRETRAIN, **ranges)
    found = differential_evolution(
        lambda z: by_curve(weight, np.exp(z[0]), z[1], z[2], z[3]),
        [tuple(np.log(ranges["peak"])), *list(ranges.values())[1:]],
        **{"rng": 0, "maxiter": 25, "popsize": 8, "polish": False},
    )
    mine = by_curve(weight, *(answer[name] for name in ranges))
    assert mine <= found.fun + 1e-5
    general, domain = (answer.predicted[name].value for name in ("pretrain", "domain"))
    assert weight * general + (1 - weight) * domain == pytest.approx(mine, abs=1e-4)


def test_more_weight_on_general_means_more_replay_and_a_lower_peak():
    def best(weight, **free):
        asked = {"peak": 1e-3, "steps": 300, "replay": 0.3, "loss_potential": 0.1, **free}
        return fitting.balance(PRETRAIN_FIT, DOMAIN_FIT, weight, pretraining=PRETRAIN, **asked)

    replays = [best(weight, replay=(0.0, 1.0))["replay"] for weight in (0.2, 0.5, 0.8)]
    assert replays == sorted(replays)
    assert replays[0] < replays[2]
    peaks = [best(weight, peak=(1e-5, 5e-3))["peak"] for weight in (0.2, 0.5, 0.8)]
    assert peaks[0] > peaks[2]


def test_the_ends_of_ranges_bind_and_are_named():
    asked = {"steps": 300, "replay": (0.2, 0.9), "pretraining": PRETRAIN}
    answer = fitting.balance(PRETRAIN_FIT, DOMAIN_FIT, 0.0, peak=(1e-5, 1e-3), **asked)
    assert answer["replay"] == 0.2
    assert "replay is at the lower end of its range (0.2)" in answer.status.message
    assert "loss_potential" not in answer.values
    whole = fitting.balance(PRETRAIN_FIT, DOMAIN_FIT, 1.0, peak=1e-3, **asked)
    assert whole.status.message == "replay is at the upper end of its range (0.9)"


def test_the_replay_of_the_transfer_law_is_the_least_of_a_fine_grid():
    fits = given("transfer-anchored", OLD), given("transfer-anchored", NEW)
    columns = {"s1_pretrain": 3.0, "loss_before": 3.0}
    at = {"pretrain_at": {**columns, "rho": 1.0}, "domain_at": {**columns, "rho": 0.0}}
    for weight in (0.3, 0.6, 0.9):
        answer = fitting.balance(*fits, weight, peak=1e-3, steps=300, replay=(0.0, 1.0), **at)
        s1 = (1e-3 * cosine(300)).sum()
        r = np.linspace(0, 1, 1_000_001)
        loss = weight * 0.08 * np.log(1.02 / (r + 0.02)) * np.log1p(500 * s1)
        loss += (1 - weight) * 0.2 * np.log(0.1 / (1.1 - r)) * np.log1p(50 * s1)
        assert answer["replay"] == pytest.approx(r[np.argmin(loss)], abs=2e-4)


def test_intervals_are_over_the_draws_each_with_its_own_best():
    fits = given("transfer-anchored", OLD, draws=8, wobble=0.05), given("transfer-anchored", NEW, draws=8)
    asked = {"peak": 1e-3, "steps": (100, 300), "replay": (0.0, 1.0), "pretraining": PRETRAIN}
    asked |= {"pretrain_at": {"loss_before": 3.0, "rho": 1.0}, "domain_at": {"loss_before": 3.5, "rho": 0.0}}
    answer = fitting.balance(*fits, 0.6, **asked)
    each = []
    for old, new in zip(*(fit.draws for fit in fits)):
        own = given("transfer-anchored", dict(zip(OLD, old))), given("transfer-anchored", dict(zip(NEW, new)))
        each.append(fitting.balance(*own, 0.6, **asked)["replay"])
    replay = answer.values["replay"]
    assert (replay.low, replay.high) == pytest.approx(np.quantile(each, [0.05, 0.95]), abs=1e-4)
    assert replay.low < replay.value < replay.high
    assert answer.predicted["domain"].low < answer.predicted["domain"].value < answer.predicted["domain"].high
    assert answer.values["change"].low < answer["change"] < answer.values["change"].high


def test_the_change_is_from_before_the_run():
    answer = fitting.balance(PRETRAIN_FIT, DOMAIN_FIT, 0.6, peak=1e-3, steps=300, replay=0.3, pretraining=PRETRAIN)
    starts = [
        fitting.loss_curve(fit, [1e-3], before=3e-4, pretrain=PRETRAIN, at={"r": r})["loss"][0]
        for fit, r in ((PRETRAIN_FIT, 0.3), (DOMAIN_FIT, 0.7))
    ]
    ends = [answer.predicted[name].value for name in ("pretrain", "domain")]
    assert answer["change"] == pytest.approx(0.6 * (ends[0] - starts[0]) + 0.4 * (ends[1] - starts[1]), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 1.5}, "weight = 1.5 is outside"),
        ({"peak": (3e-3, 1e-5)}, "must be a number, or"),
        ({"peak": 0.0}, "peak = 0.0 is not allowed: it must be above 0"),
        ({"steps": 0}, "it must be 1 or more"),
        ({"replay": (0.0, 1.2)}, "replay = .* is not allowed"),
        ({"replay": None}, "reads r: give replay"),
        ({"pretraining": None, "loss_potential": 0.1}, "loss_potential needs pretraining"),
        ({"pretraining": None}, "the pretrain law dynamics-replay reads s1_pretrain, s2_pretrain"),
        ({"pretrain": given("dynamics", GENERAL), "domain": given("dynamics", GENERAL), "replay": (0, 1)}, "read no r"),
        (
            {"domain": given("transfer-anchored", {"C2": 1.0}), "loss_potential": (0.1, 0.5)},
            "loss_potential cannot be free",
        ),
        ({"domain": given("dcpt", {"E": 1.0})}, "reads no s1"),
    ],
)
def test_bad_questions(change, message):
    asked = {"pretrain": PRETRAIN_FIT, "domain": DOMAIN_FIT, "weight": 0.5, "peak": 1e-3, "steps": 100}
    asked |= {"replay": 0.5, "pretraining": PRETRAIN}
    with pytest.raises(fitting.PointsError, match=message):
        fitting.balance(**{**asked, **change})
