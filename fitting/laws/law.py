"""A law: a linear combination of columns whose shape depends on a few nonlinear parameters.

    loss(x) = offset(x; psi) + sum_j c_j phi_j(x; psi),        c = K(psi) u,  u >= 0

Fixing psi leaves a non-negative least-squares problem in u, which is what the solver exploits. K is the
identity unless a law ties its coefficients together (see `dcpt`) or lets one of them change sign.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, inf, log, log1p
from typing import Literal

import numpy as np

Columns = Mapping[str, np.ndarray]
Constants = Mapping[str, float]
Slopes = dict[tuple[int, int | str], np.ndarray]
"""(column of the basis, number of a nonlinear parameter) -> derivative (n,); pairs that are not there are zero.

A name in place of the number is a column that may depend on a parameter or be one: s2 and s2_pretrain on lambda, the
columns of `UNKNOWN`.
"""

OFFSET = -1
"""Stands for the offset in place of the number of a column of the basis, where a law gives slopes of it."""
Basis = Callable[[Columns, np.ndarray], np.ndarray]
SlopesOf = Callable[[Columns, np.ndarray, np.ndarray], Slopes]

_COORDINATE = {"linear": lambda value: value, "log": log, "memory": lambda value: -log1p(-value)}
_VALUE = {"linear": float, "log": exp, "memory": lambda coordinate: 1.0 - exp(-coordinate)}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    `low`, `high`: its bounds; a linear parameter without any, low = -inf, may have either sign. `start`: the range that
    the solver draws first guesses from (nonlinear parameters only); its middle and its length are mean and standard
    deviation of the weak prior, unless `prior` is another range. `scale`: the solver's coordinate, "linear", "log" (log
    value) or "memory" (-log(1 - value), for decays close to 1).
    """

    name: str
    unit: str
    low: float = 0.0
    high: float = inf
    linear: bool = True
    start: tuple[float, float] = (0.0, 1.0)
    scale: str = "linear"
    prior: tuple[float, float] | None = None

    def coordinate(self, value: float) -> float:
        """The solver's coordinate of a value."""
        return _COORDINATE[self.scale](value)

    def value(self, coordinate: float) -> float:
        """The value at a solver's coordinate."""
        return _VALUE[self.scale](coordinate)

    def derivative(self, value: float) -> float:
        """Derivative of the value in its coordinate."""
        return {"linear": 1.0, "log": value, "memory": 1.0 - value}[self.scale]

    @property
    def either_sign(self) -> bool:
        """Whether a linear parameter may have either sign."""
        return self.low < 0 < self.high

    @property
    def origin(self) -> float:
        """The value within the bounds that is nearest to 0, from which the amounts of a linear parameter count."""
        return min(max(0.0, self.low), self.high)


def exponent(name: str, of: str, high: float = 3.0) -> Parameter:
    """An exponent of a power law, as the scaling laws have them."""
    return Parameter(name, f"exponent of {of}", 0.01, high, linear=False, start=(0.05, 1.0), scale="log")


def ratio_offset(name: str, low: float = 1e-4, start: tuple[float, float] = (0.01, 0.5)) -> Parameter:
    """A small number that is added to a ratio, so that the law is finite at ratio 0."""
    return Parameter(name, "ratio", low, 1.0, linear=False, start=start, scale="log")


def power(base: np.ndarray, exponent: float) -> np.ndarray:
    """base ** exponent of a positive base: twice as fast as numpy's power, and the same to the last few bits."""
    return np.exp(exponent * np.log(base))


def no_offset(x: Columns, psi: np.ndarray) -> np.ndarray | float:
    """The part without coefficient of a law that has none."""
    return 0.0


@dataclass(frozen=True)
class StudyPoints:
    """The points of a study that a law is fitted to, unless the question says otherwise.

    `from_step`: first step, at most a quarter of the run. `min_ratio`: smallest ratio of the fitted corpus.
    """

    from_step: int = 0
    min_ratio: float = 0.0


@dataclass(frozen=True)
class Cone:
    """Coefficients that are tied together: those allowed are the non-negative combinations of edges.

    `edges(psi, constants)` is the (k, m) matrix of edges, and `derivatives(psi, constants)` its derivatives by the
    number of the psi (None: differences are taken). `constants(x)` computes from the fitted points what both need.
    """

    edges: Callable[[np.ndarray, Constants], np.ndarray]
    derivatives: Callable[[np.ndarray, Constants], dict[int, np.ndarray]] | None = None
    constants: Callable[[Columns], dict[str, float]] = lambda x: {}


@dataclass(frozen=True)
class AnnealingArea:
    """How a law reads S2.

    `rate_power`: the power of the learning rate that each step is weighted with. `lambda_prior`: the range of lambda's
    prior, as `Parameter.prior`, where it is not the start of `LAMBDA`.
    """

    rate_power: float = 0.0
    lambda_prior: tuple[float, float] | None = None


@dataclass(frozen=True)
class Solving:
    """How a law is solved.

    `residual`: "log" where errors are those of the log of the loss, "loss" where they are those of the loss itself: for
    losses of any sign, and those that are logarithms already. `rugged`: whether there are minima of nearly equal height
    to which no least-squares minimum leads, so that a fit descends from many more starts. `amplitudes(psi)` (k,):
    coefficients of a common size, for a law without cone whose basis column vanishes and changes its sign with a
    parameter. `late`: the power of its D that a point counts by, beside the weights that are given.
    """

    residual: Literal["log", "loss"] = "log"
    rugged: bool = False
    amplitudes: Callable[[np.ndarray], np.ndarray] | None = None
    late: float = 0.0


@dataclass(frozen=True)
class Law:
    """A scaling law, as plain data and a few small functions.

    `equation` is LaTeX. Linear parameters come first in `parameters`, in the order of the basis columns; then the
    nonlinear ones, in the order in which `basis` takes them. `columns` are read from the points; `varies` maps those
    that must take at least two values, or the law cannot be told from a simpler one, to a parameter that need not be
    fitted then; where a column of `positive` is 0 the law has no value.

    `basis(x, psi)` maps columns (name -> array of n) and the nonlinear values to an (n, k) matrix. `slopes(x, psi,
    basis)` are its derivatives, and with `OFFSET` those of the offset, where the law gives them (else differences are
    taken): in psi, and in s2, s2_pretrain, rho and s1_pretrain where it reads them. `offset(x, psi)` is the part
    without coefficient. `cone`: which coefficients are allowed, where not each has its own bounds. `s2`: how the law
    reads S2. `whole_schedule`: it also
    reads the columns area and falls, from the schedule of each point's run. `for_corpora(names)`: the law for the
    mixture columns that points have. `solving`: how it is solved. `at_once`: whether `basis`, `slopes` and `offset`
    also take several values of each parameter, psi (q, n), one a point, and a cone, which then has derivatives, psi (q,
    places) for edges (places, k, m): bootstrap refits are then made together. `shared`: parameters that the losses of
    one model on several corpora have in common, and lambda with them (`fitting.fit_shared`). `printed(params)`: the
    parameters of the paper, where the law as printed is linear in none of them and was rewritten with an amplitude.
    `study`: the points of a study that it is fitted to, None where no study fits it. `on_domain`: the law that a study
    fits in its place to the domain's loss. `nearest`, `furthest`: from beyond how many times the fitted tokens it
    counts in an average of laws that see nearer, and up to how many of laws that see farther (`counted_at`).
    """

    name: str
    equation: str
    source: str
    parameters: tuple[Parameter, ...]
    columns: tuple[str, ...]
    varies: Mapping[str, str]
    basis: Basis
    slopes: SlopesOf | None = None
    offset: Callable[[Columns, np.ndarray], np.ndarray | float] = no_offset
    cone: Cone | None = None
    positive: tuple[str, ...] = ()
    s2: AnnealingArea = AnnealingArea()
    whole_schedule: bool = False
    for_corpora: "Callable[[Iterable[str]], Law] | None" = None
    solving: Solving = Solving()
    shared: tuple[str, ...] = ()
    printed: Callable[[Mapping[str, float]], dict[str, float]] | None = None
    study: StudyPoints | None = None
    on_domain: str = ""
    at_once: bool = False
    nearest: float = 0.0
    furthest: float = inf

    @cached_property
    def linear(self) -> tuple[Parameter, ...]:
        """The parameters that multiply a column of the basis."""
        return tuple(p for p in self.parameters if p.linear)

    @cached_property
    def nonlinear(self) -> tuple[Parameter, ...]:
        """The parameters that shape the columns of the basis."""
        return tuple(p for p in self.parameters if not p.linear)

    @property
    def middle(self) -> np.ndarray:
        """Nonlinear values in the middle of where the solver starts."""
        return np.array([p.value((p.coordinate(p.start[0]) + p.coordinate(p.start[1])) / 2) for p in self.nonlinear])

    def constants(self, x: Columns) -> dict[str, float]:
        """What the law takes from the fitted points and holds fixed."""
        return {} if self.cone is None else self.cone.constants(x)

    def generators(self, psi: np.ndarray, constants: Constants) -> np.ndarray:
        """The (k, m) matrix K of coefficients origin + K u, u >= 0.

        A coefficient of either sign takes two opposite columns, one that is at most 0 a negative one.
        """
        if self.cone is not None:
            return self.cone.edges(psi, constants)
        common = self.solving.amplitudes
        return self._signs if common is None else common(psi)[:, None] * self._signs

    @cached_property
    def _signs(self) -> np.ndarray:
        """`generators` where each coefficient has its own bounds and no common size."""
        identity = np.diag([-1.0 if p.high <= 0 else 1.0 for p in self.linear])
        free = [j for j, p in enumerate(self.linear) if p.either_sign]
        return np.hstack([identity, -identity[:, free]]) if free else identity

    def loss(self, x: Columns, params: Mapping[str, float]) -> np.ndarray:
        """The loss in nats per token at columns x, for parameters as a fit reports them."""
        psi = np.array([params[p.name] for p in self.nonlinear])
        coefficients = np.array([params[p.name] for p in self.linear])
        return self.offset(x, psi) + self.basis(x, psi) @ coefficients


UNKNOWN = {
    "s1_pretrain": Parameter(
        "s1_pretrain", "sum of learning rates", 1e-4, 1e6, linear=False, start=(0.1, 1e3), scale="log"
    ),
    "rho": Parameter("rho", "ratio", 1e-6, 1.0, linear=False, start=(1e-3, 1.0), scale="log"),
}
"""Columns that may be fitted as one number for all points, such as S1 of the pre-training of an open model."""


def with_unknown(law: Law, name: str) -> Law:
    """The law with a column of `UNKNOWN` as its last nonlinear parameter."""

    def filled(x: Columns, psi: np.ndarray) -> dict[str, np.ndarray]:
        return {**x, name: np.full(len(next(iter(x.values()))), psi[-1])}

    def slopes(x: Columns, psi: np.ndarray, basis: np.ndarray) -> Slopes:
        assert law.slopes is not None
        given = law.slopes(filled(x, psi), psi[:-1], basis)
        if not any(j == name for _, j in given):
            raise TypeError(f"{law.name} reads {name}, but its slopes lack those in {name}")
        return {(k, len(psi) - 1 if j == name else j): slope for (k, j), slope in given.items()}

    return replace(
        law,
        parameters=(*law.parameters, UNKNOWN[name]),
        columns=tuple(column for column in law.columns if column != name),
        varies={column: parameter for column, parameter in law.varies.items() if column != name},
        positive=tuple(column for column in law.positive if column != name),
        basis=lambda x, psi: law.basis(filled(x, psi), psi[:-1]),
        offset=lambda x, psi: law.offset(filled(x, psi), psi[:-1]),
        slopes=slopes if law.slopes is not None else None,
    )
