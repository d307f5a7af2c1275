"""report.html: the answer first, then what it rests on, in one file that opens offline and can be sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.question.schema import Question
from pipeline.report.answer_figures import agreement, places, trade_off_curve
from pipeline.report.domains_page import siblings, write_domains_page
from pipeline.report.evidence import Evidence, read_evidence
from pipeline.report.explorer import explorer_data, explorer_markup
from pipeline.report.head import answer_sentence, head, headline
from pipeline.report.loss_figures import loss_curves, share_curves
from pipeline.report.marks import Figure
from pipeline.report.page import Section, bullets, figure, page, paragraph, text
from pipeline.report.tables import confirmation, cost, held_out, parameters, provenance
from pipeline.study.folder import Study
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
_PLACES = "Runs at the answer and around it, seen by no fit, beside what the law that answered had predicted of each."
_LOSSES = (
    "Every point is a validation loss, every line a law over the points. Each panel is a model size (and a variant), "
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


def write_report(study: Study, question: Question) -> Path:
    """Write report.html into a study's folder from what exists of it; what does not is one sentence there.

    Of a study of several domains: that of the domain that is asked about, and the one in the study's folder that leads
    to all of them.

    Raises:
        StudyError: no plan, or a file that is damaged or of another schema.
        OSError: the file cannot be written.
    """
    evidence = read_evidence(study, question)
    path = study.folder / study.answer("report.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, report(evidence))
    if question.corpora.domains:
        write_domains_page(study, question)
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
    explored = explorer_data(evidence)
    sections = [
        Section("explore", "At other tolerances, sizes and lengths", explorer_markup(evidence, explored)),
        Section("shares", f"Loss against the share of {domain}", drawn(share_curves(evidence), _SHARES)),
        Section("trade-off", f"What {domain} costs on {general}", drawn(trade_off_curve(evidence), _TRADE_OFF)),
        Section("proof", "Is the optimum where it was predicted?", _proof(evidence, drawn)),
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
    name = evidence.study.folder.resolve().name
    own, several = evidence.study.answer("report.html"), bool(evidence.question.corpora.domains)
    above = head(evidence, summary) + siblings(evidence.study.folder, own, several)
    return page(name, headline(evidence), summary, above, sections, shown, explored)


def _proof(evidence: Evidence, drawn: Callable[[Figure | None, str], str]) -> str:
    proof = evidence.proof
    if proof is None:
        return paragraph("Not judged yet: run cptlaw confirm.", "missing")
    said = (
        f"<p><strong>{text(proof['verdict'][0].upper() + proof['verdict'][1:])}.</strong> {text(proof['sentence'])}</p>"
    )
    made = places(evidence)
    return said + (drawn(made, _PLACES) if made is not None else "")


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
