"""The head of the report: the answer in a sentence, a bar, four cards and a table."""

from __future__ import annotations

import dataclasses

from pipeline.question.goal import goal_of
from pipeline.report.colours import both
from pipeline.report.evidence import Evidence
from pipeline.report.marks import CORPUS_COLOURS
from pipeline.report.number_format import laws_used, percent, quantity
from pipeline.report.page import paragraph, spot, table, text

_ANSWER_COLUMNS = (
    *("loss on, nats a token", "before", "predicted", "90% interval"),
    *("measured", "change", "error of prediction", "inside"),
)


def headline(evidence: Evidence) -> str:
    """The answer in one line, plain text."""
    if evidence.recommendation is None:
        return f"how much {evidence.domain}? No recommendation yet"
    model = evidence.recommendation["target"]["model"]
    if evidence.share is None:
        return f"no mixture keeps {model} within the tolerance"
    return f"continue {model} on {_mixture(evidence, evidence.share)}"


def answer_sentence(evidence: Evidence) -> str:
    """The answer in a few sentences, plain text."""
    content, domain = evidence.recommendation, evidence.domain
    if content is None:
        return " ".join(evidence.missing)
    target, law = content["target"], laws_used(content["law"])
    asked = _asked(evidence)
    run = f"{target['model']} for {quantity(target['D'] * 1e9)} tokens"
    if evidence.share is None:
        return f"No share of {domain} is within reach of {run} by {law}: {content['binding']}. {asked}"
    words = [
        f"Continue {run} on {_mixture(evidence, evidence.share)} "
        f"(90% interval of the share of {domain}: {content['low']:.1%} to {content['high']:.1%}).",
        f"{asked} What binds: {content['binding']}.",
    ]
    predicted = [f"{loss['loss']:.4f} on {corpus}" for corpus, loss in content["predicted"].items()]
    words.append(f"Losses of {' and '.join(predicted)} (nats a token) are predicted by {law}.")
    if evidence.answered:
        measured = [
            f"{row['measured']:.4f} on {row['corpus']} (prediction off by {row['relative_error']:+.2%})"
            for row in evidence.answered
        ]
        words.append(f"A run that no fit had seen measured {' and '.join(measured)}.")
    elif evidence.confirmations:
        words.append("The confirmation was made for another share: run cptlaw confirm again.")
    if evidence.proof is not None:
        words.append(f"Optimum: {evidence.proof['verdict']}.")
    return " ".join([*words, *evidence.missing])


def head(evidence: Evidence, summary: str) -> str:
    """Markup of the head below the headline; summary: `answer_sentence`."""
    parts = []
    if evidence.share is not None:
        parts.append(_mixture_bar(evidence, evidence.share))
    parts.append(f'<p class="lead" id="answer">{text(summary)}</p>')
    if evidence.recommendation is not None:
        parts += [_cards(evidence), _answer_table(evidence)]
    return "".join(parts)


def _asked(evidence: Evidence) -> str:
    question, answered = evidence.question, (evidence.recommendation or {})["goal"]
    goal = dataclasses.replace(question.goal, tolerance=answered["tolerance"])
    return goal_of(question).constraint(dataclasses.replace(question, goal=goal))


def _mixture(evidence: Evidence, share: float) -> str:
    return f"{percent(share)} {evidence.domain} and {percent(1 - share)} {evidence.general}"


def _mixture_bar(evidence: Evidence, share: float) -> str:
    content = evidence.recommendation or {}
    blue, vermilion = CORPUS_COLOURS
    low, high = content["low"], content["high"]
    names = (
        (f"{percent(share)} {evidence.domain}, 90% interval {low:.1%} to {high:.1%}", vermilion),
        (f"{percent(1 - share)} {evidence.general}", blue),
    )
    spots = "".join(f"<span>{spot(colour)}{text(words)}</span>" for words, colour in names)
    place = f"left:min({100 * low:.2f}%,100% - 6px);width:{100 * (high - low):.2f}%"
    return (
        '<div class="mixture"><div class="shares">'
        f'<div style="width:{100 * share:.2f}%;background:{both(vermilion)}"></div>'
        f'<div style="flex:1;background:{both(blue)}"></div></div>'
        f'<div class="interval"><i style="{place}"></i></div>'
        f'<div class="names">{spots}</div></div>'
    )


def _cards(evidence: Evidence) -> str:
    content = evidence.recommendation or {}
    target = content["target"]
    errors = "; ".join(
        f"{content['law'][corpus]} on {corpus} {errors[content['law'][corpus]]:.2%}"
        for corpus, errors in content["held_out_error"].items()
    )
    size = f"N = {quantity(target['N'] * 1e9)} (non-embedding), {quantity(target['D'] * 1e9)} tokens"
    tested = f"mean held-out error: {errors}" if errors else "no law could be tested on held-out runs"
    cards = [
        ("Model", target["model"], size),
        ("Law", " and ".join(dict.fromkeys(content["law"].values())), tested),
        ("What binds", content["binding"], _asked(evidence)),
        ("Confirmed", "not yet", "no run at the recommended share has been compared"),
    ]
    if rows := evidence.answered:
        worst = max(abs(row["relative_error"]) for row in rows)
        inside = f"{sum(row['inside'] for row in rows)} of {len(rows)} losses inside their 90% interval"
        rises = (
            f"{row['corpus']} rose by {row['measured'] / content['loss_before'][row['corpus']] - 1:+.2%}"
            for row in rows
            if row["corpus"] == evidence.general
        )
        cards[-1] = ("Confirmed", f"within {worst:.2%}", "; ".join([inside, *rises]))
    body = "".join(
        f'<div class="card"><span>{text(name)}</span><b>{text(value)}</b><span>{text(more)}</span></div>'
        for name, value, more in cards
    )
    return f'<div class="cards">{body}</div>'


def _answer_table(evidence: Evidence) -> str:
    content = evidence.recommendation or {}
    measured = {row["corpus"]: row for row in evidence.answered}
    rows = []
    for corpus, colour in zip(evidence.corpora, CORPUS_COLOURS):
        if (loss := content["predicted"].get(corpus)) is None:
            continue
        before = content["loss_before"][corpus]
        said = (f"{before:.4f}", f"{loss['loss']:.4f}", f"{loss['low']:.4f} to {loss['high']:.4f}")
        found = ("not yet", "", "", "")
        if row := measured.get(corpus):
            change, error = f"{row['measured'] / before - 1:+.2%}", f"{row['relative_error']:+.2%}"
            found = (f"{row['measured']:.4f}", change, error, "yes" if row["inside"] else "no")
        rows.append([(corpus, colour), *said, *found])
    others = [
        f"{law} {percent(other['domain_ratio'])} (90% interval {other['low']:.1%} to {other['high']:.1%})"
        if other["domain_ratio"] is not None
        else f"{law}: {other['binding']}"
        for law, other in content["answers"].items()
        if {law} != {*content["law"].values()}
    ]
    note = f"By one law alone the share of {evidence.domain} would be: {'; '.join(others)}."
    shown = table(f"The answer, {content['target']['model']}", _ANSWER_COLUMNS, rows) if rows else ""
    return shown + (paragraph(note, "note") if others else "") + _candidates(evidence)


def _candidates(evidence: Evidence) -> str:
    """Of goal=compute: every model for so much compute, what was predicted of it and what it measured."""
    own = [row for row in evidence.confirmations if row["recommended"] and row["corpus"] == evidence.domain]
    measured = {row["model"]: row for row in own}
    rows = []
    for row in (evidence.recommendation or {}).get("candidates") or []:
        found = measured.get(row["model"])
        said = (f"{row['predicted']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}")
        size = (quantity(row["N"] * 1e9), quantity(row["D"] * 1e9), percent(row["share"]))
        rows.append([row["model"], *size, *said, f"{found['measured']:.4f}" if found else "not yet"])
    columns = [
        "model",
        "N (non-embedding)",
        "tokens",
        f"share of {evidence.domain}",
        "predicted",
        "90% interval",
        "measured",
    ]
    return table(f"The models for so much compute, loss on {evidence.domain}", columns, rows) if rows else ""
