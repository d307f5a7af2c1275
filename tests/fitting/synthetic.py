"""Points whose law is known."""

import numpy as np
import pandas as pd

from fitting import areas, with_areas
from fitting.laws import LAWS
from fitting.schedule import Schedule

TRUE = {
    "chinchilla": {"E": 1.7, "A": 0.4, "B": 0.9, "alpha": 0.35, "beta": 0.3},
    "dcpt-l1": {
        "E": 0.9, "A": 0.45, "B": 0.3, "C": 0.5, "alpha": 0.35, "beta": 0.3, "gamma": 0.4, "eps": 0.08,
    },
    "dcpt": {
        "E": 0.9, "A": 0.45, "B": 0.05, "C": 0.8,
        "alpha": 0.35, "beta": 0.25, "gamma": 0.2, "eta": 1.4, "eps": 0.08,
    },
    "dynamics": {"L0": 2.6, "A": 0.9, "C1": 0.5, "C2": 0.6, "B": 0.5, "alpha": 0.45, "E": 20.0, "beta": 0.35},
    "transfer-anchored": {"C2": 60.0, "C": 0.08, "G": 0.4, "eps": 0.02, "E": 500.0},
}  # fmt: skip
RATIOS = (0.0, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0)
TOKENS_A_STEP = 131_072e-9


def grid(sizes=(0.5, 1.8, 4.0), ratios=RATIOS, evaluations=200, every=1000) -> pd.DataFrame:
    """The D-CPT paper's plan: each size at each ratio, evaluated each `every` steps."""
    steps = every * np.arange(1, evaluations + 1)
    rows = [(N, r, step) for N in sizes for r in ratios for step in steps]
    frame = pd.DataFrame(rows, columns=["N", "r", "step"])
    return frame.assign(run=frame.groupby(["N", "r"]).ngroup(), D=frame["step"] * TOKENS_A_STEP)


def schedules(steps=400, before=3e-4) -> dict[int, Schedule]:
    """Cosine, constant and linear decay at two peaks, for runs 0, 1, 2 …"""
    t = np.arange(steps) / steps
    shapes = [0.1 + 0.45 * (1 + np.cos(np.pi * t)), np.ones(steps), np.clip(1 - (t - 0.7) / 0.3, 0.1, 1.0)]
    kinds = enumerate((peak, shape) for peak in (1e-3, 3e-4) for shape in shapes)
    return {run: Schedule(peak * shape, before) for run, (peak, shape) in kinds}


def scheduled(decay: float, ratios=(0.0, 0.05, 0.25, 0.5, 0.75, 1.0), sizes=(0.1, 0.4)) -> tuple[pd.DataFrame, dict]:
    """A plan for the transfer law, a run for each schedule, ratio and size; and each run's schedule."""
    evaluated = np.unique(np.r_[0, np.geomspace(5, 400, 14).astype(int)])
    plans, of_run = [], {}
    for schedule in schedules().values():
        s1, s2 = (np.r_[0.0, area][evaluated] for area in areas(schedule.rates, decay, schedule.before))
        for r in ratios:
            for N in sizes:
                run = len(of_run)
                of_run[run] = schedule
                plans.append(pd.DataFrame({"run": run, "step": evaluated, "s1": s1, "s2": s2, "r": r, "N": N}))
    frame = pd.concat(plans, ignore_index=True)
    loss_before = 3.4 - 0.3 * np.log(frame["N"])
    return frame.assign(rho=0.0, s1_pretrain=3.0, loss_before=loss_before, D=frame["step"] * 1e-4), of_run


def pretrained_and_continued(steps=20_000, continued=8_000) -> pd.DataFrame:
    """Six pre-training runs of different schedules, each continued with six: 42 runs of 25 evaluations."""
    t, u = np.arange(steps) / steps, np.arange(continued) / continued
    warm_up = np.minimum(1, (np.arange(steps) + 1) / 500)
    shapes = [0.1 + 0.45 * (1 + np.cos(np.pi * t)), np.clip(1 - 0.9 * (t - 0.8) / 0.2, 0.1, 1), np.ones(steps)]
    tails = [0.1 + 0.45 * (1 + np.cos(np.pi * u)), np.ones(continued), np.clip(1 - (u - 0.7) / 0.3, 0.1, 1.0)]
    evaluated, of_run = [], {}
    for i, (peak, shape) in enumerate((peak, shape) for peak in (1e-3, 6e-4) for shape in shapes):
        rates = peak * warm_up * shape
        of_run[f"pretrain-{i}"] = Schedule(rates, is_pretraining=True)
        for j, (again, tail) in enumerate((again, tail) for again in (1e-3, 3e-4) for tail in tails):
            of_run[f"continual-{i}-{j}"] = Schedule(again * tail, before=rates[-1], pretrain=rates)
    for run, schedule in of_run.items():
        last = len(schedule.rates)
        evaluated.append(pd.DataFrame({"run": run, "step": np.unique(np.geomspace(last / 40, last, 25).astype(int))}))
    return with_areas(pd.concat(evaluated, ignore_index=True), of_run)


def small_plan(law: str) -> pd.DataFrame:
    """Some 700 points for a law, as a first study would have them."""
    if law == "transfer-anchored":
        frame, _ = scheduled(decay=0.9, ratios=(0.0, 0.1, 0.5, 1.0))
        return frame[frame["step"] > 0].reset_index(drop=True)
    if law == "dynamics":
        return pretrained_and_continued()
    if law == "chinchilla":
        return grid(sizes=(0.2, 0.5, 1.0, 1.8, 2.5, 4.0), ratios=(0.2, 0.5, 0.8), evaluations=26, every=7000)
    return grid(evaluations=26, every=7000)


def measured(frame: pd.DataFrame, law: str, params: dict, noise: float, seed=0, run_noise=0.0) -> pd.DataFrame:
    """The frame with the law's loss under noise: relative, of each point and of each whole run."""
    rng = np.random.default_rng(seed)
    chosen = LAWS[law]
    loss = chosen.loss({name: frame[name].to_numpy(float) for name in chosen.columns}, params)
    runs = pd.factorize(frame["run"])[0]
    errors = noise * rng.standard_normal(len(frame)) + run_noise * rng.standard_normal(runs.max() + 1)[runs]
    return frame.assign(loss=loss * np.exp(errors))
