"""Write docs/reproduction.md, every table and claim of the papers beside ours with a verdict; and docs/findings.md.

    CPTLAW_PAPER_TABLES=FOLDER python -m docs.reproduction.page

Takes a second or two; `docs.reproduction.measured` measures what takes longer.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.reproduction.book import DESIGNS, FIRST_DESIGN, L3, L3_CASES, ROOT, TENTH, Book
from docs.reproduction.causes import cause
from docs.reproduction.facts import facts
from docs.reproduction.findings import FINDINGS, findings
from docs.reproduction.own_numbers import sentences
from pipeline.paper_tables.catalogue import READINGS, TABLES
from pipeline.paper_tables.show import PAPERS, numbered, pipes, side_by_side
from pipeline.paper_tables.table import PAPERS_VARIABLE
from pipeline.paper_tables.verdict import HOLDS, IN_ORDER, NOT_HERE, UNKNOWN

PAGE = ROOT / "docs" / "reproduction.md"
NOT_YET = "not measured yet"
VERDICTS = (HOLDS, IN_ORDER, NOT_HERE, UNKNOWN, NOT_YET)
FULL = {
    "dcpt": "D-CPT Law (Que et al., 2024)",
    "dynamics": "Learning dynamics in continual pre-training (Wang et al., 2025)",
    "autoscale": "AutoScale (Kang et al., 2024)",
}


@dataclass(frozen=True)
class Verdict:
    """Our number, the verdict and its reason, of a table or a claim."""

    here: str
    verdict: str
    why: str


def page(book: Book) -> str:
    """The page. Raises ValueError for a table of the papers that is neither made nor a claim."""
    if forgotten := list(book.not_made()):
        raise ValueError(f"{', '.join(forgotten)}: neither made nor in claims.csv")
    tables = {name: _of_table(book, name) for name in TABLES}
    claims = {claim: _of_claim(book, claim) for claim in map(str, book.claims.index)}
    parts = [_HEAD, _summary(book, tables, claims), _COUNTED, _from_where(book)]
    for paper, title in FULL.items():
        names = [name for name in tables if name.startswith(paper)]
        rows = [
            (
                numbered(name),
                TABLES[name].title,
                verdict,
                tables[name].why,
                cause(book, name) if verdict == NOT_HERE else "",
            )
            for name in names
            for verdict in [tables[name].verdict]
        ]
        parts += [f"## {title}", "### Tables", pipes(rows, ["table", "what it shows", "verdict", "why", "cause"])]
        parts += _designs(book, names)
        parts += [part for name in names for part in _numbers(book, name)]
        parts += ["### Claims in the text", *_claims(book, claims, paper)]
        parts += ["Other tables of the paper:", _table_of_rest(book, claims, paper)]
    parts += ["## On losses published by others", *_public(book)]
    parts += ["## What the papers' own numbers say", *(f"- {line}" for line in sentences(book))]
    text = "\n\n".join(filter(None, parts)).replace("\n\n- ", "\n- ")
    return "\n".join(map(_wrapped, text.splitlines())) + "\n"


_HEAD = f"""<!-- Written by docs/reproduction/page.py: do not edit. -->
# The papers' tables and claims, and what came out here

Every table and every number that the texts of three papers state, ours beside it, and a verdict:

- **{HOLDS}**: what the paper states, at the level that it states; or the same number.
- **{IN_ORDER}**: what the paper states, at another level.
- **{NOT_HERE}**: something else; the last column names the cause that was tested. All models here have less than a
  million parameters, and no change of size was tried: where size is the cause, nothing on this page shows it.
- **{UNKNOWN}**: a setting, something that is not printed or not here, or points that do not decide it.
- **{NOT_YET}**: the study that measures it has not been kept yet.

The verdicts of tables are reached in code, by a general rule (`pipeline/paper_tables/verdict.py`) or by a table's own
`judge` beside it. All numbers below are generated, and what the papers print is quoted. [Findings](findings.md) is the
short page. Ours come from the folders of [results](results), each made by one command; a study of your own gives the
same tables: `cptlaw tables STUDY tables.papers=FOLDER`.

Fits have the weak prior of [laws.md](laws.md#how-all-are-fitted), which the papers do not have. Without it
(`prior=False` in `pipeline/paper_tables/dcpt/fits.py`; 2026-11-25) 151 of 608 cells of dcpt-six-long and 306 of 616 of
dcpt-six-small change by more than a thousandth, and no verdict."""
_COUNTED = """One finding is counted once: a number of the text that a table answers is counted with that table, and
numbers that one fact answers alike are one."""


def _of_table(book: Book, name: str) -> Verdict:
    if name in book.tables:
        shown, folder = book.tables[name]
        return Verdict(f"[{folder.name}](results/{folder.name})", shown.verdict, shown.why)
    experiment = READINGS[TABLES[name].reads].experiment
    return Verdict("", NOT_YET, f"cptlaw tables experiment={experiment} tables.run=true")


def _of_claim(book: Book, claim: str) -> Verdict:
    row = book.claims.loc[claim]
    kind, _, name = str(row["how"]).partition(" ")
    words = str(row["words"])
    if kind == "none":
        return Verdict("", UNKNOWN, words)
    if kind == "table":
        if name not in TABLES:
            return Verdict("", NOT_YET, f"{words} {numbered(name)} is not made yet.".strip())
        table = _of_table(book, name)
        return Verdict(numbered(name), table.verdict, words or table.why)
    if (fact := facts()[name](book, claim)) is None:
        return Verdict("", NOT_YET, words)
    return Verdict(fact.here, {True: HOLDS, False: NOT_HERE, None: UNKNOWN}[fact.agrees], words or fact.why)


def _findings(book: Book, judged: dict[str, Verdict], of_claims: bool) -> list[str]:
    """Names of tables and claims that are counted: one finding once.

    A claim that a table answers is that table; claims that one fact answers alike are one.
    """
    counted = {}
    for name in judged:
        how = str(book.claims.loc[name, "how"]) if of_claims else ""
        if not how.startswith("table "):
            single = how in ("", "none") or judged[name].verdict == UNKNOWN
            counted.setdefault(name if single else (how, judged[name].verdict), name)
    return list(counted.values())


def _summary(book: Book, tables: dict[str, Verdict], claims: dict[str, Verdict]) -> str:
    rows = []
    for paper in FULL:
        for what, judged in (("tables", tables), ("claims in the text", claims)):
            counts = Counter(
                judged[name].verdict for name in _findings(book, judged, judged is claims) if name.startswith(paper)
            )
            rows.append([f"{PAPERS[paper]}, {what}", *(counts[verdict] or "" for verdict in VERDICTS)])
    return pipes(rows, ["", *VERDICTS])


def _from_where(book: Book) -> str:
    """The kept studies, and the command that made the tables of each."""
    notes = [
        f"- [{folder.name}](results/{folder.name}): "
        + (folder / "tables.md").read_text(encoding="utf-8").split("\n\n")[1]
        for folder in sorted({folder for _, folder in book.tables.values()})
    ]
    return "\n".join(["Kept studies:", "", *notes])


def _designs(book: Book, names: list[str]) -> Iterator[str]:
    """Verdicts by each design of the six-domain study, and R2 of L3 with and without its constraint."""
    last = DESIGNS["third"]
    shown = [name for name in names if name in book.tables and book.tables[name][1].name == last]
    if not shown or "eta D third 0 300" not in book.measured:
        return
    measured = book.measured
    eta = {
        design: f"{measured[f'eta D {design} 0 300']:.2f} and {measured[f'eta G {design} 0 300']:.2f}"
        for design in ("second", "third")
    }
    yield (
        f"Three designs. The tables come from the third, [{last}](results/{last}). It and the second, "
        f"[{DESIGNS['second']}](results/{DESIGNS['second']}), were registered before their first runs. In the first, "
        f"[{FIRST_DESIGN}](results/{FIRST_DESIGN}), the models had never read the domains, the continual peak was "
        "twice the last rate of pre-training, and a size held out left two. On code its smallest model had a loss of "
        f"{measured['code at 0']:.2f} nats before continual pre-training, which fell by "
        f"{measured['code fall, least']:.2f} to {measured['code fall, most']:.2f} by step 40 of 400 at ratios of "
        f"{TENTH:g} and more; its tables were fitted from there on. In the second most of what tokens bring is a model "
        "that still learns, at every ratio alike; the third has four times its pre-training, annealed to a tenth, and "
        f"goes on at that rate. Without its bound eta is {eta['second']} on domain and general in the second and "
        f"{eta['third']} in the third (medians over the domains); the paper has it above 1."
    )
    rows = [(numbered(name), *(book.by_design[design].get(name, "") for design in DESIGNS)) for name in shown]
    heads = ["first design, from step 40 of 400", "second, from step 300 of 1,200", "third, from step 300 of 1,200"]
    yield pipes(rows, ["table", *heads])
    yield (
        "What the constraints of L3 cost: by eq. 26 (monotone in r) it falls with the ratio everywhere, from the "
        "smallest D that is fitted on, and eta is above 1 (`dcpt-convex`). Mean R2 over the domains so, without the "
        "bound of eta (`dcpt`), and without both (`dcpt-free`, whose gamma and eps are bounded less, too):"
    )
    rows = [
        (
            design,
            f"{least:g} and more" if least else "all",
            first,
            corpus,
            *(f"{measured[f'{law} {corpus} {design} {least:g} {first}']:.4f}" for law in L3),
        )
        for design, least, first in L3_CASES
        for corpus in ("G", "D")
    ]
    yield pipes(rows, ["design", "ratios", "from step", "corpus", *L3])


def _numbers(book: Book, name: str) -> Iterator[str]:
    if name in book.tables and (cells := side_by_side(book.tables[name][0])):
        yield f"<details><summary>{numbered(name)}: {TABLES[name].title}</summary>"
        yield from (book.tables[name][0].note, cells, "</details>")


def _claims(book: Book, claims: dict[str, Verdict], paper: str) -> Iterator[str]:
    """The claims that are judged, then, folded, those that cannot be."""
    judged, others = [], []
    for claim, row in book.claims[book.claims["paper"] == paper].iterrows():
        verdict = claims[str(claim)]
        cells = (row["section"], row["quantity"], f"{row['value']} {row['unit']}".strip(), verdict.here)
        if verdict.verdict == UNKNOWN:
            others.append(_safe((*cells, verdict.why)))
        else:
            judged.append(_safe((*cells, verdict.verdict, verdict.why)))
    head = ["section", "claim", "paper", "here"]
    yield pipes(judged, [*head, "verdict", "why"])
    yield f"<details><summary>{len(others)} numbers of the text that cannot be judged: settings, mostly</summary>"
    yield pipes(others, [*head, "why"])
    yield "</details>"


def _table_of_rest(book: Book, claims: dict[str, Verdict], paper: str) -> str:
    rows = [
        _safe((name.split("_", 1)[1].replace("_", " "), claims[name].here, claims[name].verdict, claims[name].why))
        for name in book.claims.index[book.claims["paper"].isna()]
        if name.startswith(paper)
    ]
    return pipes(rows, ["table", "here", "verdict", "why"])


def _public(book: Book) -> Iterator[str]:
    measured, transfer = book.measured, book.transfer
    yield (
        "The papers' laws on losses measured by others; limits and sources are in `tests/fitting/test_public_bars.py`."
    )
    rows = []
    if "annealing R2" in measured:
        question = "fitted to three schedules, on six others: mean R2, mean error in nats"
        here = f"{measured['annealing R2']:.4f}, {measured['annealing error']:.4f}"
        rows.append(("dynamics, eq. 1", "a 25M model under nine schedules", question, here))
    for row in transfer.query("section == 'public' and question == 'fitted' and law == 'dcpt-free'").itertuples():
        losses = f"Pythia-70M continued on Pile and Python: {row.series}"
        rows.append(("D-CPT without its constraint", losses, "R2 of all points", f"{row.value:.4f}"))
    if "0.6B share" in measured:
        question = "optimum at 0.6 billion tokens from those at 0.3 and 1.2: largest error of a share"
        rows.append(("AutoScale", "GPT-2 Large on seven domains", question, f"{measured['0.6B share']:.4f}"))
    yield pipes(rows, ["law", "losses", "question", "here"])


def _wrapped(line: str) -> str:
    if line.startswith(("|", "#", "<")):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)


def _safe(row: tuple) -> list[str]:
    """Cells as Markdown takes them."""
    return [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]


if __name__ == "__main__":
    if not (folder := Path(os.environ.get(PAPERS_VARIABLE, ""))).joinpath("intext.csv").exists():
        sys.exit(f"{PAPERS_VARIABLE}: give the folder of the papers' numbers, with intext.csv")
    PAGE.write_text(page(Book(folder)), encoding="utf-8")
    FINDINGS.write_text(findings(Book(folder)), encoding="utf-8")
    print(f"{PAGE}: {len(TABLES)} tables; {FINDINGS}")
