"""Weights of domains from runs in which one domain's tokens change at a time."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import fitting
from docs.studies.law_errors import DATA
from fitting.mixtures.ddo import fit_curves, water_filling
from tests.fitting.test_public_data import need

FACTORS = np.array([1 / 3, 1.0, 3.0])


@pytest.fixture
def published() -> dict:
    """GPT-2 large on seven domains; average perplexity, tokens of one domain times 1/5 and 3."""
    need("autoscale_gpt2_large", "github.com/feiyang-k/AutoScale")
    data = json.loads((DATA / "autoscale_gpt2_large/autoscale_ddo.json").read_text())
    average = np.array(data["ddo_ppl"])[:, -1]
    m = len(data["domains"])
    # Rows 1 to 7 are the reduced runs, whatever the notebook's text calls them.
    losses = np.column_stack([average[1 : m + 1], np.full(m, average[0]), average[m + 1 :]])
    return {**data, "losses": losses}


def curve_losses(a, b, factors=FACTORS, base=3.0) -> np.ndarray:
    """Losses (m, k) of domains with these curves."""
    a, b = (np.asarray(values, dtype=float)[:, None] for values in (a, b))
    return base * (1 + (factors + a) ** -b - (1 + a) ** -b)


def test_all_published_coefficients(published):
    answer = fitting.ddo(published["losses"], [1 / 5, 1, 3], names=published["domains"])
    for name, abc in published["published_abc"].items():
        assert answer.coefficients.loc[name].tolist() == pytest.approx(abc, rel=0.01)
    assert not answer.warnings


def test_published_optimum(published):
    answer = fitting.ddo(published["losses"], [1 / 5, 1, 3], names=published["domains"])
    optimum_1p2B = [1.6248, 0.2, 1.2742, 1.1798, 1.8519, 0.6372, 0.2322]
    assert answer.multiples.tolist() == pytest.approx(optimum_1p2B, abs=0.002)
    assert answer.weights.tolist() == pytest.approx(np.array(optimum_1p2B) / 7, abs=0.002 / 7)
    assert answer.held == ["github"]
    assert answer.status.message == "github is held at 0.2 times its base tokens, its lower bound"
    assert answer.predicted.value < answer.base


def test_the_general_fit_reaches_the_same_curve(published):
    losses = published["losses"][0] / published["losses"][0, 1]
    points = pd.DataFrame({"x": [1 / 5, 1, 3], "loss": losses, "run": [0, 1, 2]})
    params = fitting.fit(points, "ddo", bootstrap=0).params
    wanted = published["published_abc"][published["domains"][0]]
    assert [params[name] for name in "abc"] == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_that_of_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    a, b, base_weights = rng.uniform(0, 4, m), rng.uniform(0.05, 2.5, m), rng.dirichlet(np.full(m, 3.0))
    low, high = rng.uniform(0.05, 0.6, m), np.minimum(rng.uniform(1.2, 3.0, m), 1 / base_weights)
    x = water_filling(a, b, base_weights, low, high)
    assert base_weights @ x == pytest.approx(1, abs=1e-12)
    assert (x >= low - 1e-9).all()
    assert (x <= high + 1e-9).all()
    peer = minimize(
        lambda x: np.sum((x + a) ** -b),
        np.clip(np.ones(m), low, high),
        jac=lambda x: -b * (x + a) ** (-b - 1),
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "eq", "fun": lambda x: base_weights @ x - 1, "jac": lambda x: base_weights},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert np.sum((x + a) ** -b) <= peer.fun + 1e-9
    assert x == pytest.approx(peer.x, abs=2e-4)


def test_curves_of_five_runs_come_back():
    x = np.array([0.2, 0.5, 1.0, 2.0, 4.0])
    a, b, c = np.array([0.0, 0.3, 2.0, 6.0]), np.array([0.2, 0.05, 1.5, 1.2]), np.array([0.0, 0.1, 0.5, 0.9])
    found = fit_curves(x, (x + a[:, None]) ** -b[:, None] + c[:, None])
    for values, wanted in zip(found, (a, b, c), strict=True):
        assert values == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_base_weights_of_the_base_run_decide_what_a_token_is_worth():
    losses = curve_losses([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    assert fitting.ddo(losses, FACTORS).weights == pytest.approx(np.full(3, 1 / 3))
    # The same relative gain for half the tokens: more of it.
    answer = fitting.ddo(losses, FACTORS, base_weights=[0.5, 0.25, 0.25], tokens=8.0)
    assert answer.multiples[1] == answer.multiples[2] > 1 > answer.multiples[0]
    assert answer.tokens.sum() == pytest.approx(8)
    marginal = (answer.multiples + 1) ** -2 / [0.5, 0.25, 0.25]
    assert marginal == pytest.approx(np.full(3, marginal[0]))


@pytest.mark.parametrize("losses_of_flat", [[3.0, 3.0, 3.0], [2.9, 3.0, 3.1]])
def test_a_domain_without_effect_is_named_and_goes_to_its_lower_bound(losses_of_flat):
    losses = np.vstack([curve_losses([1.0, 2.0], [1.0, 1.0]), losses_of_flat])
    answer = fitting.ddo(losses, FACTORS, names=["web", "books", "noise"])
    assert answer.flat == ["noise"]
    assert answer.coefficients.loc["noise", "b"] == 0
    assert any("noise" in line and "exponent" in line for line in answer.warnings)
    assert answer.multiples[2] == pytest.approx(1 / 3)
    assert answer.weights.sum() == pytest.approx(1)
    assert answer.loss_at(answer.tokens) == pytest.approx(answer.predicted.value)


FLAT = [3.0, 3.0, 3.0]


def test_what_nobody_else_can_take_goes_to_flat_domains_and_all_flat_keeps_the_base_run():
    losses = np.vstack([curve_losses([1.0], [1.0]), FLAT, FLAT])
    answer = fitting.ddo(losses, FACTORS, base_weights=[0.2, 0.4, 0.4])
    assert answer.multiples.tolist() == pytest.approx([3.0, 0.5, 0.5])
    assert answer.status.message == "0 is held at 3 times its base tokens, its upper bound"
    answer = fitting.ddo([FLAT, FLAT], FACTORS, base_weights=[0.7, 0.3])
    assert answer.weights.tolist() == pytest.approx([0.7, 0.3])
    assert any("base run" in line for line in answer.warnings)


def test_what_the_curves_do_not_tell_is_said():
    missed = fitting.ddo(np.vstack([curve_losses([1.0], [1.0]), [3.01, 3.0, 2.8]]), FACTORS)
    assert any("1: its curve misses" in line for line in missed.warnings)


def seeds_of(losses: np.ndarray, count: int, noise: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    seeds = losses * np.exp(noise * rng.standard_normal((count, *losses.shape)))
    seeds[:, :, 1] = losses[0, 1] * np.exp(noise * rng.standard_normal((count, 1)))
    return seeds


def test_intervals_of_seeds_hold_the_truth_and_narrow():
    losses = curve_losses([1.0, 2.0, 1.5], [1.0, 1.2, 0.6])
    truth = fitting.ddo(losses, FACTORS).weights
    held, widths = [], {3: [], 8: []}
    for repeat in range(4):
        for count in widths:
            answer = fitting.ddo(seeds_of(losses, count, 0.001, repeat), FACTORS)
            held.append((answer.low <= truth) & (truth <= answer.high))
            widths[count].append(np.mean(answer.high - answer.low))
            assert answer.predicted.low < answer.predicted.value < answer.predicted.high
    assert 0.8 < np.mean(held) < 0.98
    assert np.median(widths[8]) < 0.6 * np.median(widths[3])


def test_one_seed_gives_no_interval_and_few_say_so():
    losses = curve_losses([1.0, 2.0], [1.0, 1.2])
    one = fitting.ddo(losses, FACTORS)
    assert np.isnan([*one.low, *one.high, one.predicted.low, one.predicted.high]).all()
    assert one.status.message == "nothing: no domain is on a bound"
    two = fitting.ddo(seeds_of(losses, 2, 0.001, 0), FACTORS)
    assert two.draws.shape == (300, 2)
    assert any("2 seeds only" in line for line in two.warnings)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"losses": [[3.1, 3.0, 2.9], [3.1, 3.2, 2.9]]}, "base run"),
        ({"losses": [[3.1, 3.0, np.nan]]}, "must be above 0"),
        ({"losses": [[3.1, 3.0]]}, "shape"),
        ({"factors": [0.5, 2.0, 3.0]}, "one must be 1"),
        ({"factors": [1.0, 1.0, 3.0]}, "three or more different"),
        ({"base_weights": [0.9, 0.2]}, "sum to 1"),
        ({"base_weights": [1.0, 0.0]}, "above 0"),
        ({"names": ["a", "a"]}, "different names"),
        ({"tokens": 0.0}, "tokens"),
    ],
)
def test_refusals(change, says):
    given = {"losses": curve_losses([1.0, 2.0], [1.0, 1.2]), "factors": FACTORS, **change}
    with pytest.raises(fitting.PointsError, match=says):
        fitting.ddo(**given)
