"""Weights on the terminal: what they cost, what was proposed, what the comparison measured."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from pipeline.domains.stages import Stage
from pipeline.wording import percent, quantity


def stage_table(stages: list[Stage]) -> Table:
    """What each stage takes, before anything is run."""
    table = Table(title="all stages", caption="known before anything is run; later rounds are named when they begin")
    table.add_column("stage", no_wrap=True)
    for name in ("runs", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        if stage.name == "all":
            table.add_section()
        table.add_row(stage.name, str(stage.runs), f"{stage.tokens / 1e6:,.1f} M")
    return table


def weights_table(content: dict[str, Any]) -> Table:
    """The weights of every method, and the interval of the answer."""
    target = content["target"]
    table = Table(
        title=f"weights for {target['model']}, {quantity(target['tokens'])} tokens: {content['method']}",
        caption="searched: tokens of the runs that a method read",
    )
    table.add_column("domain", no_wrap=True)
    for row in content["proposals"]:
        table.add_column(row["method"] + (" *" if row["method"] == content["method"] else ""), justify="right")
    table.add_column("90% interval of *", justify="right")
    for domain in content["mixture"]:
        cells = [percent(row["weights"][domain]) for row in content["proposals"]]
        table.add_row(domain, *cells, _interval(content, domain))
    table.add_section()
    table.add_row("searched", *(quantity(row["tokens"]) for row in content["proposals"]), "")
    return table


def comparison_table(content: dict[str, Any]) -> Table:
    """The methods side by side, at the target."""
    target, reference = content["target"], content["reference"]
    measure = "mean loss" if content["average"] == "loss" else "mean perplexity"
    table = Table(
        title=f"measured at {target['steps']} steps, {quantity(target['tokens'])} tokens, {content['seeds']} seeds",
        caption=f"* the answer. Perplexity: exp of the mean loss over domains; worst: of the domain with the highest "
        f"loss. Differences are to {reference}, paired by seed, with 90% intervals. Speed-up: steps of {reference} "
        "over the steps to its last loss. Searched: tokens spent to find the weights; saved: by stopping there. "
        "General: by how much its loss rose in a continual phase",
    )
    table.add_column("method", no_wrap=True)
    columns = (measure, f"less {reference}", "above best", "perplexity", "worst", "speed-up", "searched", "saved")
    continued = any(row["general_change"] is not None for row in content["methods"])
    for name in (*columns, "general") if continued else columns:
        table.add_column(name, justify="right")
    for row in sorted(content["methods"], key=lambda row: row["value"]):
        table.add_row(
            row["method"] + (" *" if row["recommended"] else ""), f"{row['value']:.4f}", difference(row),
            f"{row['above_best']:+.2%}", f"{row['perplexity']:.2f}", f"{row['worst_perplexity']:.2f} {row['worst']}",
            speed_up(row, content), quantity(row["search_tokens"]) if row["search_tokens"] else "none", saved(row),
            *([f"{row['general_change']:+.1%}"] if continued else []),
        )  # fmt: skip
    return table


def outdone(comparison: dict[str, Any]) -> dict[str, Any] | None:
    """The reference's row where the answer measured worse than it, with an interval clear of zero; else None."""
    rows = comparison["methods"]
    if any(row["recommended"] and row["low"] is not None and row["low"] > 0 for row in rows):
        return next(row for row in rows if row["method"] == comparison["reference"])
    return None


def outdone_line(comparison: dict[str, Any]) -> str:
    """What follows from `outdone`, or nothing."""
    if (better := outdone(comparison)) is None:
        return ""
    own = next(row for row in comparison["methods"] if row["recommended"])
    return (
        f"{own['method']}'s weights, the answer before the proof, measured worse than {better['method']}'s: "
        f"{difference(own)}. Take {better['method']}'s"
    )


def notes(content: dict[str, Any]) -> list[str]:
    """What the methods have to say of their proposals, each line once, with whose it is."""
    told: dict[str, list[str]] = {}
    for row in content["proposals"]:
        for line in row["lines"]:
            told.setdefault(line, []).append(row["method"])
    return [f"{', '.join(dict.fromkeys(methods))}: {line}" for line, methods in told.items()]


def difference(row: dict[str, Any]) -> str:
    """The difference to the reference with its interval, as it is read."""
    if row["difference"] is None:
        return ""
    between = "" if row["low"] is None else f" ({row['low']:+.4f} to {row['high']:+.4f})"
    return f"{row['difference']:+.4f}{between}"


def speed_up(row: dict[str, Any], content: dict[str, Any]) -> str:
    """How much sooner the reference's last value was had, as it is read."""
    if row["method"] == content["reference"]:
        return ""
    if row["speed_up"] is None:
        return "not reached" if not row["reached"] else f"reached by {row['reached']} of {content['seeds']} seeds"
    between = "" if row["speed_up_low"] is None else f" ({row['speed_up_low']:.2f} to {row['speed_up_high']:.2f})"
    return f"{row['speed_up']:.2f}{between}"


def saved(row: dict[str, Any]) -> str:
    """Tokens that need not be trained on, as they are read."""
    return quantity(row["tokens_saved"]) if row["tokens_saved"] else ""


def _interval(content: dict[str, Any], domain: str) -> str:
    if domain not in content["low"]:
        return ""
    return f"{percent(content['low'][domain])} to {percent(content['high'][domain])}"
