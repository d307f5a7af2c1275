"""Kept studies asked again: what their runs for the fit predict of runs that no fit saw, and whether that was near."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.goals.registry import goal_of
from pipeline.question.loading import question_of_study
from pipeline.study.collect import schedules
from pipeline.study.context import context_of
from pipeline.study.target import find_target

BAR, PART = 0.01, 0.1
"""A loss is near if it is missed by that part of it, or of its change."""


def long_ends(study: Path) -> pd.DataFrame:
    """The last point of each run that no fit sees, or of a study of long runs alone of each run.

    Beside the columns of points: domain_ratio, measured (nats per token), peak (of the learning rate) and steps (of the
    run, also where it was stopped before).
    """
    context = context_of(question_of_study(study, []))
    points = context.points[context.points["corpus"].isin(context.corpora) & (context.points["phase"] == "continual")]
    confirmed = points[points["role"] == "confirm"]
    points = points if confirmed.empty else confirmed
    ends = points.loc[points.groupby(["run", "corpus"], sort=False)["step"].idxmax()]
    rates = schedules(context.study.read_plan())
    peaks = {run: float(np.max(schedule.rates)) for run, schedule in rates.items()}
    run = {"peak": ends["run"].map(peaks), "steps": ends["run"].map(lambda run: len(rates[run].rates))}
    return ends.assign(**run, domain_ratio=ends["ratio"], measured=ends["loss"])


def predicted(study: Path, ends: pd.DataFrame, words: Sequence[str] = ()) -> pd.DataFrame:
    """`ends` as `long_ends` gives them, judged: fitted as `cptlaw fit STUDY WORDS` does, asked as `cptlaw predict`."""
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(question_of_study(shutil.copytree(study, Path(folder) / study.name), words))
        goal_of(context.question).fit(context, lambda _: None)
        laws, rows = answering_laws(context.fresh()), []
        for end in ends.itertuples():
            own = laws.at_peak(end.peak)
            target = find_target(own.question, own.points).lasting(end.steps)
            rows.append((target.before[end.corpus], *own.loss(target, end.corpus, end.domain_ratio)))
    return judged(ends.assign(**pd.DataFrame(rows, ends.index, ["before", "predicted", "low", "high"])))


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Predictions with their error, and whether they were near and inside.

    Columns: before, predicted, low, high, measured, all in nats per token.
    """
    missed, change = (table["predicted"] - table["measured"]).abs(), (table["measured"] - table["before"]).abs()
    return table.assign(
        error=table["predicted"] / table["measured"] - 1,
        half_width=table["high"] / table["predicted"] - 1,
        near=(missed <= BAR * table["measured"]) | (missed <= PART * change),
        inside=table["measured"].between(table["low"], table["high"]),
    )
