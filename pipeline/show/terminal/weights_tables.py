"""Tables of the terminal for mixture weights: cost, proposals, and their comparison."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from pipeline.goals.goal import Stage
from pipeline.goals.weights.artifacts import MethodResult, SpeedUp, WeightsConfirmation, WeightsRecommendation
from pipeline.study.number_format import quantity


def stage_table(stages: list[Stage]) -> Table:
    """Cost of each stage, before training."""
    table = Table(title="all stages", caption="known before training; later rounds get their mixtures when they begin")
    table.add_column("stage", no_wrap=True)
    for name in ("runs", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        if stage.name == "all":
            table.add_section()
        table.add_row(stage.name, str(stage.runs), f"{stage.tokens / 1e6:,.1f} M")
    return table


def weights_table(content: WeightsRecommendation) -> Table:
    """The weights of every method, and the interval of the recommended ones."""
    target = content.target
    table = Table(
        title=f"weights for {target.model}, {quantity(target.tokens)} tokens, %: {content.method}",
        caption="* recommended",
        box=SIMPLE_HEAD,
    )
    table.add_column("method", no_wrap=True)
    for domain in content.mixture:
        table.add_column(domain, justify="right", overflow="fold")
    for row in content.proposals:
        mark = " *" if row.method == content.method else ""
        table.add_row(row.method + mark, *(f"{row.weights[domain]:.1%}"[:-1] for domain in content.mixture))
    if content.low:
        table.add_section()
        for words, side in (("*, 90%: from", content.low), ("to", content.high)):
            table.add_row(words, *(f"{side[domain]:.1%}"[:-1] for domain in content.mixture))
    return table


def comparison_tables(comparison: WeightsConfirmation) -> list[Table]:
    """Results and cost of all methods at the target."""
    target, reference = comparison.target, comparison.reference
    measure = "mean loss" if comparison.average == "loss" else "mean perplexity"
    continued = any(row.general_change is not None for row in comparison.methods)
    results = Table(
        title=f"measured at {target.steps} steps, {quantity(target.tokens)} tokens, {comparison.seeds} seeds",
        caption=f"* recommended; differences to {reference} are paired by seed, with 90% intervals"
        + ("; general: increase of its loss" if continued else ""),
        box=SIMPLE_HEAD,
    )
    names = (measure, f"less {reference}'s", "above best", *(["general"] if continued else []))
    cost = Table(
        caption=f"worst: perplexity of the domain with the highest loss; speed-up: steps of {reference} over the steps "
        "to its last loss; searched: tokens of the search; saved: tokens by stopping there",
        box=SIMPLE_HEAD,
    )
    for table, columns in ((results, names), (cost, ("worst", "speed-up", "searched", "saved"))):
        table.add_column("method", no_wrap=True)
        for name in columns:
            table.add_column(name, justify="right")
    for row in comparison.ranked:
        method = row.method + (" *" if row.recommended else "")
        general = [f"{row.general_change:+.1%}"] if continued else []
        results.add_row(method, f"{row.value:.4f}", difference(row), f"{row.above_best:+.2%}", *general)
        searched = quantity(row.search_tokens) if row.search_tokens else "none"
        worst = f"{row.worst_perplexity:.1f} {row.worst}"
        cost.add_row(method, worst, speed_up(row, comparison), searched, saved(row.speed))
    return [results, cost]


def comparison_output(comparison: WeightsConfirmation) -> list[Table | str]:
    """The comparison as the verbs print it: tables, predicted losses, a warning where the reference was better."""
    predicted = [f"{row.method} {prediction(row)}" for row in comparison.ranked if row.predicted is not None]
    line = f"predicted mean loss, and the measured one beside it: {'; '.join(predicted)}" if predicted else ""
    return [*comparison_tables(comparison), *filter(None, [line, reference_warning(comparison)])]


def better_reference(comparison: WeightsConfirmation) -> MethodResult | None:
    """The reference, where the recommended weights are worse and the interval excludes 0; else None."""
    rows = comparison.methods
    if any(row.recommended and row.low is not None and row.low > 0 for row in rows):
        return next(row for row in rows if row.method == comparison.reference)
    return None


def reference_warning(comparison: WeightsConfirmation) -> str:
    """The warning of `better_reference`, or nothing."""
    if (better := better_reference(comparison)) is None:
        return ""
    recommended = comparison.recommended
    assert recommended is not None
    return (
        f"{recommended.method}'s weights, recommended before confirmation, are worse than {better.method}'s: "
        f"{difference(recommended)}. Use {better.method}'s weights"
    )


def notes(content: WeightsRecommendation) -> list[str]:
    """The lines of all proposals, each once, behind the names of its methods."""
    methods_of: dict[str, list[str]] = {}
    for row in content.proposals:
        for line in row.lines:
            methods_of.setdefault(line, []).append(row.method)
    return [f"{', '.join(dict.fromkeys(methods))}: {line}" for line, methods in methods_of.items()]


def prediction(row: MethodResult) -> str:
    """The predicted mean loss and how far the measured one is from it, formatted."""
    return "" if row.predicted is None else f"{row.predicted:.4f} ({row.loss / row.predicted - 1:+.2%})"


def difference(row: MethodResult) -> str:
    """The difference to the reference with its interval, formatted."""
    if row.difference is None:
        return ""
    between = "" if row.low is None else f" ({row.low:+.4f} to {row.high:+.4f})"
    return f"{row.difference:+.4f}{between}"


def speed_up(row: MethodResult, comparison: WeightsConfirmation) -> str:
    """The speed-up over the reference with its interval, formatted."""
    if row.method == comparison.reference:
        return ""
    speed = row.speed
    if speed.speed_up is None:
        return "not reached" if not speed.reached else f"reached by {speed.reached} of {comparison.seeds} seeds"
    between = "" if speed.speed_up_low is None else f" ({speed.speed_up_low:.2f} to {speed.speed_up_high:.2f})"
    return f"{speed.speed_up:.2f}{between}"


def saved(speed: SpeedUp) -> str:
    """Saved tokens, formatted."""
    return quantity(speed.tokens_saved) if speed.tokens_saved else ""
