"""A law and its points as arrays: the model and its derivatives, in the coordinates of the solvers.

theta = (u_1 … u_m, z_1 … z_q): u >= 0 are amounts of the generators of the law's cone of coefficients, each
in nats (columns are scaled to a root mean square of one, or a change of exponents would move the amounts by
decades); z are the coordinates of the free nonlinear parameters (and of lambda, last, when the schedules are
known). Parameters given in `fixed` are in neither.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from fitting.laws.law import Law, Parameter
from fitting.points import PointsError
from fitting.schedule import LAMBDA, AnnealingCurve

STEP = 1e-6
"""Forward differences in z: the coordinates are of order one, so this balances truncation and rounding."""
SUBSAMPLE = 300
"""Points that a search for starts looks at."""
DELTA = 1e-3
"""Hoffmann et al. 2022, eq. 3; Que et al. 2024, app. E.3."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Points to be fitted: x (name -> (n,)), loss (n,), point_weights (n,), and the areas S2 over lambda's coordinate.

    `delta`: where the Huber loss of log residuals turns from square to straight. `fixed`: name -> value of parameters
    that are not searched. `prior`: strength of the prior in units of the objective, 0 for none. `scale`: 0 for log
    residuals; where the law has residuals of the loss itself, the root mean square of the losses, which they are
    divided by. Raises PointsError for values that the law does not allow.

    The prior is normal and weak: of a nonlinear coordinate with the middle and the length of `Parameter.prior` as mean
    and standard deviation, of an amount with 0 and the mean loss (`scale` where there is one). Its strength is the
    variance of a point's noise, so that it weighs as much as one point that measures each parameter that badly.
    """

    law: Law
    x: dict[str, np.ndarray]
    loss: np.ndarray
    point_weights: np.ndarray
    constants: dict[str, float]
    curve: AnnealingCurve | None = None
    delta: float = DELTA
    fixed: Mapping[str, float] = field(default_factory=dict)
    prior: float = 0.0
    scale: float = 0.0

    @cached_property
    def nonlinear(self) -> tuple[Parameter, ...]:
        """The nonlinear parameters that are searched, lambda last."""
        free = tuple(p for p in self.law.nonlinear if p.name not in self.fixed)
        return free if self.curve is None else (*free, LAMBDA)

    @cached_property
    def log_loss(self) -> np.ndarray:
        """Logarithm (n,) of the loss, or the loss itself where its residuals are."""
        return self.loss if self.scale else np.log(self.loss)

    @cached_property
    def lower(self) -> np.ndarray:
        """Lower bounds (q,) of z."""
        return np.array([p.coordinate(p.low) for p in self.nonlinear])

    @cached_property
    def upper(self) -> np.ndarray:
        """Upper bounds (q,) of z."""
        return np.array([p.coordinate(p.high) for p in self.nonlinear])

    @cached_property
    def _free(self) -> np.ndarray:
        """Mask of the law's nonlinear parameters that are searched."""
        return np.array([p.name not in self.fixed for p in self.law.nonlinear], dtype=bool)

    @cached_property
    def _row(self) -> dict[int, int]:
        """Number of a nonlinear parameter of the law -> its number among those searched."""
        return {int(j): row for row, j in enumerate(np.flatnonzero(self._free))}

    @cached_property
    def _held(self) -> np.ndarray:
        """Numbers of the coefficients that are fixed."""
        return np.array([j for j, p in enumerate(self.law.linear) if p.name in self.fixed], dtype=int)

    @cached_property
    def _held_values(self) -> np.ndarray:
        return np.array([self.fixed[self.law.linear[j].name] for j in self._held])

    @cached_property
    def _mirrored(self) -> list[int]:
        """Numbers of the coefficients of either sign, each of which has a second generator."""
        return [j for j, p in enumerate(self.law.linear) if p.either_sign] if self.law.cone is None else []

    @cached_property
    def _kept(self) -> np.ndarray:
        """Numbers of the generators whose amounts are searched."""
        count = self.law.generators(self.law.middle, self.constants).shape[1]
        second = {len(self.law.linear) + i for i, j in enumerate(self._mirrored) if j in self._held}
        return np.array([j for j in range(count) if j not in {*self._held.tolist(), *second}], dtype=int)

    @cached_property
    def _origin(self) -> np.ndarray:
        """The coefficients (k,) from which amounts count, 0 for those that are fixed."""
        origin = np.array([p.origin if self.law.cone is None else 0.0 for p in self.law.linear])
        origin[self._held] = 0.0
        return origin

    @cached_property
    def _widths(self) -> np.ndarray:
        """The most (m,) that the coefficient of each amount may be."""
        if self.law.cone is not None:
            return np.full(len(self._kept), inf)
        widths = [max(p.high - p.origin, 0.0) or p.origin - p.low for p in self.law.linear]
        return np.array([*widths, *(-self.law.linear[j].low for j in self._mirrored)])[self._kept]

    @cached_property
    def _prior_mean_and_precision(self) -> tuple[np.ndarray, np.ndarray]:
        ranges = [(self.law.s2.lambda_prior if p is LAMBDA else p.prior) or p.start for p in self.nonlinear]
        priors = [[p.coordinate(end) for end in ends] for p, ends in zip(self.nonlinear, ranges)]
        priors = np.array(priors).reshape(-1, 2)
        amounts = np.full(len(self._kept), self.scale or float(self.loss.mean()))
        mean = np.concatenate([np.zeros(len(self._kept)), priors.mean(axis=1)])
        return mean, self.prior / np.concatenate([amounts, np.ptp(priors, axis=1)]) ** 2

    @cached_property
    def _last(self) -> list:
        return []

    @property
    def n_free(self) -> int:
        """Number of parameters that are fitted."""
        held = sum(p.name in self.fixed for p in self.law.parameters)
        return len(self.law.parameters) - held + (self.curve is not None)

    def prior_at(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """What the prior adds to the objective at theta, its gradient (p,), and the diagonal (p,) of its Hessian."""
        mean, precision = self._prior_mean_and_precision
        gradient = precision * (theta - mean)
        return float(gradient @ (theta - mean)) / 2, gradient, precision

    def residuals(self, at: np.ndarray) -> np.ndarray:
        """Log residuals (n,) of the loss `at`, or those of the loss itself over the scale."""
        return (at - self.loss) / self.scale if self.scale else np.log(at) - self.log_loss

    def has_residuals(self, at: np.ndarray) -> bool:
        """Whether the residuals of the loss `at` are finite."""
        return bool(np.all(at > 0)) if not self.scale else bool(np.isfinite(at).all())

    def unit(self, at: np.ndarray) -> np.ndarray | float:
        """What a small change of the loss `at` is divided by to be a change of the residual."""
        return self.scale or at

    def limits(self, z: np.ndarray) -> np.ndarray:
        """The most (m,) that each amount may be at z."""
        return self._widths if np.isinf(self._widths).all() else self._widths * self.sizes(z)

    def part(self, rows: np.ndarray) -> "Problem":
        """The same problem on some of its points."""
        return replace(
            self,
            x={name: values[rows] for name, values in self.x.items()},
            loss=self.loss[rows],
            point_weights=self.point_weights[rows],
            curve=None if self.curve is None else self.curve.part(rows),
        )

    def subsample(self) -> "Problem":
        """The same problem on at most SUBSAMPLE points: sorted by run, equal spacing takes from each in proportion."""
        n = len(self.loss)
        return self if n <= SUBSAMPLE else self.part(np.linspace(0, n - 1, SUBSAMPLE).astype(int))

    def rescaled(self, theta: np.ndarray, other: "Problem") -> np.ndarray:
        """The theta of this problem that stands for the parameters which `theta` stands for in the other."""
        m = len(theta) - len(self.nonlinear)
        z = theta[m:]
        return np.concatenate([theta[:m] / other._scaled(z).size * self._scaled(z).size, z])

    def values(self, z: np.ndarray) -> np.ndarray:
        """Values of all nonlinear parameters of the law at coordinates z, and of lambda."""
        values = np.array([p.value(c) for p, c in zip(self.nonlinear, z.tolist(), strict=True)])
        if not self.fixed:
            return values
        psi = np.array([self.fixed.get(p.name, np.nan) for p in self.law.nonlinear])
        count = int(self._free.sum())
        psi[self._free] = values[:count]
        return np.concatenate([psi, values[count:]])

    def columns(self, z: np.ndarray) -> tuple[np.ndarray | float, np.ndarray]:
        """The offset and the (n, m) matrix of scaled generator columns at z: loss = offset + columns @ u."""
        scaled = self._scaled(z)
        return scaled.offset, scaled.columns

    def _cone(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generators (k, m) of the coefficients that are searched, and the coefficients (k,) that are fixed."""
        cone = self.law.generators(psi, self.constants)
        if not self.fixed:
            return cone, self._origin
        held = self._origin.copy()
        held[self._held] = self._held_values
        if self.law.cone is not None:
            held = cone[:, self._held] @ self._held_values
        return cone[:, self._kept], held

    def _scaled(self, z: np.ndarray) -> "_Scaled":
        # The solvers need the value and then the slopes at one z.
        if self._last and self._last[0] == z.tobytes():
            return self._last[1]
        scaled = self._compute_scaled(z)
        self._last[:] = [z.tobytes(), scaled]
        return scaled

    def _compute_scaled(self, z: np.ndarray) -> "_Scaled":
        x, psi = self.x, self.values(z)
        if self.curve is not None:
            x, psi = {**x, **self.curve(z[-1])}, psi[:-1]
        basis = self.law.basis(x, psi)
        cone, held = self._cone(psi)
        rows = cone.T @ basis.T
        size = np.sqrt(np.einsum("mn,mn->m", rows, rows) / len(basis))
        size = np.where(size > 0, size, 1.0)
        rows /= size[:, None]
        offset = self.law.offset(x, psi) + (basis @ held if held.any() else 0.0)
        return _Scaled(psi, x, basis, cone, held, offset, rows.T, size)

    def sizes(self, z: np.ndarray) -> np.ndarray:
        """Root mean square (m,) of each generator's column at z: an amount divided by it is a coefficient."""
        return self._scaled(z).size

    def slopes(self, z: np.ndarray, u: np.ndarray, at: np.ndarray, scaled: bool = True) -> np.ndarray:
        """Derivatives (n, q) of the loss in z; `at` is the loss at (u, z).

        With the amounts u held, or with the coefficients held where `scaled` is false.
        """
        exact = self._analytic(z, u, scaled) if self.law.slopes is not None else np.empty((0, len(at)))
        if len(exact) == len(z):
            return exact.T
        slopes = np.concatenate([exact, np.empty((len(z) - len(exact), len(at)))])
        for j in range(len(exact), len(z)):
            step = STEP if z[j] + STEP <= self.upper[j] else -STEP
            moved = z.copy()
            moved[j] += step
            there = self._scaled(moved)
            amounts = u if scaled else u / self.sizes(z) * there.size
            slopes[j] = (there.offset + there.columns @ amounts - at) / step
        return slopes.T

    def _analytic(self, z: np.ndarray, u: np.ndarray, scaled: bool) -> np.ndarray:
        """Rows (q, n) of `slopes` from the slopes of the law, without lambda's where the law has no slope in s2."""
        at = self._scaled(z)
        amounts = u / at.size
        coefficients = at.cone @ amounts + at.held
        row_of = self._row
        assert self.law.slopes is not None
        law_slopes = self.law.slopes(at.x, at.psi, at.basis)
        each = [(k, row_of[j], part) for (k, j), part in law_slopes.items() if j in row_of]
        if self.curve is not None:
            areas = self.curve(z[-1], 1)
            each += [(k, len(row_of), part * areas[j]) for (k, j), part in law_slopes.items() if j in areas]
        pairs = [(k, row) for k, row, _ in each]
        count = max([len(row_of) - 1, *(row for _, row in pairs)]) + 1
        parts = np.array([part for _, _, part in each]).reshape(-1, len(at.basis))
        of_parts, of_basis = np.zeros((count, len(pairs))), np.zeros((count, len(at.cone)))
        for i, (k, row) in enumerate(pairs):
            of_parts[row, i] = coefficients[k]
        of_cone = {row_of[j]: parts for j, parts in self._cone_derivatives(at.psi, list(row_of)).items()}
        for row, (edges, held) in of_cone.items():
            of_basis[row] = edges @ amounts + held
        if scaled:
            # Columns are scaled to one: as their size grows, the coefficient of an amount falls.
            growth = np.zeros((count, len(u)))
            parts_columns = parts @ at.columns
            for i, (k, row) in enumerate(pairs):
                growth[row] += at.cone[k] * parts_columns[i]
            if of_cone:
                basis_columns = at.basis.T @ at.columns
                for row, (edges, _) in of_cone.items():
                    growth[row] += np.einsum("km,km->m", edges, basis_columns)
            of_basis -= (growth * (amounts / at.size / len(at.basis))) @ at.cone.T
        of_values = np.ones(count)  # the slopes of the areas are in lambda's coordinate already
        of_values[: len(row_of)] = [p.derivative(v) for p, v in zip(self.nonlinear, at.psi[list(row_of)], strict=False)]
        return (of_parts @ parts + of_basis @ at.basis.T) * of_values[:, None]

    def _cone_derivatives(self, psi: np.ndarray, free: list[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Derivatives of `_cone` in the free psi, without those that are zero."""
        if self.law.cone is None:
            return {}
        if self.law.cone.derivatives is not None:
            kept, held, values = self._kept, self._held, self._held_values
            exact = self.law.cone.derivatives(psi, self.constants)
            return {j: (exact[j][:, kept], exact[j][:, held] @ values) for j in free if j in exact}
        derivatives = {}
        for j in free:
            step = np.zeros(len(psi))
            step[j] = STEP * max(1.0, abs(psi[j]))
            above, below = self._cone(psi + step), self._cone(psi - step)
            derivative = tuple((up - down) / (2 * step[j]) for up, down in zip(above, below, strict=True))
            if derivative[0].any() or derivative[1].any():
                derivatives[j] = derivative
        return derivatives

    def reader(self, name: str) -> Callable[[np.ndarray], float]:
        """theta -> the value of one parameter."""
        m = len(self._kept)
        for j, p in enumerate(self.nonlinear):
            if p.name == name:
                return lambda theta: p.value(theta[m + j])
        row = [p.name for p in self.law.linear].index(name)

        def coefficient(theta: np.ndarray) -> float:
            scaled = self._scaled(theta[m:])
            return float(scaled.cone[row] @ (theta[:m] / scaled.size) + scaled.held[row])

        return coefficient

    def parameters(self, theta: np.ndarray) -> dict[str, float]:
        """The parameters as the law reports them, by name, in the law's order."""
        u, z = np.split(theta, [len(theta) - len(self.nonlinear)])
        scaled = self._scaled(z)
        coefficients = scaled.cone @ (u / scaled.size) + scaled.held
        names = [p.name for p in self.law.parameters] + [p.name for p in self.nonlinear[-1:] if p is LAMBDA]
        return dict(zip(names, np.concatenate([coefficients, self.values(z)]).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Scaled:
    """The law at one z: basis (n, k), cone (k, m), held (k,), offset, scaled columns (n, m), size (m,)."""

    psi: np.ndarray
    x: dict[str, np.ndarray]
    basis: np.ndarray
    cone: np.ndarray
    held: np.ndarray
    offset: np.ndarray | float
    columns: np.ndarray
    size: np.ndarray


def check_fixed(law: Law, fixed: Mapping[str, float], has_lambda: bool) -> None:
    """Raise PointsError for a parameter that the law does not have or cannot fix, or a value out of its bounds."""
    parameters = {p.name: p for p in law.parameters} | ({LAMBDA.name: LAMBDA} if has_lambda else {})
    for name, value in fixed.items():
        if name not in parameters:
            raise PointsError(f"fix: {law.name} has no parameter {name!r}; it has {', '.join(parameters)}")
        p = parameters[name]
        if not (np.isfinite(value) and p.low <= value <= p.high):
            raise PointsError(f"fix: {name} = {value:g} is outside {p.low:g} to {p.high:g}, the bounds of {law.name}")
        if p.linear and law.cone is not None:
            j = [q.name for q in law.linear].index(name)
            others = np.delete(law.cone.edges(law.middle, law.constants({"D": np.ones(1), "r": np.ones(1)})), j, axis=1)
            if others[j].any():
                tied = "its lower bound depends on another coefficient"
                raise PointsError(f"fix: {name} of {law.name} cannot be fixed: {tied}")
