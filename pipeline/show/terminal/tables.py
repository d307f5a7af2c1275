"""Costs, recommendations and confirmations as tables for the terminal."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from pipeline.goals.goal import FitSummary, PlanNotes
from pipeline.goals.weights.artifacts import WeightsConfirmation, WeightsRecommendation
from pipeline.plan.cost import Cost, costs
from pipeline.plan.duration import speed_of, wall_seconds
from pipeline.plan.machine import workers
from pipeline.question.schema import Question
from pipeline.show.terminal.weights_tables import comparison_output, notes, stage_table, weights_table
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Recommendation
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, Study
from pipeline.study.number_format import duration, laws_used, quantity, weights_used


@functools.singledispatch
def shown(content: object, question: Question | None = None) -> list[RenderableType]:
    """What an artifact of a step looks like on the terminal: tables, and lines of plain text, in their order."""
    raise TypeError(f"{type(content).__name__} has no picture")


@shown.register
def _(content: PlanNotes, question: Question | None = None) -> list[RenderableType]:
    return [*content.lines, *([stage_table(list(content.stages))] if content.stages else [])]


@shown.register
def _(content: FitSummary, question: Question | None = None) -> list[RenderableType]:
    return [*([] if content.held_out is None else [held_out_table(content.held_out)]), *content.notes]


@shown.register
def _(content: Recommendation, question: Question | None = None) -> list[RenderableType]:
    assert question is not None
    return [recommendation_table(content, question), *(f"note: {line}" for line in content.warnings)]


@shown.register
def _(content: Confirmation, question: Question | None = None) -> list[RenderableType]:
    return [confirmation_table(content.confirmations), content.outcome.sentence]


@shown.register
def _(content: WeightsRecommendation, question: Question | None = None) -> list[RenderableType]:
    return [weights_table(content), *(f"note: {line}" for line in notes(content))]


@shown.register
def _(content: WeightsConfirmation, question: Question | None = None) -> list[RenderableType]:
    return [*comparison_output(content)]


def answer_items(context: Context) -> list[RenderableType]:
    """Recommendation and confirmation of a study, as `cptlaw quickstart` ends."""
    study = context.study
    if context.question.goal_kind.many_domains:
        comparison = comparison_output(WeightsConfirmation.read(study))
        return [weights_table(WeightsRecommendation.read(study)), *comparison]
    return [answer_table(study, context.question)]


def print_items(items: Iterable[RenderableType], console: Console) -> None:
    """Print tables, and plain text as it is."""
    for item in items:
        if isinstance(item, str):
            console.print(item, highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(item)


def cost_table(context: Context, runs: Sequence[PlannedRun]) -> Table:
    """What a plan costs, by role and model."""
    question = context.question
    count, rows = workers(question), costs(runs, speed_of(context, runs), question)
    table = Table(
        caption=f"N: non-embedding parameters. Time of a row: its work over {count} workers of "
        f"{question.launcher.threads} thread, at the speed measured here; all: a simulated end, with starts, compiling "
        "and waits, so rows do not sum to it. Disk: while training"
    )
    for name in ("role", "model", "N", "runs", "tokens", "FLOPs", "time", "disk"):
        table.add_column(name, justify="left" if name in ("role", "model") else "right", no_wrap=True)

    def add(role: str, model: str, size: str, parts: list[Cost], seconds: float | None) -> None:
        tokens, flops, disk = (sum(getattr(row, name) for row in parts) for name in ("tokens", "flops", "disk"))
        # "7.9e14": two characters less than Python writes, and the table fits a terminal of 80.
        work = (str(sum(row.runs for row in parts)), quantity(tokens), f"{flops:.1e}".replace("e+", "e"))
        table.add_row(role, model, size, *work, "?" if seconds is None else duration(seconds), _bytes(disk))

    for row in rows:
        add(row.role, row.model, quantity(row.non_embedding), [row], row.seconds and row.seconds / count)
    table.add_section()
    add("all", "", "", rows, wall_seconds(context, runs))
    return table


def held_out_table(tested: pd.DataFrame) -> Table:
    """How each law did on what it was not fitted to."""
    table = Table(title="mean relative error on held-out points")
    splits = list(dict.fromkeys(tested["split"]))
    for name in ("corpus", "law"):
        table.add_column(name, no_wrap=True)
    for split in splits:
        table.add_column(split.replace("-", " "), justify="right")
    for (corpus, law), rows in tested.groupby(["corpus", "law"], sort=False):  # pyright: ignore[reportGeneralTypeIssues]
        errors = rows["relative_error"].abs().groupby(rows["split"]).mean()
        table.add_row(str(corpus), str(law), *(f"{errors[split]:.2%}" if split in errors else "" for split in splits))
    return table


def recommendation_table(content: Recommendation, question: Question) -> Table:
    """The recommendation: domain ratio, predicted losses, what binds."""
    target = content.target
    table = Table(title=f"recommended with {laws_used(content.law)} for {target.model}, {target.D * 1e3:.2f} M tokens")
    for name in ("", "value", "90% interval"):
        table.add_column(name, justify="left" if not name else "right")
    domain, general = question.corpora.domain, question.corpora.general
    if content.mixture:
        given = content.low == content.high == question.goal.domain_ratio
        interval = "given" if given else f"{content.low:.3f} to {content.high:.3f}"
        table.add_row(f"domain ratio, {domain}", f"{content.mixture[domain]:.3f}", interval)
        table.add_row(f"replay ratio, {general}", f"{content.mixture[general]:.3f}", "")
        if content.peak_learning_rate is not None:
            table.add_row("peak learning rate", f"{content.peak_learning_rate:g}", "")
        for corpus, loss in content.predicted.items():
            table.add_row(f"loss on {corpus}", f"{loss.loss:.4f}", f"{loss.low:.4f} to {loss.high:.4f}")
    for name, words in (("N", "best size"), ("D", "its tokens")):
        if best := content.optimum.get(name):
            sides = (quantity((side or 0.0) * 1e9) for side in (best.value, best.low, best.high))
            table.add_row(words, next(sides), " to ".join(sides))
    for row in content.candidates:
        words = f"{row.model}, {quantity(row.D * 1e9)} tokens, {row.domain_ratio:.3f}"
        table.add_row(words, f"{row.predicted:.4f}", f"{row.low:.4f} to {row.high:.4f}")
    for change in content.changes:
        words = f"change at {change.at:.0%}"
        if change.before == change.after:
            table.add_row(words, "none", "")
        else:
            ratios = f"{change.before:.2f} to {change.after:.2f}"
            table.add_row(words, ratios, f"{change.difference:+.4f} on {domain}")
    table.add_row("binding", content.binding, "")
    for corpus, of_law in content.weights.items():
        if of_law:
            table.add_row(f"average on {corpus}", weights_used(of_law, "\n"), "")
    return table


def confirmation_table(rows: list[ConfirmationRow]) -> Table:
    """Predicted against measured, every law."""
    table = Table(
        title="confirmation: predicted before, measured after",
        caption="* the answer came from it; ! measured outside the interval",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    noise = [f"sd of {len(rows[0].seeds)}"] if rows[0].sd is not None else []
    for name in ("law", "predicted", "90% interval", "measured", "error", *noise):
        table.add_column(name, justify="left" if name == "law" else "right", no_wrap=True)
    at = None
    for row in rows:
        if at != (at := f"{row.corpus} at {_at(rows, row)}"):
            table.add_row(at)
        table.add_row(
            row.law + (" *" if row.recommended else ""),
            f"{row.predicted:.4f}", f"{row.low:.4f} to {row.high:.4f}",
            f"{row.measured:.4f}{' ' if row.inside else '!'}", f"{row.relative_error:+.2%}",
            *([f"{row.sd:.4f}"] if noise else []),
        )  # fmt: skip
    return table


def answer_table(study: Study, question: Question) -> Table:
    """Recommended ratio with its interval; predicted and measured losses of the law that answered."""
    content, confirmation = Recommendation.read(study), Confirmation.read(study)
    assert content.mixture is not None
    rows = confirmation.confirmations
    domain, target = question.corpora.domain, content.target
    interval = "" if content.low == content.high else f" (90%: {content.low:.1%} to {content.high:.1%})"
    ratio = f"{content.mixture[domain]:.1%} {domain}{interval}"
    table = Table(
        title=f"{target.model}, {quantity(target.D * 1e9)} tokens: continue with {ratio}, {content.binding}",
        caption=confirmation.outcome.sentence,
    )
    for name in (_place(rows), "corpus", "before", "predicted", "90% interval", "measured", "error"):
        table.add_column(name, justify="left" if name in ("corpus", "model") else "right")
    for row in rows:
        if row.recommended:
            table.add_row(
                _at(rows, row), row.corpus, f"{row.before:.4f}",
                f"{row.predicted:.4f}", f"{row.low:.4f} to {row.high:.4f}", f"{row.measured:.4f}",
                f"{row.relative_error:+.2%}",
            )  # fmt: skip
    return table


def answer_line(context: Context) -> str:
    """The recommended domain ratio with its interval, in a few words; empty without a recommendation."""
    if context.question.goal_kind.many_domains or not Recommendation.path(context.study).exists():
        return ""
    content = Recommendation.read(context.study)
    if content.mixture is None or content.low is None or content.high is None:
        return f"no domain ratio: {content.binding}"
    half = (content.high - content.low) / 2
    interval = f"90%: {content.low:.3f} to {content.high:.3f}, half-width {half:.3f}"
    return f"domain ratio {content.mixture[context.question.corpora.domain]:.3f} ({interval})"


def _place(rows: list[ConfirmationRow]) -> str:
    """The column that distinguishes confirmation runs."""
    return "ratio" if len({row.model for row in rows}) == 1 else "model"


def _at(rows: list[ConfirmationRow], row: ConfirmationRow) -> str:
    return f"{row.domain_ratio:.3f}" if _place(rows) == "ratio" else row.model


def _bytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"
