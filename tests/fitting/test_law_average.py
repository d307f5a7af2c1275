"""Several laws that answer together."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import LawAverage, PointsError, trade_off
from fitting.law_average import APART, LEAST_LOSS
from tests.fitting.given import given

PARAMS = {"C2": 2.0, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 500.0, "lambda": 0.99}
HELD_OUT = {"ratio": 0.01}
AT = {"s1": 0.3, "s1_pretrain": 2.0, "loss_before": 3.0, "rho": 1.0}


def _average(weight: float = 0.25, **other: float) -> LawAverage:
    fits = {name: given("transfer-anchored", {**PARAMS, **change}) for name, change in (("a", {}), ("b", other))}
    return LawAverage(fits, {"a": weight, "b": 1 - weight})


def test_the_prediction_is_the_weighted_mean_of_log_losses():
    frame = pd.DataFrame({"r": [0.2, 0.9], "a.s2": 0.02, "b.s2": 0.02, **AT})
    for average, below_nothing in ((_average(C=0.16), False), (_average(C2=1000.0), True)):
        one, other = (fit.predict(frame.assign(s2=0.02)) for fit in average.fits.values())
        assert ((other < 0) == below_nothing).all()
        assert average.predict(frame) == pytest.approx(one**0.25 * np.maximum(other, LEAST_LOSS) ** 0.75)


def test_a_law_counts_less_below_the_ratios_that_it_was_fitted_to():
    average = _average(C=0.16)
    fits = {law: replace(fit, ranges={"r": (low, 1.0)}) for (law, fit), low in zip(average.fits.items(), (0.1, 0.0))}
    average = replace(average, fits=fits)
    frame = pd.DataFrame({"r": [0.0, 0.05, 0.1, 0.9], "a.s2": 0.02, "b.s2": 0.02, **AT})
    part = np.array([0.0, 0.125 / 0.875, 0.25, 0.25])
    assert average.weights_at(frame) == pytest.approx(np.stack([part, 1 - part]))
    one, other = (fit.predict(frame.assign(s2=0.02)) for fit in fits.values())
    assert average.predict(frame) == pytest.approx(one**part * other ** (1 - part))


def test_each_law_reads_the_area_of_its_own_memory():
    average = _average()
    assert {"a.s2", "b.s2", "s1", "r"} <= {*average.columns}
    frame = pd.DataFrame({"r": [0.5], "a.s2": [0.0], "b.s2": [0.1], **AT})
    one, other = (average.fits[law].predict(frame.assign(s2=s2))[0] for law, s2 in (("a", 0.0), ("b", 0.1)))
    assert average.predict(frame)[0] == pytest.approx(one**0.25 * other**0.75)
    with pytest.raises(PointsError, match=r"the general law average reads .*b\.s2: give them in general_at"):
        trade_off(average, average, 1e-4, 1e-3, 0.03, 3.0, general_at={**AT, "a.s2": 0.0})


def test_intervals_widen_where_the_laws_disagree():
    average = replace(_average(C=0.16), held_out=HELD_OUT)
    frame = pd.DataFrame({"N": 1.0, "D": 1.0, "r": [0.01, 0.9], "a.s2": 0.02, "b.s2": 0.02, **AT})
    low, high = average.predict_interval(frame)
    one, other = (fit.predict(frame.assign(s2=0.02)) for fit in average.fits.values())
    expected = np.hypot(average.spread.half_width(1.0, 1.0), APART * np.sqrt(0.25 * 0.75) * np.abs(np.log(one / other)))
    assert np.log(high / average.predict(frame)) == pytest.approx(expected, rel=0.02)
    assert np.log(average.predict(frame) / low) == pytest.approx(expected, rel=0.02)
    with pytest.raises(PointsError, match="needs held_out"):
        _average().predict_interval(frame)


def test_the_answer_lies_between_those_of_the_laws():
    laws = [replace(_average(weight, C=0.16), held_out=HELD_OUT) for weight in (1.0, 0.5, 0.0)]
    at = {**AT, "a.s2": 0.02, "b.s2": 0.02}
    answers = [trade_off(law, law, 1e-4, 1e-3, 0.03, 3.0, general_at=at, domain_at=at) for law in laws]
    first, both, second = (answer.domain_ratio or 0.0 for answer in answers)
    assert second < both < first
    assert (answers[1].low or 0.0) < second < first < (answers[1].high or 0.0)


def test_draws_are_of_each_law_as_its_weight_says():
    fits = {law: given("chinchilla", {"E": E, "A": 1.0, "B": 1.0, "alpha": 0.5, "beta": 0.5}, draws=40)
            for law, E in (("a", 1.0), ("b", 9.0))}  # fmt: skip
    drawn = LawAverage(fits, {"a": 0.25, "b": 0.75}).predict_draws(pd.DataFrame({"N": [1.0], "D": [1.0]}))
    assert drawn.shape == (40, 1)
    assert int((drawn < 6).sum()) == 10


def test_far_ahead_held_out_errors_count_less_than_what_kept_long_runs_say_of_a_law():
    errors = {"transfer-replay": np.array([0.005]), "transfer-read": np.array([0.02])}
    replay, read = ([fitting.law_weights(errors, horizon=ahead)[law] for ahead in (1.0, 3.0, 20.0)] for law in errors)
    assert replay[0] == fitting.law_weights(errors)["transfer-replay"] > 0.7
    assert replay[0] > replay[1] > replay[2]
    assert read[2] > 0.75
    # Laws of which long runs say nothing: what held-out points say counts less the farther a run is.
    others = [fitting.law_weights({"a": np.array([0.005]), "b": np.array([0.02])}, horizon=h)["b"] for h in (1.0, 20.0)]
    assert others[0] < 0.3
    assert 0.45 < others[1] < 0.5


def test_weights_fall_with_held_out_errors():
    weights = fitting.law_weights({"good": np.full(3, 0.001), "bad": np.full(5, 0.1)})
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["good"] > 0.98
    with pytest.raises(PointsError, match="with sum 1"):
        LawAverage(_average().fits, {"a": 0.5, "b": 0.6})
