"""The result of a fit: parameters, how well they are known, and predictions from them."""

import json
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd

from fitting.laws import LAWS
from fitting.points import PointsError, columns_of
from fitting.schedule import LAMBDA

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Fit:
    """A law fitted to the points of one validation corpus.

    `params`: name -> value, as the law's equation writes them (lambda too, where it was fitted). `metrics`:
    r2, mae and rmse of the loss in nats, huber (the unweighted sum at delta 1e-3 of log residuals).
    `objective`: the weighted Huber sum that was minimised. `ranges`: column -> (smallest, largest) among the
    fitted points. `constants`: what the law took from the points and holds fixed. `draws`: (draws,
    parameters), bootstrap refits in the order of `params`. `run_errors` (runs,) and `point_errors` (points,):
    log residuals as the mean of a run and what is left within it, leverage undone. `warnings`: one line each.
    """

    law: str
    params: dict[str, float]
    metrics: dict[str, float]
    objective: float
    n_points: int
    n_runs: int
    ranges: dict[str, tuple[float, float]]
    constants: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    draws: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    run_errors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    point_errors: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Loss (n,), in nats per token, at the rows of a frame with the law's columns.

        A law that reads s2 takes it from the frame: compute it with `with_areas(…,
        decay=fit.params["lambda"])`. Raises PointsError for missing or impossible columns.
        """
        law = LAWS[self.law]
        return law.loss(columns_of(frame, law.columns), self.params)

    def predict_draws(self, frame: pd.DataFrame) -> np.ndarray:
        """Loss (draws, n) by each bootstrap refit. Raises PointsError if the fit holds none."""
        if not len(self.draws):
            raise PointsError("this fit has no bootstrap draws: fit again with bootstrap=200")
        law = LAWS[self.law]
        x = columns_of(frame, law.columns)
        return np.array([law.loss(x, dict(zip(self.params, draw, strict=True))) for draw in self.draws])

    def intervals(self, level: float = 0.9) -> dict[str, tuple[float, float]]:
        """Name -> (low, high): central interval of each parameter over the bootstrap draws."""
        if not len(self.draws):
            raise PointsError("this fit has no bootstrap draws: fit again with bootstrap=200")
        low, high = np.quantile(self.draws, _tails(level), axis=0)
        return {name: (float(a), float(b)) for name, a, b in zip(self.params, low, high, strict=True)}

    def predict_interval(
        self, frame: pd.DataFrame, level: float = 0.9, spread: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (n,): where the loss that a new run will measure lies, with probability `level`.

        Each bootstrap prediction is met with errors of a run: a whole-run offset and a deviation within the
        run, resampled from the fit's residuals. `spread` (k,), log errors of predictions that were held out,
        takes their place when given: outside the fitted points the law's own error outgrows the noise.
        """
        predicted = self.predict_draws(frame)
        rng = np.random.default_rng(0)
        if spread is not None:
            errors = np.asarray(spread, dtype=float)
            if errors.ndim != 1 or not len(errors) or not np.isfinite(errors).all():
                raise PointsError("spread must be a one-dimensional array of finite log errors, at least one")
            noise = rng.choice(errors, (ERRORS_PER_DRAW, len(predicted), 1))
        else:
            shape = (ERRORS_PER_DRAW, len(predicted), 1)
            noise = rng.choice(self.run_errors, shape) + rng.choice(self.point_errors, shape)
        measured = (predicted * np.exp(noise)).reshape(-1, predicted.shape[1])
        low, high = np.quantile(measured, _tails(level), axis=0)
        return low, high

    @property
    def identified(self) -> dict[str, bool]:
        """Name -> whether the points pin the parameter down.

        False if its 90% interval touches a bound of the law or is wider than the estimate is large. A
        parameter that is not identified may still predict well inside the fitted ranges; it must not be read
        as a fact.
        """
        bounds = {p.name: (p.low, p.high) for p in (*LAWS[self.law].parameters, LAMBDA)}
        known = {}
        for name, (low, high) in self.intervals(0.9).items():
            floor, ceiling = bounds[name]
            touches = low <= floor + 1e-6 * abs(floor) or high >= ceiling * (1 - 1e-6)
            known[name] = not touches and high - low <= abs(self.params[name])
        return known

    def to_json(self) -> str:
        """The whole fit, bootstrap draws included, as one line of JSON. Floats survive to the last bit."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value.tolist() for name, value in plain.items() if isinstance(value, np.ndarray)}
        return json.dumps({"schema": SCHEMA, **plain, **arrays})

    @classmethod
    def from_json(cls, text: str) -> "Fit":
        """The fit that `to_json` wrote. Raises PointsError for another schema and an unknown law."""
        plain = json.loads(text)
        schema = plain.pop("schema", None)
        if schema != SCHEMA:
            raise PointsError(f"this fit was written with schema {schema}, this version reads {SCHEMA}: fit again")
        if plain["law"] not in LAWS:
            raise PointsError(f"this fit is of the law {plain['law']!r}, which this version does not have")
        for name in ("draws", "run_errors", "point_errors"):
            plain[name] = np.array(plain[name], dtype=float)
        plain["ranges"] = {name: (low, high) for name, (low, high) in plain["ranges"].items()}
        return cls(**plain)


ERRORS_PER_DRAW = 10


def _tails(level: float) -> list[float]:
    if not 0 < level < 1:
        raise PointsError(f"level = {level:g} is outside (0, 1): 0.9 is a 90% interval")
    return [(1 - level) / 2, (1 + level) / 2]
