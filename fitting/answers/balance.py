"""The schedule and the mixture of least weighted loss on two corpora."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from fitting.answers.answer import Answer, Estimate, Status, beyond, estimate, implied, question, unknown_interval
from fitting.answers.loss_curve import Course
from fitting.answers.loss_potential import Areas, areas_table, with_potential
from fitting.fitted import Fit
from fitting.points import PointsError
from fitting.schedule import DECAY, FORWARD

Choice = float | tuple[float, float]
"""A value that is given, or the (low, high) between which the best is sought."""
GRID = {0: 1, 1: 129, 2: 25, 3: 11, 4: 7}
"""Free variables -> points of each on the grid that the search starts with."""
ROUNDS = 16
"""Halvings of the step with which the best design on the grid is refined."""
NAMES = ("loss_potential", "peak", "replay", "steps")


def cosine(steps: int) -> np.ndarray:
    """A cosine from 1 to 0 (steps,), the shape of a schedule of peak 1.

    >>> cosine(4).round(2).tolist()
    [1.0, 0.85, 0.5, 0.15]
    """
    return (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2


def balance(
    pretrain: Fit,
    domain: Fit,
    weight: float,
    *,
    peak: Choice,
    steps: Choice,
    replay: Choice | None = None,
    loss_potential: Choice | None = None,
    pretraining: np.ndarray | None = None,
    shape: Callable[[int], np.ndarray] = cosine,
    pretrain_at: Mapping[str, float] | None = None,
    domain_at: Mapping[str, float] | None = None,
) -> Answer:
    """The design of least weight * L_pretrain + (1 - weight) * L_domain at the end of continual pre-training.

    A design is a loss potential (last rate of pre-training / its peak), a peak learning rate, a replay ratio and a
    number of steps. Each is a number, or a (low, high) pair between which the best is sought.

    Parameters: `pretrain`, `domain`, the fits of the two validation corpora, of any laws that read s1; `weight`, l1, in
    [0, 1]. `pretraining` (steps,), the rates of pre-training, for the rate that the run starts from and the columns
    s1_pretrain and s2_pretrain; with a loss potential its descent is stretched (`with_potential`). None for an open
    model, which starts from a rate of 0 (app. G). `loss_potential`: None as `pretraining` has it; free only for laws
    that read s2_pretrain. `replay`: None for laws that read no r; else r is replay for `pretrain` and 1 - replay for
    `domain`. `shape`, steps -> (steps,) rates of a schedule whose peak is 1. `pretrain_at`, `domain_at`: further
    columns that a law reads (rho, loss_before, N, s1_pretrain). Intervals of the design are over paired
    bootstrap draws of both fits.

    `values`: the design, and change = weight * dL_pretrain + (1 - weight) * dL_domain, from before the run to its end
    (which eq. 5 minimises; with a free loss potential that would favour a worse start). `predicted`: pretrain, domain.
    `status`: the ranges at whose ends the best lies.

    Raises PointsError for a law that does not depend on what is free, invalid ranges, and missing columns.

    Source: Wang et al., ICML 2025, eq. 5, fig. 8.
    """
    choices = {"loss_potential": loss_potential, "peak": peak, "replay": replay, "steps": steps}
    ranges = _ranges(choices, weight, pretraining, (pretrain, domain))
    fits = (("pretrain", pretrain, dict(pretrain_at or {})), ("domain", domain, dict(domain_at or {})))
    limits = (ranges["steps"], pretraining, ranges["loss_potential"])
    tables = [areas_table(fit, shape, *limits) for _, fit, _ in fits]
    parts = (("pretrain", weight, pretrain.equation, fits[0][2]), ("domain", 1 - weight, domain.equation, fits[1][2]))

    def best(params: tuple[Mapping[str, float], ...]) -> tuple[dict[str, np.ndarray], float]:
        areas = [table(values) for table, values in zip(tables, params, strict=True)]

        def weighted(design: dict[str, np.ndarray], start: bool = False) -> np.ndarray:
            total = np.zeros(len(design["peak"]))
            for (name, factor, law, at), areas_of, values in zip(parts, areas, params, strict=True):
                columns = {**_columns(name, areas_of(design), design), **at}
                columns |= dict.fromkeys((*FORWARD, "s2", "s2_square"), 0.0) if start else {}
                x = {c: np.broadcast_to(np.asarray(columns[c], dtype=float), len(total)) for c in law.columns}
                total += factor * law.loss(x, values)
            return total

        design = _search(weighted, ranges)
        return design, float((weighted(design) - weighted(design, start=True))[0])

    lows = _design(np.zeros((1, len(NAMES))), [], ranges)
    for (name, fit, at), table in zip(fits, tables, strict=True):
        question(fit, name, {**_columns(name, table(fit.params)(lows), lows), **at}, f"{name}_at")
    found, change = best((pretrain.params, domain.params))
    drawn = [best(pair) for pair in zip(pretrain.param_draws, domain.param_draws)]
    values = {
        name: estimate(float(found[name][0]), np.array([float(one[name][0]) for one, _ in drawn]))
        for name in NAMES
        if ranges[name] is not None
    }
    values["change"] = estimate(change, np.array([each for _, each in drawn]))
    past, rates = pretraining, float(found["peak"][0]) * np.asarray(shape(int(found["steps"][0])), dtype=float)
    if past is not None and loss_potential is not None:
        past = with_potential(past, float(found["loss_potential"][0]))
    predicted, warnings = dict[str, Estimate](), list[str]()
    for (name, fit, at), table in zip(fits, tables, strict=True):
        frame = question(fit, name, {**_columns(name, table(fit.params)(found), found), **at}, f"{name}_at")
        further = {**({"r": frame["r"].to_numpy()} if "r" in frame else {}), **at}
        # Each bootstrap draw has its own lambda.
        course = Course(fit, rates, 0.0 if past is None else float(past[-1]), past, further, DECAY)
        predicted[name] = implied(fit, frame, draws=course.losses(np.array([len(rates)]))[1])
        warnings += beyond(name, fit, frame) + unknown_interval(name, fit)
    ends = []
    for name, (chosen,) in found.items():
        low, high = ranges[name]
        margin = 1e-4 * (high - low)
        if low < high and not low + margin < chosen < high - margin:
            side, end = ("lower", low) if chosen <= low + margin else ("upper", high)
            ends.append(f"{name} is at the {side} end of its range ({end:g})")
    status = (
        Status("at bound", "; ".join(ends)) if ends else Status("inside", "nothing: the best lies inside the ranges")
    )
    return Answer(values, predicted, status, warnings)


def _columns(name: str, areas: Areas, design: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    columns = dict(areas)
    if "replay" in design:
        columns["r"] = design["replay"] if name == "pretrain" else 1 - design["replay"]
    return columns


def _search(loss: Callable[[dict[str, np.ndarray]], np.ndarray], ranges: dict) -> dict[str, np.ndarray]:
    """The design of least loss: the best of a grid, then the best of ever smaller grids around the best so far."""
    free = [name for name in NAMES if ranges[name] is not None and ranges[name][0] < ranges[name][1]]
    count = GRID[len(free)]
    cube = np.array(list(product(np.linspace(0, 1, count), repeat=len(free))))
    neighbours = np.array(list(product((0.0, -1.0, -0.5, 0.5, 1.0), repeat=len(free))))
    best = cube[np.argmin(loss(_design(cube, free, ranges)))]
    step = 1 / max(count - 1, 1)
    for _ in range(ROUNDS if free else 0):
        trial = np.clip(best + step * neighbours, 0, 1)
        best = trial[np.argmin(loss(_design(trial, free, ranges)))]
        step /= 2
    return _design(best[None], free, ranges)


def _design(cube: np.ndarray, free: list[str], ranges: dict) -> dict[str, np.ndarray]:
    """Points of the unit cube (n, free) as designs, name -> (n,); rates and lengths by their logarithm."""
    design = {}
    for name in NAMES:
        if ranges[name] is None:
            continue
        low, high = ranges[name]
        part = cube[:, free.index(name)] if name in free else np.zeros(len(cube))
        logarithmic = name in ("peak", "steps") and low > 0
        design[name] = low * (high / low) ** part if logarithmic else low + (high - low) * part
    design["steps"] = np.round(design["steps"])
    return design


def _ranges(choices: dict[str, Choice | None], weight: float, pretraining, fits: tuple[Fit, ...]) -> dict:
    """Name -> (low, high), equal where a value is given, None where there is none. Raises PointsError."""
    if not 0 <= weight <= 1:
        raise PointsError(f"weight = {weight:g} is outside [0, 1]: it is the weight of the corpus of pre-training")
    rules = {"loss_potential": (0, 1), "peak": (0, 1), "replay": (0, 1), "steps": (1, np.inf)}
    ranges: dict[str, tuple[float, float] | None] = {}
    for name, choice in choices.items():
        if choice is None:
            ranges[name] = None
            continue
        pair = np.ravel(np.asarray(choice, dtype=float))
        low, high = rules[name]
        if len(pair) not in (1, 2) or not np.isfinite(pair).all() or pair[0] > pair[-1]:
            raise PointsError(f"{name} = {choice} must be a number, or (low, high) with low <= high")
        if pair[0] < low or pair[-1] > high or (name == "peak" and pair[0] == 0):
            allowed = {"steps": "1 or more", "peak": "above 0, at most 1"}.get(name, "in [0, 1]")
            raise PointsError(f"{name} = {choice} is not allowed: it must be {allowed}")
        ranges[name] = (float(pair[0]), float(pair[-1]))
    if ranges["loss_potential"] is not None and pretraining is None:
        raise PointsError("loss_potential needs pretraining, the rates of pre-training that it is to stretch")
    for fit in fits:
        columns, potential = fit.equation.columns, ranges["loss_potential"]
        if not {*FORWARD} & {*columns}:
            raise PointsError(f"the law {fit.law} reads no s1, so it cannot compare schedules: fit dynamics-replay")
        if "r" in columns and ranges["replay"] is None:
            raise PointsError(f"the law {fit.law} reads r: give replay, a ratio or a (low, high) pair")
        if potential is not None and potential[0] < potential[1] and "s2_pretrain" not in columns:
            raise PointsError(
                f"loss_potential cannot be free: the law {fit.law} reads no s2_pretrain, so it does not model the "
                "annealing of pre-training; give one value"
            )
    replay = ranges["replay"]
    if replay is not None and replay[0] < replay[1] and all("r" not in fit.equation.columns for fit in fits):
        raise PointsError(f"replay cannot be free: the laws {', '.join(fit.law for fit in fits)} read no r")
    return ranges
