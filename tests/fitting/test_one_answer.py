"""A fit has one answer, also where the points leave a parameter free."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fitting
from docs.studies import law_errors
from docs.studies.one_answer import KERNELS, six_domains, spread
from fitting import VarPro
from fitting.solver.prepare import Data, prepare_problem
from fitting.uncertainty.sandwich import sandwich
from pipeline.papers.dcpt.fits import every_domain
from tests.fitting.synthetic import TRUE, grid, measured

ROOT = Path(__file__).parents[2]


def test_first_guesses_do_not_decide_where_a_parameter_is_free():
    """Two sizes cannot tell E, A and alpha apart; without a prior predictions of this fold lie 8% apart."""
    _, law, fitted, judged = next(part for part in six_domains() if part[0].startswith("dcpt-l1 math G"))
    fits, free = (
        [fitting.fit(fitted, law, bootstrap=0, method=VarPro(prior, first_guesses=number)) for number in range(3)]
        for prior in (True, False)
    )
    assert spread(np.array([fit.predict(judged) for fit in fits])) < 1e-6
    assert fits[1].params == pytest.approx(fits[0].params, rel=1e-4)
    assert spread(np.array([fit.predict(judged) for fit in free])) > 1e-3


@pytest.mark.slow
def test_a_rugged_law_has_one_answer_whatever_the_first_guesses():
    """Two minima of the Huber loss, 2% apart, lie behind one least-squares minimum of these points."""
    series = law_errors.six_domains(from_step=40).fitted("law", "G")
    fold = fitting.folds(series, "each-size")[0]
    methods = [VarPro(first_guesses=number) for number in range(2)]
    fits = [fitting.fit(series[fold.fitted], "dcpt-l4", bootstrap=0, method=method) for method in methods]
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=1e-5)
    assert spread(np.array([fit.predict(series[fold.judged]) for fit in fits])) < 1e-4


@pytest.mark.slow
def test_a_law_that_contains_another_fits_no_worse():
    """w3 = 0 makes K4 K3; descents from starts with a larger w3 ended at twice the objective."""
    together = every_domain(law_errors.six_domains(from_step=40), "D").iloc[::4]
    fold = next(fold for fold in fitting.folds(together, "domain-pairs") if fold.label == "domain = code, music")
    fits = [fitting.fit(together[fold.fitted], f"cross-domain-k{k}", bootstrap=0) for k in (3, 4)]
    assert fits[1].objective < 1.01 * fits[0].objective


@pytest.mark.slow
def test_kernels_agree_on_points_that_no_fit_saw(tmp_path):
    """Every 19th fold of `docs.studies.one_answer`, by the kernels that OpenBLAS has for two processors."""
    jobs, kernels = [], (KERNELS[0], KERNELS[-1])
    for kernel in kernels:
        command = [sys.executable, "-m", "docs.studies.one_answer", str(tmp_path / f"{kernel}.npz"), "1", "19"]
        jobs.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OPENBLAS_CORETYPE": kernel}))
    assert [job.wait() for job in jobs] == [0, 0]
    one, other = (np.load(tmp_path / f"{kernel}.npz") for kernel in kernels)
    assert len(one.files) >= 5
    for name in one.files:
        assert other[name] == pytest.approx(one[name], rel=1e-4), name


@pytest.mark.parametrize("law", ["chinchilla", "dcpt"])
def test_the_prior_moves_what_the_points_determine_by_less_than_a_tenth_of_its_error(law):
    ratios = {"ratios": (0.5,)} if law == "chinchilla" else {}
    points = measured(grid(evaluations=20, every=10_000, **ratios), law, TRUE[law], noise=0.003)
    ready = prepare_problem(points, law, Data())
    weak, none = VarPro().solve(ready.problem), VarPro(prior=False).solve(ready.problem)
    errors = np.sqrt(np.diag(sandwich(none.problem, none.theta, np.arange(len(points))).covariance))
    width = np.array([np.ptp([p.coordinate(value) for value in p.start]) for p in ready.problem.nonlinear])
    m = len(weak.theta) - len(width)
    determined = np.r_[np.ones(m, dtype=bool), errors[m:] < width / 10]
    assert determined[m:].sum() >= 2
    moved = np.abs(weak.theta - none.theta)
    assert (moved[determined] < 0.1 * errors[determined]).all()


def test_an_exact_law_comes_back_to_six_digits_beside_the_prior():
    points = measured(grid(evaluations=6, every=30_000), "dcpt", TRUE["dcpt"], noise=0.0)
    assert fitting.fit(points, "dcpt", bootstrap=0).params == pytest.approx(TRUE["dcpt"], rel=1e-5)


def test_the_prior_takes_no_part_in_the_objective_that_is_reported():
    points = measured(grid(evaluations=5), "dcpt", TRUE["dcpt"], noise=0.01)
    weak, none = (fitting.fit(points, "dcpt", bootstrap=0, method=VarPro(prior=prior)) for prior in (True, False))
    # The prior weighs as much as a point.
    assert none.objective <= weak.objective <= none.objective * (1 + 2 / len(points))
    assert weak.objective == pytest.approx(weak.metrics["huber"], rel=1e-9)


def test_runs_that_no_column_tells_apart_are_not_called_seeds():
    """Two mixtures of which the table says nothing that a law reads."""
    points = measured(grid(evaluations=6, every=30_000), "dcpt", TRUE["dcpt"], noise=0.003)
    points = points[(points["N"] == 0.5) & points["r"].isin([0.2, 0.5])].drop(columns=["r", "N"])
    explained = fitting.fit(points, "power", bootstrap=2, workers=1).explain()
    assert "Runs that do not differ in what laws read differ by " in explained
    mean = " in the mean of a run over its steps (standard deviation; single losses may differ by more)"
    assert explained.split("of the loss")[1].startswith(f"{mean}: noise, if they differ in their seed alone.")


@pytest.mark.slow
def test_explain_names_what_the_prior_decided():
    """Two sizes do not tell E, A and alpha apart, and say enough of the rest."""
    _, law, fitted, _ = next(part for part in six_domains() if part[0].startswith("dcpt-l1 math G"))
    fit = fitting.fit(fitted, law, bootstrap=2, workers=1)
    assert fit.prior_shares["alpha"] > 0.5 > fit.prior_shares["gamma"] > 0
    assert not fit.identified["alpha"]
    assert "Decided by the weak prior more than by the points: " in fit.explain()
    points = measured(grid(evaluations=6, every=30_000), "dcpt", TRUE["dcpt"], noise=0.003)
    assert max(fitting.fit(points, "dcpt", bootstrap=2, workers=1).prior_shares.values()) < 0.5
    assert fitting.fit(points, "dcpt", bootstrap=2, workers=1, method=VarPro(prior=False)).prior_shares == {}
