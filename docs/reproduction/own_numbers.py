"""Places where the text and the tables of a paper disagree, found by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from docs.reproduction.book import Book
from pipeline.paper_tables.autoscale import MEANS
from pipeline.paper_tables.catalogue import TABLES
from pipeline.paper_tables.table import paper_numbers
from pipeline.paper_tables.verdict import compared

CELL = ["parameterization", "corpus", "metric"]
BY_DOMAIN = {"dcpt-1": (14, 15), "dcpt-2": (16, 17), "dcpt-3": (18, 19), "dcpt-4": (20, 21)}
"""Table of means -> the tables by domain that it is the mean of."""


def sentences(book: Book) -> Iterator[str]:
    """One a finding; D-CPT first, then the dynamics, then AutoScale."""
    for of_paper in (_own_rule, _means, _best_forms, _usages, _dynamics, _autoscale):
        yield from of_paper(book)


def _read(book: Book, table: str) -> pd.DataFrame:
    return book.csv(TABLES[table].file)


def _own_rule(book: Book) -> Iterator[str]:
    """How many stated pairs are as stated with the mean of the other domains in the place of each, and the reverse."""
    beside, reverse = [], []
    for number in range(14, 22):
        table = TABLES[f"dcpt-{number}"]
        cells = _read(book, f"dcpt-{number}")[[*table.keys, "value"]]
        by_cell = cells.groupby(["parameterization", "corpus"])["value"]
        others = (by_cell.transform("sum") - cells["value"]) / (by_cell.transform("size") - 1)
        for counts, paper, ours in ((beside, cells["value"], others), (reverse, others, cells["value"])):
            rows = cells[[*table.keys]].assign(paper=paper, ours=ours)
            answers = [at for said in table.states for at in compared(rows, table.subject, said) if at is not None]
            counts.append(f"{sum(answers)} of {len(answers)}")
    yield (
        "By the rule of the verdicts D-CPT tables 14 to 21 hold with the mean of the other five domains in the place "
        f"of each domain's numbers: {', '.join(beside)} stated pairs. The reverse, one domain where the mean of the "
        f"others shows a pair: {', '.join(reverse)}."
    )


def _means(book: Book) -> Iterator[str]:
    agree = count = 0
    for name, parts in BY_DOMAIN.items():
        printed = _read(book, name).set_index(CELL)["value"]
        mean = pd.concat([_read(book, f"dcpt-{part}") for part in parts]).groupby(CELL)["value"].mean()
        for cell, value in printed.items():
            count += 1
            # Half of the last digit of what is averaged, and more than rounding can do.
            if abs(value - mean[cell]) <= max(2e-4, 0.02 * mean[cell]):
                agree += 1
                continue
            form, corpus, metric = cell  # pyright: ignore[reportGeneralTypeIssues]
            yield (
                f"D-CPT table {name.split('-')[1]} prints {value:.4g} for {form}, {corpus}, {metric}; the mean of its "
                f"domains in table {parts[metric == 'r2']} is {mean[cell]:.2g}."
            )
    yield f"The other {agree} of {count} means of D-CPT tables 1 to 4 are those of tables 14 to 21, but for rounding."


def _best_forms(book: Book) -> Iterator[str]:
    best, worst = [], []
    for name in BY_DOMAIN:
        table = _read(book, name)
        misfit = table.assign(value=table["value"].where(table["metric"] == "huber", 1 - table["value"]))
        least = misfit.pivot(index=["corpus", "metric"], columns="parameterization", values="value").idxmin(axis=1)
        best.append(f"{(least == 'L3').sum()} in table {name.split('-')[1]}")
    yield f"L3, of which the D-CPT paper says that it is best, is best in so many of four columns: {', '.join(best)}."
    for name, metric, extreme in (("dcpt-14", "Huber loss", "idxmax"), ("dcpt-15", "R2", "idxmin")):
        of_l3 = _read(book, name).query("parameterization == 'L3'")
        row = of_l3.loc[getattr(of_l3["value"], extreme)()]
        worst.append(f"{metric} {row['value']:.4g} ({row['domain']}, {row['corpus']})")
    yield (
        f"That L3 has a Huber loss below {book.number('dcpt-8'):g} and an R2 above {book.number('dcpt-9'):g} is true "
        f"of its means; by domain its worst are {' and '.join(worst)}."
    )
    spread = _read(book, "dcpt-13").groupby(["metric", "corpus"])["value"].agg(np.ptp).groupby("metric").max()
    yield (
        f"The four samplings of D-CPT table 13 differ by at most {spread['huber']:.4f} in Huber loss and "
        f"{spread['r2']:.4f} in R2: they differ in cost, not in fit."
    )


def _usages(book: Book) -> Iterator[str]:
    first = _read(book, "dcpt-5")
    nearest = first.loc[(first["r_d"] - book.number("dcpt-30")).abs().groupby(first["corpus"]).idxmin()]
    real = nearest.set_index("corpus")["value"]
    errors = [abs(book.number(claim) / real[corpus] - 1) for claim, corpus in (("dcpt-31", "G"), ("dcpt-32", "D"))]
    yield (
        f"Usage 1's real losses, that match the predicted exactly in the text, are {errors[0]:.2%} (general) and "
        f"{errors[1]:.2%} (domain) off."
    )
    loss = _read(book, "dcpt-6").set_index("r_d")["value"].sort_index()
    turns = int((np.diff(np.sign(np.diff(loss))) != 0).sum())
    yield (
        f"Usage 2's measured losses turn {turns} times along the ratio, a single least would turn once: "
        f"they differ by {loss.max() - loss.min():.4f} in all."
    )
    flops = 6e18 * _read(book, "dcpt-12")[["N_B", "D_B"]].prod(axis=1)
    yield f"Usage 3's runs of one budget have 6 N D from {flops.min():.3e} to {flops.max():.3e} FLOPs."
    short, long = (book.number(claim) * book.number("dcpt-15") / 1e9 for claim in ("dcpt-14", "dcpt-76"))
    yield (
        f"Section 4.1's {book.number('dcpt-14'):,.0f} steps are {short:.1f} billion tokens; the stated "
        f"{book.number('dcpt-6'):g} billion are appendix I.2's {book.number('dcpt-76'):,.0f} ({long:.1f})."
    )


def _dynamics(book: Book) -> Iterator[str]:
    places = []
    for corpus, rows in _read(book, "dynamics-2").query("metric == 'r2'").groupby("corpus", sort=False):
        place = int((rows["value"] > rows.loc[rows["format"] == "original", "value"].item()).sum()) + 1
        places.append(f"number {place} of {len(rows)} on {corpus}")
    yield f"By R2 the original form of the dynamics' table 2, said to be more effective, is {', '.join(places)}."


def _autoscale(book: Book) -> Iterator[str]:
    seven = _read(book, "autoscale-7").pivot(index="data_scale_steps", columns="metric", values="value")
    for scale, row in seven.iterrows():
        steps = 1000 * int(str(scale).removesuffix("k"))
        percent, printed = 100 * row["steps_saved"] / steps, row["steps_saved_percent_printed"]
        if abs(percent - printed) > 0.5:
            yield (
                f"AutoScale table 7 prints {printed:g}% for {row['steps_saved']:,.0f} of {steps:,} steps, which are "
                f"{percent:.1f}%."
            )
    printed = paper_numbers(book.papers, TABLES["autoscale-6"])
    assert printed is not None
    six = printed.pivot(index="domain", columns="method", values="value")
    by_mean, by_loss = (six.loc[MEANS[way]].idxmin() for way in ("mean", "geometric"))
    yield (
        f"The lowest mean perplexity of AutoScale table 6 is that of {by_mean}; by the exp of the mean loss, which is "
        f"another mean of the same numbers, it is that of {by_loss}, whose column had more tokens."
    )
