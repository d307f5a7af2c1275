"""Places where the text and the tables of a paper disagree, found by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from docs.reproduction.book import Book
from pipeline.paper_tables.catalogue import TABLES

CELL = ["parameterization", "corpus", "metric"]
BY_DOMAIN = {"dcpt-1": (14, 15), "dcpt-2": (16, 17), "dcpt-3": (18, 19), "dcpt-4": (20, 21)}
"""Table of means -> the tables by domain that it is the mean of."""


def sentences(book: Book) -> Iterator[str]:
    """One a finding; D-CPT first, then the dynamics, then AutoScale."""
    yield from _means(book)
    yield _best_form(book)
    yield _worst_domain(book)
    yield _sampling(book)
    yield _usage_1(book)
    yield _usage_2(book)
    yield _usage_3(book)
    yield _steps(book)
    yield _formats(book)
    yield from _autoscale(book)


def _read(book: Book, table: str) -> pd.DataFrame:
    return book.csv(TABLES[table].file)


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


def _best_form(book: Book) -> str:
    best = {}
    for name in BY_DOMAIN:
        table = _read(book, name)
        misfit = table.assign(value=table["value"].where(table["metric"] == "huber", 1 - table["value"]))
        least = misfit.pivot(index=["corpus", "metric"], columns="parameterization", values="value").idxmin(axis=1)
        best[name] = int((least == "L3").sum())
    counts = ", ".join(f"{count} in table {name.split('-')[1]}" for name, count in best.items())
    return f"L3, of which the D-CPT paper says that it is best, is best in so many of four columns: {counts}."


def _worst_domain(book: Book) -> str:
    texts = []
    for name, metric, worst in (("dcpt-14", "Huber loss", "idxmax"), ("dcpt-15", "R2", "idxmin")):
        own = _read(book, name).query("parameterization == 'L3'")
        row = own.loc[getattr(own["value"], worst)()]
        texts.append(f"{metric} {row['value']:.4g} ({row['domain']}, {row['corpus']})")
    bounds = book.number("dcpt-8"), book.number("dcpt-9")
    return (
        f"That L3 has a Huber loss below {bounds[0]:g} and an R2 above {bounds[1]:g} is true of its means; by domain "
        f"its worst are {' and '.join(texts)}."
    )


def _sampling(book: Book) -> str:
    table = _read(book, "dcpt-13")
    spread = table.groupby("metric")["value"].apply(
        lambda own: own.groupby(table["corpus"]).agg(lambda part: part.max() - part.min()).max()
    )
    return (
        f"The four samplings of D-CPT table 13 differ by at most {spread['huber']:.4f} in Huber loss and "
        f"{spread['r2']:.4f} in R2: they differ in cost, not in fit."
    )


def _usage_1(book: Book) -> str:
    table = book.csv("dcpt_table05_usage1_tradeoff.csv")
    nearest = table.loc[(table["r_d"] - book.number("dcpt-30")).abs().groupby(table["corpus"]).idxmin()]
    real = nearest.set_index("corpus")["value"]
    errors = [abs(book.number(claim) / real[corpus] - 1) for claim, corpus in (("dcpt-31", "G"), ("dcpt-32", "D"))]
    return (
        f"Usage 1's real losses, that match the predicted exactly in the text, are {errors[0]:.2%} (general) and "
        f"{errors[1]:.2%} (domain) off."
    )


def _usage_2(book: Book) -> str:
    loss = book.csv("dcpt_table06_usage2_limited_domain_data.csv").set_index("r_d")["value"].sort_index()
    turns = int((np.diff(np.sign(np.diff(loss))) != 0).sum())
    return (
        f"Usage 2's measured losses turn {turns} times along the ratio, a single least would turn once: "
        f"they differ by {loss.max() - loss.min():.4f} in all."
    )


def _usage_3(book: Book) -> str:
    table = book.csv("dcpt_table12_usage3_resource_allocation.csv")
    flops = 6e18 * table["N_B"] * table["D_B"]
    return f"Usage 3's runs of one budget have 6 N D from {flops.min():.3e} to {flops.max():.3e} FLOPs."


def _steps(book: Book) -> str:
    short, long = (book.number(claim) * book.number("dcpt-15") / 1e9 for claim in ("dcpt-14", "dcpt-76"))
    return (
        f"Section 4.1's {book.number('dcpt-14'):,.0f} steps are {short:.1f} billion tokens; the stated "
        f"{book.number('dcpt-6'):g} billion are appendix I.2's {book.number('dcpt-76'):,.0f} ({long:.1f})."
    )


def _formats(book: Book) -> str:
    table = book.csv("dynamics_table02_format_variants.csv").query("metric == 'r2'")
    places = []
    for corpus, own in table.groupby("corpus", sort=False):
        place = int((own["value"] > own.loc[own["format"] == "original", "value"].item()).sum()) + 1
        places.append(f"number {place} of {len(own)} on {corpus}")
    return f"By R2 the original form of the dynamics' table 2, said to be more effective, is {', '.join(places)}."


def _autoscale(book: Book) -> Iterator[str]:
    from pipeline.paper_tables.autoscale import MEANS

    seven = book.csv("autoscale_table07_bert_steps_saved.csv").pivot(
        index="data_scale_steps", columns="metric", values="value"
    )
    for scale, row in seven.iterrows():
        steps = 1000 * int(str(scale).removesuffix("k"))
        share, printed = 100 * row["steps_saved"] / steps, row["steps_saved_percent_printed"]
        if abs(share - printed) > 0.5:
            yield (
                f"AutoScale table 7 prints {printed:g}% for {row['steps_saved']:,.0f} of {steps:,} steps, which are "
                f"{share:.1f}%."
            )
    table = TABLES["autoscale-6"]
    assert table.prints
    six = table.prints(book.csv(table.file)).pivot(index="domain", columns="method", values="value")
    by_mean, by_loss = (six.loc[MEANS[way]].idxmin() for way in ("mean", "geometric"))
    yield (
        f"The lowest mean perplexity of AutoScale table 6 is that of {by_mean}; by the exp of the mean loss, which is "
        f"another mean of the same numbers, it is that of {by_loss}, whose column had more tokens."
    )
