"""report.html: the answer and its evidence in one file that opens offline; the page that links several domains' own."""

import dataclasses
import shlex
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import numpy as np

from pipeline.goals.ratio.answering_laws import one_ratio
from pipeline.show.report.colours import CORPUS_COLOURS, GREY
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import Figure, Key, axis, bar, dots, name_axis, panel
from pipeline.show.report.page import page
from pipeline.show.report.study_page import study_page
from pipeline.show.report.tables import record
from pipeline.show.report.weights_page import weights_page
from pipeline.show.table import Table
from pipeline.show.tables import is_too_far, named_interval, ratio_interval
from pipeline.study.context import Context
from pipeline.study.folder import Study
from pipeline.study.number_format import percent, quantity
from training.durable import write_whole


def write_pages(context: Context) -> list[Path]:
    """Write report.html; what does not exist yet is one sentence there.

    Of several domains: the page of the question's domain, then the one in the study's folder that links to all. Raises
    StudyError without a plan or where a file is damaged or of another schema, OSError where one cannot be written.
    """
    study, question = context.study, context.question
    whole = study.folder / "report.html"
    if question.goal_kind.many_domains:
        return [_write(whole, weights_page(Evidence(context)))]
    path = _write(study.folder / study.answer("report.html"), study_page(Evidence(context)))
    return [path, _write(whole, _domains_page(context))] if question.corpora.domains else [path]


def _write(path: Path, page: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def _domains_page(context: Context) -> str:
    folder, question = context.study.folder, context.question
    answers = [_evidence(context, domain) for domain in question.corpora.domains]
    general = question.corpora.general
    answered = sum(answer.written is not None for answer in answers)
    known = [answer for answer in answers if _domain_ratio(answer) is not None]
    return page(
        "domains.html", (folder, "report.html"),
        question.marked(f"{len(answers)} domains, each beside {general}: {answered} answered"),
        " ".join(_sentence(answer) for answer in answers),
        None, True, cards=[_card(folder, answer) for answer in answers],
        ratios=_ratios(known) if known else None, answers=_table(answers, general),
        **record(Evidence(dataclasses.replace(context, study=Study(folder)))),
    )  # fmt: skip


def _evidence(context: Context, domain: str) -> Evidence:
    corpora = dataclasses.replace(context.question.corpora, domain=domain)
    question = dataclasses.replace(context.question, corpora=corpora)
    study = Study(context.study.folder, f"answers/{domain}")
    return Evidence(dataclasses.replace(context, question=question, study=study))


def _domain_ratio(answer: Evidence) -> float | None:
    mixture = answer.written and not one_ratio(answer.written) and answer.written.mixture
    return float(mixture[answer.domain]) if mixture and answer.domain in mixture else None


def _sentence(answer: Evidence) -> str:
    content, domain = answer.written, answer.domain
    if content is None:
        words = answer.study.word, shlex.quote(f"corpora.domain={domain}")
        fit, recommend = (" ".join(["cptlaw", verb, *words]) for verb in ("fit", "recommend"))
        return f"{domain}: not answered; run {fit}, then {recommend}."
    if _domain_ratio(answer) is None:
        return f"{domain}: {one_ratio(content) or f'none, {content.binding}'}."
    known = answer.conclusion
    return f"{domain}: {known.headline} ({named_interval(content, domain, known.domain_ratio)})."


def _card(folder: Path, answer: Evidence) -> tuple[str, str, str, str]:
    content, ratio, place = answer.written, _domain_ratio(answer), answer.study.answer("report.html")
    value, more = "not yet", "no recommendation"
    if content is not None and ratio is not None:
        known = answer.conclusion
        ratio = ratio if known.domain_ratio is None else known.domain_ratio
        value = f"{percent(ratio)} {answer.domain}" if known.is_known else "not known yet"
        more = f"{named_interval(content, answer.domain, known.domain_ratio)}; confirmation: {known.verdict}"
    elif content is not None:
        value, more = ("not known yet", one_ratio(content)) if one_ratio(content) else ("none", content.binding)
    return answer.domain, value, more, quote(place) if (folder / place).exists() else ""


def _table(answers: list[Evidence], general: str) -> Table:
    rows = []
    for answer in answers:
        if (content := answer.written) is None:
            rows.append([answer.domain, *["not yet"] * 7])
            continue
        losses = [content.predicted.get(corpus) for corpus in (answer.domain, general)]
        predicted = [f"{loss.loss:.4f} ({loss.low:.4f} to {loss.high:.4f})" if loss else "" for loss in losses]
        predicted = ["not known"] * 2 if is_too_far(content) else predicted
        run = f"{content.target.model}, {quantity(content.target.D * 1e9)} tokens"
        laws = ", ".join(dict.fromkeys(content.law.values()))
        ratio = _domain_ratio(answer)
        none = "not known" if one_ratio(content) else "none"
        interval = ratio_interval(content, content.goal.kind).removeprefix("90% interval ")
        given = [none, ""] if ratio is None else [percent(ratio), interval]
        rows.append([answer.domain, run, laws, *given, *predicted, answer.conclusion.verdict])
    columns = ["domain", "run", "laws", "domain ratio", "90% interval", "loss on it", f"loss on {general}"]
    title = "The answers, losses in nats per token with 90% intervals"
    return Table(title, [*columns, "confirmation"], rows, left=3)


def _ratios(known: list[Evidence]) -> Figure:
    places, y = name_axis(answer.domain for answer in known)
    x = [100 * (_domain_ratio(answer) or 0.0) for answer in known]
    contents = [answer.written for answer in known if answer.written is not None]
    sides = [[100 * (end or 0.0) for end in ends] for ends in zip(*((of.low, of.high) for of in contents))]
    marks = dots(x, places, CORPUS_COLOURS[1], 11, "circle", "%{x:.1f}%") | {"error_x": bar(sides[0], x, sides[1])}
    measured = [[100 * row.domain_ratio for row in answer.confirmations if row.recommended] for answer in known]
    runs, at = [*chain(*measured)], np.repeat(places, [len(of) for of in measured])
    made = dots(runs, at, GREY, 15, "circle-open", "confirmation run at %{x:.1f}%")
    keys = [Key("recommended domain ratio, with 90% interval", CORPUS_COLOURS[1], "dot")]
    keys += [Key("confirmation run", GREY, "ring")] if runs else []
    across = axis("domain ratio", range=[-3, 103], dtick=25, ticksuffix="%")
    return Figure(keys, [panel("", "", [made, marks] if runs else [marks], across, y, 80 + 34 * len(known))])
