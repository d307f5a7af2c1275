"""Repeated text as fewer tokens: columns of points changed before a law is fitted."""

import numpy as np
import pandas as pd

from fitting.points import PointsError, numbers_of, out_of_range

PASSES = 15.39
"""R* of Muennighoff et al. 2023, fitted to 182 runs on one corpus."""


def effective_tokens(tokens, unique, passes: float = PASSES) -> np.ndarray:
    """Tokens of text never seen before that would teach as much as tokens with repetition.

    U (1 + R (1 - exp(-(e - 1) / R))), e = tokens / U, for e above 1; the tokens themselves up to there.

    Parameters: `tokens` that were trained on, and `unique`, U, those of them that are different, above 0: billions of
    one corpus, numbers or arrays (n,). `passes`, R: no number of further passes is worth more than R over new text.

    Raises PointsError for negative tokens, unique or passes not above 0.

    Source: Muennighoff et al. 2023, arXiv:2305.16264, eq. 5.

    >>> effective_tokens([0.5, 1.0, 4.0, 100.0], 1.0, passes=15.0).round(2).tolist()
    [0.5, 1.0, 3.72, 15.98]
    """
    tokens, unique = np.asarray(tokens, dtype=float), np.asarray(unique, dtype=float)
    if not passes > 0:
        raise PointsError(f"passes = {passes:g} must be above 0: how many repetitions count at most, near 15")
    if not (unique > 0).all():
        raise PointsError(f"unique = {unique.min():g} must be above 0: the corpus's different tokens, in billions")
    if not (tokens >= 0).all():
        raise PointsError(f"tokens = {tokens.min():g} must be 0 or more, in billions")
    first = np.minimum(tokens, unique)
    return first - first * passes * np.expm1(-np.maximum(tokens / unique - 1, 0.0) / passes)


def with_repetition(points: pd.DataFrame, unique, unique_rest=np.inf, passes: float = PASSES) -> pd.DataFrame:
    """A copy of the points in which D and r count effective tokens, for any law that reads them.

    D' = own + rest and r' = own / D' of the effective tokens own of r D and rest of (1 - r) D. S1, which counts steps,
    is left as it is.

    Parameters: `points`, with the columns D (billions of tokens of the run so far) and r (ratio of the validation
    corpus). `unique`, different tokens of that corpus, billions, a number or one a point; `unique_rest`, of the rest of
    the mixture, infinite where none of it is repeated. `passes`, as in `effective_tokens`: the R of your corpora is the
    one with the least objective of a fit.

    Raises PointsError for missing columns, values out of range.

    >>> once = pd.DataFrame({"D": [4.0], "r": [0.5]})
    >>> with_repetition(once, unique=0.5, passes=15.0).round(3).to_dict("list")
    {'D': [3.86], 'r': [0.482]}
    """
    x = numbers_of(points, ("D", "r"))
    if line := out_of_range("r", x["r"], points.index):
        raise PointsError(line)
    own = effective_tokens(x["r"] * x["D"], unique, passes)
    total = own + effective_tokens((1 - x["r"]) * x["D"], unique_rest, passes)
    return points.assign(D=total, r=np.where(total > 0, own / np.where(total > 0, total, 1.0), x["r"]))
