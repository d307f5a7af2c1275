"""Tables of mixture weights: the stages of a search, the proposals, and their comparison."""

from collections.abc import Sequence

from pipeline.goals.goal import Stage
from pipeline.goals.weights.artifacts import MethodResult, WeightsConfirmation, WeightsRecommendation
from pipeline.show.table import Table
from pipeline.study.number_format import quantity, signed


def stages_table(stages: Sequence[Stage]) -> Table:
    """Cost of each stage, before training."""
    rows = [[stage.name, str(stage.runs), quantity(stage.tokens)] for stage in stages]
    note = "known before training; later rounds get their mixtures when they begin"
    rules = [number for number, stage in enumerate(stages) if stage.name == "all"]
    return Table("all stages", ["stage", "runs", "tokens"], rows, note, rules=rules)


def weights_table(content: WeightsRecommendation) -> Table:
    """The weights of every method, and below each their interval where it has one."""
    target, rows = content.target, []
    for row in content.proposals:
        marked = row.method + (" *" if row.method == content.method else "")
        for name, weights in ((marked, row.weights), ("  90%: from", row.low), ("  to", row.high)):
            if weights:
                searched = quantity(row.tokens) if weights is row.weights else ""
                rows.append([name, *(f"{weights[domain]:.1%}"[:-1] for domain in content.mixture), searched])
    title = f"Weights for {target.model}, {quantity(target.tokens)} tokens, %: {content.method}"
    return Table(title, ["method", *content.mixture, "tokens searched"], rows, "* recommended", page_only=1)


def comparison_tables(comparison: WeightsConfirmation) -> list[Table]:
    """Results and cost of all methods at the target."""
    target, reference = comparison.target, comparison.reference
    continued = any(row.general_change is not None for row in comparison.methods)
    results, cost = [], []
    for row in comparison.ranked:
        method = row.method + (" *" if row.recommended else "")
        general = ["" if row.general_change is None else signed(row.general_change, 1)] if continued else []
        measured = [f"{row.value:.4f}", difference(row), signed(row.above_best), *general]
        results.append([method, *measured, f"{row.perplexity:.2f}", prediction(row)])
        searched = quantity(row.search_tokens) if row.search_tokens else "none"
        worst = f"{row.worst_perplexity:.1f} {row.worst}"
        saved = quantity(row.speed.tokens_saved) if row.speed.tokens_saved else ""
        cost.append([method, worst, speed_up(row, comparison), searched, saved])
    measure = "mean loss" if comparison.average == "loss" else "mean perplexity"
    columns = ["method", measure, f"less {reference}'s", "above best", *(["general"] if continued else [])]
    columns += ["perplexity", "predicted loss (measured beside it)"]
    title = f"Measured at {target.steps} steps, {quantity(target.tokens)} tokens, {comparison.seeds} seeds"
    note = f"* recommended; differences to {reference} are paired by seed, with 90% intervals"
    note += "; general: increase of its loss" if continued else ""
    reading = (
        f"worst: perplexity of the domain with the highest loss; speed-up: steps of {reference} over the steps "
        "to its last loss; searched: tokens of the search; saved: tokens by stopping there"
    )
    return [
        Table(title, columns, results, note, page_only=2),
        Table("Cost of the methods", ["method", "worst", "speed-up", "searched", "saved"], cost, reading),
    ]


def domain_losses_table(comparison: WeightsConfirmation) -> Table:
    """The loss of each domain by method."""
    rows = [[row.method, *(f"{loss:.4f}" for loss in row.losses.values())] for row in comparison.ranked]
    title = "Loss of each domain, nats per token, mean of the seeds"
    return Table(title, ["method", *comparison.methods[0].losses], rows)


def comparison_items(comparison: WeightsConfirmation) -> list[Table | str]:
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
    better, recommended = better_reference(comparison), comparison.recommended
    if better is None or recommended is None:
        return ""
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
    return "" if row.predicted is None else f"{row.predicted:.4f} ({signed(row.loss / row.predicted - 1)})"


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
