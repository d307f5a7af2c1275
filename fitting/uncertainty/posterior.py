"""Draws from the posterior over the parameters of a law, from the prior alone where there are no points.

The density is that of Gaussian residuals of unknown size and of the weak prior of a fit (`Problem`). Given the
nonlinear coordinates z, the amounts u have a Gaussian density within bounds, which the simulator of Geweke,
Hajivassiliou & Keane draws from and integrates. So only z and the noise are moved: particles from the prior are
tempered to the posterior (sequential Monte Carlo, Del Moral et al. 2006), which finds all local optima that matter and
needs no start.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from fitting.laws.law import Columns, Law

PARTICLES = 128
MOVES, LAST_MOVES = 1.0, 3.0
"""Accepted Metropolis steps of a particle on average, at each temperature and at the last."""
MOST_SWEEPS = 12
"""Steps for each of these at most."""
KEPT = 0.5
"""Effective part of the particles that a step of the temperature keeps."""
NOISE = (0.004, 0.8)
"""Median of the relative error of a point, and the standard deviation of its logarithm, before there are points."""
MISFIT = 4.0
"""Standard deviation of the misfit of a law over that of a point's noise."""
LOSS = 3.0
"""Nats per token that stand for the mean loss before there are points."""
ELEMENTS = 400_000
"""Points times particles whose losses are computed at once."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of a law's parameters.

    `coefficients` (k, linear), `psi` (k, nonlinear): values in the order of the law. `noise` (k,): standard deviation
    of a point's residual. `misfit` (k, f): weights of the features of a row. `evidence`: log of the marginal
    likelihood, up to a constant of the points. `scale` as in `Problem`.
    """

    law: Law
    coefficients: np.ndarray
    psi: np.ndarray
    noise: np.ndarray
    evidence: float
    scale: float
    misfit: np.ndarray

    def some(self, rows: np.ndarray) -> "Posterior":
        """Some of the draws."""
        drawn = {name: getattr(self, name)[rows] for name in ("coefficients", "psi", "noise", "misfit")}
        return replace(self, **drawn)

    def losses(self, x: Columns) -> np.ndarray:
        """Losses (k, n) at columns x."""
        places, where = np.unique(self.psi, axis=0, return_inverse=True)
        n = len(next(iter(x.values())))
        predicted = np.empty((len(self.psi), n))
        together = max(1, ELEMENTS // max(n, 1))
        for first in range(0, len(places), together):
            offset, basis = law_at(self.law, x, places[first : first + together])
            for number, (part, columns) in enumerate(zip(offset, basis, strict=True)):
                rows = np.flatnonzero(where.ravel() == first + number)
                predicted[rows] = part + self.coefficients[rows] @ columns.T
        return predicted

    def residuals(self, x: Columns, features: np.ndarray) -> np.ndarray:
        """Losses (k, n) in the coordinate of the residuals, their logarithms or over `scale`, with the misfit.

        `features` (n, f) of the rows, as `posterior` was given those of the points.
        """
        losses = self.losses(x)
        return (losses / self.scale if self.scale else np.log(np.maximum(losses, 1e-3))) + self.misfit @ features.T


def law_at(law: Law, x: Columns, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offset (m, n) and basis (m, n, k) of a law at columns x (n,) for each row of psi (m, q).

    Nearly every law is computed element by element, so that all rows of psi can be passed at once; whether it is so is
    seen at two rows.
    """
    n, m = len(next(iter(x.values()))), len(psi)

    def one(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.broadcast_to(law.offset(x, row), n), law.basis(x, row)

    with np.errstate(all="ignore"):
        if m > 2 and n and psi.shape[1]:
            try:
                tiled = {name: np.tile(values, m) for name, values in x.items()}
                repeated = np.repeat(psi, n, axis=0).T
                offset = np.broadcast_to(law.offset(tiled, repeated), m * n).reshape(m, n)
                basis = law.basis(tiled, repeated).reshape(m, n, -1)
                seen = [one(psi[row]) for row in (0, m - 1)]
                same = all(
                    np.allclose(offset[row], a, equal_nan=True) and np.allclose(basis[row], b, equal_nan=True)
                    for row, (a, b) in zip((0, m - 1), seen, strict=True)
                )
                if same:
                    return offset, basis
            except (ValueError, TypeError, IndexError):
                pass
        parts = [one(row) for row in psi]
    return np.array([offset for offset, _ in parts]), np.array([basis for _, basis in parts])


def posterior(
    law: Law,
    x: dict[str, np.ndarray],
    loss: np.ndarray,
    features: np.ndarray,
    reference: dict[str, np.ndarray],
    rng: np.random.Generator,
    draws: int = 8,
    moves: float = LAST_MOVES,
) -> Posterior:
    """The posterior from points x, loss (n,), which may be none; `draws` of each particle.

    `features` (n, f), of the points: the law misses the loss by a combination of them, whose weights are normal with
    standard deviation MISFIT in units of the noise. `reference`: columns of runs that could be made. With the points
    they decide the size of the amounts, which the prior is of, and the constants of the law. `moves`: accepted
    Metropolis steps of a particle, on average, at the end.
    """
    from scipy.stats import qmc  # most of a second to import, and most processes draw nothing

    target = _Target(law, x, loss, features, reference)
    state = target.state(target.from_prior(qmc.Sobol(len(target.mean), rng=rng).random(PARTICLES)), rng)
    heat, evidence = 0.0, 0.0
    while heat < 1.0 and len(loss):
        heat, gained, chosen = _cooled(target, state, heat, rng)
        evidence += gained
        state = state.at(chosen)
        state = _moved(target, state, heat, MOVES if heat < 1.0 else moves, rng)
    return target.drawn(state, draws, evidence, rng)


@dataclass(frozen=True, eq=False)
class _State:
    """Particles: z with the log of the noise (m, q + 1), uniform variates of the amounts, and normal equations."""

    z: np.ndarray
    uniform: np.ndarray
    square: np.ndarray
    right: np.ndarray
    rest: np.ndarray
    size: np.ndarray
    left: np.ndarray
    rows: np.ndarray

    def at(self, rows: np.ndarray) -> "_State":
        return _State(*(values[rows] for values in vars(self).values()))

    def where(self, accepted: np.ndarray, other: "_State") -> "_State":
        def pick(one: np.ndarray, two: np.ndarray) -> np.ndarray:
            return np.where(accepted.reshape(-1, *[1] * (one.ndim - 1)), one, two)

        pairs = zip(vars(other).values(), vars(self).values(), strict=True)
        return _State(*(pick(theirs, mine) for theirs, mine in pairs))


class _Target:
    """The density of particles at any temperature."""

    def __init__(self, law: Law, x: dict[str, np.ndarray], loss: np.ndarray, features: np.ndarray, reference):
        self.law, self.features, self.loss, self.n = law, features, loss, len(loss)
        covariance = np.eye(self.n) + MISFIT**2 * features @ features.T
        self.whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        self.x = {name: np.concatenate([x[name], reference[name]]) for name in law.columns}
        self.constants = law.constants(self.x)
        size = float(np.sqrt(np.mean(loss**2))) if self.n else 0.0
        self.scale = 0.0 if law.solving.residual == "log" else size or 1.0
        self.origin = np.array([p.origin if law.cone is None else 0.0 for p in law.linear])
        # Two opposite columns of one coefficient are one column without a bound at 0.
        self.amounts = law.generators(law.middle, self.constants).shape[1]
        if law.cone is None:
            self.amounts = len(law.linear)
            self.widths = np.array([(p.low - p.origin, p.high - p.origin) for p in law.linear]).reshape(-1, 2)
        else:
            self.widths = np.tile([0.0, np.inf], (self.amounts, 1))
        self.precision = np.full(self.amounts, (self.scale or size or LOSS) ** -2.0)
        ends = [[p.coordinate(value) for value in (*(p.prior or p.start), p.low, p.high)] for p in law.nonlinear]
        mean, noise = np.log(NOISE[0]), NOISE[1]
        ends = np.array([*ends, [mean - noise / 2, mean + noise / 2, mean - 5 * noise, mean + 5 * noise]])
        self.mean, self.sd = ends[:, :2].mean(axis=1), np.ptp(ends[:, :2], axis=1)
        self.lower, self.upper = ends[:, 2], ends[:, 3]

    def from_prior(self, uniform: np.ndarray) -> np.ndarray:
        """Places (m, q + 1) by uniform variates."""
        low, high = ndtr((self.lower - self.mean) / self.sd), ndtr((self.upper - self.mean) / self.sd)
        return np.clip(self.mean + self.sd * ndtri(low + uniform * (high - low)), self.lower, self.upper)

    def psi(self, z: np.ndarray) -> np.ndarray:
        """Values (m, q) of the nonlinear parameters."""
        pairs = zip(self.law.nonlinear, z.T, strict=False)
        columns = [[p.value(c) for c in column.tolist()] for p, column in pairs]
        return np.array(columns).reshape(-1, len(z)).T

    def cones(self, psi: np.ndarray) -> np.ndarray:
        """Coefficients (m, linear, amounts) of the amounts before their columns are scaled."""
        law = self.law
        if law.cone is not None:
            return np.array([law.cone.edges(row, self.constants) for row in psi])
        if law.solving.amplitudes is None:
            return np.broadcast_to(np.eye(self.amounts), (len(psi), self.amounts, self.amounts))
        return np.array([np.diag(law.solving.amplitudes(row)) for row in psi])

    def state(self, z: np.ndarray, rng: np.random.Generator) -> _State:
        """The particles at these places, which must be within the bounds."""
        psi = self.psi(z)
        offset, basis = law_at(self.law, self.x, psi)
        with np.errstate(all="ignore"):
            columns = basis @ self.cones(psi)
            size = np.sqrt(np.einsum("mnk,mnk->mk", columns, columns) / columns.shape[1])
            size = np.where(size > 0, size, 1.0)
            unit = self.scale or self.loss
            left = (self.loss - (offset + basis @ self.origin)[:, : self.n]) / unit
            rows = columns[:, : self.n] / size[:, None] / (self.scale or self.loss[:, None])
            white, white_left = self.whiten @ rows, left @ self.whiten.T
            square = white.transpose(0, 2, 1) @ white
            right = (white_left[:, None] @ white)[:, 0]
            rest = (white_left**2).sum(axis=1)
        return _State(z, rng.random((len(z), self.amounts)), square, right, rest, size, left, rows)

    def log_density(self, state: _State, heat: float) -> tuple[np.ndarray, np.ndarray]:
        """Log density (m,) of the particles, and their amounts (m, k)."""
        inverse = heat * np.exp(-2 * state.z[:, -1])
        with np.errstate(all="ignore"):
            precision = inverse[:, None, None] * state.square + np.diag(self.precision)
            usable = np.isfinite(precision).all(axis=(1, 2)) & np.isfinite(state.right).all(axis=1)
            usable &= np.isfinite(state.rest)
        precision[~usable] = np.eye(self.amounts)
        right = np.where(usable[:, None], inverse[:, None] * state.right, 0.0)
        mean = np.linalg.solve(precision, right[..., None])[..., 0]
        root = np.linalg.cholesky(precision)
        log_density = (np.einsum("mk,mk->m", right, mean) - inverse * np.where(usable, state.rest, 0.0)) / 2
        log_density -= np.log(np.einsum("mkk->mk", root)).sum(axis=1)
        log_density -= heat * self.n * state.z[:, -1]
        log_density -= (((state.z - self.mean) / self.sd) ** 2).sum(axis=1) / 2
        low, high = self.widths[:, 0] * state.size, self.widths[:, 1] * state.size
        u = np.zeros_like(mean)
        for j in reversed(range(self.amounts)):
            others = np.einsum("mk,mk->m", root[:, j + 1 :, j], (u - mean)[:, j + 1 :])
            center, sd = mean[:, j] - others / root[:, j, j], 1 / root[:, j, j]
            u[:, j], log_part = _truncated(center, sd, low[:, j], high[:, j], state.uniform[:, j])
            log_density += log_part
        return np.where(usable, log_density, -np.inf), u

    def drawn(self, state: _State, draws: int, evidence: float, rng: np.random.Generator) -> Posterior:
        """Parameters of the particles at the end, with `draws` of the amounts of each."""
        state = state.at(np.repeat(np.arange(len(state.z)), draws))
        # The amounts of a particle are drawn among more than are kept, by their weights.
        heat = 1.0 if self.n else 0.0
        tries = [replace(state, uniform=rng.random(state.uniform.shape)) for _ in range(4)]
        each = [self.log_density(one, heat) for one in tries]
        noisy = np.array([density for density, _ in each]) + rng.gumbel(size=(len(each), len(state.z)))
        u = np.array([amounts for _, amounts in each])[np.argmax(noisy, axis=0), np.arange(len(state.z))]
        noise = np.exp(state.z[:, -1])
        # Weights of the misfit given what the law leaves.
        inner = np.linalg.cholesky(self.features.T @ self.features + np.eye(self.features.shape[1]) / MISFIT**2)
        rest = state.left - (state.rows @ u[..., None])[..., 0]
        random = noise[:, None] * rng.standard_normal((len(u), len(inner)))
        mean = np.linalg.solve(inner, self.features.T @ rest.T)
        misfit = np.linalg.solve(inner.T, mean + random.T).T
        psi = self.psi(state.z)
        coefficients = np.einsum("mjk,mk->mj", self.cones(psi), u / state.size) + self.origin
        return Posterior(self.law, coefficients, psi, noise, evidence, self.scale, misfit)


def _truncated(mean, sd, low, high, uniform) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a normal variate within bounds by uniform variates, and the logs of the probability of the bounds."""
    a, b = (low - mean) / sd, (high - mean) / sd
    # In the left tail, where the logarithms are exact.
    right = a > 0
    a, b = np.where(right, -b, a), np.where(right, -a, b)
    below, up_to = log_ndtr(a), log_ndtr(b)
    log_part = up_to + np.log1p(-np.exp(np.minimum(below - up_to, -1e-300)))
    x = ndtri_exp(np.minimum(np.logaddexp(below, np.log(np.maximum(uniform, 1e-12)) + log_part), up_to))
    x = np.where(right, -x, x)
    return np.clip(mean + sd * x, low, high), log_part


def _cooled(target: _Target, state: _State, heat: float, rng) -> tuple[float, float, np.ndarray]:
    """The next temperature, the log evidence that it gains, and the particles that are kept."""
    before = target.log_density(state, heat)[0]

    def weights_at(other: float) -> np.ndarray:
        return target.log_density(state, other)[0] - before

    low, high = heat, 1.0
    log_weights = weights_at(1.0)
    if _effective(log_weights) < KEPT:
        # In the logarithm: the first steps are many decades smaller than the last.
        low = max(heat, 1e-12)
        for _ in range(24):
            middle = float(np.sqrt(low * high))
            log_weights = weights_at(middle)
            low, high = (middle, high) if _effective(log_weights) >= KEPT else (low, middle)
            if high / low < 1.01:
                break
        high = middle
    largest = log_weights.max()
    weights = np.exp(log_weights - largest)
    places = (np.arange(len(weights)) + rng.random()) / len(weights)
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), places)
    return high, float(largest + np.log(weights.mean())), np.minimum(chosen, len(weights) - 1)


def _effective(log_weights: np.ndarray) -> float:
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights) / len(weights))


def _moved(target: _Target, state: _State, heat: float, moves: float, rng: np.random.Generator) -> _State:
    """The particles after Metropolis steps, along the difference of two (ter Braak 2006) or by the covariance."""
    count, q = state.z.shape
    density = target.log_density(state, heat)[0]
    root = np.linalg.cholesky(np.cov(state.z.T).reshape(q, q) + 1e-8 * np.diag(target.sd**2))
    accepted_steps = 0.0
    for _ in range(int(MOST_SWEEPS * moves)):
        one, two = rng.integers(count, size=(2, count))
        random = rng.standard_normal((count, q))
        along = np.where(rng.random((count, 1)) < 0.5, (state.z[one] - state.z[two]) / np.sqrt(2), random @ root.T)
        length = 2.38 / np.sqrt(q) * rng.choice([1.0, 0.5, 0.2], (count, 1))
        proposed = state.z + length * along + 1e-4 * target.sd * rng.standard_normal((count, q))
        inside = ((proposed >= target.lower) & (proposed <= target.upper)).all(axis=1)
        trial = target.state(np.where(inside[:, None], proposed, state.z), rng)
        there = target.log_density(trial, heat)[0]
        accepted = inside & (np.log(rng.random(count)) < there - density)
        state, density = state.where(accepted, trial), np.where(accepted, there, density)
        accepted_steps += accepted.mean()
        if accepted_steps >= moves:
            break
    return state
