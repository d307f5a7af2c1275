"""What each law counts in the average that answers, in words."""

import contextlib
from collections.abc import Iterator, Mapping

import pandas as pd

from fitting import PointsError
from fitting.law_average import WEIGHT_FLOOR
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.study.context import Context
from pipeline.study.fits import law_limit, weighing_split
from pipeline.study.folder import StudyError
from pipeline.study.number_format import percent, weights_used
from pipeline.study.target import find_target


def weight_lines(context: Context) -> Iterator[str]:
    """What each law counts in the average, and why a law with larger errors counts too; none where one law answers."""
    with contextlib.suppress(StudyError, PointsError):
        laws = answering_laws(context)
        weights, target = laws.weights, find_target(laws.question, context.points)
        averaged = [corpus for corpus, of in weights.items() if len(of) > 1]
        if shown := "; ".join(f"{weights_used(weights[corpus])} on {corpus}" for corpus in averaged):
            kinds = {corpus: laws.fit(corpus).spread.kind(target.N, target.D) for corpus in averaged}
            splits = dict.fromkeys(weighing_split(context.tested, corpus, kind) for corpus, kind in kinds.items())
            beyond = " and ".join(dict.fromkeys(kinds.values())).replace("-", " ")
            yield (
                f"the answer is of an average of the laws: {shown}; weights go with 1 / (error of held-out "
                f"{' and '.join(splits)} squared + {WEIGHT_FLOOR:.1%} squared), since the "
                f"answer differs from the fitted runs in {beyond}"
            )
        less: dict[str, list[str]] = {}
        for corpus in averaged:
            fits = {law: laws.fits[corpus][law].ranges for law in weights[corpus]}
            ends = {law: ranges["r"][0] for law, ranges in fits.items() if "r" in ranges}
            for law in (law for law, least in ends.items() if least > min(ends.values())):
                less.setdefault(law, []).append(f"below {percent(ends[law])} {corpus}")
        yield from (f"{law} counts less {' and '.join(of)}: it was fitted to no run there" for law, of in less.items())
        yield from left_out_lines(weights, context.tested)
        one_law = {"transfer-anchored", "transfer-scaled"}
        sizes = context.points.loc[context.points["role"] == "fit", "N"].nunique()
        if sizes == 1 and any(one_law <= {*of_law} for of_law in weights.values()):
            yield "with runs of one size transfer-scaled is transfer-anchored: nearly one law, counted twice"


def left_out_lines(weights: Mapping[str, Mapping[str, float]], tested: pd.DataFrame) -> Iterator[str]:
    """Of which laws the answer for each corpus is, and up to which length those that are left out count."""
    lines: dict[str, list[str]] = {}
    for corpus, of_law in weights.items():
        others = [f"{law} {law_limit(law)}" for law in tested["law"].unique() if law not in of_law and law_limit(law)]
        why = f": {', '.join(others)} the fitted tokens" if others else ""
        answers = "answers alone" if len(of_law) == 1 else "answer"
        if len(of_law) == 1 or (of_law and others):
            lines.setdefault(f"{' and '.join(of_law)} {answers} on {{}}{why}", []).append(corpus)
    yield from (line.format(" and ".join(corpora)) for line, corpora in lines.items())
