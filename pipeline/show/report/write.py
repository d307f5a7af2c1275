"""report.html: the answer and its evidence in one file that opens offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from pipeline.question.schema import Question
from pipeline.show.report.answer_figures import agreement, places, rounds, trade_off_curve
from pipeline.show.report.domains_page import siblings, write_domains_page
from pipeline.show.report.evidence import Evidence, read_evidence
from pipeline.show.report.explorer import explorer_data, explorer_markup
from pipeline.show.report.head import answer_sentence, head, headline
from pipeline.show.report.loss_figures import loss_curves, ratio_curves
from pipeline.show.report.marks import Figure
from pipeline.show.report.page import Section, bullets, figure, heading, judged, page, paragraph
from pipeline.show.report.tables import confirmation, cost, held_out, parameters, provenance
from pipeline.study.folder import Study
from training.durable import write_whole

_RATIOS = (
    "Loss at the end of a run against its domain ratio. The first panel is the run of the question, with the "
    "confirmation runs, which no fit has seen. The others are the fitted sizes and their runs."
)
_TRADE_OFF = (
    "The run of the question at domain ratios from 0% to 100%, as labelled. Left is a lower loss on the domain, low is "
    "a lower loss on general. The answer is where the solid line meets the allowed loss increase."
)
_PLACES = (
    "Confirmation runs at and around the answer, with the prediction of the law that gave it. No fit has seen them."
)
_ROUNDS = (
    "Every dot is a round: what was known of the answer when the next runs were chosen (by the posterior of the laws, "
    "and where that is within the tolerance by the recommendation), against what the runs before had cost, with the "
    "pre-training of all models but the target."
)
_LOSSES = (
    "Every point is a validation loss, every line a fitted law. Each panel is a model size (and a variant); "
    "colours are domain ratios."
)
_AGREEMENT = "Small dots are fitted points; diamonds are confirmation runs, which no fit has seen."
_READING = (
    "Losses are in nats per token on fixed validation text; lower is better, and 0.01 nats is about 1% of perplexity.",
    "A 90% prediction interval holds the loss of a new run nine times in ten. It comes from the errors on held-out "
    "runs and from how far the laws differ; without runs to hold out, from the bootstrap. It does not cover changes of "
    "the data or of the optimizer.",
    "N is the number of non-embedding parameters, D the tokens of the CPT run. Ratios are of training tokens.",
    "The answer is an extrapolation where its model is larger or its run longer than those fitted: the warnings say "
    "how far, and the confirmation measures the error.",
    "Error of a prediction is predicted / measured - 1: above zero, the predicted loss is too high.",
)


def write_report(study: Study, question: Question) -> Path:
    """Write report.html into a study's folder; what does not exist yet is one sentence there.

    Of a study of several domains: the page of the question's domain, and the page in the study's folder that links to
    the pages of all domains.

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

    def drawn(made: Figure | None, caption: str) -> Markup:
        if made is None:
            why = evidence.missing[0] if evidence.missing else "Each law reads a column that is unknown of this run."
            return paragraph(f"Nothing to draw yet. {why}", "missing")
        shown.append(made)
        return figure(made, caption)

    domain, general = evidence.domain, evidence.general
    explored = explorer_data(evidence)
    sections = [
        Section("explore", "Other tolerances, sizes and lengths", explorer_markup(evidence, explored)),
        Section("ratios", f"Loss against the domain ratio of {domain}", drawn(ratio_curves(evidence), _RATIOS)),
        Section(
            "trade-off", f"Loss on {domain} against loss on {general}", drawn(trade_off_curve(evidence), _TRADE_OFF)
        ),
        Section("confirmation", "Confirmation", _confirmation(evidence, drawn)),
        *_rounds(evidence, drawn),
        Section("losses", "Loss curves of the runs", drawn(loss_curves(evidence), _LOSSES)),
        Section(
            "agreement", "Predicted against measured", drawn(agreement(evidence), _AGREEMENT) + confirmation(evidence)
        ),
        Section("held-out", "Held-out errors", held_out(evidence)),
        Section("parameters", "Parameters of the laws", parameters(evidence)),
        Section("cost", "Cost", cost(evidence)),
        Section("notes", "Notes", _notes(evidence) + provenance(evidence)),
    ]
    summary = answer_sentence(evidence)
    name = evidence.study.folder.resolve().name
    own, several = evidence.study.answer("report.html"), bool(evidence.question.corpora.domains)
    above = head(evidence, summary) + siblings(evidence.study.folder, own, several)
    return page(name, headline(evidence), summary, above, sections, shown, explored)


def _confirmation(evidence: Evidence, drawn: Callable[[Figure | None, str], Markup]) -> Markup:
    outcome = evidence.outcome
    if outcome is None:
        return paragraph("Not confirmed yet: run cptlaw confirm.", "missing")
    made = places(evidence)
    return judged(outcome.verdict, outcome.sentence) + (drawn(made, _PLACES) if made is not None else "")


def _rounds(evidence: Evidence, drawn: Callable[[Figure | None, str], Markup]) -> list[Section]:
    made = rounds(evidence)
    return [Section("rounds", "Rounds of chosen runs", drawn(made, _ROUNDS))] if made is not None else []


def _notes(evidence: Evidence) -> Markup:
    warnings = list(evidence.recommendation.warnings if evidence.recommendation else [])
    for law, of_corpus in evidence.fits.items():
        warnings += [f"{law} on {corpus}: {line}" for corpus, fit in of_corpus.items() for line in fit.warnings]
    states = [evidence.study.state(run) for run in evidence.plan]
    for state, words in (("failed", "failed"), ("open", "not done")):
        if count := states.count(state):
            warnings.append(f"{count} of {len(states)} planned runs are {words}: see cptlaw status")
    known = bullets(warnings) if warnings else paragraph("None.")
    return heading("Warnings") + known + heading("How to read this") + bullets(_READING)
