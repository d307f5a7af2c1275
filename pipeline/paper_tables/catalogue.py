"""The tables that can be made, and what they are made from: a new one is a function and a line here."""

from __future__ import annotations

import string
from collections.abc import Callable
from functools import partial

import pandas as pd

from pipeline.paper_tables import autoscale
from pipeline.paper_tables.dcpt import cross_domain as across
from pipeline.paper_tables.dcpt import near_zero, usages
from pipeline.paper_tables.dcpt import parameterizations as forms
from pipeline.paper_tables.dcpt import single_tables as single
from pipeline.paper_tables.dcpt.points import SIX, Material
from pipeline.paper_tables.dynamics import tables as dynamics
from pipeline.paper_tables.table import Reading, Table

READINGS: dict[str, Reading] = {
    **{"six": SIX, "weights": autoscale.READING, "dynamics": dynamics.READING},
    **usages.READINGS,
    **near_zero.READINGS,
}
"""Name -> what a family of tables is made from."""

_SPLITS = {
    "all": ("effectiveness", "Fitted to all points"),
    "each-size": ("model_size_generalizability", "Each model size held out"),
    "step-thirds": ("dataset_size_generalizability", "Each third of the tokens held out"),
    "ratio-pairs": ("mixture_ratio_generalizability", "Each pair of ratios held out"),
}


def _of_split(number: int, split: str) -> dict[str, Table]:
    name, words = _SPLITS[split]
    first = 14 + 2 * (number - 1)

    def table(of: int, ending: str, title: str, make: Callable[[Material], pd.DataFrame], by_domain: bool) -> Table:
        keys = ("parameterization", *(["domain"] if by_domain else []), "corpus", "metric")
        return Table(title, f"dcpt_table{of:02d}_{name}{ending}.csv", make, keys, "parameterization")

    averaged = table(number, "", f"{words}, mean over domains", partial(forms.over_domains, split=split), False)
    found = {f"dcpt-{number}": averaged}
    for offset, (metric, said) in enumerate({"huber": "Huber loss", "r2": "R2"}.items()):
        make = partial(forms.one_metric, split=split, metric=metric)
        by = table(first + offset, f"_{metric}_by_domain", f"{words}, {said} by domain", make, True)
        found[f"dcpt-{first + offset}"] = by
    return found


def _unsorted() -> dict[str, Table]:
    found: dict[str, Table] = {**autoscale.TABLES, **dynamics.TABLES, **usages.TABLES, **near_zero.TABLES}
    for number, split in enumerate(_SPLITS, start=1):
        found |= _of_split(number, split)
    return found | {
        "dcpt-7": _plain(
            "One law for all domains",
            "dcpt_table07_cross_domain_effectiveness.csv",
            across.effectiveness,
            "representation",
        ),
        "dcpt-8": _plain(
            "One law for all domains, each pair of domains held out",
            "dcpt_table08_domain_generalizability.csv",
            across.generalizability,
            "representation",
        ),
        "dcpt-10": _plain(
            "Chinchilla's law and OpenAI's at one ratio",
            "dcpt_table10_chinchilla_vs_openai.csv",
            single.without_ratio,
            "law",
        ),
        "dcpt-13": _plain(
            "Which steps are evaluated",
            "dcpt_table13_sampling_methods.csv",
            single.sampling,
            "method",
            alike=True,
        ),
    }


def _plain(title: str, file: str, make: Callable[[Material], pd.DataFrame], subject: str, alike: bool = False) -> Table:
    return Table(title, file, make, (subject, "corpus", "metric"), subject, alike=alike)


def _place(item: tuple[str, Table]) -> tuple[int, int]:
    paper, *kind, number = item[0].split("-")
    place = int(number.rstrip(string.ascii_lowercase)) + (100 if kind else 0)
    return ["dcpt", "dynamics", "autoscale"].index(paper), place


TABLES: dict[str, Table] = dict(sorted(_unsorted().items(), key=_place))
"""Name -> table: PAPER-NUMBER as the paper counts its tables, PAPER-figure-NUMBER for the facts behind a figure."""
