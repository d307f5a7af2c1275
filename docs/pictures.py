"""The pictures of laws.md: each family fitted to points of a small plan, and asked for what it was not given.

The points are synthetic, drawn from a law of the family with noise: they show what a law can look like and how a fit
predicts, not that nature follows it.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import fitting
from docs.line_chart import Series, line_chart
from fitting.schedule import Schedule

FOLDER = Path(__file__).parent / "fits"
NOISE, SEED = 0.002, 0
LOSS = "loss (nats per token)"


def drawn(law: str, plan: pd.DataFrame, truth: dict[str, float], noise: float = NOISE) -> pd.DataFrame:
    """The plan with losses of the law, under relative noise."""
    chosen = fitting.LAWS[law]
    chosen = chosen.among([name for name in plan if name.startswith("mixture.")]) if chosen.among else chosen
    loss = chosen.loss({name: plan[name].to_numpy(float) for name in chosen.columns}, truth)
    return plan.assign(loss=loss * np.exp(noise * np.random.default_rng(SEED).standard_normal(len(plan))))


def told(n: int, missed: pd.DataFrame, predicted: np.ndarray, noise: float = NOISE) -> str:
    """The line under a title: what was fitted, and how far off what was not is."""
    error = np.mean(np.abs(predicted / missed["loss"] - 1))
    return f"{n} synthetic points, noise {noise:.2%}; rings were held out and are predicted within {error:.2%} (mean)"


def chinchilla() -> str:
    """Loss over tokens at five sizes, the largest held out; openai fitted to the same points."""
    tokens = np.geomspace(0.5, 50, 14)
    plan = pd.DataFrame([(N, D) for N in (0.1, 0.3, 0.8, 1.8, 5.0) for D in tokens], columns=["N", "D"])
    truth = {"E": 1.7, "A": 0.4, "B": 0.9, "alpha": 0.35, "beta": 0.3}
    points = drawn("chinchilla", plan.assign(run=plan["N"]), truth)
    known, rest = points[points["N"] < 5], points[points["N"] == 5]
    fits = {law: fitting.fit(known, law, seed=SEED, bootstrap=0) for law in ("chinchilla", "openai")}
    many = np.geomspace(0.5, 50, 80)
    series = []
    for N, own in points.groupby("N"):
        line = fits["chinchilla"].predict(pd.DataFrame({"N": N, "D": many}))
        series.append(Series(f"N = {N:g} billion", (many, line), (own["D"], own["loss"]), held_out=N == 5))
    line = fits["openai"].predict(pd.DataFrame({"N": 5.0, "D": many}))
    series.append(Series("N = 5, by openai", (many, line), held_out=True))
    below = told(len(known), rest, fits["chinchilla"].predict(rest))
    return line_chart("chinchilla, fitted", below, "D (billions of tokens)", LOSS, series, log_x=True)


def dcpt() -> str:
    """Loss over the share of the corpus at three sizes and the last tokens, two ratios held out."""
    ratios, left_out = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0), (0.33, 0.8)
    tokens = np.linspace(2, 26, 10)
    frame = pd.DataFrame([(N, r, D) for N in (0.5, 1.8, 4.0) for r in ratios for D in tokens], columns=["N", "r", "D"])
    truth = {"E": 0.6, "A": 0.45, "B": 0.3, "C": 0.7, "alpha": 0.35, "beta": 0.4, "gamma": 0.5, "eta": 1.2, "eps": 0.1}
    points = drawn("dcpt", frame.assign(run=frame.groupby(["N", "r"]).ngroup()), truth)
    out = points["r"].isin(left_out)
    fit = fitting.fit(points[~out], "dcpt", seed=SEED, bootstrap=0)
    many, series = np.linspace(0.1, 1, 60), []
    for N, D in ((0.5, 2.0), (0.5, 26.0), (4.0, 2.0), (4.0, 26.0)):
        here = (points["N"] == N) & (points["D"] == D)
        known, rest = points[here & ~out], points[here & out]
        line = fit.predict(pd.DataFrame({"N": N, "D": D, "r": many}))
        label, colour = f"N = {N:g}, D = {D:g}", len(series) // 2
        series.append(Series(label, (many, line), (known["r"], known["loss"]), like=colour))
        series.append(Series("", (many[:0], line[:0]), (rest["r"], rest["loss"]), True, colour))
    below = told(int((~out).sum()), points[out], fit.predict(points[out]))
    return line_chart(
        "dcpt, fitted: four of its curves, N and D in billions",
        below,
        "r (share of the corpus in the mixture)",
        LOSS,
        series,
    )


def annealing() -> str:
    """Loss over steps by three schedules, one held out."""
    steps, peak = 8000, 3e-4
    t = np.arange(steps) / steps
    shapes = {
        "cosine": 0.1 + 0.45 * (1 + np.cos(np.pi * t)),
        "constant": np.ones(steps),
        "decay at the end": np.clip(1 - 0.9 * (t - 0.75) / 0.25, 0.1, 1.0),
    }
    of_run = {name: Schedule(peak * shape, before=peak) for name, shape in shapes.items()}
    evaluated = np.arange(1600, steps + 1, 320)
    plan = pd.concat([pd.DataFrame({"run": name, "step": evaluated}) for name in of_run], ignore_index=True)
    truth = {"L0": 2.6, "A": 0.6, "C": 0.5, "alpha": 0.4}
    points = drawn("annealing", fitting.with_areas(plan, of_run, 0.999), truth)
    late = points["run"] == "decay at the end"
    fit = fitting.fit(points[~late], "annealing", seed=SEED, bootstrap=0)
    series = []
    for name, schedule in of_run.items():
        curve = fitting.loss_curve(fit, schedule.rates, before=peak).iloc[1500::40]
        own = points[points["run"] == name]
        shown = ((curve["step"] / 1e3).to_numpy(), curve["loss"].to_numpy())
        series.append(Series(name, shown, (own["step"] / 1e3, own["loss"]), held_out=name == "decay at the end"))
    below = told(int((~late).sum()), points[late], fit.predict(points[late]))
    return line_chart("annealing, fitted", below, "step (thousands)", LOSS, series)


def dynamics() -> str:
    """Loss on the corpus of pre-training, before and after the corpus changes, by two peaks and one held out."""
    before, steps = 3e-4 * (0.1 + 0.45 * (1 + np.cos(np.pi * np.arange(8000) / 8000))), 6000
    of_run = {"pre-training": Schedule(before, is_pretraining=True)}
    u = np.arange(steps) / steps
    for name, peak, shape in (
        ("3e-4, cosine", 3e-4, 0.1 + 0.45 * (1 + np.cos(np.pi * u))),
        ("1e-4, cosine", 1e-4, 0.1 + 0.45 * (1 + np.cos(np.pi * u))),
        ("3e-4, constant", 3e-4, np.ones(steps)),
        ("1e-4, constant", 1e-4, np.ones(steps)),
        ("2e-4, decay at the end", 2e-4, np.clip(1 - 0.9 * (u - 0.75) / 0.25, 0.1, 1.0)),
    ):
        of_run[name] = Schedule(peak * shape, before=before[-1], pretrain=before)
    evaluated = {name: np.arange(250, len(s.rates) + 1, 250) for name, s in of_run.items()}
    plan = pd.concat([pd.DataFrame({"run": name, "step": step}) for name, step in evaluated.items()], ignore_index=True)
    truth = {"L0": 2.3, "A": 0.7, "C1": 0.5, "C2": 0.5, "B": 0.35, "alpha": 0.4, "E": 12.0, "beta": 0.4}
    points = drawn("dynamics", fitting.with_areas(plan, of_run, 0.999), truth)
    out = points["run"] == "2e-4, decay at the end"
    fit = fitting.fit(points[~out], "dynamics", seed=SEED, bootstrap=0)
    series = []
    for name in ("pre-training", "3e-4, cosine", "1e-4, constant", "2e-4, decay at the end"):
        schedule, own = of_run[name], points[points["run"] == name]
        own = own[(own["step"] >= 3000) | (not schedule.is_pretraining)]
        start = 0 if schedule.is_pretraining else len(before)
        walked = np.arange(3000 if schedule.is_pretraining else 0, len(schedule.rates) + 1, 25)
        line = fit.predict(fitting.with_areas(pd.DataFrame({"run": name, "step": walked}), of_run, 0.999))
        dots = ((own["step"] + start) / 1e3, own["loss"])
        series.append(Series(name, ((walked + start) / 1e3, line), dots, held_out=name.endswith("end")))
    below = told(int((~out).sum()), points[out], fit.predict(points[out]))
    return line_chart("dynamics, fitted: loss on the corpus of pre-training", below, "step (thousands)", LOSS, series)


def transfer() -> str:
    """General loss over steps at five shares of general text, one held out: it rises, and then falls."""
    steps, rate = 2000, 3e-4
    evaluated = np.unique(np.r_[5, 20, 50, np.arange(100, steps + 1, 100)])
    shares = (0.02, 0.1, 0.25, 0.5, 0.8)
    schedule = rate * np.clip((1 - np.arange(steps) / steps) / 0.3, 0.0, 1.0)
    s1, s2 = (np.r_[0.0, area] for area in fitting.areas(schedule, 0.99, before=rate))
    plan = pd.concat(
        [pd.DataFrame({"run": r, "r": r, "step": evaluated, "s1": s1[evaluated], "s2": s2[evaluated]}) for r in shares],
        ignore_index=True,
    ).assign(rho=1.0, s1_pretrain=1.0, loss_before=3.1)
    truth = {"C2": 4.0, "C": 0.06, "G": 0.25, "eps": 0.03, "E": 80.0}
    points = drawn("transfer-anchored", plan, truth, noise=0.001)
    out = points["r"] == 0.25
    fit = fitting.fit(points[~out], "transfer-anchored", seed=SEED, bootstrap=0)
    series, walked = [], np.arange(0, steps + 1, 10)
    for r, own in points.groupby("r"):
        at = {"r": r, "rho": 1.0, "s1_pretrain": 1.0, "loss_before": 3.1}
        line = fit.predict(pd.DataFrame({"s1": s1[walked], "s2": s2[walked], **at}))
        series.append(Series(f"r = {r:g}", (walked, line), (own["step"], own["loss"]), held_out=r == 0.25))
    below = told(int((~out).sum()), points[out], fit.predict(points[out]), noise=0.001)
    return line_chart("transfer-anchored, fitted: general loss", below, "step", LOSS, series)


def ddo() -> str:
    """Loss of the whole over the tokens of one domain at a time, three domains."""
    factors, many, series, errors = (1 / 5, 1 / 3, 1, 3), np.geomspace(0.2, 3, 60), [], []
    for name, b, a in (("web", 0.9, 0.8), ("code", 1.2, 1.6), ("law", 1.6, 3.0)):
        plan = pd.DataFrame({"x": [*factors, 0.6, 2.0]}).assign(run=range(6))
        points = drawn("ddo", plan, {"c": 1 - (1 + a) ** -b, "a": a, "b": b}, noise=0.0005)
        fit = fitting.fit(points[:4], "ddo", seed=SEED, bootstrap=0)
        line, known, rest = fit.predict(pd.DataFrame({"x": many})), points[:4], points[4:]
        colour = len(series) // 2
        series.append(Series(name, (many, line), (known["x"], known["loss"]), like=colour))
        series.append(Series("", (many[:0], line[:0]), (rest["x"], rest["loss"]), True, colour))
        errors.append(rest.assign(predicted=fit.predict(rest)))
    missed = pd.concat(errors)
    below = told(4 * 3, missed, missed["predicted"].to_numpy(), noise=0.0005)
    x_title = "x (tokens of the domain over those of the base run)"
    return line_chart("ddo, fitted, a curve a domain", below, x_title, "loss over that of the base run", series, True)


def data_mixing() -> str:
    """Loss on a corpus over its share, the rest of the mixture being one or the other of two more."""
    shares = np.random.default_rng(SEED).dirichlet([1, 1, 1], 40)
    edge = np.linspace(0, 1, 7)
    edges = [np.column_stack(columns) for columns in ((edge, 1 - edge, 0 * edge), (edge, 0 * edge, 1 - edge))]
    names = [f"mixture.{name}" for name in ("code", "web", "math")]
    plan = pd.DataFrame(np.concatenate([shares, *edges]), columns=names)
    truth = {"c": 1.6, "k": 1.3, "t.code": -2.4, "t.web": 0.3}
    points = drawn("data-mixing", plan.assign(run=range(len(plan))), truth)
    known, rest = points[:40], points[40:]
    fit = fitting.fit(known, "data-mixing", seed=SEED, bootstrap=0)
    many, series = np.linspace(0, 1, 60), []
    for i, other in enumerate(("web", "math")):
        mixture = {**dict.fromkeys(names, 0.0), "mixture.code": many, f"mixture.{other}": 1 - many}
        own = rest.iloc[7 * i : 7 * i + 7]
        line = fit.predict(pd.DataFrame(mixture))
        series.append(Series(f"the rest is {other}", (many, line), (own["mixture.code"], own["loss"]), held_out=True))
    below = told(len(known), rest, fit.predict(rest))
    return line_chart("data-mixing, fitted: loss on code", below, "share of code", LOSS, series)


PICTURES: dict[str, Callable[[], str]] = {
    "chinchilla": chinchilla,
    "dcpt": dcpt,
    "annealing": annealing,
    "dynamics": dynamics,
    "transfer": transfer,
    "ddo": ddo,
    "data-mixing": data_mixing,
}
"""File in docs/fits -> what draws it."""
