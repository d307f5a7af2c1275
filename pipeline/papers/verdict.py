"""The rule by which a table of a paper holds here or does not: what the paper states of it, pair by pair."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pandas as pd

TIE = 1.1
R2_TIE = 0.0005
MOST = 0.8
DECIDED = 0.5
FACTOR = 3.0
COMPARABLE = 1.5
SEED_TIE = 0.0165
HOLDS, IN_ORDER, NOT_HERE, UNKNOWN = ("holds", "holds in order", "does not hold", "cannot be judged")
RULE = f"""A table is judged by what the paper states of it: that one subject (a form of the law, for example) performs
better than another, no worse than it, or comparably. Performance is the misfit: 1 - R2, or the Huber loss. Two
subjects tie where their misfits are within a factor of {TIE:g}, or their R2 within {R2_TIE:g}: the paper calls
differences of that size no significant improvement (D-CPT app. I.1), and a seed changes the ratio of two misfits by
less. "Better" is judged at the cells where the paper's own numbers show it, without the pairs that tie here. "No worse"
is true of a tie, and "comparable" of misfits within a factor of {COMPARABLE:g}.

A table "holds in order" if at least {MOST:.0%} of the judged pairs are as stated. It "holds" if also the level is: the
R2 that the paper states where it states one; else at least {MOST:.0%} of our 1 - R2 of the better subjects are at most
{FACTOR:g} times the paper's. Huber losses are judged by order alone, because the paper does not say how it sums them.
Ours is the sum over the judged points of log losses, delta 0.001; for held-out points the mean over the folds.

A table with another claim has its own rule, and its reason states what is required. A table "cannot be judged" where
nothing was measured, the paper's numbers are missing, fewer than {DECIDED:.0%} of the pairs are decided here, or noise
is larger than the differences. Two final losses of one seed tie within {SEED_TIE:g} nats: 90% of two seeds differ by
less."""
"""The rule in words, for readers of a verdict. SEED_TIE: 1.645 sqrt(2) times the .0071 nats between the seeds of
docs/results/near-zero, 67 pairs of runs."""


@dataclass(frozen=True)
class Statement:
    """A sentence of a paper on a table: each of `better` is better than each of `worse`, or no worse, or comparable."""

    better: tuple[str, ...]
    worse: tuple[str, ...]
    source: str
    """The section and its words."""
    kind: str = "better"
    """better, no worse, or comparable (in both directions)."""
    corpora: tuple[str, ...] = ("G", "D")


def judge(
    table: pd.DataFrame, subject: str, statements: Sequence[Statement], level: float | None = None
) -> tuple[str, str]:
    """The verdict and its reason, a sentence.

    The table has a row per cell: `subject`, `corpus`, `metric` (r2 or huber), further keys, `paper` and `ours`; NaN: no
    number. The first statement has the subjects that the paper calls better; `level` is the R2 that it states of them.

    >>> rows = [("L1", "G", "r2", 0.98, 0.97), ("L3", "G", "r2", 0.99, 0.985)]
    >>> table = pd.DataFrame(rows, columns=["law", "corpus", "metric", "paper", "ours"])
    >>> judge(table, "law", [Statement(("L3",), ("L1",), "sec. 4.2: L3 is best")])[0]
    'holds'
    """
    if table["paper"].isna().all():
        return UNKNOWN, "The paper's numbers are missing."
    both = table.dropna(subset=["paper", "ours"])
    if missing := sorted({*table.loc[table["paper"].notna(), subject]} - {*both[subject]}):
        return UNKNOWN, f"Nothing was fitted here for {', '.join(map(str, missing))}."
    pairs = [pair for statement in statements for pair in compared(both, subject, statement)]
    decided = [right for _, _, right in pairs if right is not None]
    if not pairs:
        return UNKNOWN, "The paper's own numbers show no pair as it states."
    if len(decided) < max(1.0, DECIDED * len(pairs)):
        return UNKNOWN, f"{len(decided)} of {len(pairs)} stated pairs are decided here, the others tie."
    right, ties = sum(decided), len(pairs) - len(decided)
    why = f"{right} of {len(decided)} pairs are as the paper states (required: {MOST:.0%})"
    why += f"; {ties} more tie here" * bool(ties)
    if right < MOST * len(decided):
        wrong = Counter(f"{better} against {worse}" for better, worse, so in pairs if so is False)
        return NOT_HERE, f"{why}; wrong: {', '.join(f'{pair} {count}' for pair, count in wrong.items())}."
    reached, sizes = _level(both[both["metric"] == "r2"], subject, statements, level)
    return (HOLDS if reached else IN_ORDER), f"{why}. {sizes}"


def compared(table: pd.DataFrame, subject: str, statement: Statement) -> Iterator[tuple[str, str, bool | None]]:
    """Each pair of a statement and whether it is so here, cell by cell; None: a tie.

    A pair is better and worse; it is left out where the paper's own numbers tie or contradict the sentence.
    """
    keys = [name for name in table.columns if name not in (subject, "paper", "ours")]
    for key, cell in table[table["corpus"].isin(statement.corpora)].groupby(keys, sort=False):
        r2 = dict(zip(keys, key))["metric"] == "r2"  # pyright: ignore[reportArgumentType, reportCallIssue]
        at = cell.set_index(subject)
        misfit = ((1 - at[["paper", "ours"]]) if r2 else at[["paper", "ours"]]).to_dict()
        for better, worse in product(statement.better, statement.worse):
            if not {better, worse} <= {*at.index}:
                continue
            paper, ours = ((misfit[side][better], misfit[side][worse]) for side in ("paper", "ours"))
            if statement.kind == "comparable":
                if better < worse:
                    yield better, worse, max(ours) <= COMPARABLE * min(ours) or ties(*ours, r2)
            elif statement.kind == "no worse":
                yield better, worse, bool(ours[0] < ours[1]) or ties(*ours, r2)
            elif paper[0] < paper[1] and not ties(*paper, r2):
                yield better, worse, None if ties(*ours, r2) else bool(ours[0] < ours[1])


def ties(misfit: float, other: float, r2: bool) -> bool:
    """Whether two misfits are too close to be told apart: within a factor TIE, or of R2 within R2_TIE.

    >>> ties(0.0002, 0.0003, r2=True), ties(0.002, 0.003, r2=True), ties(0.0040, 0.0043, r2=False)
    (True, False, True)
    """
    low, high = sorted((misfit, other))
    return bool(high <= TIE * low or (r2 and high - low <= R2_TIE + 1e-12))


def _level(table: pd.DataFrame, subject: str, statements: Sequence[Statement], level: float | None) -> tuple[bool, str]:
    """Whether the misfits of the better subjects are as small as stated, or near the paper's, and a sentence."""
    if table.empty:
        return False, "How the paper sums its Huber loss is not known, so sizes are not compared."
    best, names = table[table[subject].isin(statements[0].better)], ", ".join(statements[0].better)
    if level is not None:
        least = best["ours"].min()
        return bool(least >= level), f"The least R2 of {names} is {least:.4f} ({level:g} stated)."
    ratios = (1 - best["ours"]) / (1 - best["paper"]).clip(lower=1e-9)
    low, median, high = ratios.quantile([0.0, 0.5, 1.0])
    sizes = f"1 - R2 of {names} is {low:.2g} to {high:.2g} times the paper's, median {median:.2g}"
    return bool((ratios <= FACTOR).mean() >= MOST), f"{sizes} (required: {MOST:.0%} at most {FACTOR:g})."
