"""A law and its points as arrays: the model and its derivatives, in the coordinates that the solvers walk in.

theta = (u_1 … u_m, z_1 … z_q): u >= 0 are amounts of the generators of the law's cone of coefficients, each
measured in nats (its columns are scaled to a root mean square of one, or a change of exponents would drag the
amounts along by decades); z are the coordinates of the nonlinear parameters (and of lambda, last, when the
schedules are known).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fitting.laws.law import Law, Parameter
from fitting.schedule import LAMBDA

STEP = 1e-6
"""Forward differences in z: the coordinates are of order one, so this balances truncation and rounding."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Points to be fitted: x (name -> (n,)), loss (n,), weights (n,), and S2 over lambda's coordinate."""

    law: Law
    x: dict[str, np.ndarray]
    loss: np.ndarray
    weights: np.ndarray
    constants: dict[str, float]
    curve: Callable[[float], np.ndarray] | None = None
    nonlinear: tuple[Parameter, ...] = field(init=False)
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)

    def __post_init__(self):
        nonlinear = self.law.nonlinear + ((LAMBDA,) if self.curve is not None else ())
        object.__setattr__(self, "nonlinear", nonlinear)
        object.__setattr__(self, "lower", np.array([p.coordinate(p.low) for p in nonlinear]))
        object.__setattr__(self, "upper", np.array([p.coordinate(p.high) for p in nonlinear]))

    def part(self, rows: np.ndarray) -> "Problem":
        """The same problem on some of its points."""
        curve = self.curve
        return replace(
            self,
            x={name: values[rows] for name, values in self.x.items()},
            loss=self.loss[rows],
            weights=self.weights[rows],
            curve=None if curve is None else lambda z: curve(z)[rows],
        )

    def rescaled(self, theta: np.ndarray, other: "Problem") -> np.ndarray:
        """The theta of this problem that stands for the parameters which `theta` stands for in the other."""
        z = theta[-len(self.nonlinear) :]
        return np.concatenate([theta[: -len(z)] / other._scaled(z)[2] * self._scaled(z)[2], z])

    def values(self, z: np.ndarray) -> np.ndarray:
        """Values of the nonlinear parameters at coordinates z."""
        return np.array([p.value(c) for p, c in zip(self.nonlinear, z, strict=True)])

    def columns(self, z: np.ndarray) -> tuple[np.ndarray | float, np.ndarray]:
        """The offset and the (n, m) matrix of scaled generator columns at z: loss = offset + columns @ u."""
        offset, columns, size = self._scaled(z)
        return offset, columns / size

    def _scaled(self, z: np.ndarray) -> tuple[np.ndarray | float, np.ndarray, np.ndarray]:
        x, psi = self.x, self.values(z)
        if self.curve is not None:
            x, psi = {**x, "s2": self.curve(z[-1])}, psi[:-1]
        columns = self.law.basis(x, psi) @ self.law.generators(psi, self.constants)
        size = np.sqrt(np.einsum("ij,ij->j", columns, columns) / len(columns))
        return self.law.offset(x), columns, np.where(size > 0, size, 1.0)

    def slopes(self, z: np.ndarray, u: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Derivatives (n, q) of the loss in z with u held fixed; `at` is the loss at (u, z)."""
        slopes = np.empty((len(at), len(z)))
        for j in range(len(z)):
            step = STEP if z[j] + STEP <= self.upper[j] else -STEP
            moved = z.copy()
            moved[j] += step
            offset, columns = self.columns(moved)
            slopes[:, j] = (offset + columns @ u - at) / step
        return slopes

    def parameters(self, theta: np.ndarray) -> dict[str, float]:
        """The parameters as the law reports them, by name, in the law's order."""
        u, z = np.split(theta, [len(theta) - len(self.nonlinear)])
        psi = self.values(z)
        shaping = psi[: len(self.law.nonlinear)]
        coefficients = self.law.generators(shaping, self.constants) @ (u / self._scaled(z)[2])
        names = [p.name for p in self.law.linear] + [p.name for p in self.nonlinear]
        return dict(zip(names, np.concatenate([coefficients, psi]).tolist(), strict=True))
