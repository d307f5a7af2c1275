"""Direct data optimization: mixture weights from runs in which the tokens of one domain at a time change.

A curve y = (x + a)^-b + c goes through the runs of each domain. Two curves often fit three runs exactly: one with a
small b and c near 0, by which the tokens of one domain would remove nearly the whole loss, and one with a large b,
which levels off soon. They differ little between the runs. Where both fit equally well the second is taken, as in the
tables of the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import root_scalar
from scipy.special import fdtrc

from fitting.answers.answer import Estimate, Status, estimate
from fitting.laws import LAWS
from fitting.points import TAILS, PointsError

DRAWS = 300
MISFIT = 0.1
"""Error of a curve, relative to the effect of its domain, above which a warning is given."""
A, B = (next(p for p in LAWS["ddo"].parameters if p.name == name) for name in ("a", "b"))
SMALLEST_B = 1e-6
GRID_A = np.concatenate([[0.0], np.geomspace(0.02, 100.0, 40)])
GRID_B = np.geomspace(1e-4, B.high, 60)


@dataclass(frozen=True, eq=False)
class DDO:
    """The answer of `ddo`, for m domains.

    `weights` (m,), of the training tokens, sum 1; `low`, `high` (m,): their interval, NaN without two seeds.
    `multiples` (m,): tokens at the optimum over those of the base run; `tokens` (m,): the same in the unit of the base
    run's total. `coefficients`: a row a domain, columns a, b, c of L / L_base = (x + a)^-b + c. `base`: loss of the
    base run; `base_tokens` (m,): its tokens, in the same unit. `predicted`: mean loss of runs at the optimum. `held`:
    domains at a bound, and `status` says on which. `flat`: domains whose tokens do not lower the loss. `warnings`: one
    line each. `draws` (draws, m): weights by the noise between seeds. `p_value`: of no difference between domains in
    the change of loss from the smallest to the largest factor (`domain_effect`), NaN without two seeds.
    """

    names: tuple[str, ...]
    weights: np.ndarray
    multiples: np.ndarray
    tokens: np.ndarray
    coefficients: pd.DataFrame
    base: float
    predicted: Estimate
    low: np.ndarray
    high: np.ndarray
    held: list[str]
    status: Status
    flat: list[str]
    warnings: list[str]
    base_tokens: np.ndarray
    draws: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    p_value: float = float("nan")

    def loss_at(self, tokens) -> float:
        """The predicted loss of a run with `tokens` (m,) of the domains, in the unit of `base_tokens`.

        Beyond the smallest and the largest factor, and at other totals, it is the curves that are extrapolated.

        >>> answer = ddo([[1.25, 1.0, 0.85], [1.05, 1.0, 0.98]], factors=[1 / 3, 1, 3], tokens=100)
        >>> round(answer.loss_at([150, 50]), 3)
        0.85
        """
        a, b = self.coefficients["a"].to_numpy(), self.coefficients["b"].to_numpy()
        change = (np.asarray(tokens, dtype=float) / self.base_tokens + a) ** -b - (1 + a) ** -b
        return self.base * float(1 + np.sum(change))


def ddo(losses, factors, base_weights=None, *, names: Sequence[str] | None = None, tokens: float = 1.0) -> DDO:
    """The mixture weights of least loss by one curve a domain, at the total tokens of the base run.

    Each domain's curve L / L_base = (x + a)^-b + c is fitted to its runs, x being its tokens over those of the base
    run; then sum_j (x_j + a_j)^-b_j is minimised over sum_j shares_j x_j = 1 between the smallest and the largest
    factor. The problem is convex, and its optimum is the root of one Lagrange multiplier.

    Parameters: `losses` (m, k), the loss (or perplexity) over all domains when domain j alone gets factors[k] times
    its base tokens, or (seeds, m, k) for intervals. `factors` (k,), above 0, three or more; one is 1, the base run,
    whose loss is the same for all domains. `base_weights` (m,), those of the base run, None for equal ones. `names` of
    the domains, None for "0", "1" …. `tokens`: total of the base run, in any unit. Intervals are over `DRAWS` draws of
    the mean of the seeds: multivariate Student t with seeds - 1 degrees of freedom.

    Raises PointsError for losses, factors or weights that cannot be used.

    Source: Kang et al. 2024, arXiv:2407.20177, algorithm 1, scaled as in the authors' code.

    >>> answer = ddo([[1.25, 1.0, 0.85], [1.05, 1.0, 0.98]], factors=[1 / 3, 1, 3])
    >>> answer.weights.round(2).tolist(), answer.status.message
    ([0.76, 0.24], 'nothing: no domain is on a bound')
    """
    seeds, factors = _checked_losses(losses, factors)
    m = seeds.shape[1]
    names = tuple(map(str, range(m))) if names is None else tuple(map(str, names))
    if len(names) != m or len(set(names)) != m:
        raise PointsError(f"names = {', '.join(names)}: {m} different names are needed, one a domain")
    if not (np.isfinite(tokens) and tokens > 0):
        raise PointsError(f"tokens = {tokens:g} must be above 0: the total of the base run")
    base_weights = np.full(m, 1 / m) if base_weights is None else np.asarray(base_weights, dtype=float)
    if base_weights.shape != (m,) or not (base_weights > 0).all() or abs(base_weights.sum() - 1) > 0.01:
        raise PointsError(
            f"base_weights = {base_weights.tolist()}: {m} numbers above 0 that sum to 1 are needed, one a domain"
        )
    base_weights = base_weights / base_weights.sum()
    low, high = np.full(m, factors.min()), np.minimum(factors.max(), 1 / base_weights)

    bases = seeds[:, 0, np.argmin(np.abs(factors - 1))]
    ratios = seeds / bases[:, None, None]
    mean, base = ratios.mean(axis=0), float(bases.mean())
    a, b, c = fit_curves(factors, mean)
    x = water_filling(a, b, base_weights, low, high)
    weights = base_weights * x
    predicted = base * float(1 + np.sum((x + a) ** -b - (1 + a) ** -b))

    warnings = _warnings(factors, mean, (a, b, c), names)
    draws, losses_drawn = np.zeros((0, m)), np.zeros(0)
    ends = np.full((2, m), np.nan)
    if len(seeds) > 1:
        # The spread of the mean of few seeds is estimated from them: Student's t in place of the normal.
        count, rng = len(seeds), np.random.default_rng(0)
        mixing = rng.standard_normal((DRAWS, count)) / np.sqrt(count * (count - 1))
        mixing /= np.sqrt(rng.chisquare(count - 1, (DRAWS, 1)) / (count - 1))
        of_a, of_b, _ = fit_curves(factors, mean + np.tensordot(mixing, ratios - mean, axes=1))
        filled = np.array([water_filling(*curve, base_weights, low, high) for curve in zip(of_a, of_b, strict=True)])
        change = np.sum((filled + of_a) ** -of_b - (1 + of_a) ** -of_b, axis=1)
        draws, losses_drawn = base_weights * filled, (bases.mean() + mixing @ (bases - bases.mean())) * (1 + change)
        ends = np.quantile(draws, TAILS, axis=0)
        if len(seeds) < 4:
            warnings.append(f"{len(seeds)} seeds only: intervals rest on how they differ, which so few cannot show")
    at_bound = {
        names[j]: f"is held at {end[j]:.4g} times its base tokens, its {side} bound"
        for end, side in ((high, "upper"), (low, "lower"))
        for j in np.flatnonzero(np.abs(x - end) <= 1e-9 * np.maximum(1.0, end))
    }
    held = [name for name in names if name in at_bound]
    return DDO(
        names=names,
        weights=weights,
        multiples=x,
        tokens=weights * tokens,
        coefficients=pd.DataFrame({"a": a, "b": b, "c": c}, index=list(names)),
        base=base,
        predicted=estimate(predicted, losses_drawn),
        low=np.minimum(ends[0], weights),
        high=np.maximum(ends[1], weights),
        held=held,
        status=held_status([f"{name} {at_bound[name]}" for name in held], "nothing: no domain is on a bound"),
        flat=[names[j] for j in np.flatnonzero(b == 0)],
        warnings=warnings,
        base_tokens=base_weights * tokens,
        draws=draws,
        p_value=domain_effect(seeds[..., np.argmax(factors)] - seeds[..., np.argmin(factors)]),
    )


def domain_effect(values: np.ndarray) -> float:
    """p value of no difference between the domains of values (seeds, m): two-way analysis of variance, F-test.

    NaN with one seed or one domain, since nothing then tells the effect of a domain from noise.

    >>> round(domain_effect(np.array([[1.0, 2.0, 3.0], [1.1, 2.2, 3.0]])), 4)
    0.0026
    """
    n, k = values.shape
    if n < 2 or k < 2:
        return float("nan")
    domains, seeds = values.mean(axis=0, keepdims=True), values.mean(axis=1, keepdims=True)
    residual = ((values - domains - seeds + values.mean()) ** 2).sum() / ((k - 1) * (n - 1))
    between = n * ((domains - values.mean()) ** 2).sum() / (k - 1)
    return float(fdtrc(k - 1, (k - 1) * (n - 1), between / residual)) if residual > 0 else 0.0


def water_filling(
    a: np.ndarray, b: np.ndarray, base_weights: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """The x (m,) with least sum_j (x_j + a_j)^-b_j, sum_j shares_j x_j = 1 and low <= x <= high.

    Where x_j is inside its bounds, b_j (x_j + a_j)^-(b_j + 1) = mu shares_j; tokens fall as mu rises, so mu is a root.
    The rest goes to domains with b = 0, all filled to the same x.
    """
    active = b > 0
    x = low.copy()
    if active.any():
        start, power = np.log(b[active] / base_weights[active]), b[active] + 1

        def inside(log_mu: float) -> np.ndarray:
            return np.clip(np.exp((start - log_mu) / power) - a[active], low[active], high[active])

        rest = 1 - base_weights[~active] @ low[~active]
        all_high = float(np.min(start - power * np.log(high[active] + a[active]))) - 1
        all_low = float(np.max(start - power * np.log(np.maximum(low[active] + a[active], 1e-12)))) + 1
        x[active] = high[active]
        if base_weights[active] @ high[active] > rest:
            x[active] = inside(_root(lambda log_mu: base_weights[active] @ inside(log_mu) - rest, all_high, all_low))
    if not active.all():
        flat, rest = ~active, 1 - base_weights[active] @ x[active]
        level = _root(lambda v: base_weights[flat] @ np.clip(v, low[flat], high[flat]) - rest, 0.0, float(high.max()))
        x[flat] = np.clip(level, low[flat], high[flat])
    return x / (base_weights @ x)


def _root(value, left: float, right: float) -> float:
    """The root of a monotone function between two ends, the nearer end where rounding leaves none."""
    at_left, at_right = value(left), value(right)
    if at_left * at_right >= 0:
        return left if abs(at_left) <= abs(at_right) else right
    return float(root_scalar(value, bracket=(left, right), xtol=1e-13, rtol=1e-14, maxiter=500).root)


def _checked_losses(losses, factors) -> tuple[np.ndarray, np.ndarray]:
    """losses (seeds, m, k) and factors (k,), or PointsError."""
    factors = np.asarray(factors, dtype=float)
    if factors.ndim != 1 or len(np.unique(factors)) < 3 or not (np.isfinite(factors) & (factors > 0)).all():
        raise PointsError(f"factors = {factors.tolist()}: three or more different numbers above 0 are needed")
    if np.sum(np.abs(factors - 1) < 1e-9) != 1:
        raise PointsError(f"factors = {factors.tolist()}: one must be 1, the base run")
    seeds = np.asarray(losses, dtype=float)
    seeds = seeds[None] if seeds.ndim == 2 else seeds
    if seeds.ndim != 3 or not seeds.size or seeds.shape[2] != len(factors):
        wanted = f"(m, {len(factors)}) is needed, or (seeds, m, {len(factors)})"
        raise PointsError(f"losses of shape {np.shape(losses)}: {wanted}")
    bad = np.argwhere(~(np.isfinite(seeds) & (seeds > 0)))
    if len(bad):
        s, j, k = bad[0]
        raise PointsError(f"losses: {seeds[s, j, k]:g} (seed {s}, domain {j}, factor {factors[k]:g}) must be above 0")
    bases = seeds[:, :, np.argmin(np.abs(factors - 1))]
    if np.ptp(bases, axis=1).max() > 1e-6 * bases.max():
        raise PointsError("losses at factor 1 differ between domains: they have one base run; is the table transposed?")
    return seeds, factors


def held_status(lines: Sequence[str], free: str) -> Status:
    """The status of an optimum with a line for each domain that is held at a bound; `free` where none is."""
    return Status("at bound", "; ".join(lines)) if lines else Status("inside", free)


def _warnings(factors, mean, curves: tuple[np.ndarray, np.ndarray, np.ndarray], names) -> list[str]:
    """What is wrong with the curves, a line each."""
    a, b, c = curves
    fitted = (factors + a[:, None]) ** -b[:, None] + c[:, None]
    miss, effect = np.abs(fitted - mean).max(axis=1), np.ptp(mean, axis=1)
    flat = "more of its tokens do not lower the loss; its exponent is set to 0"
    all_flat = "no domain's tokens lower the loss: the base run's weights are as good as any"
    return [
        *(f"{names[j]}: {flat}" for j in np.flatnonzero(b == 0)),
        *([] if b.any() else [all_flat]),
        *(
            f"{names[j]}: its curve misses its runs by {miss[j]:.2%} of the base loss; their effect is {effect[j]:.2%}"
            for j in np.flatnonzero((miss > MISFIT * effect) & (b > 0))
        ),
    ]


def fit_curves(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least-squares a, b, c, each (…), of curves through y (…, k) at x (k,); a, b >= 0.

    b is 0 where y does not fall from the smallest x to the largest, or not above rounding.
    """
    rows = y.reshape(-1, len(x))
    middle = rows - rows.mean(axis=1, keepdims=True)
    grid_a, grid_b = (values.ravel() for values in np.meshgrid(GRID_A, GRID_B, indexing="ij"))
    curves = (x + grid_a[:, None]) ** -grid_b[:, None]
    curves -= curves.mean(axis=1, keepdims=True)
    cost = (curves**2).sum(axis=1) - 2 * middle @ curves.T
    # On this line b does not change the slope at x = 1: it separates the two families.
    steep = grid_b * np.log1p(grid_a) > 1
    ends = []
    for family in (steep, ~steep):
        start = np.flatnonzero(family)[np.argmin(cost[:, family], axis=1)]
        ends.append(_descend(x, middle, grid_a[start], grid_b[start]))
    (a, b, steep_cost), (gentle_a, gentle_b, gentle_cost) = ends
    drop = rows[:, np.argmin(x)] - rows[:, np.argmax(x)]
    worse = steep_cost > gentle_cost * (1 + 1e-6) + (1e-6 * drop) ** 2
    flat = drop <= 1e-9
    a = np.where(flat, 0.0, np.where(worse, gentle_a, a))
    b = np.where(flat, 0.0, np.where(worse, gentle_b, b))
    c = (rows - (x + a[:, None]) ** -b[:, None]).mean(axis=1)
    shape = y.shape[:-1]
    return a.reshape(shape), b.reshape(shape), c.reshape(shape)


def _descend(
    x: np.ndarray, middle: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levenberg-Marquardt in (a, log b) on all rows side by side: a, b and cost, each (rows,)."""
    z = np.log(b)
    damping = np.full(len(a), 1e-3)
    cost, residual, of_a, of_z = _linear(x, middle, a, z)
    for _ in range(300):
        gradient_a, gradient_z = (of_a * residual).sum(axis=1), (of_z * residual).sum(axis=1)
        aa, zz, az = (of_a**2).sum(axis=1), (of_z**2).sum(axis=1), (of_a * of_z).sum(axis=1)
        # At a = 0 with descent towards a < 0, only b moves.
        held = (a <= A.low) & (gradient_a > 0)
        gradient_a, az = np.where(held, 0.0, gradient_a), np.where(held, 0.0, az)
        aa, zz = aa * (1 + damping) + 1e-300, zz * (1 + damping) + 1e-300
        det = aa * zz - az**2
        det = np.where(det > 0, det, np.inf)
        next_a = np.clip(a - (zz * gradient_a - az * gradient_z) / det, A.low, A.high)
        next_z = np.clip(
            z - np.clip((aa * gradient_z - az * gradient_a) / det, -2, 2), np.log(SMALLEST_B), np.log(B.high)
        )
        found = _linear(x, middle, next_a, next_z)
        better = found[0] < cost
        gain = np.where(better, cost - found[0], 0.0)
        a, z = np.where(better, next_a, a), np.where(better, next_z, z)
        cost = np.where(better, found[0], cost)
        residual, of_a, of_z = (
            np.where(better[:, None], new, old) for new, old in zip(found[1:], (residual, of_a, of_z), strict=True)
        )
        damping = np.where(better, np.maximum(damping / 10, 1e-12), np.minimum(damping * 4, 1e12))
        if np.all((gain <= 1e-12 * cost) & (damping > 1e6) | (cost < 1e-28)):
            break
    return a, np.exp(z), cost


def _linear(
    x: np.ndarray, middle: np.ndarray, a: np.ndarray, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cost (rows,), residuals (rows, k) and their derivatives in a and log b; c is projected out."""
    b, base = np.exp(z)[:, None], x + a[:, None]
    value = base**-b
    of_a, of_z = -b * value / base, -b * value * np.log(base)
    residual, of_a, of_z = (part - part.mean(axis=1, keepdims=True) for part in (value, of_a, of_z))
    residual = residual - middle
    return (residual**2).sum(axis=1), residual, of_a, of_z
