"""How far losses that are measured on few validation windows are from those on other text of a corpus."""

import math
from collections.abc import Iterator

from pipeline.plan.prepared_corpora import validation_path
from pipeline.question.evaluation_budget import LEAST_WINDOWS
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED
from pipeline.study.number_format import percent

GENERAL, DOMAIN = 0.04, 0.1
"""Standard deviation, over windows, of the change of a loss relative to the loss before CPT, the largest measured: on
general 4.1% and on code 9.7% in quickstart's run at 75% code, whose losses changed by +2.5 and -29% (512 windows of 128
tokens). On general it was 1.3% of a model of .05 M parameters (+2.6%), and 1.5% of Gemma-3-270M (-1.9%, 24 windows of
256)."""
PART = 0.25
"""Part of the tolerance from which on a standard error is said; a choice."""
MOST_RATIO = 0.3
"""Largest `corpora.validation_ratio` that is proposed; a choice."""


def noise_lines(context: Context) -> Iterator[str]:
    """A line for each corpus that has too few validation windows for the change of its loss."""
    question, tolerance = context.question, abs(context.question.goal.tolerance)
    if question.goal.kind != "trade-off" or question.rehearsal or tolerance == 0:
        return
    general, domain = context.corpora
    least = math.ceil((GENERAL / (PART * tolerance)) ** 2)
    yield from _few_windows(context, general, least, f"a change by {percent(tolerance)}", GENERAL)
    yield from _few_windows(context, domain, LEAST_WINDOWS, "the loss decrease", DOMAIN)


def windows_line(context: Context) -> str:
    """On how few windows the losses of a study are means, and what that may change; empty where points do not say."""
    question = context.question
    if not (context.study.folder / "points.parquet").exists():
        return ""
    errors = context.points.groupby("corpus")["loss_stderr"].mean()
    off = [f"{errors[corpus]:.2g} on {corpus}" for corpus in context.corpora if errors.get(corpus, 0.0) > 0]
    if not off or question.rehearsal or question.model.path == IMPORTED:
        return ""
    windows, length = question.validation_windows, question.tokens_per_step() // question.target.global_batch
    points, asked = 100 * GENERAL / math.sqrt(windows), abs(question.goal.tolerance)
    change = f", and the change on {context.corpora[0]} about {points:.1f} points"
    if question.goal.kind == "trade-off" and 0 < 100 * asked <= points:
        change += f", no less than the {percent(asked)} that is asked"
    return (
        f"losses are means over at most {windows} windows of {length} tokens of each corpus: on other text they may be "
        f"off by {' and '.join(off)}{change} (standard errors, in no interval; a plan "
        "with more validation_windows, or with longer validation sets, has smaller ones)"
    )


def _few_windows(context: Context, corpus: str, least: int, what: str, deviation: float) -> Iterator[str]:
    """That a corpus has fewer windows than `least`, and what to give, a line."""
    question = context.question
    length = question.tokens_per_step() // question.target.global_batch
    available = (context.manifest.corpora[corpus].tokens["validation"] - 1) // length
    windows = min(question.validation_windows, available)
    if not 1 <= windows < least:
        return
    remedies = [f"validation_windows={least}"] if question.validation_windows < least else []
    if available < least:
        ratio = math.ceil(100 * question.corpora.validation_ratio * least / available) / 100
        apart = validation_path(question, corpus) is not None
        longer = "a longer validation set" if apart else "more text" if ratio > MOST_RATIO else ""
        remedies.append(longer or f"corpora.validation_ratio={ratio:g}")
    yield (
        f"corpora.sources.{corpus}: its loss is measured on {windows} windows of {length} tokens; on other text {what} "
        f"may be {100 * deviation / math.sqrt(windows):.1f} points off (a standard error, in no interval): give "
        f"{' and '.join(remedies)} to cptlaw prepare and plan, before training"
    )
