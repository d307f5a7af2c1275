"""Laws of an open model: powers of the learning rate, and a lambda that few points leave to its prior."""

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting import Schedule, areas_of_powers

TRUE = {"C2": 0.0006, "A": -0.1, "C": 0.03, "eps": 0.05, "E": 0.6}
DECAY = 0.9


def cosine(peak: float, steps: int) -> np.ndarray:
    t = np.arange(steps)
    return peak * np.minimum(1, (t + 1) / 4) * (0.55 + 0.45 * np.cos(np.pi * t / steps))


def measured(ratios, peaks, steps: int, every: int, noise: float, **params: float) -> tuple[pd.DataFrame, dict]:
    """Points of a run for each ratio and peak, whose losses fall by the law."""
    true, law, rng, of_run, parts = TRUE | params, fitting.LAWS["transfer-open"], np.random.default_rng(0), {}, []
    for peak in peaks:
        for r in ratios:
            run = f"{peak:g} at {r:g}"
            of_run[run] = Schedule(cosine(peak, steps))
            step = np.arange(every, steps + 1, every)
            root, square = (area[step - 1] for area in areas_of_powers(of_run[run].rates, DECAY))
            x = {"loss_before": np.full(len(step), 3.0), "r": np.full(len(step), r)}
            loss = law.loss({**x, "s1_root": root, "s2_square": square}, true)
            loss *= np.exp(noise * rng.standard_normal(len(step)))
            parts.append(pd.DataFrame({"run": run, "step": step, "r": r, "loss_before": 3.0, "loss": loss}))
    return pd.concat(parts, ignore_index=True), of_run


def test_few_points_leave_lambda_to_its_prior():
    points, of_run = measured((0.0, 0.3, 1.0), (2e-4,), steps=40, every=20, noise=0.003)
    fit = fitting.fit(points, "transfer-open", schedules=of_run, bootstrap=0, few=True)
    assert fit.params["lambda"] == pytest.approx(0.9654, abs=0.003)


def test_both_corpora_have_one_cost_of_the_rate_also_where_points_are_held_out():
    """A corpus that learns little tells its cost badly; the other one tells it."""
    setting = {"peaks": (1e-4, 4e-4), "steps": 40, "every": 20, "noise": 0.002}
    general, of_run = measured((1.0, 0.5, 0.0), **setting, A=-0.01, C=0.005)
    domain, _ = measured((0.0, 0.5, 1.0), **setting)
    domain["run"] = domain["run"].map(dict(zip(domain["run"].unique(), general["run"].unique(), strict=True)))
    both = pd.concat([general.assign(corpus="general"), domain.assign(corpus="domain")], ignore_index=True)
    law = fitting.LAWS["transfer-open"]
    fits = fitting.fit_shared(both, law.name, law.shared, schedules=of_run, bootstrap=0, few=True)
    assert len({fit.params["C2"] for fit in fits.values()}) == 1
    assert len({fit.params["lambda"] for fit in fits.values()}) == 1

    late = (both["step"] == 40).to_numpy()
    fold = [fitting.Fold("late", ~late, late)]
    tested = fitting.held_out(both, law.name, fold, of_run, shared=law.shared, few=True)
    assert sorted(tested["corpus"].unique()) == ["domain", "general"]
    assert len(tested) == late.sum()
    known = fitting.fit_shared(both[~late], law.name, law.shared, schedules=of_run, bootstrap=0, few=True)
    for corpus, rows in tested.groupby("corpus"):
        at = fitting.with_areas(rows, of_run, known[corpus].params["lambda"])
        assert rows["predicted"].to_numpy() == pytest.approx(known[corpus].predict(at))
