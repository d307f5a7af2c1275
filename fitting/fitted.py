"""The result of a fit: parameters, their uncertainty, and predictions."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from fitting.laws import LAWS, UNKNOWN, Law, with_unknown
from fitting.points import TAILS, PointsError, columns_of, missing, rule_of, with_one_mixture
from fitting.schedule import AREAS, DECAY, LAMBDA, Schedules, whole_schedules, with_areas
from fitting.uncertainty.bootstrap import with_errors
from fitting.uncertainty.horizon import Reach, kind_of
from fitting.uncertainty.misfit import log_errors as errors_of
from fitting.uncertainty.profile import Optimum, Profile, profiles
from fitting.uncertainty.spread import Spread, widened

SCHEMA = 3
BY_PRIOR = 0.5
"""Part of what is known about a parameter from which the weak prior decides it more than the points."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A law fitted to the points of one validation corpus.

    `params`: name -> value, as the law's equation writes them (lambda too, where it was fitted). `metrics`: r2, mae and
    rmse of the loss in nats, huber (the unweighted sum at delta 1e-3 of log residuals), aicc. `objective`: the weighted
    Huber sum that was minimised. `ranges`: column -> (smallest, largest) among the fitted points. `constants`: what the
    law took from the points and holds fixed. `columns`: those that it reads; `unknown`: those that became parameters;
    `fixed`: parameters that were given. `profiles`: profile likelihood of each fitted parameter that the points decide,
    as far as 90% intervals need it. `prior_shares`: part of what is known about each fitted parameter that the weak
    prior gives, 0 to 1. `draws`: (draws, parameters), bootstrap refits in the order of `params`. `run_errors` (runs,)
    and `point_errors` (points,): log residuals as the mean of a run and what is left within it, leverage undone.
    `seed_noise`: standard deviation of the mean log loss of a run over its steps, between runs that differ in
    nothing that laws read, as runs of two seeds do; None without such runs. `residuals`: log residual of each
    point, indexed as the points were. `warnings`: one line each. `own_law`: the law, where it is not in
    `fitting.LAWS`; no file holds it. `scale`: 0 where residuals and errors are those of the log loss, else the nats
    that they are measured in. `reach`: how far each size was fitted in tokens, empty without D; `growth`: how
    errors grow beyond it, a number a rolling origin (`uncertainty.horizon`). `held_out`: kind of extrapolation ->
    root mean square of the log errors on what a back test held out; empty without one. What takes draws is empty
    without a bootstrap; residuals, `leverage` and `profile` are not kept in a file.
    """

    law: str
    params: dict[str, float]
    metrics: dict[str, float]
    objective: float
    n_points: int
    n_runs: int
    ranges: dict[str, tuple[float, float]]
    columns: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    prior_shares: dict[str, float] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)
    seed_noise: float | None = None
    warnings: list[str] = field(default_factory=list)
    draws: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    run_errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    point_errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    residuals: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    optimum: Optimum | None = None
    schedules: Schedules | None = None
    own_law: Law | None = None
    scale: float = 0.0
    reach: Reach = field(default_factory=list)
    growth: list[float] = field(default_factory=list)
    held_out: dict[str, float] = field(default_factory=dict)
    unseen: float = 0.0

    @property
    def spread(self) -> Spread:
        """What is known of the errors of its predictions."""
        errors = {} if self.scale else self.held_out
        known = self.ranges, self.reach, self.metrics["log_rmse"], self.n_runs, errors, self.growth
        return Spread(*known, kind_of(self.law), self.unseen)

    @property
    def equation(self) -> Law:
        """The law as it was fitted: for the corpora of the points, unknown columns as parameters."""
        law = self.own_law or LAWS[self.law]
        if law.for_corpora is not None:
            law = law.for_corpora(self.columns)
        for name in self.unknown:
            law = with_unknown(law, name)
        return law

    @property
    def decay(self) -> float:
        """Lambda of S2, fitted or given; that of the papers where neither was done."""
        return {**self.constants, **self.params}.get("lambda", DECAY)

    @property
    def printed(self) -> dict[str, float]:
        """The parameters as the law's paper prints them, where what is fitted is written otherwise."""
        law = self.own_law or LAWS[self.law]
        return law.printed(self.params) if law.printed else dict(self.params)

    def predict(self, frame: pd.DataFrame, schedules: Schedules | None = None) -> np.ndarray:
        """Loss (n,), in nats per token, at the rows of a frame with the law's columns.

        With `schedules`, run -> `Schedule`, the areas that a law reads are computed for the frame's columns run and
        step, at the fit's `decay`; else they are columns of the frame. A law that reads the whole schedule takes it
        from there (None: those that were fitted), and s1 too where the frame has none. Raises PointsError for missing
        or impossible columns.
        """
        law = self.equation
        return law.loss(self._columns(law, frame, schedules), self.params)

    def _columns(self, law: Law, frame: pd.DataFrame, schedules: Schedules | None = None) -> dict[str, np.ndarray]:
        if not law.whole_schedule:
            if schedules is not None and {*AREAS} & {*law.columns}:
                frame = with_areas(frame, schedules, self.decay, law.s2.rate_power)
            return columns_of(with_one_mixture(frame, law.columns), law.columns, law)
        schedules = self.schedules if schedules is None else schedules
        if schedules is None:
            raise PointsError(f"{law.name} reads the learning rate of every step: give schedules={{run: Schedule}}")
        if line := missing(frame, ["run", "step"]):
            raise PointsError(line)
        whole = whole_schedules(frame, schedules)
        frame = frame if "s1" in frame else frame.assign(s1=whole["area"])
        return columns_of(frame, law.columns) | whole

    @property
    def param_draws(self) -> list[dict[str, float]]:
        """Parameters of each bootstrap refit, as `params`."""
        return [dict(zip(self.params, draw, strict=True)) for draw in self.draws]

    def predict_draws(self, frame: pd.DataFrame) -> np.ndarray:
        """Loss (draws, n) by each bootstrap refit. Raises PointsError if the fit holds none."""
        if not len(self.draws):
            raise PointsError("this fit has no bootstrap draws: fit again with bootstrap=200")
        law = self.equation
        x = self._columns(law, frame)
        return np.array([law.loss(x, params) for params in self.param_draws])

    def intervals(self, method: str = "profile") -> dict[str, tuple[float, float]]:
        """Name -> (low, high) of each parameter, 90%.

        `method`: "profile", by profile likelihood, the more exact (docs/studies/parameter_coverage.py), for parameters
        that the points decide more than the prior, else the central interval over the draws, widened to hold the
        estimate; or "bootstrap", that over the draws for all. A parameter that was given has none. Raises PointsError
        for a fit without bootstrap.
        """
        if method not in ("profile", "bootstrap"):
            raise PointsError(f"method = {method!r} is unknown: there are 'profile' and 'bootstrap'")
        if not len(self.draws):
            raise PointsError("this fit has no bootstrap draws: fit again with bootstrap=200")
        profiled = self.profiles if method == "profile" else {}
        low, high = np.quantile(self.draws, TAILS, axis=0)
        ends = zip(self.params, low, high, strict=True)
        drawn = {name: (float(a), float(b)) for name, a, b in ends if name not in self.fixed}
        if method == "bootstrap":
            return drawn
        # The optimum may lie in another minimum than all draws of a parameter that the prior decides.
        best = self.params
        reaching = {name: (min(low, best[name]), max(high, best[name])) for name, (low, high) in drawn.items()}
        return {name: profiled[name].interval() if name in profiled else reaching[name] for name in drawn}

    @property
    def identified(self) -> dict[str, bool]:
        """Name -> whether the points identify the parameter.

        False if the 90% interval of its profile likelihood is open on a side, touches a bound of the law, or is wider
        than the estimate is large, or if the weak prior gives more of what is known than the points do. Such a
        parameter may still predict well inside the fitted ranges; its value must not be interpreted. Raises PointsError
        for a fit without bootstrap.
        """
        bounds = {p.name: (p.low, p.high) for p in (*self.equation.parameters, LAMBDA)}
        known = {}
        for name, (low, high) in self.intervals().items():
            floor, ceiling = bounds[name]
            touches = low <= floor + 1e-6 * abs(floor) or high >= ceiling * (1 - 1e-6)
            closed = name in self.profiles and all(self.profiles[name].closed) and not touches
            known[name] = closed and high - low <= abs(self.params[name])
        return known

    def predict_interval(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (n,): where the loss that a new run will measure lies, with 90%.

        Of a fit that was back-tested (`held_out`), as those of a study are, it is the interval of a recommendation, by
        the kind of extrapolation and the horizon of each row (`uncertainty.spread`), which must have N and D. Of
        another one each bootstrap prediction gets the error of a run, resampled from the residuals of the fit: an
        offset of the whole run and a deviation within it; where a row's D is beyond the fitted tokens at its N
        (`reach`), the interval is at least as wide as such errors of other sources were (`uncertainty.horizon`).
        """
        if (errors := self.errors_at(frame)) is not None:
            return interval_of(self.predict(frame), errors, self.scale)
        low, high = self.measured_interval(self.predict_draws(frame))
        beyond = np.zeros(len(frame)) if self.scale else self.spread.beyond(frame)
        far = interval_of(self.predict(frame), errors_of(1.0)[:, None] * beyond)
        return np.where(beyond, np.minimum(low, far[0]), low), np.where(beyond, np.maximum(high, far[1]), high)

    def errors_at(self, frame: pd.DataFrame) -> np.ndarray | None:
        """Log errors (k, n) at the rows by a back test, wider below the fitted ratios; None: they are not known."""
        errors = self.spread.log_errors(frame)
        return None if errors is None else widened(errors, self.spread.below(frame))

    def measured_interval(self, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (n,), as `predict_interval`, for losses (draws, n) that the refits predict."""
        measured = with_errors(predicted, self.noise(len(predicted)), self.scale)
        measured = measured.reshape(-1, predicted.shape[1])
        low, high = np.quantile(measured, TAILS, axis=0)
        return low, high

    def noise(self, draws: int) -> np.ndarray:
        """Log errors (ERRORS_PER_DRAW, draws, 1) to add to the predictions of as many refits, always the same."""
        rng, shape = np.random.default_rng(0), (ERRORS_PER_DRAW, draws, 1)
        seen = float(np.sqrt(np.mean(self.run_errors**2)))
        # Where the runs err less than two seeds differ, their errors are raised to that noise.
        factor = max(1.0, self.seed_noise / seen) if self.seed_noise and seen > 0 else 1.0
        return factor * rng.choice(self.run_errors, shape) + rng.choice(self.point_errors, shape)

    @property
    def leverage(self) -> pd.Series:
        """Effective number of parameters that each run determines; it sums to the number that is identifiable.

        Raises PointsError for a fit that was read from a file.
        """
        optimum = self._required_optimum()
        every = pd.Series(optimum.sandwich.leverage, index=optimum.run_names, name="leverage")
        return every[every.index.notna()]

    def _required_optimum(self) -> Optimum:
        if self.optimum is None:
            raise PointsError("a fit read from a file does not hold its points: fit again")
        return self.optimum

    def profile(self, parameter: str) -> Profile:
        """Profile likelihood of a parameter: see `fitting.uncertainty.profile`.

        Raises PointsError for a parameter that was not fitted, and for a fit that was read from a file.
        """
        optimum = self._required_optimum()
        if parameter not in self.params or parameter in self.fixed:
            searched = ", ".join(name for name in self.params if name not in self.fixed)
            raise PointsError(f"{self.law} has no fitted parameter {parameter!r}; fitted are {searched}")
        return profiles(optimum, [parameter])[0]

    def explain(self) -> str:
        """A paragraph on how well the law fits and which parameters are identified."""
        m = self.metrics
        lines = [
            f"{self.law} was fitted to {self.n_points} points of {self.n_runs} runs: R2 {m['r2']:.4f}, "
            f"mean error {m['mae']:.4f} nats per token."
        ]
        identified = self.identified if len(self.draws) else {}
        intervals = self.intervals() if len(self.draws) else {}
        known = [name for name, yes in identified.items() if yes]
        free = [name for name, yes in identified.items() if not yes]
        if known:
            values = (f"{n} = {self.params[n]:.4g} ({intervals[n][0]:.4g} to {intervals[n][1]:.4g})" for n in known)
            lines.append(f"Identified, with 90% intervals: {', '.join(values)}.")
        if free:
            lines.append(
                f"Not identified: {', '.join(free)}. Other values fit as well, so do not interpret these, and do not "
                "rely on predictions far outside the fitted points."
            )
        if by_prior := [name for name, share in self.prior_shares.items() if share >= BY_PRIOR]:
            lines.append(f"Decided by the weak prior more than by the points: {', '.join(by_prior)}.")
        if self.fixed:
            lines.append(f"Given and not fitted: {', '.join(f'{n} = {self.params[n]:.4g}' for n in self.fixed)}.")
        inside = (f"{name} {low:.4g} to {high:.4g}{UNITS.get(name, '')}" for name, (low, high) in self.ranges.items())
        lines.append(f"Fitted points: {', '.join(inside)}.")
        if self.seed_noise is not None:
            differ = f"Runs that do not differ in what laws read differ by {self.seed_noise:.2%} of the loss"
            mean = "in the mean of a run over its steps (standard deviation; single losses may differ by more)"
            lines.append(f"{differ} {mean}: noise, if they differ in their seed alone.")
        return " ".join([*lines, *(f"{warning[:1].upper()}{warning[1:]}." for warning in self.warnings)])

    def to_json(self) -> str:
        """The whole fit with its bootstrap draws as one line of JSON; floats are exact."""
        plain = {name: getattr(self, name) for name in saved_fields()}
        plain["profiles"] = {name: asdict(one) for name, one in self.profiles.items()}
        arrays = {name: value.tolist() for name, value in plain.items() if isinstance(value, np.ndarray)}
        return json.dumps({"schema": SCHEMA, **plain, **arrays, "own": self.own_law is not None})

    @classmethod
    def from_json(cls, text: str) -> "Fit":
        """The fit that `to_json` wrote. Raises PointsError for another schema, an unknown law, and damaged numbers."""
        plain = json.loads(text)
        schema = plain.pop("schema", None)
        if schema != SCHEMA:
            raise PointsError(f"this fit was written with schema {schema}, this version reads {SCHEMA}: fit again")
        if plain.pop("own", False):
            name = plain.get("law")
            raise PointsError(
                f"this fit is of {name!r}, a Law given as an object, which no file holds: put it into fitting.LAWS, "
                "fit by its name, and keep that fit"
            )
        if plain.get("law") not in LAWS:
            raise PointsError(f"this fit is of the law {plain.get('law')!r}, which this version does not have")
        if line := next(_wrong_numbers(plain), None):
            raise PointsError(f"{line}: fit again")
        if any(len(draw) != len(plain["params"]) for draw in plain["draws"]):
            raise PointsError("this fit has draws of other parameters: fit again")
        for name in ("draws", "run_errors", "point_errors"):
            plain[name] = np.array(plain[name], dtype=float)
        plain["draws"] = plain["draws"].reshape(len(plain["draws"]), -1 if len(plain["draws"]) else 0)
        profiles = plain["profiles"].items()
        plain["profiles"] = {name: Profile(**one | {"closed": tuple(one["closed"])}) for name, one in profiles}
        plain["reach"] = [(N, D) for N, D in plain["reach"]]
        plain["ranges"] = {name: (low, high) for name, (low, high) in plain["ranges"].items()}
        if foreign := plain.keys() - {f.name for f in fields(cls)}:
            raise PointsError(f"this fit has keys of another version ({', '.join(map(repr, foreign))}): fit again")
        fitted = cls(**plain)
        if line := next(_damages(fitted), None):
            raise PointsError(f"{line}: fit again")
        return fitted


ERRORS_PER_DRAW = 10
METRICS = ("r2", "mae", "rmse", "log_rmse", "huber", "aicc")
UNITS = {"N": " billion parameters", "D": " billion tokens"}
UNBOUNDED = ("metrics.r2", "metrics.aicc")
"""Numbers of a fit that need not be finite: r2 of equal losses, and aicc of few points."""
UNSAVED = ("residuals", "optimum", "schedules", "own_law")


def saved_fields() -> dict[str, Any]:
    """Name -> type of each field of a fit that `Fit.to_json` writes, arrays as lists."""
    arrays = {"draws": list[list[float]], "run_errors": list[float], "point_errors": list[float]}
    return {f.name: arrays.get(f.name, f.type) for f in fields(Fit) if f.name not in UNSAVED}


def _wrong_numbers(value: Any, key: str = "") -> Iterator[str]:
    """A line for each number, in what JSON holds of a fit, that `Fit.to_json` does not write."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _wrong_numbers(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int | float):
        # A float is written with a point or an exponent: whole numbers are counts.
        limit = 2**53 if isinstance(value, int) else 1e300
        if not abs(value) < limit and key not in UNBOUNDED:
            yield f"{key} = {value:.4g} is too large, or not finite"


def _damages(fit: Fit) -> Iterator[str]:
    """A line for each thing in a fit that no fit of its law has; each is looked for where those before are right."""
    if strange := {*fit.unknown} - ({*UNKNOWN} & {*LAWS[fit.law].columns}):
        yield f"unknown: {fit.law} has no column {min(strange)!r} that may be"
    law = fit.equation
    if fit.columns != [*law.columns]:
        yield f"columns: {fit.law} reads {', '.join(law.columns)}"
    parameters = {one.name: one for one in (*law.parameters, LAMBDA)}
    if not {one.name for one in law.parameters} <= fit.params.keys() <= parameters.keys():
        yield f"params: {fit.law} has {', '.join(parameters)}"
    drawn = np.vstack([[*fit.params.values()], *fit.draws])
    for name, low, high in zip(fit.params, drawn.min(axis=0), drawn.max(axis=0), strict=True):
        one = parameters[name]
        lowest, highest = (side + sign * (1e-6 * abs(side) + 1e-9) for side, sign in ((one.low, -1), (one.high, 1)))
        if name not in fit.fixed and not lowest <= low <= high <= highest:
            yield f"{name} = {low:.4g} to {high:.4g}, allowed: {one.low:g} to {one.high:g}"
    if len({len(part) > 0 for part in (fit.draws, fit.run_errors, fit.point_errors)}) > 1:
        yield "draws, run_errors, point_errors: a bootstrap gives all three"
    for name, one in fit.profiles.items():
        if (
            name not in fit.params
            or not len(one.values) == len(one.roots) > 0
            or one.freedom <= 0
            or len(one.closed) != 2
        ):
            yield f"profiles.{name}: not the profile of a parameter"
    for name, ends in fit.ranges.items():
        rule, allowed = rule_of(name)
        if ends[0] > ends[1] or (name in law.columns and not allowed(np.array(ends)).all()):
            yield f"ranges.{name} = {ends[0]:.4g} to {ends[1]:.4g}, allowed: from the smaller one on, {rule}"
    if sorted(fit.reach) != fit.reach or min((min(corner) for corner in fit.reach), default=1.0) <= 0:
        yield f"reach = {fit.reach}, allowed: sizes and tokens above 0, by size"
    if not {*METRICS} <= fit.metrics.keys():
        yield f"metrics: a fit has {', '.join(METRICS)}"
    sizes = {"held_out": [*fit.held_out.values()], "growth": fit.growth, "unseen": [fit.unseen], "scale": [fit.scale]}
    sizes |= {"seed_noise": [fit.seed_noise or 0.0], "metrics.log_rmse": [fit.metrics["log_rmse"]]}
    for name, values in sizes.items():
        if min(values, default=0.0) < 0:
            yield f"{name} = {min(values):.4g}, allowed: 0 or more"
    if min(fit.n_runs, fit.n_points) < 1:
        yield f"{fit.n_points} points of {fit.n_runs} runs, allowed: 1 or more"


def interval_of(predicted: np.ndarray, errors: np.ndarray, scale: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each (n,), 90%, of losses (n,) predicted with errors (k, n), as `with_errors` reads them."""
    low, high = np.quantile(errors, TAILS, axis=0)
    return with_errors(predicted, low, scale), with_errors(predicted, high, scale)
