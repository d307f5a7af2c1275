"""The rule by which a table of a paper holds here or does not."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

CLEAR = 1.1
MOST = 0.8
FACTOR = 3.0
ALIKE = 1.25
HOLDS, IN_ORDER, NOT_HERE, UNKNOWN = ("holds", "holds in order", "does not hold at this scale", "cannot be judged")
RULE = f"""The subjects of a table (forms of the law, for example) are compared by their misfit: 1 - R2, or the Huber
loss. A pair of subjects is distinct in the paper where their misfits differ by more than a factor of {CLEAR}. A table
"holds in order" if at least {MOST:.0%} of the distinct pairs have the same order here. It "holds" if also at least
{MOST:.0%} of our 1 - R2 are within a factor of {FACTOR:g} of the paper's. Where the paper claims that all subjects
perform alike, the table holds in order if the misfits here differ by no more than a factor of {ALIKE}. Huber losses are
judged by order alone, because the paper does not say how it sums them. Ours is the sum over the judged points of log
losses, delta 0.001; for held-out points the mean over the folds.

A table with another claim has its own rule, and its reason states what is required. A table "cannot be judged" where
nothing was measured, the paper's numbers are missing, or noise is larger than the differences."""
"""The rule in words, for readers of a verdict."""


def judge(table: pd.DataFrame, subject: str, alike: bool = False) -> tuple[str, str]:
    """The verdict and its reason, a sentence.

    Args:
        table: a row per cell, with `subject`, `metric` (r2 or huber), further keys, `paper` and `ours`; NaN: no number.
        subject: column of what is compared.
        alike: whether the paper claims that all subjects perform alike.

    >>> rows = [("L1", "r2", 0.98, 0.97), ("L3", "r2", 0.99, 0.985)]
    >>> judge(pd.DataFrame(rows, columns=["law", "metric", "paper", "ours"]), "law")[0]
    'holds'
    """
    if table["paper"].isna().all():
        return UNKNOWN, "The paper's numbers are missing."
    both = table.dropna(subset=["paper", "ours"])
    if missing := sorted({*table.loc[table["paper"].notna(), subject]} - {*both[subject]}):
        return UNKNOWN, f"Nothing was fitted here for {', '.join(map(str, missing))}."
    both = both.assign(paper=_misfit(both, "paper"), ours=_misfit(both, "ours"))
    ratios = (both["ours"] / both["paper"])[both["metric"] == "r2"]
    near = bool(len(ratios)) and bool((ratios.between(1 / FACTOR, FACTOR)).mean() >= MOST)
    ordered, why = _alike(both, subject) if alike else _order(both, subject)
    if not ordered:
        return NOT_HERE if ordered is False else UNKNOWN, why
    if not len(ratios):
        return IN_ORDER, f"{why} How the paper sums its Huber loss is not known, so sizes are not compared."
    low, median, high = ratios.quantile([0.0, 0.5, 1.0])
    sizes = f"Our 1 - R2 is {low:.2g} to {high:.2g} times the paper's, median {median:.2g}"
    return (HOLDS if near else IN_ORDER), f"{why} {sizes} (required: {MOST:.0%} within a factor of {FACTOR:g})."


def _misfit(table: pd.DataFrame, column: str) -> pd.Series:
    # A perfect fit would divide by zero.
    return (1 - table[column]).where(table["metric"] == "r2", table[column]).clip(lower=1e-9)


def _cells(table: pd.DataFrame, subject: str) -> list[pd.DataFrame]:
    """The groups of cells whose subjects are compared."""
    keys = [name for name in table.columns if name not in (subject, "paper", "ours")]
    return [cell for _, cell in table.groupby(keys, sort=False)]


def _order(table: pd.DataFrame, subject: str) -> tuple[bool | None, str]:
    distinct = agree = 0
    cells = _cells(table, subject)
    for cell in cells:
        for (paper, ours), (other_paper, other_ours) in combinations(zip(cell["paper"], cell["ours"]), 2):
            if max(paper, other_paper) > CLEAR * min(paper, other_paper):
                distinct += 1
                agree += (paper < other_paper) == (ours < other_ours)
    if not distinct:
        return None, "No pair is distinct in the paper."
    best = _best(cells, subject)
    why = f"{agree} of {distinct} pairs that are distinct in the paper have the same order here; {best}."
    return bool(agree >= MOST * distinct), why


def _best(cells: list[pd.DataFrame], subject: str) -> str:
    def often(column: str) -> str:
        winners = pd.Series([cell[subject].iloc[cell[column].to_numpy().argmin()] for cell in cells]).value_counts()
        return f"{winners.index[0]} in {winners.iloc[0]}"

    return f"best is most often {often('ours')} of {len(cells)} columns, in the paper {often('paper')}"


def _alike(table: pd.DataFrame, subject: str) -> tuple[bool, str]:
    cells = [cell for cell in _cells(table, subject) if (cell["metric"] == "r2").all()]
    ours, paper = (max(cell[name].max() / cell[name].min() for cell in cells) for name in ("ours", "paper"))
    why = f"The worst 1 - R2 is {ours:.2f} times the best here, {paper:.2f} times in the paper ({ALIKE:g} is alike)."
    return bool(ours <= ALIKE), why
