"""The page of fitted laws, for one domain."""

import dataclasses
from typing import Any

from pipeline.goals.ratio.answer_warnings import by_weight
from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.goals.registry import goal_of
from pipeline.plan.validation_noise import windows_line
from pipeline.question.phases import pieces
from pipeline.show.report.answer_figures import agreement, places, rounds, trade_off_curve
from pipeline.show.report.colours import CORPUS_COLOURS
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.explorer import explorer
from pipeline.show.report.loss_figures import loss_curves, ratio_curves
from pipeline.show.report.page import page
from pipeline.show.report.tables import dates, held_out_table, parameter_tables, record, spent
from pipeline.show.tables import (
    answer_table,
    candidates_table,
    confirmation_table,
    is_too_far,
    named_interval,
    ratio_interval,
)
from pipeline.study.artifacts import Recommendation
from pipeline.study.number_format import laws_used, percent, quantity, signed, weights_used

_BINDING = {True: "Binding constraint", False: "Binding constraint, by the prediction alone"}
"""What limits the answer, by whether it is known."""


def study_page(evidence: Evidence) -> str:
    """The page as HTML."""
    study, content, explored = evidence.study, evidence.recommendation, explorer(evidence)
    figures = (ratio_curves, trade_off_curve, places, rounds, loss_curves, agreement)
    rows = evidence.confirmations
    return page(
        "study.html", (study.folder, study.answer("report.html")), evidence.conclusion.headline,
        answer_sentence(evidence), explored and explored.data, bool(evidence.question.corpora.domains),
        evidence=evidence,
        answer=_answer(evidence, content) if content else None,
        explored=explored,
        confirmation=confirmation_table(rows) if rows else None,
        held_out=held_out_table(evidence),
        parameters=parameter_tables(evidence),
        warnings=_warnings(evidence),
        windows=windows_line(evidence.context) if content else "",
        **{figure.__name__: figure(evidence) for figure in figures}, **record(evidence),
    )  # fmt: skip


def answer_sentence(evidence: Evidence) -> str:
    """The answer in a few sentences, plain text."""
    content, known = evidence.recommendation, evidence.conclusion
    if content is None:
        return " ".join(evidence.missing)
    target, law, asked = content.target, laws_used(content.law, content.weights), _asked(evidence, content)
    run = f"{target.model} for {quantity(target.D * 1e9)} tokens"
    if one_ratio(content):
        return " ".join(known.lines[1:])
    if evidence.domain_ratio is None:
        return f"No {evidence.ratio_name} is feasible for {run} by {law}: {content.binding}. {asked}"
    peak = f" at a peak learning rate of {content.peak_learning_rate:g}" if content.peak_learning_rate else ""
    predicted = " and ".join(f"{loss.loss:.4f} on {corpus}" for corpus, loss in content.predicted.items())
    ratio = evidence.domain_ratio if known.domain_ratio is None else known.domain_ratio
    interval = named_interval(content, evidence.domain, known.domain_ratio)
    mixture = f"{percent(ratio)} {evidence.domain} and {percent(1 - ratio)} {evidence.general}"
    begins = f"Train {run} on" if known.is_known else " ".join([*known.lines[1:], f"Predicted for {run}:"])
    words = [
        f"{begins} {mixture}{peak} (domain ratio: {interval}).",
        f"{asked} {_BINDING[known.is_known]}: {content.binding}.",
    ]
    if not is_too_far(content):
        words.append(f"Losses predicted by {law}, nats per token: {predicted}.")
    if known.domain_ratio is not None:
        words.append(f"These losses are those of the predicted ratio, {percent(evidence.domain_ratio)}.")
    if evidence.answered:
        measured = [
            f"{row.measured:.4f} on {row.corpus} (error of the prediction: {signed(row.relative_error)})"
            for row in evidence.answered
        ]
        words.append(f"The confirmation run measured {' and '.join(measured)}: {known.verdict}.")
    return " ".join([*words, *evidence.missing])


def _asked(evidence: Evidence, content: Recommendation) -> str:
    question = evidence.question
    goal = dataclasses.replace(question.goal, tolerance=content.goal.tolerance)
    return goal_of(question).constraint(dataclasses.replace(question, goal=goal))


def _answer(evidence: Evidence, content: Recommendation) -> dict[str, Any]:
    """What the head of the page shows: parts of a bar, cards, tables."""
    known, kind = evidence.conclusion, content.goal.kind
    by_runs, parts = known.domain_ratio, []
    ratio = evidence.domain_ratio if by_runs is None else by_runs
    if ratio is not None:
        of = "" if known.is_known else " predicted"
        of += "," if by_runs is None else " by the runs;"
        names = f"{evidence.domain}{of} {named_interval(content, evidence.domain, by_runs)}", evidence.general
        colours = reversed(CORPUS_COLOURS)
        parts = [(f"{percent(of)} {name}", of, ink) for of, name, ink in zip((ratio, 1 - ratio), names, colours)]
    averaged = {law for of in content.weights.values() for law in of}
    named = {law: law + " (not in the average)" * bool(averaged and law not in averaged) for law in content.answers}
    others = [
        f"{named[law]} {percent(other.domain_ratio)} ({ratio_interval(other, kind)})"
        if other.domain_ratio is not None
        else f"{named[law]}: {other.binding}"
        for law, other in content.answers.items()
        if {law} != {*content.law.values()} and not one_ratio(content)
    ]
    note = f"Domain ratio by one law alone: {'; '.join(others)}." if others else ""
    own = [row for row in evidence.confirmations if row.recommended and row.corpus == evidence.domain]
    colours = dict(zip(evidence.corpora, CORPUS_COLOURS))
    return {
        "parts": parts,
        "interval": (content.low or 0.0, content.high or 0.0) if by_runs is None else None,
        "cards": _cards(evidence, content),
        "table": answer_table(content, evidence.answered, colours),
        "note": note,
        "candidates": candidates_table(content, evidence.domain, {row.model: row.measured for row in own}),
    }


def _cards(evidence: Evidence, content: Recommendation) -> list[tuple[str, str, str, str]]:
    """Name, value, more and address of each card."""
    target = content.target
    weights = "; ".join(f"on {corpus} {weights_used(of)}" for corpus, of in content.weights.items() if len(of) > 1)
    phase, question = evidence.question.target_phase, evidence.question
    sequence = phase.sequence_length or question.sequence_length
    batch = f"{target.steps:,} steps of {phase.global_batch:,} x {sequence:,} tokens"
    schedule = ", ".join(dict.fromkeys(piece.shape for piece in pieces(phase)))
    tested = f"weights by held-out errors: {weights}" if weights else "it answers alone"
    known = evidence.conclusion
    return [
        ("Model", target.model, f"N = {quantity(target.N * 1e9)} (non-embedding)", ""),
        ("Tokens", quantity(target.D * 1e9), f"{batch}", ""),
        ("Peak learning rate", f"{phase.peak_learning_rate:g}", f"schedule: {schedule}", ""),
        ("Confirmation", known.verdict, known.inside, ""),
        ("Cost", *spent(evidence, target), ""),
        ("Date", *dates(evidence), ""),
        ("Law", laws_used(content.law, content.weights), tested, ""),
        (_BINDING[known.is_known], "" if one_ratio(content) else content.binding, _asked(evidence, content), ""),
    ]


def _warnings(evidence: Evidence) -> list[str]:
    """What limits the answer, in the order of its weight."""
    measured = "; a confirmation run measured there" if evidence.answered else ""
    warnings = [
        line.replace("listed in the report", 'listed below in "Parameters of the laws"')
        + measured * ("beyond the points" in line)
        for line in (evidence.recommendation.warnings if evidence.recommendation else [])
    ]
    laws: dict[tuple[str, ...], list[str]] = {}
    for law, of_corpus in evidence.fits.items():
        for line in dict.fromkeys(line for fit in of_corpus.values() for line in fit.warnings):
            corpora = [corpus for corpus, fit in of_corpus.items() if line in fit.warnings]
            laws.setdefault((line, *corpora), []).append(law)
    warnings += [f"{', '.join(names)} on {', '.join(corpora)}: {line}" for (line, *corpora), names in laws.items()]
    # Of points that were kept without their runs no run is known to be done.
    states = [] if evidence.kept_steps else [evidence.study.state(run) for run in evidence.plan]
    for state, words in (("failed", "failed"), ("open", "not done")):
        if count := states.count(state):
            line = f"{count} of {len(states)} planned runs are {words}"
            warnings.append(f"{line}: see cptlaw status {evidence.study.word}")
    return by_weight(warnings)
