"""The tables as a page of the report: what holds first, then every table, the paper's numbers beside ours."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from pipeline.paper_tables.show import Shown, numbered, wide
from pipeline.paper_tables.verdict import RULE
from pipeline.report.page import Section, page, paragraph, table, text


def tables_page(study: str, made: list[Shown], provenance: str) -> str:
    """tables.html.

    Args:
        study: its name.
        made: the tables, in order.
        provenance: what they were made from, in sentences.
    """
    counts = Counter(shown.verdict for shown in made)
    said = "; ".join(f"{verdict}: {count}" for verdict, count in counts.most_common())
    summary = f"{len(made)} tables of the papers: {said}."
    rows = [[numbered(shown.name), shown.table.title, shown.verdict, shown.why] for shown in made]
    verdicts = table("Verdicts", ["table", "title", "verdict", "why"], rows, left=4, kind="words")
    rules = "".join(map(paragraph, RULE.split("\n\n")))
    sections = [
        Section("verdicts", "Do they hold here?", f"{verdicts}<h3>How a verdict is reached</h3>{rules}"),
        *map(_section, made),
    ]
    head = f'<p class="lead" id="answer">{text(summary)}</p>{paragraph(provenance, "note")}'
    return page(study, "the papers' tables, beside ours", summary, head, sections)


def _section(shown: Shown) -> Section:
    title = f"{numbered(shown.name)}: {shown.table.title}"
    verdict = f"<p><strong>{text(shown.verdict[0].upper() + shown.verdict[1:])}.</strong> {text(shown.why)}</p>"
    note = paragraph(shown.note, "note") if shown.note else ""
    names, columns, rows = wide(shown)
    cells = ""
    if rows:
        heads = [*names, *(f"{column.name}, {side}" for column in columns for side in column.sides)]
        cells = table(title, heads, [[*key, *chain(*numbers)] for key, numbers in rows], left=len(names))
    return Section(shown.name, title, verdict + note + cells, numbered(shown.name))
