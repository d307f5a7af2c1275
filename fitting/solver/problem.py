"""A law and its points as arrays: the model and its derivatives, in the coordinates of the solvers.

theta = (u_1 … u_m, z_1 … z_q): u >= 0 are amounts of the generators of the law's cone of coefficients, each
in nats (columns are scaled to a root mean square of one, or a change of exponents would move the amounts by
decades); z are the coordinates of the free nonlinear parameters (and of lambda, last, when the schedules are
known). Parameters given in `fixed` are in neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from fitting.laws.law import OFFSET, Law, Parameter
from fitting.schedule import LAMBDA, AnnealingCurve
from fitting.solver.law_at import LawAt, together

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
    _last: list = field(default_factory=list, init=False)
    _repeated: list = field(default_factory=list, init=False)
    _known_pairs: dict[tuple, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False)

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
    def mean_and_precision(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision (p,) of the prior, in units of the objective."""
        ranges = [(self.law.s2.lambda_prior if p is LAMBDA else p.prior) or p.start for p in self.nonlinear]
        priors = [[p.coordinate(end) for end in ends] for p, ends in zip(self.nonlinear, ranges)]
        priors = np.array(priors).reshape(-1, 2)
        amounts = np.full(len(self._kept), self.scale or float(self.loss.mean()))
        mean = np.concatenate([np.zeros(len(self._kept)), priors.mean(axis=1)])
        return mean, self.prior / np.concatenate([amounts, np.ptp(priors, axis=1)]) ** 2

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Masks (q,) of the coordinates that are logarithms, and of lambda's, None without one."""
        logs, memories = (np.array([p.scale == scale for p in self.nonlinear], bool) for scale in ("log", "memory"))
        return logs, memories if memories.any() else None

    @property
    def n_free(self) -> int:
        """Number of parameters that are fitted."""
        held = sum(p.name in self.fixed for p in self.law.parameters)
        return len(self.law.parameters) - held + (self.curve is not None)

    def prior_at(self, theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """What the prior adds to the objective at theta, its gradient (p,), and the diagonal (p,) of its Hessian."""
        mean, precision = self.mean_and_precision
        gradient = precision * (theta - mean)
        return float(gradient @ (theta - mean)) / 2, gradient, precision

    def residuals(self, at: np.ndarray) -> np.ndarray:
        """Log residuals (n,) of the loss `at`, or those of the loss itself over the scale."""
        return (at - self.loss) / self.scale if self.scale else np.log(at) - self.log_loss

    def unit(self, at: np.ndarray) -> np.ndarray | float:
        """What a small change of the loss `at` is divided by to be a change of the residual."""
        return self.scale or at

    def limits(self, z: np.ndarray) -> np.ndarray:
        """The most (m,) that each amount may be at z."""
        return self._widths if np.isinf(self._widths).all() else self.most(self.at(z).size)

    def most(self, size: np.ndarray) -> np.ndarray:
        """The most (..., m) that each amount may be where columns have this size (..., m)."""
        return self._widths * size

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
        return np.concatenate([theta[:m] / other.at(theta[m:]).size * self.at(theta[m:]).size, theta[m:]])

    def values(self, z: np.ndarray) -> np.ndarray:
        """Values (..., q) of all nonlinear parameters of the law at coordinates z (..., q), and of lambda."""
        logs, memories = self._scales
        values = np.where(logs, np.exp(np.where(logs, z, 0.0)), z)
        if memories is not None:
            values = np.where(memories, 1.0 - np.exp(-z), values)
        if not self.fixed:
            return values
        count = int(self._free.sum())
        psi = np.empty((*z.shape[:-1], len(self._free)))
        psi[...] = [self.fixed.get(p.name, np.nan) for p in self.law.nonlinear]
        psi[..., self._free] = values[..., :count]
        return np.concatenate([psi, values[..., count:]], axis=-1)

    def columns(self, z: np.ndarray) -> tuple[np.ndarray | float, np.ndarray]:
        """The offset and the (n, m) matrix of scaled generator columns at z: loss = offset + columns @ u."""
        return self.at(z).offset, self.at(z).rows.T

    def at(self, z: np.ndarray) -> LawAt:
        """The law at coordinates z (q,), or at several places, z (places, q)."""
        if z.ndim > 1:
            return self._at_several(z) if len(z) > 1 else self.at(z[0]).as_several()
        # The solvers need the value and then the slopes at one z.
        if not self._last or self._last[0] != z.tobytes():
            x, psi = self._columns_at(z), self.values(z)[: len(self.law.nonlinear)]
            self._last[:] = [z.tobytes(), self._scaled(z, psi, self.law.basis(x, psi), self.law.offset(x, psi))]
        return self._last[1]

    def _at_several(self, z: np.ndarray) -> LawAt:
        if not self.law.at_once:
            return together([self.at(one) for one in z])
        x, psi = self._columns_at(z), self.values(z)[:, : len(self.law.nonlinear)]
        of_points = np.repeat(psi.T, len(self.loss), axis=1)
        basis, offset = self.law.basis(x, of_points), self.law.offset(x, of_points)
        offset = np.reshape(offset, (len(z), -1)) if isinstance(offset, np.ndarray) else offset
        return self._scaled(z, psi, basis.reshape(len(z), len(self.loss), -1), offset)

    def _columns_at(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of the points, and those that follow from lambda; at several places one after the other."""
        x, times = self.x, 1 if z.ndim == 1 else len(z)
        if times > 1:
            if not self._repeated or self._repeated[0] < times:
                self._repeated[:] = [times, {name: np.tile(values, times) for name, values in x.items()}]
            x = {name: values[: times * len(self.loss)] for name, values in self._repeated[1].items()}
        if self.curve is None:
            return x
        return {**x, **{name: column.ravel() for name, column in self.curve(z[..., -1]).items()}}

    def _cone(self, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generators (..., k, m) of the coefficients that are searched, and the coefficients (..., k) that are fixed.

        What does not depend on psi (..., q) is given once.
        """
        cone = self.law.generators(psi.T, self.constants)
        if not self.fixed:
            return cone, self._origin
        held = self._origin.copy()
        held[self._held] = self._held_values
        if self.law.cone is not None:
            held = cone[..., self._held] @ self._held_values
        return cone[..., self._kept], held

    def _scaled(self, z: np.ndarray, psi: np.ndarray, basis: np.ndarray, offset: np.ndarray | float) -> LawAt:
        cone, held = self._cone(psi)
        rows = cone.swapaxes(-1, -2) @ basis.swapaxes(-1, -2)
        size = np.sqrt(np.einsum("...n,...n->...", rows, rows) / basis.shape[-2])
        size[size == 0] = 1.0
        rows /= size[..., None]
        if held.any():
            offset = offset + (basis @ held[..., None])[..., 0]
        return LawAt(z, psi, basis, cone, held, offset, rows, size)

    def slopes(self, z: np.ndarray, u: np.ndarray, loss: np.ndarray, scaled: bool = True) -> np.ndarray:
        """Derivatives (n, q) of the loss in z; `loss` is that at (u, z).

        With the amounts u held, or with the coefficients held where `scaled` is false.
        """
        return self.slope_rows(self.at(z), u, loss, scaled).T

    def slope_rows(
        self, at: LawAt, u: np.ndarray, loss: np.ndarray, scaled: bool = True, pulls: np.ndarray | None = None
    ) -> np.ndarray:
        """Derivatives (q, n) of the loss in z, or (places, q, n), as `slopes`.

        With `pulls` (n,), or (places, n), the sum over the points of their product with these.
        """
        z = at.z
        if at.one is not None:
            return self.slope_rows(at.one, u[0], loss[0], scaled, None if pulls is None else pulls[0])[None]
        if z.ndim > 1 and not self.law.at_once:
            each = zip(z, u, loss, [None] * len(z) if pulls is None else pulls, strict=True)
            return np.array([self.slope_rows(self.at(z), u, loss, scaled, pulls) for z, u, loss, pulls in each])
        exact = None if self.law.slopes is None else self._analytic(at, u, scaled, pulls)
        known = 0 if exact is None else exact.shape[z.ndim - 1]
        if exact is not None and known == z.shape[-1]:
            return exact
        slopes = [] if exact is None else [*np.moveaxis(exact, z.ndim - 1, 0)]
        for j in range(known, z.shape[-1]):
            step = np.where(z[..., j] + STEP <= self.upper[j], STEP, -STEP)
            moved = z.copy()
            moved[..., j] += step
            there = self.at(moved)
            amounts = u if scaled else u / at.size * there.size
            slope = (there.loss(amounts) - loss) / step[..., None]
            slopes.append(slope if pulls is None else (slope * pulls).sum(axis=-1))
        return np.stack(slopes, axis=z.ndim - 1) if slopes else np.zeros((*z.shape, *loss.shape[z.ndim - 1 :]))

    def _analytic(self, at: LawAt, u: np.ndarray, scaled: bool, pulls: np.ndarray | None) -> np.ndarray:
        """`slope_rows` from the slopes of the law, without lambda's where the law has no slope in s2."""
        amounts, count = u / at.size, len(self._row)
        coefficients, cone = (at.cone @ amounts[..., None])[..., 0] + at.held, at.cone
        law_slopes = self._law_slopes(at)
        numbers, scatter = self._pairs(tuple(law_slopes))
        if (numbers == OFFSET).any():  # a last column without an amount, which always counts once
            last = [(0, 0)] * (coefficients.ndim - 1)
            coefficients = np.pad(coefficients, [*last, (0, 1)], constant_values=1.0)
            cone = np.pad(cone, [*[(0, 0)] * (cone.ndim - 2), (0, 1), (0, 0)])
        parts = np.array(list(law_slopes.values())).reshape(len(numbers), *at.basis.shape[:-1])
        parts, basis = (parts.swapaxes(0, 1) if parts.ndim == 3 else parts), at.basis.swapaxes(-1, -2)
        of_parts = scatter * coefficients[..., None, numbers]
        of_basis = np.zeros((*at.z.shape[:-1], len(scatter), at.basis.shape[-1]))
        tied, edges, held = self._cone_derivatives(at.psi)
        if tied:
            of_basis[..., tied, :] = (edges @ amounts[..., None, :, None])[..., 0] + held
        if scaled:
            # Columns are scaled to one: as their size grows, the coefficient of an amount falls.
            growth = scatter @ (cone[..., numbers, :] * (parts @ at.rows.swapaxes(-1, -2)))
            if tied:
                growth[..., tied, :] += (edges * (basis @ at.rows.swapaxes(-1, -2))[..., None, :, :]).sum(axis=-2)
            of_basis -= (growth * (amounts / at.size / len(self.loss))[..., None, :]) @ at.cone.swapaxes(-1, -2)
        of_values = np.ones(of_basis.shape[:-1])  # the slopes of the areas are in lambda's coordinate already
        logs, memories = self._scales
        of_values[..., :count] = np.where(logs[:count], at.psi[..., self._free], 1.0)
        if memories is not None:
            of_values[..., :count] -= np.where(memories[:count], at.psi[..., self._free], 0.0)
        if pulls is None:
            return (of_parts @ parts + of_basis @ basis) * of_values[..., None]
        pulled = of_parts @ (parts @ pulls[..., None]) + of_basis @ (basis @ pulls[..., None])
        return pulled[..., 0] * of_values

    def _law_slopes(self, at: LawAt) -> Mapping[tuple[int, int], np.ndarray]:
        """(column of the basis, number of a searched parameter) -> derivative of the law, lambda's the last."""
        assert self.law.slopes is not None
        psi = at.psi if at.psi.ndim == 1 else np.repeat(at.psi.T, len(self.loss), axis=1)
        slopes = self.law.slopes(self._columns_at(at.z), psi, at.basis.reshape(-1, at.basis.shape[-1]))
        searched = {(k, self._row[j]): part for (k, j), part in slopes.items() if j in self._row}
        if self.curve is not None:
            areas, last = self.curve(at.z[..., -1], 1), len(self._row)
            for (k, j), part in slopes.items():
                if j in areas:
                    searched[k, last] = part * areas[j].ravel() + searched.get((k, last), 0.0)
        return searched

    def _pairs(self, pairs: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the basis in these pairs, and a matrix (q, pairs) that is 1 at the parameter of each."""
        if pairs not in self._known_pairs:
            scatter = np.zeros((max([len(self._row) - 1, *(row for _, row in pairs)]) + 1, len(pairs)))
            scatter[[row for _, row in pairs], np.arange(len(pairs))] = 1.0
            self._known_pairs[pairs] = np.array([k for k, _ in pairs], dtype=int), scatter
        return self._known_pairs[pairs]

    def _cone_derivatives(self, psi: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
        """The searched parameters that `_cone` depends on, and its derivatives (..., parameters, k, m or none)."""
        each = {}
        if self.law.cone is not None and self.law.cone.derivatives is not None:
            exact = self.law.cone.derivatives(psi.T, self.constants)
            each = {self._row[j]: edges for j, edges in exact.items() if j in self._row}
        elif self.law.cone is not None:
            for j, row in self._row.items():
                step = np.zeros(len(psi))
                step[j] = STEP * max(1.0, abs(psi[j]))
                up, down = (self.law.generators(psi + sign * step, self.constants) for sign in (1, -1))
                if (up != down).any():
                    each[row] = (up - down) / (2 * step[j])
        if not each:
            return [], np.zeros(0), np.zeros(0)
        edges = np.array(list(each.values()))
        edges = edges.swapaxes(0, 1) if edges.ndim == 4 else edges
        if not self.fixed:
            return list(each), edges, np.zeros(1)
        return list(each), edges[..., self._kept], edges[..., self._held] @ self._held_values

    @cached_property
    def names(self) -> list[str]:
        """Names of the parameters, in the law's order: its coefficients, the others, and lambda where it is fitted."""
        return [p.name for p in self.law.parameters] + [p.name for p in self.nonlinear[-1:] if p is LAMBDA]

    def parameter_values(self, at: LawAt, u: np.ndarray) -> np.ndarray:
        """The parameters (..., names) as the law reports them, at one place or at several with their amounts u."""
        coefficients = (at.cone @ (u / at.size)[..., None])[..., 0] + at.held
        return np.concatenate([coefficients, self.values(at.z)], axis=-1)

    def parameters(self, theta: np.ndarray) -> dict[str, float]:
        """The parameters as the law reports them, by name, in the law's order."""
        u, z = np.split(theta, [len(theta) - len(self.nonlinear)])
        return dict(zip(self.names, self.parameter_values(self.at(z), u).tolist(), strict=True))
