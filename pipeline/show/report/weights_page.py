"""report.html of a question about mixture weights."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from pipeline.goals.weights.artifacts import Proposal, WeightsConfirmation, WeightsRecommendation
from pipeline.question.schema import Question
from pipeline.show.report.domains_page import siblings
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import Figure
from pipeline.show.report.page import Section, block, bullets, figure, heading, lead, page, paragraph, table
from pipeline.show.report.tables import cost, provenance
from pipeline.show.report.weights_figures import (
    colours,
    confirmation_curves,
    domain_curves,
    losses_by_method,
    weights_by_method,
    weights_by_scale,
    weights_by_step,
)
from pipeline.show.terminal.weights_tables import (
    better_reference,
    difference,
    notes,
    prediction,
    reference_warning,
    saved,
    speed_up,
)
from pipeline.study.collect import read_points
from pipeline.study.folder import Study
from pipeline.study.number_format import percent, quantity
from training.durable import write_whole

_WEIGHTS = "The weights that each method proposes, as ratios of training tokens; diamond: recommended."
_SCALE = (
    "AutoScale extrapolates the optima of the runs at two scales to the target. With offsets the path includes the "
    "effect of the other domains on a domain; the comparison below shows which path is better."
)
_CURVES = (
    "Runs in which one domain's tokens alone change, by the factor below; the value is the mean over all domains "
    "over that of the base run. A domain with a steep curve gets more tokens."
)
_LOSSES = "Every proposal trained at the target; a seed gives all of them the same initial weights and order of text."
_TRAINING = (
    "The mean over domains and seeds while those runs train. The learning rate decays to the end, so a run that is "
    "planned to end earlier reaches a lower loss by then; that holds for all methods."
)
_PROXIES = (
    "In every step DoReMi increases the weights of the domains with the largest excess loss of the proxy over its "
    "reference. They oscillate, because the excess of a domain falls with its weight; their mean is the proposal."
)
_READING = (
    "Losses are in nats per token on fixed validation text of each domain; lower is better, and 0.01 nats is about 1% "
    "of perplexity. Means are over the domains, each with the same weight unless weights.value says otherwise.",
    "Perplexity is exp of the mean loss over the domains (a geometric mean), and for the worst domain exp of its loss.",
    "Differences are paired by seed, with a 90% Student's t interval over the seeds, which includes the noise of "
    "training, not that of the search, whose interval is given with the weights.",
    "Speed-up: steps of the target over the steps after which the mean reaches the reference's last value.",
    "Tokens searched are those of the runs that a method read; runs that two methods read count for both.",
)
_NO_COMPARISON = "The weights are not compared yet: run cptlaw confirm."


def write_weights_report(study: Study, question: Question) -> Path:
    """Write report.html into a study's folder from what exists of it.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
    """
    evidence = Evidence(study, question, study.read_plan(), {})
    content = WeightsRecommendation.read(study) if WeightsRecommendation.path(study).exists() else None
    comparison = WeightsConfirmation.read(study) if WeightsConfirmation.path(study).exists() else None
    path = study.folder / "report.html"
    write_whole(path, _report(evidence, content, comparison))
    return path


def _report(evidence: Evidence, content: WeightsRecommendation | None, comparison: WeightsConfirmation | None) -> str:
    shown: list[Figure] = []

    def drawn(made: Figure | None, caption: str, why: str = "No method of this study has this figure.") -> Markup:
        if made is None:
            return paragraph(why, "missing")
        shown.append(made)
        return figure(made, caption)

    sections, curves = [], None
    if content is not None:
        sections += [
            Section("weights", "Weights by method", drawn(weights_by_method(content), _WEIGHTS) + _weights(content)),
            Section("scale", "Weights against scale", drawn(weights_by_scale(content), _SCALE)),
            Section("curves", "Effect of one domain's tokens", drawn(domain_curves(content), _CURVES)),
        ]
        if (proxies := weights_by_step(content)) is not None:
            sections.append(Section("doremi", "DoReMi's proxies", drawn(proxies, _PROXIES)))
    if comparison is not None:
        if (evidence.study.folder / "points.parquet").exists():
            curves = confirmation_curves(comparison, read_points(evidence.study))
        losses = drawn(losses_by_method(comparison), _LOSSES) + _comparison(comparison)
        why = "The points of these runs are not collected: run cptlaw collect."
        sections.append(Section("methods", "The methods compared", losses))
        sections.append(Section("training", "Losses while training", drawn(curves, _TRAINING, why)))
    else:
        sections.append(Section("methods", "The methods compared", paragraph(_NO_COMPARISON, "missing")))
    lines = notes(content) if content else []
    last = heading("Notes of the methods") + (bullets(lines) if lines else paragraph("None."))
    last += heading("How to read this") + bullets(_READING) + provenance(evidence)
    sections += [Section("cost", "Cost", cost(evidence)), Section("notes", "Notes", last)]
    better = better_reference(comparison) if comparison else None
    mixture = better.weights if better else content.mixture if content else {}
    line, summary = _headline(content, mixture), _summary(content, comparison)
    ink = colours(list(mixture))
    parts = [(f"{percent(weight)} {domain}", weight, ink[domain]) for domain, weight in mixture.items()]
    head = (block("mixture", parts) if parts else Markup()) + lead(summary)
    head += siblings(evidence.study.folder, "report.html")
    return page(evidence.study.folder.resolve().name, line, summary, head, sections, shown)


def _headline(content: WeightsRecommendation | None, mixture: dict[str, float]) -> str:
    if content is None:
        return "no recommendation of mixture weights yet"
    phase = "pre-train" if content.goal.phase == "pretrain" else "continue pre-training of"
    parts = [f"{percent(weight)} {domain}" for domain, weight in sorted(mixture.items(), key=lambda item: -item[1])]
    return f"{phase} {content.target.model} on {', '.join(parts)}"


def _summary(content: WeightsRecommendation | None, comparison: WeightsConfirmation | None) -> str:
    missing = [] if comparison else [_NO_COMPARISON]
    if content is None:
        return " ".join(["There is no recommendation yet: run cptlaw recommend.", *missing])
    line = reference_warning(comparison) if comparison else ""
    sentences = [f"{line}, as above."] if line else [f"These weights are {content.method}'s."]
    sentences.append(f"For {quantity(content.target.tokens)} tokens ({content.target.steps} steps).")
    if comparison is not None and not line:
        ranked, row = comparison.ranked, comparison.recommended
        if row and row.difference is not None:
            above = f"{row.above_best:.2%} above the lowest, {ranked[0].method}'s"
            best = f"the lowest of {len(ranked)} methods" if row is ranked[0] else above
            sentences.append(
                f"Measured with {comparison.seeds} seeds, their mean {comparison.average} over the domains is "
                f"{row.value:.4f}, {difference(row)} beside {comparison.reference} and {best}."
            )
    return " ".join([*sentences, *missing])


def _weights(content: WeightsRecommendation) -> Markup:
    def cell(row: Proposal, domain: str) -> str:
        between = f" ({percent(row.low[domain])} to {percent(row.high[domain])})" if row.low else ""
        return percent(row.weights[domain]) + between

    columns = ["method", *(domains := list(content.mixture)), "tokens searched"]
    rows = [[row.method, *(cell(row, name) for name in domains), quantity(row.tokens)] for row in content.proposals]
    return table("Weights, with 90% intervals where a method has them", columns, rows)


def _comparison(comparison: WeightsConfirmation) -> Markup:
    measure = "mean loss" if comparison.average == "loss" else "mean perplexity"
    columns = [
        *("method", measure, f"less {comparison.reference}", "above the best", "perplexity", "worst domain"),
        *("its perplexity", "speed-up", "tokens searched", "tokens saved", "predicted loss (measured beside it)"),
    ]
    rows = [
        [
            *(row.method, f"{row.value:.4f}", difference(row), f"{row.above_best:+.2%}"),
            *(f"{row.perplexity:.2f}", row.worst, f"{row.worst_perplexity:.2f}", speed_up(row, comparison)),
            *(quantity(row.search_tokens), saved(row.speed), prediction(row)),
        ]
        for row in comparison.ranked
    ]
    each = [[row.method, *(f"{loss:.4f}" for loss in row.losses.values())] for row in comparison.ranked]
    domains = list(comparison.methods[0].losses)
    return table("At the target", columns, rows) + table(
        "Loss of each domain, nats per token, mean of the seeds", ["method", *domains], each
    )
