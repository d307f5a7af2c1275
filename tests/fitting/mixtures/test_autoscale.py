"""Optimal tokens at a third scale."""

import json

import numpy as np
import pytest

import fitting
from docs.studies.law_errors import DATA
from tests.fitting.test_public_data import need

SMALL, LARGE = {"a": 100, "b": 100}, {"a": 300, "b": 200}

# Kang et al. 2024, remark 1.
REMARK_1 = [
    (100, 100), (300, 200), (900, 400), (2700, 800), (8100, 1600), (24300, 3200), (72900, 6400), (218700, 12800),
    (656100, 25600),
]  # fmt: skip


def named(tokens) -> dict[str, float]:
    return {str(number): float(count) for number, count in enumerate(tokens)}


def values(answer: fitting.AutoScale) -> np.ndarray:
    return np.array(list(answer.tokens.values()))


def test_every_scale_of_remark_1():
    for tau, (a, b) in enumerate(REMARK_1):
        answer = fitting.autoscale(SMALL, LARGE, a + b)
        assert answer.tokens == pytest.approx({"a": a, "b": b}, rel=1e-9)
        assert answer.tau == pytest.approx(tau, abs=1e-9)


def test_published_prediction_between_two_scales():
    need("autoscale_gpt2_large", "github.com/feiyang-k/AutoScale")
    file = DATA / "autoscale_gpt2_large/autoscale_ddo.json"
    small, middle, large = (
        json.loads(file.read_text())["autoscale_tokens_B"][scale] for scale in ("0.3B", "0.6B", "1.2B")
    )
    answer = fitting.autoscale(named(small), named(large), 0.6)
    assert sum(answer.tokens.values()) == pytest.approx(0.6, rel=1e-12)
    assert np.abs(values(answer) / 0.6 - np.array(middle) / sum(middle)).max() < 0.02
    assert not answer.warnings


def optima(total: float, offset: np.ndarray) -> np.ndarray:
    """Tokens at which sum_j scale_j (N_j + N0_j)^-b_j is least: by bisection on the multiplier, as written."""
    scale, b = np.array([1.0, 3.0, 0.5]), np.array([0.4, 0.9, 0.2])
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        tokens = np.maximum((b * scale / np.exp(middle)) ** (1 / (b + 1)) - offset, 0)
        low, high = (middle, high) if tokens.sum() > total else (low, middle)
    return tokens


OFFSET = np.array([0.5, 0.0, 1.0])


@pytest.mark.parametrize("offset", [np.zeros(3), OFFSET])
@pytest.mark.parametrize("target", [12.0, 30.0, 300.0])
def test_the_path_holds_the_optima_of_power_laws(offset, target):
    answer = fitting.autoscale(named(optima(20, offset)), named(optima(80, offset)), target, offsets=named(offset))
    assert values(answer) == pytest.approx(optima(target, offset), rel=1e-6)


def test_offsets_change_the_path_and_a_domain_may_run_dry():
    first, second = named(optima(20, OFFSET)), named(optima(80, OFFSET))
    free = fitting.autoscale(first, second, 300.0)
    assert np.abs(values(free) / optima(300.0, OFFSET) - 1).max() > 0.03
    dry = fitting.autoscale(first, second, 1.0, offsets=named(OFFSET))
    assert values(dry) == pytest.approx(optima(1.0, OFFSET), rel=1e-6, abs=1e-9)
    assert values(dry).min() == 0
    assert "without tokens" in dry.warnings[-1]


def test_caps_hold_one_domain_and_the_others_go_on_along_the_path():
    answer = fitting.autoscale(SMALL, LARGE, 1300, caps={"a": 500})
    assert answer.tokens == pytest.approx({"a": 500, "b": 800})
    assert answer.free == pytest.approx({"a": 900, "b": 400})
    assert answer.held == ["a"]
    assert answer.status.message == "a is held at its cap of 500 tokens; free: 900"
    three = fitting.autoscale(named([1, 1, 1]), named([2, 3, 4]), 60, caps={"2": 10})
    assert three.tokens["2"] == 10
    assert np.log(values(three)[:2]) == pytest.approx(three.tau * np.log([2, 3]))
    loose = fitting.autoscale(SMALL, LARGE, 1300, caps={"a": 1000})
    assert loose.status.message == "nothing: no domain is at a cap"
    assert loose.tokens == loose.free
    full = fitting.autoscale(SMALL, LARGE, 1300, caps={"a": 900, "b": 400})
    assert full.tokens == pytest.approx({"a": 900, "b": 400})


WARNINGS = {
    "2.6 times the larger scale": (SMALL, LARGE, 1300, {}),
    "2.6 times the larger scale (500): extrapolated": (LARGE, SMALL, 1300, {}),
    "0.5 times the smaller scale": (SMALL, LARGE, 100, {}),
    "b: fewer tokens at the larger scale": ({"a": 100, "b": 50}, {"a": 300, "b": 40}, 1000, {}),
    "a: no tokens at one scale": ({"a": 0, "b": 100}, {"a": 100, "b": 200}, 700, {"offsets": {"a": 100}}),
}


@pytest.mark.parametrize("warning", WARNINGS)
def test_what_is_uncertain_has_a_warning(warning):
    first, second, target, options = WARNINGS[warning]
    answer = fitting.autoscale(first, second, target, **options)
    assert sum(answer.tokens.values()) == pytest.approx(target)
    assert any(warning in line for line in answer.warnings)
    assert not fitting.autoscale(SMALL, LARGE, 350).warnings


def test_optima_of_ddo_carry_their_intervals():
    factors = np.array([1 / 3, 1.0, 3.0])
    rng = np.random.default_rng(0)

    def measured(a, total: float):
        a = np.array(a)[:, None]
        losses = 3 * (1 + (factors + a) ** -1.0 - (1 + a) ** -1.0)
        seeds = losses * np.exp(0.001 * rng.standard_normal((4, 3, 3)))
        seeds[:, :, 1] = 3.0
        return fitting.ddo(seeds, factors, names=["web", "books", "code"], tokens=total)

    first, second = measured([1.0, 1.3, 1.1], 1.0), measured([0.6, 1.5, 0.9], 4.0)
    answer = fitting.autoscale(first, second, 16.0)
    assert list(answer.tokens) == ["web", "books", "code"]
    for name, tokens in answer.tokens.items():
        assert answer.low[name] < tokens < answer.high[name]
    near = fitting.autoscale(first, second, 2.0)
    assert near.high["web"] / near.low["web"] < answer.high["web"] / answer.low["web"]
    # Errors of the two scales go their own ways: in logs, halfway on the path they add as halves of squares.
    widths = [np.log(np.divide(*np.quantile(end.draws[:, 0], [0.95, 0.05]))) for end in (first, second)]
    assert np.log(near.high["web"] / near.low["web"]) == pytest.approx(np.hypot(*widths) / 2, rel=0.25)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"first": {"a": 0, "b": 100}}, "first: a = 0 tokens"),
        ({"second": {"a": 150, "b": 50}}, "different size"),
        ({"second": {"a": 150, "c": 50}}, "b, c"),
        ({"target": 0.0}, "target"),
        ({"first": {"a": 100, "b": 50}, "second": {"a": 300, "b": 40}, "target": 20}, "totals from"),
        ({"caps": {"a": 100, "b": 200}}, "caps sum to 300"),
        ({"caps": {"z": 100}}, "no domain is called z"),
        ({"offsets": {"a": -1}}, "none negative"),
        ({"offsets": {"a": np.inf}}, "none negative"),
    ],
)
def test_refusals(change, says):
    with pytest.raises(fitting.PointsError, match=says):
        fitting.autoscale(**{"first": SMALL, "second": LARGE, "target": 1000.0, **change})


def test_an_optimum_on_a_bound_has_a_warning():
    losses = [[3.1, 3.0, 2.9], [3.01, 3.0, 2.995], [3.1, 3.0, 2.9]]
    small, large = (fitting.ddo(losses, [1 / 3, 1, 3], tokens=total) for total in (1.0, 4.0))
    assert small.held == ["1"]
    assert f"{small.status.message}; such an optimum" in fitting.autoscale(small, large, 16.0).warnings[-1]
