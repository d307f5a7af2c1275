"""What the verbs print of artifacts: tables, and lines of plain text."""

from collections.abc import Iterable

from rich.console import Console

from pipeline.goals.goal import FitSummary, Log, PlanNotes
from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.plan.validation_noise import windows_line
from pipeline.show import tables
from pipeline.show.conclusion import conclusion_of
from pipeline.show.table import Table
from pipeline.show.weights_tables import comparison_items, notes, stages_table, weights_table
from pipeline.study.artifacts import Confirmation, Recommendation
from pipeline.study.context import Context


def shown(content: object, context: Context | None = None) -> list[Table | str]:
    """What an artifact of a step looks like on the terminal: tables, and lines of plain text, in their order.

    `context`: of a recommendation and its confirmation; what is known of the answer by them is for the verb to print.
    """
    match content:
        case PlanNotes():
            return [*content.lines, *([stages_table(content.stages)] if content.stages else [])]
        case FitSummary():
            return [*([] if content.held_out is None else [tables.mean_errors_table(content.held_out)]), *content.notes]
        case Recommendation() if context is not None:
            notes_of = [f"note: {line}" for line in content.warnings]
            table = tables.recommendation_table(content, context.question, conclusion_of(context).is_known)
            # One ratio alone tells nothing of others.
            known = [] if one_ratio(content) else [table, *filter(None, [windows_line(context)])]
            return [*known, *notes_of]
        case Confirmation() if context is not None:
            table = tables.confirmation_table(content.confirmations)
            return [table, *filter(None, [windows_line(context)]), content.outcome.sentence]
        case WeightsRecommendation():
            return [weights_table(content), *(f"note: {line}" for line in notes(content))]
        case WeightsConfirmation():
            return comparison_items(content)
    raise TypeError(f"{type(content).__name__} has no picture")


def answer_line(context: Context) -> str:
    """The recommended domain ratio with its interval, in a few words; empty without a recommendation."""
    if context.question.goal_kind.many_domains or not Recommendation.path(context.study).exists():
        return ""
    content = Recommendation.read(context.study)
    if line := one_ratio(content):
        return line
    if content.mixture is None or content.low is None or content.high is None:
        return f"no domain ratio: {content.binding}"
    half = (content.high - content.low) / 2
    interval = f"90%: {content.low:.3f} to {content.high:.3f}, half-width {half:.3f}"
    interval += f"; {tables.EVERY_RATIO}" if tables.is_never_reached(content, content.goal.kind) else ""
    return f"domain ratio {content.mixture[context.question.corpora.domain]:.3f} ({interval})"


def print_items(items: Iterable[Table | str], console: Console) -> None:
    """Print tables, and plain text as it is."""
    for item in items:
        console.print(item, soft_wrap=True if isinstance(item, str) else None)


def warning_once(log: Log) -> Log:
    """A log that drops what it has printed of the warnings of fits, which begin with spaces: each round fits anew."""
    printed: set[str] = set()

    def print_new(line: str) -> None:
        if line not in printed:
            log(line)
        printed.update([line] if line.startswith("  ") else [])

    return print_new
