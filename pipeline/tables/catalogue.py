"""The tables that can be made: a new one is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd

from pipeline.tables import across, forms, single
from pipeline.tables.material import Material


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    title: str
    """What it shows."""
    file: str
    """The paper's numbers in the folder of tables.papers."""
    make: Callable[[Material], pd.DataFrame]
    """Our numbers: columns `keys` and value; attrs["note"] may hold a sentence on how they came about."""
    subject: str
    """Column of what competes."""
    by_domain: bool = False
    """Whether it has a row a domain."""
    alike: bool = False
    """Whether the paper's message is that all of the subject do alike (`pipeline.tables.verdict`)."""

    @property
    def keys(self) -> list[str]:
        """Columns that name a cell."""
        return [self.subject, *(["domain"] if self.by_domain else []), "corpus", "metric"]


_SPLITS = {
    "all": ("effectiveness", "Fitted to all points"),
    "size": ("model_size_generalizability", "Each model size held out"),
    "steps": ("dataset_size_generalizability", "Each third of the tokens held out"),
    "ratio": ("mixture_ratio_generalizability", "Each pair of ratios held out"),
}


def _of_split(number: int, split: str) -> dict[str, Table]:
    name, words = _SPLITS[split]
    first = 14 + 2 * (number - 1)

    def table(of: int, ending: str, title: str, make: Callable[[Material], pd.DataFrame], by_domain: bool) -> Table:
        return Table(title, f"dcpt_table{of:02d}_{name}{ending}.csv", make, "parameterization", by_domain)

    averaged = table(number, "", f"{words}, mean over domains", partial(forms.over_domains, split=split), False)
    found = {f"dcpt-{number}": averaged}
    for offset, (metric, said) in enumerate({"huber": "Huber loss", "r2": "R2"}.items()):
        make = partial(forms.one_metric, split=split, metric=metric)
        by = table(first + offset, f"_{metric}_by_domain", f"{words}, {said} by domain", make, True)
        found[f"dcpt-{first + offset}"] = by
    return found


def _unsorted() -> dict[str, Table]:
    found: dict[str, Table] = {}
    for number, split in enumerate(_SPLITS, start=1):
        found |= _of_split(number, split)
    return found | {
        "dcpt-7": Table(
            "One law for all domains",
            "dcpt_table07_cross_domain_effectiveness.csv",
            across.effectiveness,
            "representation",
        ),
        "dcpt-8": Table(
            "One law for all domains, each pair of domains held out",
            "dcpt_table08_domain_generalizability.csv",
            across.generalizability,
            "representation",
        ),
        "dcpt-10": Table(
            "Chinchilla's law and OpenAI's at one ratio",
            "dcpt_table10_chinchilla_vs_openai.csv",
            single.without_ratio,
            "law",
        ),
        "dcpt-13": Table(
            "Which steps are evaluated",
            "dcpt_table13_sampling_methods.csv",
            single.sampling,
            "method",
            alike=True,
        ),
    }


TABLES: dict[str, Table] = dict(sorted(_unsorted().items(), key=lambda item: int(item[0].split("-")[1])))
"""Name -> table; the number is the paper's."""
