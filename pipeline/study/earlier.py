"""Losses on general of earlier studies of a base model, on other domains: they depend little on the domain.

Of runs of SmolLM2-135M of 20 and 40 steps that were alike but for the domain they differed by .33% at most up to a
domain ratio of .6, and by 1.1% up to .9 (`docs.studies.general_losses`), of runs of 1,200 steps by .6% at .5. So they
tell of a run far longer than a study's own, and less than its own runs do of one three times as long.
"""

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator
from pathlib import Path

import pandas as pd

from fitting.schedule import Schedule
from pipeline.question.loading import question_of_study, read_text
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.collect import read_points, schedules
from pipeline.study.folder import PlannedRun, Study, StudyError, study_of

BETWEEN_DOMAINS = 0.018
"""Half-width of the 90% interval of the log loss on general by the domain alone: with it 13 of 14 losses of six domains
lie inside what the other five predict."""
NEAR = 4.0
"""Times a study's own tokens up to which its own runs erred less, .3% where earlier ones erred by .9%."""
LEAST_REPLAY = 0.05
"""Ratio of general from which on runs count: at 0 the same runs differed by up to 2.3%, and a toy's by 6%."""
SAME = 2e-3
"""Relative difference of two losses before CPT up to which model and validation text are taken for the same."""
_FIRST = {"variant": "", "mixture_phase": 1}
"""Optional column of points -> what a point of a run of one mixture, and of no variant, has in it."""
_ALLOWED = "allowed: studies of the same base model, tokens per step and validation text on general"


def with_earlier(points: pd.DataFrame, question: Question) -> pd.DataFrame:
    """A study's points, and as points for the fit those on general of the studies of `general_from`.

    Raises StudyError: one of them is of another model, batch or validation text, has no points, or adds none.
    """
    found = [points]
    for folder, theirs, study in _earlier(question):
        names = {run.name for run in study.read_plan()}
        rows = read_points(study)
        rows = rows[(rows["model"] == theirs.model.name) & (rows["corpus"] == theirs.corpora.general)]
        rows = rows[(rows["phase"] == "continual") & (rows["step"] > 0) & (rows["r"] > LEAST_REPLAY - 1e-9)]
        rows = rows[rows["run"].isin(names) & ~rows["run"].isin(pd.concat(found)["run"])]
        for column, first in _FIRST.items():
            rows = rows[rows[column] == first].drop(columns=column) if column in rows else rows
        if rows.empty:
            least = f"no run on {LEAST_REPLAY:.0%} or more {theirs.corpora.general} that is not counted already"
            raise StudyError(f"general_from: {folder}: {least}; {_ALLOWED}")
        own = points[(points["model"] == question.model.name) & (points["corpus"] == question.corpora.general)]
        if len(own) and (difference := _difference(own, rows, question.tokens_per_step())):
            raise StudyError(f"general_from: {folder}: {difference}; {_ALLOWED}")
        of_first = {name: value for name, value in _FIRST.items() if name in points}
        found.append(rows.assign(role="fit", model=question.model.name, corpus=question.corpora.general, **of_first))
    return pd.concat(found, ignore_index=True) if len(found) > 1 else points


def earlier_schedules(question: Question) -> dict[Hashable, Schedule]:
    """Run of the studies of `general_from` -> its learning rates."""
    plans = [study.read_plan() for _, _, study in _earlier(question)]
    return {run: schedule for plan in plans for run, schedule in schedules(plan).items()}


def refuse_other_earlier(question: Question) -> None:
    """Raise StudyError, before anything is trained, where a study of `general_from` is missing or of another batch."""
    for folder, theirs, study in _earlier(question):
        read_points(study)
        one, other = question.tokens_per_step(), theirs.tokens_per_step()
        if one != other:
            raise StudyError(f"general_from: {folder}: {other:,} tokens per step, here {one:,}; {_ALLOWED}")


def studies_of_longer_runs(points: pd.DataFrame, question: Question) -> list[str]:
    """Folders beside a base model's study that would count, since their runs are longer than its own for the fit."""
    reach, folders = points.loc[points["role"] == "fit", "tokens"].max(), []
    far = question.target.steps * question.tokens_per_step() > NEAR * reach
    if question.model.path is None or question.general_from or not far:
        return []
    for file in sorted(Path(question.studies).glob("*/points.parquet")):
        text, name = file.with_name("study.yaml"), file.parent.name
        # Reading a question takes a while, and most studies are of other models.
        if name == question.name or not text.exists() or f"path: {question.model.path}" not in read_text(text):
            continue
        with contextlib.suppress(StudyError, ConfigError):
            found = with_earlier(points, dataclasses.replace(question, general_from=[str(file.parent)]))
            folders += [str(file.parent)] if found["tokens"][len(points) :].max() > NEAR * reach else []
    return folders


def earlier_line(points: pd.DataFrame, question: Question, plan: list[PlannedRun]) -> str:
    """What the earlier studies add to a study of this plan, in words."""
    own = points["run"].isin({run.name for run in plan})
    added, reach = points[~own], points.loc[own & (points["role"] == "fit"), "tokens"].max()
    steps, ratios = int(added["step"].max()), added["ratio"]
    line = (
        f"{question.corpora.general}: {len(added)} points of {added['run'].nunique()} runs of "
        f"{', '.join(question.general_from)} count too, up to step {steps:,}, domain ratios {ratios.min():g} to "
        f"{ratios.max():g} (general_from)"
    )
    if question.target.steps * question.tokens_per_step() <= NEAR * reach:
        line += f"; its own runs are {1 / NEAR:.0%} as long or more, where they alone erred less: general_from=[]"
    return line


def _earlier(question: Question) -> Iterator[tuple[str, Question, Study]]:
    """The studies of `general_from` as they were given, their questions, and their folders."""
    own = study_of(question).folder
    for given in question.general_from:
        # A path is of the folder in which it was given; the studies of a folder are moved together.
        places = (Path(given), Path(question.studies) / Path(given).name)
        folder = next((place for place in places if (place / "points.parquet").exists()), None)
        if folder is None or folder.resolve() == own.resolve():
            problem = "no points.parquet there" if folder is None else "the study itself"
            raise StudyError(f"general_from: {given}: {problem}; allowed: other studies after cptlaw collect")
        theirs = question_of_study(folder, [], again=False)
        yield given, theirs, study_of(theirs)


def _difference(own: pd.DataFrame, rows: pd.DataFrame, tokens_per_step: int) -> str:
    """The first thing in which earlier runs differ from a study's own, in words; empty: none, as far as is measured."""
    parameters = [int(table["n_params_non_embedding"].iloc[0]) for table in (own, rows)]
    if parameters[0] != parameters[1]:
        return f"{parameters[1]:,} non-embedding parameters, here {parameters[0]:,}"
    if (theirs := round((rows["tokens"] / rows["step"]).median())) != tokens_per_step:
        return f"{theirs:,} tokens per step, here {tokens_per_step:,}"
    one, other = (float(table["loss_before"].median()) for table in (own, rows))
    apart = abs(other / one - 1) > SAME
    return f"a loss of {other:.4f} on general before CPT, here {one:.4f}" if apart else ""
