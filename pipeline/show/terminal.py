"""What the verbs print of artifacts: tables, and lines of plain text."""

from collections.abc import Iterable

from rich.console import Console

from pipeline.done import confirm_remedy
from pipeline.goals.goal import FitSummary, PlanNotes
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.show.conclusion import conclusion_of
from pipeline.show.table import Table
from pipeline.show.tables import (
    NOT_REACHED,
    answer_table,
    confirmation_table,
    is_never_reached,
    mean_errors_table,
    recommendation_table,
)
from pipeline.show.weights_tables import comparison_items, notes, stages_table, weights_table
from pipeline.show.window_noise import windows_line
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.context import Context
from pipeline.study.number_format import quantity
from pipeline.study.status import is_followed


def shown(content: object, context: Context | None = None) -> list[Table | str]:
    """What an artifact of a step looks like on the terminal: tables, and lines of plain text, in their order.

    `context`: of a recommendation and its confirmation, whose conclusion is the last line.
    """
    match content:
        case PlanNotes():
            return [*content.lines, *([stages_table(content.stages)] if content.stages else [])]
        case FitSummary():
            return [*([] if content.held_out is None else [mean_errors_table(content.held_out)]), *content.notes]
        case Recommendation() if context is not None:
            notes_of = [f"note: {line}" for line in content.warnings]
            known = conclusion_of(context)
            table = recommendation_table(content, context.question, known.is_known)
            return [table, *_of_windows(context), *notes_of, *known.lines]
        case Confirmation() if context is not None:
            table = confirmation_table(content.confirmations)
            return [table, *_of_windows(context), content.outcome.sentence, *conclusion_of(context).lines]
        case WeightsRecommendation():
            return [weights_table(content), *(f"note: {line}" for line in notes(content))]
        case WeightsConfirmation():
            return comparison_items(content)
    raise TypeError(f"{type(content).__name__} has no picture")


def _of_windows(context: Context) -> list[str]:
    return [line for line in [windows_line(context)] if line]


def answer_items(context: Context) -> list[Table | str]:
    """Recommendation and confirmation of a study, as `cptlaw quickstart` ends."""
    study, question = context.study, context.question
    if question.goal_kind.many_domains:
        return [weights_table(WeightsRecommendation.read(study)), *comparison_items(WeightsConfirmation.read(study))]
    content, confirmation = Recommendation.read(study), context.confirmation
    known = conclusion_of(context)
    interval = (
        "" if content.low == content.high or content.low is None else f"90%: {content.low:.1%} to {content.high:.1%}"
    )
    title = "; ".join(filter(None, [f"{content.target.model}, {quantity(content.target.D * 1e9)} tokens", interval]))
    follow = "cptlaw follow compares the run itself as it is trained"
    how = follow if is_followed(study, question) else confirm_remedy(context)
    rows, note = [], f"No run has confirmed it: {how}."
    if confirmation is not None:
        rows = [row for row in confirmation.confirmations if row.recommended]
        note = confirmation.outcome.sentence
    if confirmation is not None and not confirmation.is_of(content, question.corpora.domain):
        of = "an earlier fit" if confirmation.is_of_earlier_fit(content, question.corpora.domain) else "another answer"
        rows, note = [], f"The confirmation runs are of {of}: {confirm_remedy(context, again=True)}."
    binding = content.binding if known.is_known else f"by the prediction {content.binding}"
    table = answer_table(f"{title}; {binding}", content, rows, dict.fromkeys(content.law, ""), note)
    return [known.lines[0], table, *_of_windows(context), *known.lines[1:]]


def answer_line(context: Context) -> str:
    """The recommended domain ratio with its interval, in a few words; empty without a recommendation."""
    if context.question.goal_kind.many_domains or not Recommendation.path(context.study).exists():
        return ""
    content = Recommendation.read(context.study)
    if content.mixture is None or content.low is None or content.high is None:
        return f"no domain ratio: {content.binding}"
    half = (content.high - content.low) / 2
    interval = f"90%: {content.low:.3f} to {content.high:.3f}, half-width {half:.3f}"
    interval += f"; {NOT_REACHED}" if is_never_reached(content) else ""
    return f"domain ratio {content.mixture[context.question.corpora.domain]:.3f} ({interval})"


def print_items(items: Iterable[Table | str], console: Console) -> None:
    """Print tables, and plain text as it is."""
    for item in items:
        console.print(item, soft_wrap=True if isinstance(item, str) else None)
