"""report.html: the answer first, then what it rests on, in one file that opens offline and can be sent."""

from __future__ import annotations

from pathlib import Path

from pipeline.answer_figures import agreement, trade_off_curve
from pipeline.evidence import Evidence, read_evidence
from pipeline.figures import loss_curves, share_curves
from pipeline.marks import CORPUS_COLOURS, Figure
from pipeline.report_page import Section, bullets, figure, page, paragraph, table, text
from pipeline.report_tables import confirmation, cost, held_out, parameters, provenance
from pipeline.schema import Question
from pipeline.study import Study
from pipeline.wording import laws_used, percent, quantity
from training.durable import write_whole

_SHARES = (
    "Loss at the end of a run against the share of the domain in its mixture. The first panel is the run "
    "that the answer is for: no fit has seen that model at that length. The others are the fitted sizes, on"
    " their own data."
)
_TRADE_OFF = (
    "The answer's run as the domain share goes from 0% to 100%, as written beside the line: left is better "
    "on the domain, low is better on general. The answer is where the solid line meets the tolerated rise."
)
_LOSSES = (
    "Every point is a validation loss, every line a law over the points. Each panel is a model size, "
    "colours are shares of the domain in the mixture."
)
_AGREEMENT = "Small dots are the points that the laws were fitted to; diamonds are confirmation runs, seen by no fit."
_READING = (
    "Losses are in nats a token on fixed validation text; lower is better, and 0.01 nats is about 1% of perplexity.",
    "A 90% interval says where a newly measured loss lies nine times in ten. It joins the bootstrap over "
    "runs with the errors that the law made on held-out runs; it does not know of changes in the data or "
    "the optimizer.",
    "N is the number of non-embedding parameters, D the tokens of the continual phase. Shares are of training tokens.",
    "A law is asked beyond its points whenever the answer's model is larger or its run longer than those "
    "fitted: the warnings say how far, the confirmation says how well that went.",
    "Error of a prediction is predicted / measured - 1: above zero, the law expected a higher loss.",
)
_ANSWER_COLUMNS = (
    *("loss on, nats a token", "before", "predicted", "90% interval"),
    *("measured", "change", "error of prediction", "inside"),
)


def write_report(study: Study, question: Question) -> Path:
    """Write report.html into a study's folder from what exists of it; what does not is one sentence there.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
        OSError: the file cannot be written.
    """
    evidence = read_evidence(study, question)
    path = study.folder / study.answer("report.html")
    write_whole(path, report(evidence))
    return path


def report(evidence: Evidence) -> str:
    """The report's HTML."""
    shown: list[Figure] = []

    def drawn(made: Figure | None, caption: str) -> str:
        if made is None:
            why = evidence.missing[0] if evidence.missing else "No law reads only what is known of this run."
            return paragraph(f"Nothing to draw yet. {why}", "missing")
        shown.append(made)
        return figure(made, caption)

    domain, general = evidence.domain, evidence.general
    sections = [
        Section("shares", f"Loss against the share of {domain}", drawn(share_curves(evidence), _SHARES)),
        Section("trade-off", f"What {domain} costs on {general}", drawn(trade_off_curve(evidence), _TRADE_OFF)),
        Section("losses", "Losses while training", drawn(loss_curves(evidence), _LOSSES)),
        Section(
            "agreement",
            "Predicted against measured",
            drawn(agreement(evidence), _AGREEMENT) + confirmation(evidence),
        ),
        Section("held-out", "Errors on held-out runs", held_out(evidence)),
        Section("parameters", "Parameters of the laws", parameters(evidence)),
        Section("cost", "What it cost", cost(evidence)),
        Section("notes", "Notes", _notes(evidence) + provenance(evidence)),
    ]
    summary = answer_sentence(evidence)
    title = f"{evidence.study.folder.resolve().name}: {headline(evidence)}"
    return page(title, summary, _head(evidence, summary), sections, shown)


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
    content, domain, general = evidence.recommendation, evidence.domain, evidence.general
    if content is None:
        return " ".join(evidence.missing)
    target, law = content["target"], laws_used(content["law"])
    asked = f"The loss on {general} may rise by {100 * content['goal']['tolerance']:.3g}%."
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
    return " ".join([*words, *evidence.missing])


def _head(evidence: Evidence, summary: str) -> str:
    line = headline(evidence)
    name = evidence.study.folder.resolve().name
    parts = [
        f'<p class="over">cptlaw report of the study {text(name)}</p>',
        f"<h1>{text(line[0].upper() + line[1:])}</h1>",
    ]
    if evidence.share is not None:
        parts.append(_mixture_bar(evidence, evidence.share))
    parts.append(f'<p class="lead" id="answer">{text(summary)}</p>')
    if evidence.recommendation is not None:
        parts += [_cards(evidence), _answer_table(evidence)]
    return "".join(parts)


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
    spots = "".join(
        f'<span><span class="spot" style="background:{colour}"></span>{text(words)}</span>' for words, colour in names
    )
    return (
        '<div class="mixture"><div class="shares">'
        f'<div style="width:{100 * share:.2f}%;background:{vermilion}"></div>'
        f'<div style="flex:1;background:{blue}"></div></div>'
        f'<div class="interval"><i style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"></i></div>'
        f'<div class="names">{spots}</div></div>'
    )


def _cards(evidence: Evidence) -> str:
    content = evidence.recommendation or {}
    target, tolerance = content["target"], content["goal"]["tolerance"]
    errors = "; ".join(
        f"{content['law'][corpus]} on {corpus} {errors[content['law'][corpus]]:.2%}"
        for corpus, errors in content["held_out_error"].items()
    )
    size = f"N = {quantity(target['N'] * 1e9)} (non-embedding), {quantity(target['D'] * 1e9)} tokens"
    tested = f"mean held-out error: {errors}" if errors else "no law could be tested on held-out runs"
    tolerated = f"tolerated rise of the loss on {evidence.general}: {tolerance:+.1%}"
    cards = [
        ("Model", target["model"], size),
        ("Law", " and ".join(dict.fromkeys(content["law"].values())), tested),
        ("What binds", content["binding"], tolerated),
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
    shown = table(_ANSWER_COLUMNS, rows) if rows else ""
    return shown + (paragraph(note, "note") if others else "")


def _notes(evidence: Evidence) -> str:
    warnings = list((evidence.recommendation or {}).get("warnings", []))
    for law, of_corpus in evidence.fits.items():
        warnings += [f"{law} on {corpus}: {line}" for corpus, fit in of_corpus.items() for line in fit.warnings]
    states = [evidence.study.state(run) for run in evidence.plan]
    for state, words in (("failed", "failed"), ("open", "not done")):
        if count := states.count(state):
            warnings.append(f"{count} of {len(states)} planned runs are {words}: see cptlaw status")
    known = bullets(warnings) if warnings else paragraph("None.")
    return f"<h3>Warnings</h3>{known}<h3>How to read this</h3>{bullets(_READING)}"
