"""report.html of a question about weights: the answer first, then what it rests on."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from pipeline.mixture_weights.artifacts import Proposal, WeightsConfirmation, WeightsRecommendation
from pipeline.mixture_weights.doremi_figure import weights_by_step
from pipeline.mixture_weights.figures import (
    colours,
    confirmation_curves,
    domain_curves,
    losses_by_method,
    weights_by_method,
    weights_by_scale,
)
from pipeline.mixture_weights.terminal_tables import difference, notes, outdone, outdone_line, saved, speed_up
from pipeline.question.schema import Question
from pipeline.report.domains_page import siblings
from pipeline.report.evidence import Evidence
from pipeline.report.marks import Figure
from pipeline.report.number_format import percent, quantity
from pipeline.report.page import Section, block, bullets, figure, heading, lead, page, paragraph, table
from pipeline.report.tables import cost, provenance
from pipeline.study.collect import read_points
from pipeline.study.folder import Study
from training.durable import write_whole

_WEIGHTS = "Share of the training tokens that each way to find weights proposes; the diamond is the answer."
_SCALE = (
    "AutoScale continues the optima of the runs at two scales to the target. With offsets the path also knows what the "
    "other domains are worth to a domain; the comparison below judges between the two."
)
_CURVES = (
    "Runs in which one domain's tokens alone change, by the factor below; the value is the mean over all domains "
    "over that of the base run. A steep curve earns its domain more tokens."
)
_LOSSES = (
    "Every proposal trained at the target; each seed is the same first weights and the same order of text for all."
)
_TRAINING = (
    "The mean over domains and seeds while those runs train. The learning rate falls to the end, so a loss is reached "
    "sooner than by a run planned to end there; all methods have that alike."
)
_PROXIES = (
    "DoReMi's weights move in every step to the domains in which a proxy is furthest behind its reference. They swing, "
    "since a domain that weighs more is soon learnt; their mean over the run is the answer."
)
_READING = (
    "Losses are in nats a token on fixed validation text of each domain; lower is better, and 0.01 nats is about 1% of "
    "perplexity. Means are over the domains, each with the same weight unless weights.value says otherwise.",
    "Perplexity is exp of the mean loss over the domains (a geometric mean), and for the worst domain exp of its loss.",
    "Differences are seed by seed, with a 90% interval of Student's t over the seeds: it knows the noise of training, "
    "not that of the weights' own search, whose interval stands with the weights.",
    "Speed-up is the target's steps over the steps after which the mean is at the reference's last.",
    "Tokens searched are those of the runs that a method read; runs that two methods read are counted for both.",
)
_NO_COMPARISON = "The weights are not compared yet: run cptlaw confirm."


def write_weights_report(study: Study, question: Question) -> Path:
    """Write report.html into a study's folder from what exists of it.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
    """
    evidence = Evidence(study, question, study.read_plan(), {})
    missing, content, comparison = [], None, None
    if WeightsRecommendation.path(study).exists():
        content = WeightsRecommendation.read(study)
    else:
        missing.append("There is no recommendation yet: run cptlaw recommend.")
    if WeightsConfirmation.path(study).exists():
        comparison = WeightsConfirmation.read(study)
    else:
        missing.append(_NO_COMPARISON)
    path = study.folder / "report.html"
    write_whole(path, _report(evidence, content, comparison, missing))
    return path


def _report(
    evidence: Evidence,
    content: WeightsRecommendation | None,
    comparison: WeightsConfirmation | None,
    missing: list[str],
) -> str:
    shown: list[Figure] = []

    def drawn(made: Figure | None, caption: str, why: str = "None of the methods has one.") -> Markup:
        if made is None:
            return paragraph(why, "missing")
        shown.append(made)
        return figure(made, caption)

    sections, curves = [], None
    if content is not None:
        sections += [
            Section("weights", "Weights by method", drawn(weights_by_method(content), _WEIGHTS) + _weights(content)),
            Section("scale", "Weights against scale", drawn(weights_by_scale(content), _SCALE)),
            Section("curves", "What one domain's tokens do", drawn(domain_curves(content), _CURVES)),
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
    said = notes(content) if content else []
    known = bullets(said) if said else paragraph("Nothing.")
    last = heading("Notes of the methods") + known + heading("How to read this") + bullets(_READING)
    last += provenance(evidence)
    sections += [Section("cost", "What it cost", cost(evidence)), Section("notes", "Notes", last)]
    better = outdone(comparison) if comparison else None
    mixture = better.weights if better else content.mixture if content else {}
    line, summary = _headline(content, mixture), _summary(content, comparison, missing)
    head = (_bar(mixture) if mixture else Markup()) + lead(summary)
    head += siblings(evidence.study.folder, "report.html")
    return page(evidence.study.folder.resolve().name, line, summary, head, sections, shown)


def _headline(content: WeightsRecommendation | None, mixture: dict[str, float]) -> str:
    if content is None:
        return "which weights? No recommendation yet"
    doing = "pre-train" if content.goal.phase == "pretrain" else "continue"
    return f"{doing} {content.target.model} on {_mixture(mixture)}"


def _mixture(mixture: dict[str, float]) -> str:
    parts = [f"{percent(share)} {domain}" for domain, share in sorted(mixture.items(), key=lambda item: -item[1])]
    return ", ".join(parts)


def _summary(content: WeightsRecommendation | None, comparison: WeightsConfirmation | None, missing: list[str]) -> str:
    if content is None:
        return " ".join(missing)
    line = outdone_line(comparison) if comparison else ""
    words = [f"{line}, as above."] if line else [f"These weights are {content.method}'s."]
    words.append(f"For {quantity(content.target.tokens)} tokens ({content.target.steps} steps).")
    if comparison is not None and not line:
        ranked, own = comparison.ranked, comparison.recommended
        if own and own.difference is not None:
            best = f"the lowest of {len(ranked)} methods"
            if own is not ranked[0]:
                best = f"{own.above_best:.2%} above the lowest, {ranked[0].method}'s"
            words.append(
                f"Measured with {comparison.seeds} seeds, their mean {comparison.average} over the domains is "
                f"{own.value:.4f}, {difference(own)} beside {comparison.reference} and {best}."
            )
    return " ".join([*words, *missing])


def _bar(mixture: dict[str, float]) -> Markup:
    ink = colours(list(mixture))
    return block("mixture", [(f"{percent(ratio)} {domain}", ratio, ink[domain]) for domain, ratio in mixture.items()])


def _weights(content: WeightsRecommendation) -> Markup:
    def cell(row: Proposal, domain: str) -> str:
        between = f" ({percent(row.low[domain])} to {percent(row.high[domain])})" if row.low else ""
        return percent(row.weights[domain]) + between

    columns = ["method", *content.mixture, "tokens searched"]
    rows = [
        [row.method, *(cell(row, domain) for domain in content.mixture), quantity(row.tokens)]
        for row in content.proposals
    ]
    return table("Weights, with 90% intervals where a method has them", columns, rows)


def _comparison(comparison: WeightsConfirmation) -> Markup:
    measure = "mean loss" if comparison.average == "loss" else "mean perplexity"
    columns = [
        *("method", measure, f"less {comparison.reference}", "above the best", "perplexity", "worst domain"),
        *("its perplexity", "speed-up", "tokens searched", "tokens saved"),
    ]
    rows = [
        [
            *(row.method, f"{row.value:.4f}", difference(row), f"{row.above_best:+.2%}"),
            *(f"{row.perplexity:.2f}", row.worst, f"{row.worst_perplexity:.2f}", speed_up(row, comparison)),
            *(quantity(row.search_tokens), saved(row.speed)),
        ]
        for row in comparison.ranked
    ]
    each = [[row.method, *(f"{loss:.4f}" for loss in row.losses.values())] for row in comparison.ranked]
    domains = list(comparison.methods[0].losses)
    return table("At the target", columns, rows) + table(
        "Loss of each domain, nats a token, mean of the seeds", ["method", *domains], each
    )
