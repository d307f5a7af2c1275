"""The figures of laws.md: a law of each family, fitted to synthetic points and tested on held-out ones.

The points are drawn from the law itself with noise. They show the shape of a law and how a fit predicts, not that
measured losses follow it.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import fitting
from docs.charts import add_curve, axes, figure_of
from fitting.schedule import Schedule

FOLDER = Path(__file__).parent / "fits"
NOISE, SEED = 0.002, 0
LOSS = "loss (nats per token)"


def synthetic(law: str, plan: pd.DataFrame, truth: dict[str, float], noise: float = NOISE) -> pd.DataFrame:
    """The plan with losses of the law, under relative noise."""
    equation = fitting.LAWS[law]
    equation = equation.among([name for name in plan if name.startswith("mixture.")]) if equation.among else equation
    loss = equation.loss({name: plan[name].to_numpy(float) for name in equation.columns}, truth)
    return plan.assign(loss=loss * np.exp(noise * np.random.default_rng(SEED).standard_normal(len(plan))))


def error_note(n: int, held_out: pd.DataFrame, predicted: np.ndarray, noise: float = NOISE) -> str:
    """How many points were fitted, and the mean error of the held-out ones."""
    error = np.mean(np.abs(predicted / held_out["loss"] - 1))
    return f"{n} synthetic points, noise {noise:.2%}; rings: held out, mean error {error:.2%}"


def xy(points: pd.DataFrame, x: str, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """A column, scaled, and the loss."""
    return points[x].to_numpy() * scale, points["loss"].to_numpy()


def chinchilla() -> Figure:
    """Loss over tokens at five sizes, the largest held out; openai fitted to the same points."""
    tokens, dense = np.geomspace(0.5, 50, 14), np.geomspace(0.5, 50, 80)
    plan = pd.DataFrame([(N, D) for N in (0.1, 0.3, 0.8, 1.8, 5.0) for D in tokens], columns=["N", "D"])
    truth = {"E": 1.7, "A": 0.4, "B": 0.9, "alpha": 0.35, "beta": 0.3}
    points = synthetic("chinchilla", plan.assign(run=plan["N"]), truth)
    train, test = points[points["N"] < 5], points[points["N"] == 5]
    fits = {law: fitting.fit(train, law, seed=SEED, bootstrap=0) for law in ("chinchilla", "openai")}
    ax = axes("chinchilla, fitted", "D (billions of tokens)", LOSS, log_x=True)
    for N, rows in points.groupby("N"):
        line = dense, fits["chinchilla"].predict(pd.DataFrame({"N": N, "D": dense}))
        add_curve(ax, f"N = {N:g} billion", line, **{"held_out" if N == 5 else "fitted": xy(rows, "D")}, dashed=N == 5)
    line = dense, fits["openai"].predict(pd.DataFrame({"N": 5.0, "D": dense}))
    add_curve(ax, "N = 5, by openai", line, dashed=True)
    return figure_of(ax, error_note(len(train), test, fits["chinchilla"].predict(test)))


def dcpt() -> Figure:
    """Loss over the ratio of the corpus at two sizes, two ratios held out."""
    ratios, left_out = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0), (0.33, 0.8)
    tokens, dense = np.linspace(2, 26, 10), np.linspace(0.1, 1, 60)
    plan = pd.DataFrame([(N, r, D) for N in (0.5, 1.8, 4.0) for r in ratios for D in tokens], columns=["N", "r", "D"])
    truth = {"E": 0.6, "A": 0.45, "B": 0.3, "C": 0.7, "alpha": 0.35, "beta": 0.4, "gamma": 0.5, "eta": 1.2, "eps": 0.1}
    points = synthetic("dcpt", plan.assign(run=plan.groupby(["N", "r"]).ngroup()), truth)
    out = points["r"].isin(left_out)
    fit = fitting.fit(points[~out], "dcpt", seed=SEED, bootstrap=0)
    ax = axes("dcpt, fitted: four of its curves, N and D in billions", "r (ratio of the corpus in the mixture)", LOSS)
    for N, D in ((0.5, 2.0), (0.5, 26.0), (4.0, 2.0), (4.0, 26.0)):
        here = (points["N"] == N) & (points["D"] == D)
        line = dense, fit.predict(pd.DataFrame({"N": N, "D": D, "r": dense}))
        add_curve(ax, f"N = {N:g}, D = {D:g}", line, xy(points[here & ~out], "r"), xy(points[here & out], "r"))
    return figure_of(ax, error_note(int((~out).sum()), points[out], fit.predict(points[out])))


def annealing() -> Figure:
    """Loss over steps by three schedules, one held out."""
    steps, peak, held_out = 8000, 3e-4, "decay at the end"
    t = np.arange(steps) / steps
    shapes = {
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * t)),
        "constant": np.ones(steps),
        held_out: np.clip(1 - 0.9 * (t - 0.75) / 0.25, 0.1, 1.0),
    }
    schedules = {name: Schedule(peak * shape, before=peak) for name, shape in shapes.items()}
    evaluated = np.arange(1600, steps + 1, 320)
    plan = pd.concat([pd.DataFrame({"run": name, "step": evaluated}) for name in schedules], ignore_index=True)
    truth = {"L0": 2.6, "A": 0.6, "C": 0.5, "alpha": 0.4}
    points = synthetic("annealing", fitting.with_areas(plan, schedules, 0.999), truth)
    out = points["run"] == held_out
    fit = fitting.fit(points[~out], "annealing", seed=SEED, bootstrap=0)
    ax = axes("annealing, fitted", "step (thousands)", LOSS)
    for name, schedule in schedules.items():
        curve = fitting.loss_curve(fit, schedule.rates, before=peak).iloc[1500::40]
        part = "held_out" if name == held_out else "fitted"
        dots = {part: xy(points[points["run"] == name], "step", 1e-3)}
        add_curve(ax, name, xy(curve, "step", 1e-3), **dots, dashed=name == held_out)
    return figure_of(ax, error_note(int((~out).sum()), points[out], fit.predict(points[out])))


def dynamics() -> Figure:
    """Loss on the corpus of pre-training, before and after the corpus changes, by two peaks and one held out."""
    before, steps, held_out = 3e-4 * (0.1 + 0.45 * (1 + np.cos(np.pi * np.arange(8000) / 8000))), 6000, "2e-4, WSD"
    u = np.arange(steps) / steps
    cosine, constant = 0.1 + 0.45 * (1 + np.cos(np.pi * u)), np.ones(steps)
    shapes = {"3e-4, cosine": 3e-4 * cosine, "1e-4, cosine": 1e-4 * cosine}
    shapes |= {"3e-4, constant": 3e-4 * constant, "1e-4, constant": 1e-4 * constant}
    shapes |= {held_out: 2e-4 * np.clip(1 - 0.9 * (u - 0.75) / 0.25, 0.1, 1.0)}
    schedules = {"pre-training": Schedule(before, is_pretraining=True)}
    schedules |= {name: Schedule(rates, before=before[-1], pretrain=before) for name, rates in shapes.items()}
    evaluated = {name: np.arange(250, len(s.rates) + 1, 250) for name, s in schedules.items()}
    plan = pd.concat([pd.DataFrame({"run": name, "step": step}) for name, step in evaluated.items()], ignore_index=True)
    truth = {"L0": 2.3, "A": 0.7, "C1": 0.5, "C2": 0.5, "B": 0.35, "alpha": 0.4, "E": 12.0, "beta": 0.4}
    points = synthetic("dynamics", fitting.with_areas(plan, schedules, 0.999), truth)
    out = points["run"] == held_out
    fit = fitting.fit(points[~out], "dynamics", seed=SEED, bootstrap=0)
    ax = axes("dynamics, fitted: loss on the corpus of pre-training", "step (thousands)", LOSS)
    for name in ("pre-training", "3e-4, cosine", "1e-4, constant", held_out):
        schedule = schedules[name]
        first, offset = (3000, 0) if schedule.is_pretraining else (0, len(before))
        rows = points[(points["run"] == name) & (points["step"] >= first)]
        step = np.arange(first, len(schedule.rates) + 1, 25)
        line = fit.predict(fitting.with_areas(pd.DataFrame({"run": name, "step": step}), schedules, 0.999))
        part = "held_out" if name == held_out else "fitted"
        dots = {part: xy(rows.assign(step=rows["step"] + offset), "step", 1e-3)}
        add_curve(ax, name, ((step + offset) / 1e3, line), **dots, dashed=name == held_out)
    return figure_of(ax, error_note(int((~out).sum()), points[out], fit.predict(points[out])))


def transfer() -> Figure:
    """General loss over steps at five ratios of general text, one held out: it rises, and then falls."""
    steps, rate, held_out = 2000, 3e-4, 0.25
    evaluated, dense = np.unique(np.r_[5, 20, 50, np.arange(100, steps + 1, 100)]), np.arange(0, steps + 1, 10)
    schedule = rate * np.clip((1 - np.arange(steps) / steps) / 0.3, 0.0, 1.0)
    s1, s2 = (np.r_[0.0, area] for area in fitting.areas(schedule, 0.99, before=rate))

    def columns(r: float, step: np.ndarray) -> pd.DataFrame:
        known = {"rho": 1.0, "s1_pretrain": 1.0, "loss_before": 3.1}
        return pd.DataFrame({"run": r, "r": r, "step": step, "s1": s1[step], "s2": s2[step], **known})

    plan = pd.concat([columns(r, evaluated) for r in (0.02, 0.1, held_out, 0.5, 0.8)], ignore_index=True)
    truth = {"C2": 4.0, "C": 0.06, "G": 0.25, "eps": 0.03, "E": 80.0}
    points = synthetic("transfer-anchored", plan, truth, noise=0.001)
    out = points["r"] == held_out
    fit = fitting.fit(points[~out], "transfer-anchored", seed=SEED, bootstrap=0)
    ax = axes("transfer-anchored, fitted: general loss", "step", LOSS)
    for r, rows in points.groupby("r"):
        dots = {"held_out" if r == held_out else "fitted": xy(rows, "step")}
        line = dense, fit.predict(columns(float(r), dense))  # pyright: ignore[reportArgumentType]
        add_curve(ax, f"r = {r:g}", line, **dots, dashed=r == held_out)
    return figure_of(ax, error_note(int((~out).sum()), points[out], fit.predict(points[out]), noise=0.001))


def ddo() -> Figure:
    """Loss of the whole over the tokens of one domain at a time, three domains."""
    factors, dense, errors = (1 / 5, 1 / 3, 1, 3), np.geomspace(0.2, 3, 60), []
    ax = axes(
        "ddo, fitted, a curve per domain",
        "x (tokens of the domain relative to the base run)",
        "loss relative to the base run",
        log_x=True,
    )
    for name, b, a in (("web", 0.9, 0.8), ("code", 1.2, 1.6), ("law", 1.6, 3.0)):
        plan = pd.DataFrame({"x": [*factors, 0.6, 2.0]}).assign(run=range(6))
        points = synthetic("ddo", plan, {"c": 1 - (1 + a) ** -b, "a": a, "b": b}, noise=0.0005)
        fit = fitting.fit(points[:4], "ddo", seed=SEED, bootstrap=0)
        line = dense, fit.predict(pd.DataFrame({"x": dense}))
        add_curve(ax, name, line, xy(points[:4], "x"), xy(points[4:], "x"))
        errors.append(points[4:].assign(predicted=fit.predict(points[4:])))
    held_out = pd.concat(errors)
    return figure_of(ax, error_note(4 * 3, held_out, held_out["predicted"].to_numpy(), noise=0.0005))


def data_mixing() -> Figure:
    """Loss on a corpus over its ratio, the rest of the mixture being one or the other of two more."""
    mixtures = np.random.default_rng(SEED).dirichlet([1, 1, 1], 40)
    edge, dense = np.linspace(0, 1, 7), np.linspace(0, 1, 60)
    edges = [np.column_stack(columns) for columns in ((edge, 1 - edge, 0 * edge), (edge, 0 * edge, 1 - edge))]
    names = [f"mixture.{name}" for name in ("code", "web", "math")]
    plan = pd.DataFrame(np.concatenate([mixtures, *edges]), columns=names)
    truth = {"c": 1.6, "k": 1.3, "t.code": -2.4, "t.web": 0.3}
    points = synthetic("data-mixing", plan.assign(run=range(len(plan))), truth)
    train, test = points[:40], points[40:]
    fit = fitting.fit(train, "data-mixing", seed=SEED, bootstrap=0)
    ax = axes("data-mixing, fitted: loss on code", "ratio of code", LOSS)
    for i, other in enumerate(("web", "math")):
        mixture = {**dict.fromkeys(names, 0.0), "mixture.code": dense, f"mixture.{other}": 1 - dense}
        line = dense, fit.predict(pd.DataFrame(mixture))
        add_curve(
            ax, f"the rest is {other}", line, held_out=xy(test.iloc[7 * i : 7 * i + 7], "mixture.code"), dashed=True
        )
    return figure_of(ax, error_note(len(train), test, fit.predict(test)))


PICTURES: dict[str, Callable[[], Figure]] = {
    **{"chinchilla": chinchilla, "dcpt": dcpt, "annealing": annealing, "dynamics": dynamics},
    **{"transfer": transfer, "ddo": ddo, "data-mixing": data_mixing},
}
"""File in docs/fits -> its figure."""
