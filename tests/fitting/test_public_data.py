"""Losses that were really measured. Skipped where the folder of public data is absent."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitting
from fitting.schedule import Schedule

ROOT = Path(__file__).parents[2]
DATA = ROOT / os.environ.get("CPTLAW_PUBLIC_DATA", "../shared/data")


def read(name: str, repository: str) -> pd.DataFrame:
    if not (DATA / name).exists():
        pytest.skip(f"no {name} in CPTLAW_PUBLIC_DATA ({DATA}); its source: {repository}")
    return pd.read_csv(DATA / name)


@pytest.mark.parametrize("seed", range(5))
def test_chinchilla_points_reach_the_published_optimum(seed):
    """Points that Besiroglu et al. 2024 (arXiv:2404.10102) read off the figure of Hoffmann et al. 2022."""
    table = read("chinchilla_points/svg_extracted_data.csv", "github.com/epoch-research/analyzing-chinchilla")
    table = table[table["loss"] < table["loss"].sort_values().iloc[-5]]
    size = table["Model Size"]
    tokens = table["Training FLOP"] / 6 / size
    points = pd.DataFrame({"N": size / 1e9, "D": tokens / 1e9, "loss": table["loss"], "run": table.index})
    fit = fitting.fit(points, "chinchilla", method=fitting.VarPro(first_guesses=seed, prior=False), bootstrap=0)
    assert fit.n_points == 240
    assert fit.objective <= 0.00101828
    p = fit.params
    assert p["E"] == pytest.approx(1.8172, abs=1e-4)
    assert p["alpha"] == pytest.approx(0.3473, abs=1e-4)
    assert p["beta"] == pytest.approx(0.3672, abs=1e-4)
    assert p["A"] * 1e9 ** p["alpha"] == pytest.approx(477.83, rel=1e-3)
    assert p["B"] * 1e9 ** p["beta"] == pytest.approx(2143.42, rel=1e-3)


def continual_rates(schedule: str, peak: float, steps: int) -> np.ndarray:
    step = np.arange(steps)
    if schedule == "cos":
        return peak * (0.1 + 0.9 * (1 + np.cos(np.pi * step / steps)) / 2)
    if schedule == "wsd":
        return peak * np.clip(1 - 0.9 * (step - 0.8 * steps) / (0.2 * steps), 0.1, 1.0)
    return np.full(steps, peak)


@pytest.fixture(scope="module")
def trial() -> tuple[dict[str, pd.DataFrame], dict]:
    """Corpus -> points of 54 small runs, general text -> code; and the schedule of each run."""
    table = read("transfer_trials/code.csv", "this project's own trials of 2026-11-20")
    table = table[table["phase"] == "continual"]
    runs = table.groupby("run")[["schedule", "peak", "steps"]].first()
    schedules = {run: Schedule(continual_rates(*settings), 3e-4) for run, *settings in runs.itertuples()}
    step = np.arange(1200)
    pretraining = 3e-3 * np.minimum(1, (step + 1) / 50) * np.clip(1 - 0.9 * (step - 960) / 240, 0.1, 1.0)
    corpora = {}
    for corpus, rho in (("general", 1.0), ("code", 0.0)):
        rows = table[table["corpus"] == corpus]
        points = pd.DataFrame(
            {
                **{name: rows[name] for name in ("run", "step", "loss", "schedule", "peak", "steps")},
                "N": rows["n_params_non_embedding"] / 1e9,
                "D": rows["tokens"] / 1e9,
                "r": rows["domain_ratio"] if corpus == "code" else 1 - rows["domain_ratio"],
                "rho": rho,
                "s1_pretrain": pretraining.sum(),
                "loss_before": rows["run"].map(rows[rows["step"] == 0].set_index("run")["loss"]),
            }
        )
        points = fitting.with_areas(points[points["step"] >= 5], schedules, decay=0.5)
        corpora[corpus] = points.reset_index(drop=True)
    return corpora, schedules


def one_schedule(points: pd.DataFrame) -> pd.DataFrame:
    chosen = (points["schedule"] == "cos") & (points["peak"] == 1e-3) & (points["steps"] == 360)
    return points[chosen].reset_index(drop=True)


@pytest.mark.parametrize(("corpus", "r2", "fourth_size"), [("general", 0.990, 0.010), ("code", 0.996, 0.011)])
def test_transfer_anchored_explains_the_trial_and_predicts_the_fourth_size(trial, corpus, r2, fourth_size):
    corpora, schedules = trial
    points = corpora[corpus]
    fit = fitting.fit(points, "transfer-anchored", schedules=schedules, bootstrap=0)
    assert fit.n_points == 906
    assert fit.n_runs == 54
    assert fit.metrics["r2"] > r2
    assert 0.2 < fit.params["lambda"] < 0.65
    out = fitting.held_out(one_schedule(points), "transfer-anchored", "size", schedules=schedules)
    assert set(out["N"]) == {976128 / 1e9}
    assert out["relative_error"].abs().mean() < fourth_size
    again = [
        fitting.fit(
            points, "transfer-anchored", schedules=schedules, bootstrap=0, method=fitting.VarPro(first_guesses=s)
        )
        for s in (1, 2)
    ]
    assert [f.objective for f in again] == pytest.approx([fit.objective] * 2, rel=1e-6)


@pytest.mark.parametrize(("corpus", "r2"), [("general", 0.890), ("code", 0.886)])
def test_dcpt_without_its_constraint_is_as_good_as_tabled(trial, monkeypatch, corpus, r2):
    monkeypatch.setitem(fitting.LAWS, "dcpt-convex", replace(fitting.LAWS["dcpt-convex"], cone=None))
    assert fitting.fit(trial[0][corpus], "dcpt-convex", bootstrap=0).metrics["r2"] == pytest.approx(r2, abs=0.01)


@pytest.mark.parametrize("corpus", ["general", "code"])
@pytest.mark.parametrize("law", ["dcpt", "dcpt-l1"])
def test_seeds_agree_even_where_a_law_fits_badly(trial, corpus, law):
    """Coefficients end at 0 here, and their exponents must not stay where chance put them."""
    points = trial[0][corpus]
    objectives = [
        fitting.fit(points, law, bootstrap=0, method=fitting.VarPro(first_guesses=s)).objective for s in range(4)
    ]
    assert max(objectives) <= min(objectives) * (1 + 1e-6)


@pytest.mark.parametrize("corpus", ["general", "code"])
def test_dcpt_predicts_the_fourth_size_worse(trial, corpus):
    points = trial[0][corpus]
    out = fitting.held_out(one_schedule(points), "dcpt-convex", "size")
    assert 0.03 < out["relative_error"].abs().mean() < 0.065
