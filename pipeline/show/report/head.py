"""Head of the report: the answer in a sentence, a bar, four cards and a table."""

from __future__ import annotations

import dataclasses

from markupsafe import Markup

from pipeline.goals.registry import goal_of
from pipeline.question.schema import Question
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import CORPUS_COLOURS
from pipeline.show.report.page import block, lead, paragraph, table
from pipeline.study.artifacts import Recommendation
from pipeline.study.number_format import laws_used, percent, quantity, weights_used

_ANSWER_COLUMNS = (
    *("loss on, nats per token", "before", "predicted", "90% interval"),
    *("measured", "change", "error of prediction", "inside"),
)


def headline(evidence: Evidence) -> str:
    """The answer in one line, plain text."""
    if evidence.recommendation is None:
        return f"which domain ratio of {evidence.domain}? No recommendation yet"
    model = evidence.recommendation.target.model
    if evidence.domain_ratio is None:
        return f"no mixture keeps {model} within the tolerance"
    return f"train {model} on {_mixture(evidence, evidence.domain_ratio)}"


def answer_sentence(evidence: Evidence) -> str:
    """The answer in a few sentences, plain text."""
    content, domain = evidence.recommendation, evidence.domain
    if content is None:
        return " ".join(evidence.missing)
    target, law = content.target, laws_used(content.law)
    asked = _asked(evidence.question, content)
    run = f"{target.model} for {quantity(target.D * 1e9)} tokens"
    if evidence.domain_ratio is None:
        return f"No domain ratio of {domain} is feasible for {run} by {law}: {content.binding}. {asked}"
    peak = f" at a peak learning rate of {content.peak_learning_rate:g}" if content.peak_learning_rate else ""
    words = [
        f"Train {run} on {_mixture(evidence, evidence.domain_ratio)}{peak} "
        f"(90% interval of the domain ratio: {content.low:.1%} to {content.high:.1%}).",
        f"{asked} Binding constraint: {content.binding}.",
    ]
    predicted = [f"{loss.loss:.4f} on {corpus}" for corpus, loss in content.predicted.items()]
    words.append(f"Losses predicted by {law}, nats per token: {' and '.join(predicted)}.")
    if evidence.answered:
        errors = [f"(error of the prediction: {row.relative_error:+.2%})" for row in evidence.answered]
        measured = [f"{row.measured:.4f} on {row.corpus} {error}" for row, error in zip(evidence.answered, errors)]
        words.append(f"The confirmation run measured {' and '.join(measured)}.")
    elif evidence.confirmations:
        words.append("The confirmation runs are of another domain ratio: run cptlaw confirm again.")
    if evidence.outcome is not None:
        words.append(f"Optimum: {evidence.outcome.verdict} (Confirmation, below, says why).")
    return " ".join([*words, *evidence.missing])


def head(evidence: Evidence, summary: str) -> Markup:
    """Markup of the head below the headline; summary: `answer_sentence`."""
    content, ratio = evidence.recommendation, evidence.domain_ratio
    bar = Markup() if content is None or ratio is None else _mixture_bar(evidence, content, ratio)
    rest = Markup() if content is None else _cards(evidence, content) + _answer_table(evidence, content)
    return bar + lead(summary) + rest


def _asked(question: Question, content: Recommendation) -> str:
    goal = dataclasses.replace(question.goal, tolerance=content.goal.tolerance)
    return goal_of(question).constraint(dataclasses.replace(question, goal=goal))


def _mixture(evidence: Evidence, ratio: float) -> str:
    return f"{percent(ratio)} {evidence.domain} and {percent(1 - ratio)} {evidence.general}"


def _mixture_bar(evidence: Evidence, content: Recommendation, ratio: float) -> Markup:
    blue, vermilion = CORPUS_COLOURS
    low, high = content.low or 0.0, content.high or 0.0
    parts = (
        (f"{percent(ratio)} {evidence.domain}, 90% interval {low:.1%} to {high:.1%}", ratio, vermilion),
        (f"{percent(1 - ratio)} {evidence.general}", 1 - ratio, blue),
    )
    return block("mixture", parts, (low, high))


def _cards(evidence: Evidence, content: Recommendation) -> Markup:
    target = content.target
    weights = "; ".join(f"on {corpus} {weights_used(of_law)}" for corpus, of_law in content.weights.items() if of_law)
    size = f"N = {quantity(target.N * 1e9)} (non-embedding), {quantity(target.D * 1e9)} tokens"
    tested = f"weights by held-out errors: {weights}" if weights else "it answers alone"
    cards = [
        ("Model", target.model, size),
        ("Law", " and ".join(dict.fromkeys(content.law.values())), tested),
        ("Binding constraint", content.binding, _asked(evidence.question, content)),
        ("Confirmed", "not yet", "no run at the recommended domain ratio has been compared"),
    ]
    if rows := evidence.answered:
        worst = max(abs(row.relative_error) for row in rows)
        inside = f"{sum(row.inside for row in rows)} of {len(rows)} losses inside their 90% interval"
        general = [row for row in rows if row.corpus == evidence.general]
        increases = ((row.corpus, row.measured / content.loss_before[row.corpus] - 1) for row in general)
        rises = (f"loss increase on {corpus}: {increase:+.2%}" for corpus, increase in increases)
        cards[-1] = ("Confirmed", f"within {worst:.2%}", "; ".join([inside, *rises]))
    return block("cards", [(*card, "") for card in cards])


def _answer_table(evidence: Evidence, content: Recommendation) -> Markup:
    measured = {row.corpus: row for row in evidence.answered}
    rows = []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        if (loss := content.predicted.get(corpus)) is None:
            continue
        before = content.loss_before[corpus]
        predicted = (f"{before:.4f}", f"{loss.loss:.4f}", f"{loss.low:.4f} to {loss.high:.4f}")
        confirmed = ("not yet", "", "", "")
        if row := measured.get(corpus):
            change, error = f"{row.measured / before - 1:+.2%}", f"{row.relative_error:+.2%}"
            confirmed = (f"{row.measured:.4f}", change, error, "yes" if row.inside else "no")
        rows.append([(corpus, colour), *predicted, *confirmed])
    others = [
        f"{law} {percent(other.domain_ratio)} (90% interval {other.low:.1%} to {other.high:.1%})"
        if other.domain_ratio is not None
        else f"{law}: {other.binding}"
        for law, other in content.answers.items()
        if {law} != {*content.law.values()}
    ]
    note = f"Domain ratio by one law alone: {'; '.join(others)}."
    shown = table(f"The answer, {content.target.model}", _ANSWER_COLUMNS, rows) if rows else Markup()
    return shown + (paragraph(note, "note") if others else "") + _candidates(evidence, content)


def _candidates(evidence: Evidence, content: Recommendation) -> Markup:
    """Of goal=compute: the predicted and the measured loss of every model within the compute budget."""
    own = [row for row in evidence.confirmations if row.recommended and row.corpus == evidence.domain]
    measured = {row.model: row for row in own}
    rows = []
    for row in content.candidates:
        size = (quantity(row.N * 1e9), quantity(row.D * 1e9), percent(row.domain_ratio))
        predicted = (f"{row.predicted:.4f}", f"{row.low:.4f} to {row.high:.4f}")
        confirmed = f"{measured[row.model].measured:.4f}" if row.model in measured else "not yet"
        rows.append([row.model, *size, *predicted, confirmed])
    columns = ["model", "N (non-embedding)", "tokens", "domain ratio", "predicted", "90% interval", "measured"]
    title = f"The models within the compute budget, loss on {evidence.domain}"
    return table(title, columns, rows) if rows else Markup()
