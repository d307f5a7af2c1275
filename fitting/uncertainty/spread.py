"""How far a law, or an average of several, errs at a run that it was not fitted to: one path for every interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
import pandas as pd

from fitting.uncertainty import horizon, misfit
from fitting.uncertainty.horizon import BEYOND, POWER, Reach, horizons

HELD_OUT_HORIZON = {"tokens": 1.5, "size-and-tokens": 2.0}
"""Split -> the tokens of the last point that it holds out over those fitted."""


@dataclass(frozen=True)
class Spread:
    """What is known of the errors of a prediction.

    `ranges`, `reach`, `residual` (root mean square of log residuals), `runs`: of the fit, as `Fit` has them.
    `held_out`: kind of extrapolation -> root mean square of the log errors on what was held out; empty: not known.
    `growth`: of rolling origins (`uncertainty.horizon`). `law`: of `horizon.PRIOR`, whether several answer together.
    `unseen`: half-width of 90% of the log loss by what no point shows, as another domain. `in_common`: kind -> part of
    the squared errors on what was held out that the laws of an average have in common; 0 where it is not known.
    """

    ranges: Mapping[str, tuple[float, float]]
    reach: Reach
    residual: float
    runs: int
    held_out: Mapping[str, float]
    growth: Sequence[float] = ()
    law: str = "law"
    unseen: float = 0.0
    in_common: Mapping[str, float] = field(default_factory=dict)

    def horizon(self, N: float, D: float) -> float:
        """Tokens over the longest fitted at that size; 1 where none is known."""
        return float(horizons(self.reach, np.array([N]), np.array([D]))[0]) if self.reach else 1.0

    def kind(self, N: float, D: float) -> str:
        """The kind of extrapolation (`uncertainty.misfit`), by the longest runs at that size."""
        kind = misfit.extrapolation(self.ranges, N, D)
        if self.horizon(N, D) <= BEYOND:
            return kind
        return {"ratio": "tokens", "size": "size-and-tokens"}.get(kind, kind)

    def known(self, kind: str) -> str | None:
        """The kind whose held-out errors stand for those of another; None where nothing was held out."""
        return next((name for name in misfit.NEXT[kind] if name in self.held_out), None)

    def half_width(self, N: float, D: float) -> float:
        """Half-width of the 90% interval of the log loss, by held-out errors, and at least that of the horizon."""
        asked = self.kind(N, D)
        known = self.known(asked)
        assert known is not None, "no held-out errors"
        factor = misfit.FACTORS[asked] * (1.0 if asked == known else misfit.STAND_IN)
        if self.law in ("average", "curve"):
            factor = misfit.average_factor(asked, self.in_common.get(known, 0.0))
        half = misfit.half_width(np.array(self.held_out[known]), self.residual, factor, self.runs)
        growth = list(self.growth)
        if not growth and known in HELD_OUT_HORIZON:
            growth = [self.held_out[known] / log(HELD_OUT_HORIZON[known]) ** POWER]
        known_part = max(half, float(self.beyond(pd.DataFrame({"N": [N], "D": [D]}), growth)[0]))
        return float(np.hypot(known_part, self.unseen))

    def below(self, frame: pd.DataFrame) -> np.ndarray:
        """Half-width (n,) by the ratio of each row alone; 0 from the smallest fitted one on, and in a frame without."""
        if "r" not in frame or "r" not in self.ranges:
            return np.zeros(len(frame))
        return horizon.below(self.ranges["r"][0], frame["r"].to_numpy(float), self.law)

    def beyond(self, frame: pd.DataFrame, growth: Sequence[float] | None = None) -> np.ndarray:
        """Half-width (n,) by horizon, size and ratio of each row alone; 0 within what was fitted.

        Of a frame without D it is that of the ratio.
        """
        if not self.reach or "D" not in frame:
            return self.below(frame)
        # Without a size, that of the shortest runs: no horizon is nearer than it is.
        shortest = min(self.reach, key=lambda corner: corner[1])[0]
        sizes = frame["N"].to_numpy(float) if "N" in frame else np.full(len(frame), shortest)
        ahead = horizons(self.reach, sizes, frame["D"].to_numpy(float))
        far = horizon.half_width(ahead, self.growth if growth is None else growth, self.residual, self.law)
        known = self.ranges.get("N") if "N" in frame else None
        larger = np.array([misfit.distance(known, N) if known else 0.0 for N in sizes])
        return np.hypot(np.hypot(np.where(ahead > BEYOND, far, 0.0), horizon.SIZE * larger), self.below(frame))

    def log_errors(self, frame: pd.DataFrame) -> np.ndarray | None:
        """Log errors (k, n) at the rows of a frame, whatever the ratio; None: nothing held out, or no N and D in it."""
        if not self.held_out or not {"N", "D"} <= {*frame.columns}:
            return None
        rows = [*zip(frame["N"].to_numpy(float), frame["D"].to_numpy(float))]
        half = {row: self.half_width(*row) for row in dict.fromkeys(rows)}
        return misfit.log_errors(np.array([half[row] for row in rows])[:, None]).T


def widened(log_errors: np.ndarray, half_widths: np.ndarray) -> np.ndarray:
    """Log errors (k,) or (k, n), wider by further half-widths (n,) of 90%: an array (k, n).

    >>> widened(np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.2])).round(2).tolist()
    [[-1.0, -1.67], [0.0, 0.0], [1.0, 1.67]]
    """
    errors = np.broadcast_to(np.reshape(log_errors, (len(log_errors), -1)), (len(log_errors), len(half_widths)))
    known = np.quantile(errors, 0.95, axis=0)
    return errors * np.hypot(1.0, np.divide(half_widths, known, out=np.zeros(len(known)), where=known > 0))
