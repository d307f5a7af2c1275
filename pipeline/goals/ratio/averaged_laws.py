"""What each law counts in the average that answers, in words."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fitting import PointsError
from fitting.law_average import AVERAGE, WEIGHT_FLOOR
from pipeline.goals.ratio.answering_laws import answering_laws
from pipeline.study.artifacts import Recommendation
from pipeline.study.context import Context
from pipeline.study.fits import law_limit, weighing_split, with_average
from pipeline.study.folder import StudyError
from pipeline.study.number_format import LEAST_WEIGHT, percent, signed, weights_used
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


def widening_law(context: Context, answer: Recommendation) -> str:
    """The end of a sentence on the change of the general loss: the law that makes its interval wide; empty: none does.

    It is the farthest from the average, without which the interval would be less than half as wide.
    """
    general = context.corpora[0]
    with contextlib.suppress(StudyError, PointsError):
        laws = answering_laws(context)
        laws = laws if answer.peak_learning_rate is None else laws.at_peak(answer.peak_learning_rate)
        target = find_target(laws.question, context.points, answer.target.model).lasting(answer.target.steps)
        laws, r = laws.at(target), (answer.mixture or {})[general]
        weights = laws.weights_at(1 - r).get(general, {})
        mean, predicted = answer.predicted[general], {}
        for law in (law for law, weight in weights.items() if weight >= LEAST_WEIGHT):
            predicted[law] = replace(laws, law={general: law}).loss(target, general, 1 - r)[0]
        if len(predicted) > 1:
            far = max(predicted, key=lambda law: abs(np.log(predicted[law] / mean.loss)))
            left = {law: weight for law, weight in laws.weights[general].items() if law in {*predicted} - {far}}
            of_left = {general: {law: weight / sum(left.values()) for law, weight in left.items()}}
            rest = with_average(context.fits, of_left, context.tested)[general][AVERAGE]
            low, high = rest.predict_interval(pd.DataFrame([{**target.columns(general, rest), "r": r}]))
            if high[0] - low[0] < (mean.high - mean.low) / 2:
                change = {law: loss / answer.loss_before[general] - 1 for law, loss in predicted.items()}
                own, others = change.pop(far), sorted(change.values())
                ends = " to ".join(dict.fromkeys(signed(end, 1) for end in (others[0], others[-1])))
                other = "the other laws" if len(others) > 1 else next(iter(change))
                return f"; it is so wide mostly since {far} predicts {signed(own, 1)}, {other} {ends}"
    return ""


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
