"""Why a table does not hold: for each one, what was tested on kept points, and what came out."""

from __future__ import annotations

from collections.abc import Callable

from docs.reproduction.book import Book
from pipeline.paper_tables.dynamics.facts import judge_potentials
from pipeline.paper_tables.verdict import HOLDS, IN_ORDER, UNKNOWN

NOT_TESTED = "No cause was tested yet: `python -m docs.reproduction.measured` makes it from later points."


def cause(book: Book, name: str) -> str:
    """The cause that was tested for a table that does not hold, and the outcome; a sentence or two."""
    if name in book.late:
        return _late(book, name)
    test = _TESTS.get(name)
    return test(book) if test and book.measured else NOT_TESTED


def _late(book: Book, name: str) -> str:
    verdict, why = book.late[name]
    counted = why.split(" (required")[0].split("; ")[0].rstrip(".")
    if verdict in (HOLDS, IN_ORDER):
        return f"Early points: from step 120 of 400 and ratios of .1 on it {verdict} ({counted})."
    if verdict == UNKNOWN:
        return f"Early points in part: from step 120 of 400 and ratios of .1 on it {verdict} ({counted})."
    return f"Not early points alone: from step 120 and ratios of .1 on it {verdict} ({counted})."


def _potentials(book: Book) -> str:
    cells = book.tables["dynamics-figure-5"][0].cells
    counts = []
    for setting, rows in cells.groupby("setting", sort=False):
        why = judge_potentials(rows)[1]
        counts.append(f"{setting} {why.split('so in ')[1].split(' pairs')[0]} pairs that do not tie are as stated")
    return (
        f"The schedule: {', '.join(counts)}. One seed of each; the standard deviation over seeds of a final loss is "
        f"{book.measured['seed sd']:.4f} nats."
    )


def _held_out(book: Book) -> str:
    near, error = (
        {
            (case, corpus): book.measured[f"schedules {case} {corpus} {what}"]
            for case in ("predicted", "fitted", "late")
            for corpus in ("D_pt", "D_cpt")
        }
        for what in ("near", "error")
    )
    return (
        f"On D_cpt too few schedules: fitted to all, eq. 4 follows {near['fitted', 'D_cpt']:.0f} of 16 curves within "
        f"1% (predicted {near['predicted', 'D_cpt']:.0f}). On D_pt its form: fitted to all, "
        f"{near['fitted', 'D_pt']:.0f} of 16, mean error {error['fitted', 'D_pt']:.1%}. Not early points: from step 64 "
        f"on, mean errors are {error['late', 'D_pt']:.1%} and {error['late', 'D_cpt']:.1%}."
    )


def _open_model(book: Book) -> str:
    return "Not the unknown past: with it the error is larger. The second half of the steps is an extrapolation."


def _inflection(book: Book) -> str:
    late = " and ".join(f"{book.measured[f'inflection {domain} 100']:.2f}" for domain in ("code", "math"))
    return f"Not early points: from the second half of the steps on it is {late}. No other cause was tested."


def _search(book: Book) -> str:
    p = [f"{book.measured[f'autoscale p {steps}']:.2g} ({steps})" for steps in (176, 264, 352, 528)]
    return (
        "A search without power: whether the domain whose tokens change matters has p = "
        f"{', '.join(p)} by steps, and {book.measured['autoscale p without code']:.2g} without code at the last; "
        "but for code, AutoScale extrapolates from differences that are not above noise."
    )


_TESTS: dict[str, Callable[[Book], str]] = {
    "dynamics-figure-5": _potentials,
    "dynamics-figure-10": _held_out,
    "dynamics-figure-18": _open_model,
    "dcpt-figure-12": _inflection,
    **dict.fromkeys(("autoscale-1", "autoscale-6", "autoscale-7"), _search),
}
"""Name of TABLES -> the outcome of its test, from docs/results/reproduction.csv."""
