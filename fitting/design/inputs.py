"""Laws, points and candidates of a design as arrays, checked."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fitting.laws import Law
from fitting.points import PointsError, columns_of, missing, mixture_columns, numbers_of, resolve_law, with_value

Laws = str | Law | Sequence[str | Law] | Sequence[tuple[str | Law, str]]
MOST_POINTS = 8
"""Points of one run that are looked at, evenly spaced: more of them say little more."""


@dataclass(frozen=True)
class LossColumn:
    """A loss column, and the laws that may describe it. `mirrored`: whether it reads 1 - r where a table has r."""

    loss: str
    laws: tuple[Law, ...]
    mirrored: bool = False

    def columns(self, frame: pd.DataFrame, law: Law) -> dict[str, np.ndarray]:
        """The columns of a law; `<loss column>.<name>` goes before `<name>`."""
        return columns_of(self.table(frame, law), law.columns, law)

    def table(self, frame: pd.DataFrame, law: Law) -> pd.DataFrame:
        """The table with the columns by the names that the law has for them."""
        own = {name: f"{self.loss}.{name}" for name in law.columns if f"{self.loss}.{name}" in frame.columns}
        renamed = frame.drop(columns=[name for name in own if name in frame.columns])
        renamed = renamed.rename(columns={prefixed: name for name, prefixed in own.items()})
        if self.mirrored and "r" not in own and "r" in renamed.columns:
            renamed = renamed.assign(r=1 - renamed["r"])
        return renamed


@dataclass(frozen=True, eq=False)
class Points:
    """Measured points of one output: table and losses (n,)."""

    frame: pd.DataFrame
    loss: np.ndarray


@dataclass(frozen=True, eq=False)
class Runs:
    """Candidates: table, the rows of each run that are looked at, its cost, its label and all its labels."""

    frame: pd.DataFrame
    rows: list[np.ndarray]
    costs: np.ndarray
    labels: list[Hashable]
    every: list[tuple[Hashable, ...]]


def read_outputs(laws: Laws, candidates: pd.DataFrame, question: str | None) -> list[LossColumn]:
    """The outputs that `laws` means: one, with alternatives, or several. Raises PointsError."""
    given = [laws] if isinstance(laws, str | Law) else list(laws)
    if not given:
        raise PointsError("laws is empty: give a name in fitting.LAWS, a Law, or a list of either")
    grouped: dict[str, list[Law]] = {}
    for one in given:
        pair = isinstance(one, tuple | list)
        if pair and not (len(one) == 2 and isinstance(one[1], str)):
            raise PointsError(f"laws has {one!r}: give pairs (law, loss column)")
        law = resolve_law(one[0] if pair else one)
        if law.whole_schedule:
            raise PointsError(f"{law.name} reads whole schedules, which candidates do not hold: choose another law")
        if law.for_corpora is not None:
            law = law.for_corpora(mixture_columns(candidates))
        grouped.setdefault(one[1] if pair else "loss", []).append(law)
    mirrored = next(iter(grouped)) if question == "trade_off" and len(grouped) > 1 else None
    return [LossColumn(loss, tuple(each), loss == mirrored) for loss, each in grouped.items()]


def read_points(measured: pd.DataFrame | None, output: LossColumn) -> Points:
    """The measured points of an output; a table without rows or columns has none. Raises PointsError."""
    if measured is None or not len(measured):
        return Points(pd.DataFrame(), np.zeros(0))
    if line := missing(measured, [output.loss]):
        raise PointsError(f"measured: {line}")
    usable = measured[output.loss].notna().to_numpy(copy=True)
    for law in output.laws:
        table = output.table(measured, law)
        if line := missing(table, law.columns):
            raise PointsError(f"measured: {line}")
        usable = usable & with_value(table, law)
    measured = measured.loc[usable].reset_index(drop=True)
    kept = np.sort(np.concatenate([thinned(rows) for rows in run_rows(measured)] or [np.zeros(0, int)]))
    frame = measured.iloc[kept].reset_index(drop=True)
    loss = numbers_of(frame, [output.loss])[output.loss]
    for law in output.laws:
        columns_of(frame.assign(loss=loss), ["loss"], law)
        if law.solving.residual == "log" and not (loss > 0).all():
            raise PointsError(f"measured: {output.loss} = {loss.min():g} must be above 0 for the law {law.name}")
    return Points(frame, loss)


def read_candidates(candidates: pd.DataFrame, cost: str, outputs: list[LossColumn]) -> Runs:
    """The candidates as runs with one cost each. Raises PointsError."""
    if not len(candidates):
        raise PointsError("candidates is empty: give the runs that could be made, a row each")
    if cost not in candidates.columns:
        wanted = "add what each run costs, in any unit, or name it by cost="
        raise PointsError(f"candidates have no column {cost}: {wanted}")
    if not candidates.index.is_unique:
        label = candidates.index[candidates.index.duplicated()][0]
        raise PointsError(f"candidates: the label {label!r} is there twice in the index: use reset_index(drop=True)")
    costs = numbers_of(candidates, [cost])[cost]
    if (costs <= 0).any():
        row = int(np.flatnonzero(costs <= 0)[0])
        raise PointsError(f"{cost} = {costs[row]:g} (row {candidates.index[row]}) must be above 0: what the run costs")
    usable = np.ones(len(candidates), dtype=bool)
    for output in outputs:
        for law in output.laws:
            table = output.table(candidates, law)
            if line := missing(table, law.columns):
                raise PointsError(f"candidates: {line}")
            usable = usable & with_value(table, law)
    runs = [(thinned(rows[usable[rows]]), rows) for rows in run_rows(candidates)]
    runs = [(kept, rows) for kept, rows in runs if len(kept)]
    labels = [tuple(candidates.index[rows]) for _, rows in runs]
    rows, costs = [kept for kept, _ in runs], np.array([costs[rows].max() for _, rows in runs])
    return Runs(candidates, rows, costs, [label[0] for label in labels], labels)


def thinned(rows: np.ndarray) -> np.ndarray:
    """At most MOST_POINTS of the rows, the first and the last among them."""
    if len(rows) <= MOST_POINTS:
        return rows
    return rows[np.unique(np.linspace(0, len(rows) - 1, MOST_POINTS).round().astype(int))]


def run_rows(frame: pd.DataFrame) -> list[np.ndarray]:
    """The rows of each run, in the order of their first; without a label a row is a run of its own."""
    if not len(frame) or "run" not in frame.columns:
        return [np.array([row]) for row in range(len(frame))]
    numbers = pd.factorize(frame["run"])[0]
    unnamed = np.flatnonzero(numbers < 0)
    numbers[unnamed] = len(frame) + np.arange(len(unnamed))
    numbers = pd.factorize(numbers)[0]
    return np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
