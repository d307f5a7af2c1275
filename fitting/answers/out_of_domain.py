"""The loss on a third corpus as a linear combination of the losses on the two training corpora."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from fitting.answers.answer import Answer, Estimate, Status
from fitting.points import TAILS, PointsError, numbers_of

COLLINEAR = 1e-3
"""Sine of the angle between the two losses below which they are collinear."""


def out_of_domain(curves: pd.DataFrame, at: Mapping[str, float] | None = None, *, intercept: bool = False) -> Answer:
    """L_ood = l1 L_pt + l2 L_cpt by ordinary least squares on measured losses.

    Parameters: `curves`, one row a measured step, with columns `pretrain`, `domain` and `ood`, the three losses in
    nats per token, and `run`, the run that a row belongs to (without it every row counts as a run). `at`: "pretrain"
    and "domain" -> losses at which the third is wanted. `intercept`: a constant beside the two, which eq. 6 does not
    have; on trials of ours (English text, law, chemistry) it makes the difference between R2 .16 and .96.

    `values`: pretrain (l1) and domain (l2), which need not sum to 1; intercept, in nats, where there is one; r2, about
    the mean and so below 0 for what is worse than it, without an interval (NaN). Intervals: t with runs - 1 degrees of
    freedom on the jackknife over runs, whose rows share their errors. `predicted`: ood, where `at` is given; its
    interval is that of the combination, without the noise of a new run.

    Raises PointsError for missing or impossible columns, fewer than three rows or two runs, and losses on the two
    corpora that are proportional, or so nearly that the data leave the split between l1 and l2 open.

    Source: Wang et al., ICML 2025, eq. 6 and app. K.

    >>> table = pd.DataFrame({"pretrain": [3.0, 3.1, 3.3, 3.2], "domain": [2.5, 2.2, 2.0, 1.9], "run": [0, 0, 1, 2]})
    >>> found = out_of_domain(table.assign(ood=0.7 * table["pretrain"] + 0.4 * table["domain"]))
    >>> round(found["pretrain"], 6), round(found["domain"], 6), round(found["r2"], 6)
    (0.7, 0.4, 1.0)
    """
    columns = numbers_of(curves, ["pretrain", "domain", "ood"])
    for name, values in columns.items():
        if (values <= 0).any():
            raise PointsError(f"column {name} holds a loss that is not above 0: {values[values <= 0][0]:g}")
    X, y = np.column_stack([columns["pretrain"], columns["domain"]]), columns["ood"]
    names = ("pretrain", "domain", *(("intercept",) if intercept else ()))
    runs = pd.factorize(curves["run"])[0] if "run" in curves.columns else np.arange(len(curves))
    if len(y) < 3 or runs.max() < 1:
        raise PointsError(f"{len(y)} rows of {runs.max() + 1} runs are too few: three rows of two runs are needed")
    _check_apart(X - X.mean(axis=0) if intercept else X)
    X = np.column_stack([X, np.ones((len(X), len(names) - 2))])
    weights, count = np.linalg.lstsq(X, y, rcond=None)[0], int(runs.max()) + 1
    away = np.array([np.linalg.lstsq(X[runs != run], y[runs != run], rcond=None)[0] for run in range(count)]) - weights
    covariance = (count - 1) / count * away.T @ away
    fitted = X @ weights
    around_mean = float(np.sum((y - y.mean()) ** 2))
    r2 = float(1 - np.sum((y - fitted) ** 2) / around_mean) if around_mean else float("nan")
    quantile = float(stdtrit(count - 1, TAILS[1]))
    half = quantile * np.sqrt(np.diag(covariance))
    if half[:2].max() > np.abs(weights[:2]).sum():
        raise PointsError(
            f"the losses on pretrain and domain are collinear in these {len(y)} rows: l1 = {weights[0]:.3g} +- "
            f"{half[0]:.3g}, l2 = {weights[1]:.3g} +- {half[1]:.3g}; add runs at other mixture ratios"
        )
    values = {
        name: Estimate(float(w), float(w - h), float(w + h)) for name, w, h in zip(names, weights, half, strict=True)
    }
    values["r2"] = Estimate(r2, float("nan"), float("nan"))
    predicted, warnings = {}, list[str]()
    if not r2 > 0.9:
        combination = "so this corpus is no combination of the two: measure its loss instead"
        warnings.append(f"ood: R2 is {r2:.2f} only, {combination}")
    if count < 5:
        runs = f"{count} run{'s' * (count > 1)}"
        warnings.append(f"ood: {runs} only: intervals rest on how runs differ, which so few cannot show")
    if at is not None:
        if missing := [name for name in names[:2] if name not in at]:
            raise PointsError(f"at has no {missing[0]}: give the losses on pretrain and domain")
        where = np.array([*(float(at[name]) for name in names[:2]), *(1.0 for _ in names[2:])])
        loss, error = float(where @ weights), quantile * float(np.sqrt(where @ covariance @ where))
        predicted["ood"] = Estimate(loss, loss - error, loss + error)
        warnings += _outside(X, where)
    return Answer(values, predicted, Status("inside", f"nothing: least squares on {len(y)} rows"), warnings)


def _check_apart(X: np.ndarray) -> None:
    unit = X / np.maximum(np.linalg.norm(X, axis=0), 1e-300)
    cosine = float(unit[:, 0] @ unit[:, 1])
    if not np.abs(unit).sum(axis=0).all() or np.sqrt(max(1 - cosine**2, 0.0)) < COLLINEAR:
        times = (X[:, 0] @ X[:, 1]) / max(X[:, 0] @ X[:, 0], 1e-300)
        raise PointsError(
            f"the losses on pretrain and domain are collinear: the one is {times:.4g} times the other in every row; "
            "add runs at other mixture ratios"
        )


def _outside(X: np.ndarray, where: np.ndarray) -> list[str]:
    lines = []
    for name, values, value in zip(("pretrain", "domain"), X.T, where, strict=False):
        if not values.min() <= value <= values.max():
            end, side = (values.max(), "largest") if value > values.max() else (values.min(), "smallest")
            far = f"{value - end:+.3g} from the {side} ({end:.4g})"
            lines.append(f"ood: loss on {name} = {value:.4g} is beyond the points, {far}")
    return lines
