"""Why a table does not hold: for each one, what was tested on kept points, and what came out."""

from __future__ import annotations

import json
from collections.abc import Callable

from docs.reproduction.book import Book
from pipeline.paper_tables.dynamics.facts import judge_potentials

NOT_TESTED = "No cause was tested yet."


def cause(book: Book, name: str) -> str:
    """The cause that was tested for a table that does not hold, and the outcome; a sentence or two."""
    test = _TESTS.get(name)
    return test(book) if test and book.measured else NOT_TESTED


def _last_design(name: str) -> Callable[[Book], str]:
    """The outcome of `tested_causes.last_design` for a table."""
    cases = {
        "eta": ("the bound eta > 1", "with eq. 26 and without eta > 1"),
        "free": ("the constraints", "without both (gamma and eps bounded less, too)"),
        "late": ("early points", "from step 600 of 1,200 on"),
        "inner": ("the folds that hold out ratio 0", "on the folds that fit ratio 0"),
        "inner eta": (
            "the bound eta > 1 together with the folds that hold out ratio 0",
            "on the folds that fit ratio 0 without eta > 1",
        ),
    }

    def test(book: Book) -> str:
        counted, causes = [], []
        for case, (cause, words) in cases.items():
            if f"{name} {case} decided" in book.measured:
                right, decided = (book.measured[f"{name} {case} {what}"] for what in ("right", "decided"))
                counted.append(f"{words} {right:.0f} of {decided:.0f} decided pairs are as stated")
                # What holds without one bound holds without both.
                causes += [cause] if right >= 0.8 * decided and not (case == "free" and causes) else []
        return f"{_sentence(causes) or 'Not what was tried'}: {', '.join(counted)}." if counted else NOT_TESTED

    return test


def _sentence(causes: list[str]) -> str:
    words = ", or ".join(causes)
    return f"{words[:1].upper()}{words[1:]}"


def _potentials(book: Book) -> str:
    cells = book.tables["dynamics-figure-5"][0].cells
    counts = []
    for setting, rows in cells.groupby("setting", sort=False):
        why = judge_potentials(rows)[1]
        counts.append(f"{setting} {why.split('so in ')[1].split(' pairs')[0]} pairs that do not tie are as stated")
    seeds, pairs, decided, right, rise = (
        book.measured[f"figure 5 {what}"] for what in ("seeds", "pairs", "decided", "right", "largest rise")
    )
    return (
        f"The schedule: {', '.join(counts)}. Not one seed: by the means of {seeds:.0f} with re-warm-up "
        f"{right:.0f} of {decided:.0f} ({pairs - decided:.0f} tie), and more potential raises the loss by up to "
        f"{rise:.4f} nats."
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
    error = {
        (case, corpus): book.measured[f"open model {case} {corpus} error"]
        for case in ("predicted", "late", "fitted")
        for corpus in ("D_pt", "D_cpt")
    }
    return (
        f"On D_cpt early points: fitted from step 14 on, it misses longer runs by {error['late', 'D_cpt']:.2%}. On "
        f"D_pt not these ({error['late', 'D_pt']:.2%}), and not its form (fitted to the longer runs too, "
        f"{error['fitted', 'D_pt']:.2%}): runs of a third of the length do not show how its loss falls again."
    )


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


def _perplexities(book: Book) -> str:
    methods = json.loads((book.results / "autoscale-unequal" / "confirmation.json").read_text())["methods"]
    loss = {row["method"]: row["loss"] for row in methods}
    best, first = min(loss, key=lambda name: loss[name]), loss["autoscale"] - min(loss.values())
    return (
        "What is averaged: every method minimised the mean loss, and by that AutoScale is "
        f"{first:.4f} nats behind {best}, {loss['data-mixing'] - loss['autoscale']:.4f} before data-mixing and "
        f"{loss['uniform'] - loss['autoscale']:.4f} before equal weights. The mean of perplexities is ruled by "
        "the domain that nobody can learn."
    )


_TESTS: dict[str, Callable[[Book], str]] = {
    "dynamics-figure-5": _potentials,
    "dynamics-figure-10": _held_out,
    "dynamics-figure-18": _open_model,
    "dcpt-figure-12": _inflection,
    **{name: _last_design(name) for name in (f"dcpt-{number}" for number in (*range(1, 5), 7, 8, 10, *range(13, 22)))},
    "autoscale-1": _search,
    "autoscale-6": _perplexities,
}
"""Name of TABLES -> the outcome of its test, from docs/results/reproduction.csv."""
