"""What laws of schedules know beside a ratio: when the general loss is back, and the best length and start."""

from collections.abc import Iterator

import numpy as np

from fitting import Estimate, Fit, LawAverage, PointsError, balance, critical_point, turning_length
from pipeline.goals.ratio.answering_laws import AnsweringLaws, Solution

AREAS = ("s1", "s2", "s1_root", "s2_square", "s2_pretrain", "D")
"""Columns that follow from learning rates and tokens, not from the model and the mixture."""
FAR = 1000
"""Times the largest fitted summed rate beyond which no number of steps is named; a choice."""
SHORTEST = 0.1
"""Least length that is sought, as a part of `target.steps`."""
Facts = tuple[dict[str, Estimate], list[str]]
"""Name -> number, and the lines that say them."""


def turning_facts(laws: AnsweringLaws, answer: Solution) -> Facts:
    """Turning length and critical point of the general loss at the answer, its peak rate held without end.

    Source: Wang et al., ICML 2025, sec. 4.4.
    """
    assert answer.domain_ratio is not None
    general, target = laws.corpora[0], answer.target
    # The steps of a decay are below the peak that it starts from.
    rate, replay = answer.peak or laws.question.target.peak_learning_rate, 1 - answer.domain_ratio
    past = {"before": target.rate_before, "pretrain": target.pretrain}
    for law, fit in _by_weight(laws, general):
        at = {**_facts(laws, answer, general, fit), "r": replay}
        try:
            length = turning_length(fit, rate, **past, at=at)
            point = critical_point(fit, rate, **past, at=at)
        except PointsError:
            continue
        turn = length.values["turning_length"]
        values = {"turning_length": turn}
        for name in (name for name in point.values if name.startswith("critical_")):
            # Below 0 a ratio says no more than 0.
            values[name] = Estimate(*(float(max(side, 0.0)) for side in point.values[name]))
        where = f"{general}: at a constant rate of {rate:.3g} and {replay:.1%} {general}"
        how = "never rises" if turn.value == turn.high == 1 else f"is back where it began {_after(turn)}"
        times = turn.value * rate / fit.ranges.get("s1", (0.0, np.inf))[1]
        far = f", {times:,.3g} times the fitted summed rate" if 1 < times < np.inf else ""
        if FAR < times < np.inf:
            how, far = f"is not back where it began within {FAR:,} times the fitted summed rate", ""
        return values, [f"{where} the loss {how}, by {law}{far}", *_critical_lines(general, values)]
    unable = ", ".join(laws.question.law)
    return {}, [f"turning length: not known by {unable}; transfer-anchored and dynamics-replay know it: law=[...]"]


def best_length_and_start(laws: AnsweringLaws, answer: Solution) -> Facts:
    """What `goal.find` asks for, with the ratio that is best beside it, at the peak of the answer (eq. 5)."""
    question, target, (general, domain) = laws.question, answer.target, laws.corpora
    peak, problems = float(target.rates.max()), list[str]()
    for law, fit in _by_weight(laws, general) if question.goal.find else ():
        of_domain, find, lines = laws.fits[domain][law], question.goal.find, []
        assert isinstance(of_domain, Fit)
        if "loss_potential" in find and (target.pretrain is None or "s2_pretrain" not in fit.columns):
            why = "the pre-training is no run of this study" if target.pretrain is None else f"{law} does not know it"
            lines = [f"goal.find: no loss_potential, since {why}; dynamics-replay knows it: cptlaw fit law=[...]"]
            find = [name for name in find if name != "loss_potential"]
        if not find:
            return {}, lines
        try:
            best = balance(
                fit, of_domain, question.goal.weight,
                peak=peak, replay=(0.0, 1.0),
                steps=(max(1, round(SHORTEST * target.steps)), target.steps) if "steps" in find else target.steps,
                loss_potential=(0.0, 1.0) if "loss_potential" in find else None,
                pretraining=target.pretrain,
                shape=lambda steps: target.lasting(steps).rates / peak,
                pretrain_at=_facts(laws, answer, general, fit), domain_at=_facts(laws, answer, domain, of_domain),
            )  # fmt: skip
        except PointsError as error:
            problems.append(f"goal.find: {error}; transfer-anchored and dynamics-replay know it")
            continue
        values = {name: best.values[name] for name in find}
        parts = [f"{name} {value.value:.3g}{_between(value)}" for name, value in values.items()]
        parts.append(f"domain ratio {1 - best['replay']:.3f}")
        line = f"best together by {law}: {', '.join(parts)}; {best.status.message}"
        again = f"; target.steps={best['steps']:.0f} answers for that length" if "steps" in find else ""
        return {f"best_{name}": value for name, value in values.items()}, [line + again, *lines]
    return {}, problems


def _by_weight(laws: AnsweringLaws, corpus: str) -> Iterator[tuple[str, Fit]]:
    """The fits of a corpus, those of the dynamics laws first, then by their weight in the answer."""
    weight = laws.weights.get(corpus) or {laws.law[corpus]: 1.0}
    for law in sorted(laws.question.law, key=lambda law: (not law.startswith("dynamics"), -weight.get(law, 0.0))):
        fit = laws.fits[corpus][law]
        assert not isinstance(fit, LawAverage)
        yield law, fit


def _facts(laws: AnsweringLaws, answer: Solution, corpus: str, fit: Fit) -> dict[str, float]:
    """What a law reads of the model, and of a pre-training that is not known."""
    columns = answer.target.columns(corpus, fit)
    known = (*AREAS, *(("s1_pretrain",) if answer.target.pretrain is not None else ()))
    return {name: value for name, value in columns.items() if name not in known}


def _after(turn: Estimate) -> str:
    words = "never" if turn.value == float("inf") else f"after {turn.value:,.0f} steps"
    return words + _between(turn)


def _critical_lines(general: str, values: dict[str, Estimate]) -> Iterator[str]:
    names = {"critical_loss_potential": "loss potential of the start", "critical_ratio": f"ratio of {general}"}
    for name, words in names.items():
        if value := values.get(name):
            at = "no" if value.value > 1 else "any" if value.value <= 0 else ""
            how = f"at {at} {words}" if at else f"above a {words} of {value.value:.3f}"
            yield f"{general}: critical point: it comes back {how}{_between(value)}"


def _between(value: Estimate) -> str:
    """Its interval, as words; empty where there is none, or all bootstrap draws agree."""
    if np.isnan(value.low) or value.low == value.high:
        return ""
    low, high = ("never" if np.isinf(end) else f"{end:,.3g}" if end < 100 else f"{end:,.0f}" for end in value[1:])
    return f" (90%: {low} to {high})"
