"""What a law is: a linear combination of columns whose shape depends on a few nonlinear parameters.

    loss(x) = offset(x) + sum_j c_j phi_j(x; psi),        c = K(psi) u,  u >= 0

Fixing psi leaves a non-negative least-squares problem in u, which is what the solver exploits. K is the
identity unless a law ties its coefficients together (see `dcpt`) or lets one of them change sign.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, inf, log, log1p

import numpy as np

Columns = Mapping[str, np.ndarray]
Constants = Mapping[str, float]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    `start` is the range that the solver draws its first guesses from (nonlinear parameters only). `scale` is
    the coordinate in which the solver walks: "linear", "log" (log value) or "memory" (-log(1 - value), for
    decays close to 1).
    """

    name: str
    unit: str
    low: float = 0.0
    high: float = inf
    linear: bool = True
    start: tuple[float, float] = (0.0, 1.0)
    scale: str = "linear"

    def coordinate(self, value: float) -> float:
        """The solver's coordinate of a value."""
        return {"linear": lambda v: v, "log": log, "memory": lambda v: -log1p(-v)}[self.scale](value)

    def value(self, coordinate: float) -> float:
        """The value at a solver's coordinate."""
        return {"linear": float, "log": exp, "memory": lambda c: 1.0 - exp(-c)}[self.scale](coordinate)


def no_offset(x: Columns) -> np.ndarray | float:
    """The known part of a law that has none."""
    return 0.0


def no_constants(x: Columns) -> dict[str, float]:
    """The constants of a law that takes nothing but parameters from the fitted points."""
    return {}


@dataclass(frozen=True)
class Law:
    """A scaling law, as plain data and up to four small functions.

    Linear parameters come first in `parameters`, in the order of the basis columns; then the nonlinear ones,
    in the order in which `basis` takes them.

    `basis(x, psi)` maps columns (name -> array of n) and the nonlinear values to an (n, k) matrix.
    `offset(x)` is the part that needs no fitting. `constants(x)` reads from the fitted points what `cone`
    needs, and `cone(psi, constants)` is the (k, m) matrix whose non-negative combinations are the
    coefficients allowed. `varies` names the columns that must take at least two values, or the law cannot be
    told from a simpler one.
    """

    name: str
    source: str
    parameters: tuple[Parameter, ...]
    columns: tuple[str, ...]
    varies: tuple[str, ...]
    basis: Callable[[Columns, np.ndarray], np.ndarray]
    offset: Callable[[Columns], np.ndarray | float] = no_offset
    constants: Callable[[Columns], dict[str, float]] = no_constants
    cone: Callable[[np.ndarray, Constants], np.ndarray] | None = None

    @property
    def linear(self) -> tuple[Parameter, ...]:
        """The parameters that multiply a column of the basis."""
        return tuple(p for p in self.parameters if p.linear)

    @property
    def nonlinear(self) -> tuple[Parameter, ...]:
        """The parameters that shape the columns of the basis."""
        return tuple(p for p in self.parameters if not p.linear)

    def generators(self, psi: np.ndarray, constants: Constants) -> np.ndarray:
        """The (k, m) matrix K of coefficients K u, u >= 0; a free coefficient takes two opposite columns."""
        if self.cone is not None:
            return self.cone(psi, constants)
        identity = np.eye(len(self.linear))
        free = [j for j, p in enumerate(self.linear) if p.low == -inf]
        return np.hstack([identity, -identity[:, free]]) if free else identity

    def loss(self, x: Columns, params: Mapping[str, float]) -> np.ndarray:
        """The loss in nats per token at columns x, for parameters as a fit reports them."""
        psi = np.array([params[p.name] for p in self.nonlinear])
        coefficients = np.array([params[p.name] for p in self.linear])
        return self.offset(x) + self.basis(x, psi) @ coefficients
