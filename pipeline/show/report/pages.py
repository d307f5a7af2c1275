"""report.html: the answer and its evidence in one file that opens offline; the page that links several domains' own."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pipeline.show.conclusion import Conclusion
from pipeline.show.report.colours import CORPUS_COLOURS, GREY
from pipeline.show.report.evidence import Evidence
from pipeline.show.report.marks import Figure, Key, axis, bar, dots, name_axis, panel
from pipeline.show.report.page import page
from pipeline.show.report.study_page import study_page
from pipeline.show.report.tables import record
from pipeline.show.report.weights_page import weights_page
from pipeline.show.table import Table
from pipeline.study.artifacts import ConfirmationRow, Recommendation, read_if_there
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


@dataclass(frozen=True)
class _Answer:
    domain: str
    place: str
    """Path of its page, from the study's folder on."""
    content: Recommendation | None
    """Its recommendation.json; None: it has none."""
    confirmed: list[ConfirmationRow]
    """Rows of confirmation.json, of the laws that answered, if it is of this answer."""
    conclusion: Conclusion

    @property
    def domain_ratio(self) -> float | None:
        mixture = self.content and self.content.mixture
        return float(mixture[self.domain]) if mixture and self.domain in mixture else None

    @property
    def ratio(self) -> str:
        return "" if self.domain_ratio is None else percent(self.domain_ratio)

    @property
    def interval(self) -> str:
        return f"{self.content.low:.1%} to {self.content.high:.1%}" if self.content else ""


def _domains_page(context: Context) -> str:
    """The page of a study of several domains: the answer for every domain, and a link to its page."""
    folder, question = context.study.folder, context.question
    answers = [_read(context, domain) for domain in question.corpora.domains]
    general, name = question.corpora.general, folder.resolve().name
    answered = sum(answer.content is not None for answer in answers)
    known = [answer for answer in answers if answer.domain_ratio is not None]
    return page(
        "domains.html", (folder, "report.html"),
        question.marked(f"{len(answers)} domains, each beside {general}: {answered} answered"),
        " ".join(_sentence(answer, name) for answer in answers),
        None, True, cards=[_card(folder, answer) for answer in answers],
        ratios=_ratios(known) if known else None, answers=_table(answers, general),
        **record(Evidence(dataclasses.replace(context, study=Study(folder)))),
    )  # fmt: skip


def _read(context: Context, domain: str) -> _Answer:
    question = dataclasses.replace(
        context.question, corpora=dataclasses.replace(context.question.corpora, domain=domain)
    )
    study = Study(context.study.folder, f"answers/{domain}")
    evidence = Evidence(dataclasses.replace(context, question=question, study=study))
    content, rows = read_if_there(Recommendation, study), [row for row in evidence.confirmations if row.recommended]
    return _Answer(domain, study.answer("report.html"), content, rows, evidence.conclusion)


def _sentence(answer: _Answer, name: str) -> str:
    if answer.content is None:
        return f"{answer.domain}: not answered; cptlaw fit and recommend studies/{name} corpora.domain={answer.domain}."
    if answer.domain_ratio is None:
        return f"{answer.domain}: none, {answer.content.binding}."
    return f"{answer.domain}: {answer.conclusion.headline} ({answer.interval})."


def _card(folder: Path, answer: _Answer) -> tuple[str, str, str, str]:
    address = quote(answer.place) if (folder / answer.place).exists() else ""
    value, more = "not yet", "no recommendation"
    if answer.domain_ratio is not None:
        value = f"{answer.ratio} {answer.domain}" if answer.conclusion.is_known else "not known yet"
        more = f"90% interval {answer.interval}; confirmed: {answer.conclusion.verdict}"
    elif answer.content is not None:
        value, more = "none", answer.content.binding
    return answer.domain, value, more, address


def _table(answers: list[_Answer], general: str) -> Table:
    rows = []
    for answer in answers:
        if (content := answer.content) is None:
            rows.append([answer.domain, *["not yet"] * 7])
            continue
        losses = [content.predicted.get(corpus) for corpus in (answer.domain, general)]
        predicted = [f"{loss.loss:.4f} ({loss.low:.4f} to {loss.high:.4f})" if loss else "" for loss in losses]
        run = f"{content.target.model}, {quantity(content.target.D * 1e9)} tokens"
        laws = ", ".join(dict.fromkeys(content.law.values()))
        ratio = ["none", ""] if answer.domain_ratio is None else [answer.ratio, answer.interval]
        rows.append([answer.domain, run, laws, *ratio, *predicted, answer.conclusion.verdict])
    columns = ["domain", "run", "laws", "domain ratio", "90% interval", "loss on it", f"loss on {general}"]
    title = "The answers, losses in nats per token with 90% intervals"
    return Table(title, [*columns, "confirmation"], rows, left=3)


def _ratios(known: list[_Answer]) -> Figure:
    places, y = name_axis(answer.domain for answer in known)
    x = [100 * (answer.domain_ratio or 0.0) for answer in known]
    contents = [answer.content for answer in known if answer.content is not None]
    sides = [[100 * (end or 0.0) for end in ends] for ends in zip(*((of.low, of.high) for of in contents))]
    marks = dots(x, places, CORPUS_COLOURS[1], 11, "circle", "%{x:.1f}%") | {"error_x": bar(sides[0], x, sides[1])}
    runs = [(100 * row.domain_ratio, place) for answer, place in zip(known, places) for row in answer.confirmed]
    made = dots([x for x, _ in runs], [y for _, y in runs], GREY, 15, "circle-open", "confirmation run at %{x:.1f}%")
    keys = [Key("recommended domain ratio, with 90% interval", CORPUS_COLOURS[1], "dot")]
    keys += [Key("confirmation run", GREY, "ring")] if runs else []
    across = axis("domain ratio", range=[-3, 103], dtick=25, ticksuffix="%")
    return Figure(keys, [panel("", "", [made, marks] if runs else [marks], across, y, 80 + 34 * len(known))])
