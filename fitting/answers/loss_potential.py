"""The areas S1 and S2 of many designs: runs of one shape after pre-training of one shape and any loss potential.

The rates of a run are peak * shape(steps), so that S1 = peak s(T) and S2 = peak^p (peak b(T) + before c(T)): s, b and
c are tabulated over the number of steps and over lambda (each bootstrap draw has its own), the areas of pre-training
over its loss potential and lambda, with a cubic spline between.
"""

from collections.abc import Callable, Mapping

import numpy as np

from fitting.answers.loss_curve import pretraining_areas
from fitting.fitted import Fit
from fitting.points import PointsError
from fitting.schedule import DECAY, LAMBDA, ROOT, SQUARE, areas, areas_of_powers

Areas = dict[str, np.ndarray]
"""s1, s2, s1_root, s2_square and, where pre-training is known, s1_pretrain and s2_pretrain, each (n,)."""
KNOTS = 25


def with_potential(rates, potential: float) -> np.ndarray:
    """The rates of a pre-training (steps,) whose descent from the peak ends at potential * peak.

    Raises PointsError for rates without decay.

    >>> with_potential([0.5, 1.0, 1.0, 0.6, 0.2], 0.6).round(3).tolist()
    [0.5, 1.0, 1.0, 0.8, 0.6]
    """
    rates = np.asarray(rates, dtype=float)
    top = int(np.argmax(rates))
    peak, last = rates[top], rates[-1]
    if not peak > last:
        raise PointsError("pretraining ends at its peak rate: give rates that decay")
    stretched = rates.copy()
    stretched[top:] = peak - (peak - rates[top:]) * peak * (1 - potential) / (peak - last)
    return stretched


def areas_table(
    fit: Fit,
    shape: Callable[[int], np.ndarray],
    steps: tuple[float, float],
    pretraining: np.ndarray | None,
    potential: tuple[float, float] | None,
) -> Callable[[Mapping[str, float]], Callable[[Mapping[str, np.ndarray]], Areas]]:
    """Parameters of the fit -> (designs -> their areas, at the parameters' lambda).

    `steps`, `potential`: (low, high) of the designs; `potential` None where pre-training is taken as it is.
    """
    column = list(fit.params).index("lambda") if "lambda" in fit.params else None
    decays = [DECAY] if column is None else [fit.params["lambda"], *(draw[column] for draw in fit.draws)]
    z = _knots(LAMBDA.coordinate(min(decays)), LAMBDA.coordinate(max(decays)))
    lengths = np.unique(np.round(np.exp(_knots(*np.log(steps)))).astype(int))
    power, lambdas = fit.equation.s2.rate_power, [LAMBDA.value(c) for c in z]
    run = np.array([[_unit(np.asarray(shape(T), dtype=float), one, power) for T in lengths] for one in lambdas])
    run_at, past_at, potentials = _spline(z, run), None, _knots(*(potential or (0.0, 0.0)))
    if pretraining is not None:
        pasts = [pretraining if potential is None else with_potential(pretraining, p) for p in potentials]
        rows = [[pretraining_areas(past, one, power) for past in pasts] for one in lambdas]
        past_at = _spline(z, np.array([[(one["s1_pretrain"], one["s2_pretrain"]) for one in row] for row in rows]))

    def at(params: Mapping[str, float]) -> Callable[[Mapping[str, np.ndarray]], Areas]:
        own_z = LAMBDA.coordinate(params.get("lambda", DECAY))
        of_steps = _spline(np.log(lengths), run_at(own_z))
        of_potential = None if past_at is None else _spline(potentials, past_at(own_z))

        def of(design: Mapping[str, np.ndarray]) -> Areas:
            s, b, c, root, square, kept = of_steps(np.log(design["steps"])).T
            peak, before = design["peak"], np.zeros(len(s))
            made = {}
            if of_potential is not None and pretraining is not None:
                potentials_asked = design.get("loss_potential", np.zeros(len(s)))
                s1, s2 = of_potential(potentials_asked).T
                made = {"s1_pretrain": s1, "s2_pretrain": s2}
                last = float(pretraining[-1])
                before = potentials_asked * np.max(pretraining) if potential is not None else np.full(len(s), last)
            powers = {"s1_root": peak**ROOT * root, "s2_square": peak**SQUARE * square + before**SQUARE * kept}
            return {"s1": peak * s, "s2": peak**power * (peak * b + before * c), **powers, **made}

        return of

    return at


def _unit(shape: np.ndarray, decay: float, power: float) -> tuple[float, ...]:
    """What a shape adds: its S1, its S2 from a rate of 0, what a rate of 1 before adds to S2; also of its powers."""
    every = []
    for of in (lambda before: areas(shape, decay, before, power), lambda before: areas_of_powers(shape, decay, before)):
        (forward, from_zero), (_, from_one) = of(0.0), of(1.0)
        every += [float(forward[-1]), float(from_zero[-1]), float(from_one[-1] - from_zero[-1])]
    return tuple(every)


def _knots(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, KNOTS) if high > low else np.array([low])


def _spline(knots: np.ndarray, table: np.ndarray) -> Callable[[np.ndarray | float], np.ndarray]:
    """The table's rows (along its first axis) between the knots; the one row there is, wherever, for one knot."""
    from scipy.interpolate import CubicSpline  # slow to import, and few callers need it

    if len(knots) > 1:
        return CubicSpline(knots, table)
    return lambda at: table[0] if np.ndim(at) == 0 else np.broadcast_to(table[0], (np.size(at), *table.shape[1:]))
