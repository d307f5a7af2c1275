"""The figures of laws.md: a law of each family, fitted to synthetic points and tested on held-out ones.

The points are drawn from the law itself with noise. They show the shape of a law and how a fit predicts, not that
measured losses follow it.
"""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fitting
from docs.charts import add_curve, axes, figure_of
from fitting.schedule import Schedule

FOLDER = Path(__file__).parent / "fits"
NOISE, SEED = 0.002, 0
LOSS = "loss (nats per token)"


def synthetic(
    law: str, plan: pd.DataFrame, truth: dict[str, float], noise: float = NOISE
) -> tuple[pd.DataFrame, fitting.Fit]:
    """The plan with losses of the law under relative noise, and a fit to the points that are not `held_out`."""
    equation = fitting.LAWS[law]
    equation = equation.among([name for name in plan if name.startswith("mixture.")]) if equation.among else equation
    loss = equation.loss({name: plan[name].to_numpy(float) for name in equation.columns}, truth)
    points = plan.assign(loss=loss * np.exp(noise * np.random.default_rng(SEED).standard_normal(len(plan))))
    return points, fitting.fit(points[~points["held_out"]], law, seed=SEED, bootstrap=0)


def add_points(ax: Axes, label: str, x: np.ndarray, loss: np.ndarray, points: pd.DataFrame, by: str, scale=1.0) -> None:
    """Plot a curve and its points over a column, scaled; dashed where all of them are held out."""
    fitted, held_out = (
        (rows[by].to_numpy() * scale, rows["loss"].to_numpy())
        for rows in (points[~points["held_out"]], points[points["held_out"]])
    )
    add_curve(ax, label, (x, loss), fitted, held_out, dashed=bool(points["held_out"].all()))


def finished(ax: Axes, points: pd.DataFrame, predicted: np.ndarray, noise: float = NOISE) -> Figure:
    """The figure, with how many points were fitted and the mean error of predictions of the held-out ones."""
    error = np.mean(np.abs(predicted / points.loc[points["held_out"], "loss"] - 1))
    n = (~points["held_out"]).sum()
    return figure_of(ax, f"{n} synthetic points, noise {noise:.2%}; rings: held out, mean error {error:.2%}")


def chinchilla() -> Figure:
    """Loss over tokens at five sizes, the largest held out; openai fitted to the same points."""
    tokens, dense = np.geomspace(0.5, 50, 14), np.geomspace(0.5, 50, 80)
    plan = pd.DataFrame(product((0.1, 0.3, 0.8, 1.8, 5.0), tokens), columns=["N", "D"])
    truth = {"E": 1.7, "A": 0.4, "B": 0.9, "alpha": 0.35, "beta": 0.3}
    points, fit = synthetic("chinchilla", plan.assign(run=plan["N"], held_out=plan["N"] == 5), truth)
    openai = fitting.fit(points[~points["held_out"]], "openai", seed=SEED, bootstrap=0)
    ax = axes("chinchilla, fitted", "D (billions of tokens)", LOSS, log_x=True)
    for N, rows in points.groupby("N"):
        add_points(ax, f"N = {N:g} billion", dense, fit.predict(pd.DataFrame({"N": N, "D": dense})), rows, "D")
    add_curve(ax, "N = 5, by openai", (dense, openai.predict(pd.DataFrame({"N": 5.0, "D": dense}))), dashed=True)
    return finished(ax, points, fit.predict(points[points["held_out"]]))


def dcpt() -> Figure:
    """Loss over the ratio of the corpus at two sizes, two ratios held out."""
    ratios, tokens, dense = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0), np.linspace(2, 26, 10), np.linspace(0.1, 1, 60)
    plan = pd.DataFrame(product((0.5, 1.8, 4.0), ratios, tokens), columns=["N", "r", "D"])
    plan = plan.assign(run=plan.groupby(["N", "r"]).ngroup(), held_out=plan["r"].isin([0.33, 0.8]))
    truth = {"E": 0.6, "A": 0.45, "B": 0.3, "C": 0.7, "alpha": 0.35, "beta": 0.4, "gamma": 0.5, "eta": 1.2, "eps": 0.1}
    points, fit = synthetic("dcpt", plan, truth)
    ax = axes("dcpt, fitted: four of its curves, N and D in billions", "r (ratio of the corpus in the mixture)", LOSS)
    for N, D in product((0.5, 4.0), (2.0, 26.0)):
        rows = points[(points["N"] == N) & (points["D"] == D)]
        line = fit.predict(pd.DataFrame({"N": N, "D": D, "r": dense}))
        add_points(ax, f"N = {N:g}, D = {D:g}", dense, line, rows, "r")
    return finished(ax, points, fit.predict(points[points["held_out"]]))


def cosine(angle: np.ndarray) -> np.ndarray:
    """A cosine from 1 to a tenth, at angles from 0 to pi."""
    return 0.1 + 0.45 * (1 + np.cos(angle))


def decay_at_the_end(part: np.ndarray) -> np.ndarray:
    """Constant, and in the last quarter linear to a tenth."""
    return np.clip(1 - 0.9 * (part - 0.75) / 0.25, 0.1, 1.0)


def evaluations(schedules: Mapping[str, Schedule], first: int, every: int, held_out: str) -> pd.DataFrame:
    """A row per run and evaluated step, with S1 and S2."""
    steps = {name: np.arange(first, len(schedule.rates) + 1, every) for name, schedule in schedules.items()}
    plan = pd.concat([pd.DataFrame({"run": name, "step": step}) for name, step in steps.items()], ignore_index=True)
    return fitting.with_areas(plan, schedules, 0.999).assign(held_out=plan["run"] == held_out)


def annealing() -> Figure:
    """Loss over steps by three schedules, one held out."""
    peak, held_out, part = 3e-4, "decay at the end", np.arange(8000) / 8000
    shapes = {"cosine": cosine(np.pi * part), "constant": np.ones(8000), held_out: decay_at_the_end(part)}
    schedules = {name: Schedule(peak * shape, before=peak) for name, shape in shapes.items()}
    truth = {"L0": 2.6, "A": 0.6, "C": 0.5, "alpha": 0.4}
    points, fit = synthetic("annealing", evaluations(schedules, 1600, 320, held_out), truth)
    ax = axes("annealing, fitted", "step (thousands)", LOSS)
    for name, schedule in schedules.items():
        curve = fitting.loss_curve(fit, schedule.rates, before=peak).iloc[1500::40]
        x, loss = curve["step"].to_numpy() * 1e-3, curve["loss"].to_numpy()
        add_points(ax, name, x, loss, points[points["run"] == name], "step", 1e-3)
    return finished(ax, points, fit.predict(points[points["held_out"]]))


def dynamics() -> Figure:
    """Loss on the corpus of pre-training, before and after the corpus changes, by two peaks and one held out."""
    before, part, held_out = 3e-4 * cosine(np.pi * np.arange(8000) / 8000), np.arange(6000) / 6000, "2e-4, WSD"
    shapes = {f"{peak}, cosine": float(peak) * cosine(np.pi * part) for peak in ("3e-4", "1e-4")}
    shapes |= {f"{peak}, constant": float(peak) * np.ones(6000) for peak in ("3e-4", "1e-4")}
    shapes |= {held_out: 2e-4 * decay_at_the_end(part)}
    schedules = {"pre-training": Schedule(before, is_pretraining=True)}
    schedules |= {name: Schedule(rates, before=before[-1], pretrain=before) for name, rates in shapes.items()}
    truth = {"L0": 2.3, "A": 0.7, "C1": 0.5, "C2": 0.5, "B": 0.35, "alpha": 0.4, "E": 12.0, "beta": 0.4}
    points, fit = synthetic("dynamics", evaluations(schedules, 250, 250, held_out), truth)
    ax = axes("dynamics, fitted: loss on the corpus of pre-training", "step (thousands)", LOSS)
    for name in ("pre-training", "3e-4, cosine", "1e-4, constant", held_out):
        schedule = schedules[name]
        first, offset = (3000, 0) if schedule.is_pretraining else (0, len(before))
        rows = points[(points["run"] == name) & (points["step"] >= first)]
        step = np.arange(first, len(schedule.rates) + 1, 25)
        line = fit.predict(fitting.with_areas(pd.DataFrame({"run": name, "step": step}), schedules, 0.999))
        add_points(ax, name, (step + offset) / 1e3, line, rows.assign(step=rows["step"] + offset), "step", 1e-3)
    return finished(ax, points, fit.predict(points[points["held_out"]]))


def transfer() -> Figure:
    """General loss over steps at five ratios of general text, one held out: it rises, and then falls."""
    steps, rate, noise = 2000, 3e-4, 0.001
    evaluated, dense = np.unique(np.r_[5, 20, 50, np.arange(100, steps + 1, 100)]), np.arange(0, steps + 1, 10)
    schedule = rate * np.clip((1 - np.arange(steps) / steps) / 0.3, 0.0, 1.0)
    s1, s2 = (np.r_[0.0, area] for area in fitting.areas(schedule, 0.99, before=rate))

    def columns(r: float, step: np.ndarray) -> pd.DataFrame:
        known = {"rho": 1.0, "s1_pretrain": 1.0, "loss_before": 3.1, "held_out": r == 0.25}
        return pd.DataFrame({"run": r, "r": r, "step": step, "s1": s1[step], "s2": s2[step], **known})

    plan = pd.concat([columns(r, evaluated) for r in (0.02, 0.1, 0.25, 0.5, 0.8)], ignore_index=True)
    truth = {"C2": 4.0, "C": 0.06, "G": 0.25, "eps": 0.03, "E": 80.0}
    points, fit = synthetic("transfer-anchored", plan, truth, noise)
    ax = axes("transfer-anchored, fitted: general loss", "step", LOSS)
    for r, rows in points.groupby("r"):
        add_points(ax, f"r = {r:g}", dense, fit.predict(columns(float(r), dense)), rows, "step")
    return finished(ax, points, fit.predict(points[points["held_out"]]), noise)


def ddo() -> Figure:
    """Loss of the whole over the tokens of one domain at a time, three domains."""
    dense, parts, noise = np.geomspace(0.2, 3, 60), [], 0.0005
    labels = ("x (tokens of the domain relative to the base run)", "loss relative to the base run")
    ax = axes("ddo, fitted, a curve per domain", *labels, log_x=True)
    for name, b, a in (("web", 0.9, 0.8), ("code", 1.2, 1.6), ("law", 1.6, 3.0)):
        plan = pd.DataFrame({"x": [1 / 5, 1 / 3, 1, 3, 0.6, 2.0]}).assign(run=range(6))
        truth = {"c": 1 - (1 + a) ** -b, "a": a, "b": b}
        points, fit = synthetic("ddo", plan.assign(held_out=plan["run"] >= 4), truth, noise)
        add_points(ax, name, dense, fit.predict(pd.DataFrame({"x": dense})), points, "x")
        parts.append(points.assign(predicted=fit.predict(points)))
    every = pd.concat(parts)
    return finished(ax, every, every.loc[every["held_out"], "predicted"].to_numpy(), noise)


def data_mixing() -> Figure:
    """Loss on a corpus over its ratio, the rest of the mixture being one or the other of two more."""
    mixtures = np.random.default_rng(SEED).dirichlet([1, 1, 1], 40)
    edge, dense = np.linspace(0, 1, 7), np.linspace(0, 1, 60)
    edges = [np.column_stack(columns) for columns in ((edge, 1 - edge, 0 * edge), (edge, 0 * edge, 1 - edge))]
    names = [f"mixture.{name}" for name in ("code", "web", "math")]
    plan = pd.DataFrame(np.concatenate([mixtures, *edges]), columns=names)
    truth = {"c": 1.6, "k": 1.3, "t.code": -2.4, "t.web": 0.3}
    points, fit = synthetic("data-mixing", plan.assign(run=range(len(plan)), held_out=plan.index >= 40), truth)
    ax = axes("data-mixing, fitted: loss on code", "ratio of code", LOSS)
    for i, other in enumerate(("web", "math")):
        mixture = {**dict.fromkeys(names, 0.0), "mixture.code": dense, f"mixture.{other}": 1 - dense}
        rows = points.iloc[40 + 7 * i : 47 + 7 * i]
        add_points(ax, f"the rest is {other}", dense, fit.predict(pd.DataFrame(mixture)), rows, "mixture.code")
    return finished(ax, points, fit.predict(points[points["held_out"]]))


PICTURES: dict[str, Callable[[], Figure]] = {
    picture.__name__.replace("_", "-"): picture
    for picture in (chinchilla, dcpt, annealing, dynamics, transfer, ddo, data_mixing)
}
"""File in docs/fits -> its figure."""
