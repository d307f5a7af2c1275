"""The losses of a domain of which only short runs are known, by one law of several other domains."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fitting.estimation import fit
from fitting.fitted import Fit
from fitting.parallel import over_cores
from fitting.points import TAILS, PointsError

LAW = "cross-domain-k3"
PARTS = 200
"""Evaluations of a run in the paper, every 1,000 of 200,000 steps: here a part is a 200th of the longest run."""
MEASURED = 5
"""Parts of a run over which k2 is measured."""
FEWEST = 3
"""Domains that are known, at least: each is held out from the others, and one alone says nothing of K."""


def learnability(tokens: Sequence[float], losses: Sequence[float], part: float) -> dict[str, float]:
    """k1, k2 and k3 of a run: loss before training, decrease over the first 5 parts, mean curvature of the first 11.

    `tokens` (n,) rise from 0; between two the loss, nats per token, goes in a line.

    Source: Que et al. 2024, eq. 57, 58.
    """
    at = np.interp(part * np.array([0, 1, MEASURED, 10, 11]), tokens, losses)
    # The sum of eq. 58 telescopes.
    return {"k1": at[0], "k2": at[0] - at[2], "k3": ((at[4] - at[3]) - (at[1] - at[0])) / 10}


@dataclass(frozen=True, eq=False)
class NewDomain:
    """The law of the known domains, moved by what it misses the short runs of the new one by."""

    law: Fit
    shift: float
    """Mean log error of the law on the short runs."""
    errors: pd.DataFrame
    """Log errors of the same method on the known domains, each held out from the others: domain, N, error, shift."""

    def predict(self, at: pd.DataFrame) -> np.ndarray:
        """Losses (n,), nats per token, of runs with columns N, D, r, k1 and k2."""
        return self.law.predict(at) * np.exp(self.shift)

    def predict_interval(self, at: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Ends (n,), 90%, by Student's t of as many domains, on the errors of the known size next to each asked."""
        squares = self.errors["error"].pow(2).groupby(self.errors["N"]).mean()
        sizes = squares.index.to_numpy(float)
        nearest = np.abs(np.log(at["N"].to_numpy(float))[:, None] - np.log(sizes)).argmin(axis=1)
        t = stdtrit(self.errors["domain"].nunique() - 1, TAILS[1])
        half, losses = t * np.sqrt(squares.to_numpy()[nearest]), self.predict(at)
        return losses * np.exp(-half), losses * np.exp(half)


def new_domain(known: pd.DataFrame, short: pd.DataFrame) -> NewDomain:
    """Predict a new domain from several known ones and its own first losses.

    Parameters: `known`, losses on each known domain, with columns domain, N, D, r (of that domain), k1, k2, loss, and
    short, whether a point is of runs like the short ones (`like_short`); `short`, the points of the short runs on the
    new domain, with N, D, r, k1, k2 and loss. k1 and k2 of every domain are of one size and ratio.

    The law is cross-domain-k3 of the known domains. The interval is made of its errors on each of them, held out from
    the others but for runs like the short ones. Raises PointsError: too few domains.

    Source: Que et al. 2024, sec. 3.2 and 4.4; shift and interval are ours (docs/studies/new_domain.py).
    """
    domains = {str(name): points for name, points in known.groupby("domain", sort=False)}
    if len(domains) < FEWEST:
        raise PointsError(f"{len(domains)} known domains ({', '.join(domains)}) are too few: {FEWEST} are needed")

    def errors(name: str) -> pd.DataFrame:
        law = fit(known[known["domain"] != name], LAW, bootstrap=0)
        like, rest = (domains[name][domains[name]["short"] == of_short] for of_short in (True, False))
        if like.empty:
            raise PointsError(f"{name}: no fitted point is of runs like the short ones")
        shift = _missed(law, like).mean()
        return rest[["domain", "N"]].assign(error=_missed(law, rest) - shift, shift=shift)

    parts = over_cores(errors, domains)
    law = fit(known, LAW, bootstrap=0)
    return NewDomain(law, float(_missed(law, short).mean()), pd.concat(parts, ignore_index=True))


def like_short(points: pd.DataFrame, short: pd.DataFrame) -> pd.Series:
    """Whether each point of a known domain would be known if that had the short runs of the new one.

    Both have columns run, N, D and r. Raises PointsError: no run of a short one's size.
    """
    runs, known = points.groupby("run")[["N", "r"]].first(), dict[str, float]()
    for _, own in short.groupby("run"):
        N, r = own[["N", "r"]].iloc[0]
        of_size = runs[np.isclose(runs["N"], N)]
        if of_size.empty:
            sizes = ", ".join(f"{size * 1e3:.4g}" for size in sorted(runs["N"].unique()))
            raise PointsError(f"no known run has {N * 1e3:.4g} million parameters like a short one; known: {sizes}")
        run = str((of_size["r"] - r).abs().idxmin())
        known[run] = max(own["D"].max(), known.get(run, 0.0))
    return points["D"] <= points["run"].map(known).fillna(0.0) * (1 + 1e-9)


def _missed(law: Fit, points: pd.DataFrame) -> np.ndarray:
    return np.log(points["loss"].to_numpy(float) / law.predict(points))
