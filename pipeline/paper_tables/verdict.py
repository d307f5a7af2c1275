"""Whether a table of the paper holds here: a rule, so that no verdict is a matter of taste."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

CLEAR = 1.1
MOST = 0.8
FACTOR = 3.0
ALIKE = 1.25
HOLDS, IN_ORDER, NOT_HERE, UNKNOWN = (
    "holds",
    "holds in order",
    "does not hold at this scale",
    "cannot be judged",
)
RULE = f"""What competes in a table (forms of the law, say) is compared by its misfit: 1 - R2, or the Huber loss. Two of
them are told apart by the paper where their misfits differ by more than a factor of {CLEAR}. A table "holds in order"
if at least {MOST:.0%} of the pairs that the paper tells apart stand the same way round here; it "holds" if also at
least {MOST:.0%} of our 1 - R2 are within a factor of {FACTOR:g} of the paper's. Of a table whose message is that all do
alike, the order is no claim: it holds in order if the misfits here differ by no more than a factor of {ALIKE}. Huber
losses are judged by order alone, as the paper does not say how it sums them; ours is the sum over the judged points of
log losses, delta 0.001, held out the mean over the folds.

A table that says something else brings a rule of its own, and its sentence says what was asked. Where nothing was
measured, the paper's numbers are not at hand, or noise is larger than what is compared, it "cannot be judged"."""
"""How a verdict is reached, for whoever reads one."""


def judge(table: pd.DataFrame, subject: str, alike: bool = False) -> tuple[str, str]:
    """The verdict and why, a sentence.

    Args:
        table: a row a cell, with `subject`, `metric` (r2 or huber), further keys, `paper` and `ours`; NaN: no number.
        subject: column of what competes.
        alike: whether the paper's message is that all of the subject do alike.

    >>> rows = [("L1", "r2", 0.98, 0.97), ("L3", "r2", 0.99, 0.985)]
    >>> judge(pd.DataFrame(rows, columns=["law", "metric", "paper", "ours"]), "law")[0]
    'holds'
    """
    if table["paper"].isna().all():
        return UNKNOWN, "The paper's numbers are not at hand."
    both = table.dropna(subset=["paper", "ours"])
    if lacking := sorted({*table.loc[table["paper"].notna(), subject]} - {*both[subject]}):
        return UNKNOWN, f"Nothing was fitted here for {', '.join(map(str, lacking))}."
    both = both.assign(paper=_misfit(both, "paper"), ours=_misfit(both, "ours"))
    ratios = (both["ours"] / both["paper"])[both["metric"] == "r2"]
    near = bool(len(ratios)) and bool((ratios.between(1 / FACTOR, FACTOR)).mean() >= MOST)
    ordered, why = _alike(both, subject) if alike else _order(both, subject)
    if not ordered:
        return NOT_HERE if ordered is False else UNKNOWN, why
    if not len(ratios):
        return IN_ORDER, f"{why} How the paper sums its Huber loss is not known, so sizes are not compared."
    low, middle, high = ratios.quantile([0.0, 0.5, 1.0])
    sizes = f"Our 1 - R2 is {low:.2g} to {high:.2g} times the paper's, {middle:.2g} in the middle"
    return (HOLDS if near else IN_ORDER), f"{why} {sizes} (a factor of {FACTOR:g} is asked of {MOST:.0%})."


def _misfit(table: pd.DataFrame, column: str) -> pd.Series:
    # A perfect fit would divide by zero.
    return (1 - table[column]).where(table["metric"] == "r2", table[column]).clip(lower=1e-9)


def _cells(table: pd.DataFrame, subject: str) -> list[pd.DataFrame]:
    """The table by everything but its subject: what competes with what."""
    keys = [name for name in table.columns if name not in (subject, "paper", "ours")]
    return [cell for _, cell in table.groupby(keys, sort=False)]


def _order(table: pd.DataFrame, subject: str) -> tuple[bool | None, str]:
    told_apart = alike = 0
    cells = _cells(table, subject)
    for cell in cells:
        for (paper, ours), (other_paper, other_ours) in combinations(zip(cell["paper"], cell["ours"]), 2):
            if max(paper, other_paper) > CLEAR * min(paper, other_paper):
                told_apart += 1
                alike += (paper < other_paper) == (ours < other_ours)
    if not told_apart:
        return None, "The paper tells nothing apart here."
    best = _best(cells, subject)
    why = f"{alike} of {told_apart} pairs that the paper tells apart stand the same way round here; {best}."
    return bool(alike >= MOST * told_apart), why


def _best(cells: list[pd.DataFrame], subject: str) -> str:
    def often(column: str) -> str:
        winners = pd.Series([cell[subject].iloc[cell[column].to_numpy().argmin()] for cell in cells]).value_counts()
        return f"{winners.index[0]} in {winners.iloc[0]}"

    return f"best is most often {often('ours')} of {len(cells)} columns, in the paper {often('paper')}"


def _alike(table: pd.DataFrame, subject: str) -> tuple[bool, str]:
    own = [cell for cell in _cells(table, subject) if (cell["metric"] == "r2").all()]
    ours, paper = (max(cell[name].max() / cell[name].min() for cell in own) for name in ("ours", "paper"))
    why = f"The worst 1 - R2 is {ours:.2f} times the best here, {paper:.2f} times in the paper ({ALIKE:g} is alike)."
    return bool(ours <= ALIKE), why
