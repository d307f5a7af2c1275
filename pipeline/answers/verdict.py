"""Is the optimum where it was predicted? What confirmation runs at it and around it say, with the noise of their seeds.

Of the trade-off: WHERE if the 90% interval of the measured rise at the answer holds the tolerance; NEAR if the share
at which the rise measured is the tolerance may lie in the 90% interval of the predicted one. Of limited-data and
compute: WHERE if the answer may be the best of all that were run and another may not; NEAR if one of those that may be
best lies in the 90% interval of the predicted optimum. Else ELSEWHERE; UNTOLD with one seed, and where all may be best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fitting import Estimate
from fitting.answers.measured_optimum import around_optimum, crossing, mean_of_seeds
from pipeline.question.schema import Question
from pipeline.report.number_format import percent

WHERE, NEAR, ELSEWHERE, UNTOLD = "where predicted", "within its interval", "elsewhere", "cannot be told"


def proven(question: Question, recommendation: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the runs prove.

    Args:
        question: what was asked.
        recommendation: content of recommendation.json.
        rows: of confirmation.json, a row a place, corpus and law.

    Returns:
        goal; corpus, whose loss decides; at, the place of the answer among `places`, which go by share (of compute by
        size): model, N, steps, domain_ratio, measured, sd, predicted, low, high; verdict; sentence. Of the trade-off
        tolerance, rise and crossing, else difference, other, among_best and sd, as
        `fitting.answers.measured_optimum` has them.
    """
    kind, (general, domain) = question.goal.kind, (question.corpora.general, question.corpora.domain)
    corpus = general if kind == "trade-off" else domain
    axis = "N" if kind == "compute" else "domain_ratio"
    own = sorted((row for row in rows if row["recommended"] and row["corpus"] == corpus), key=lambda row: row[axis])
    at = next(number for number, row in enumerate(own) if row["run"] == rows[0]["run"])
    kept = ("model", "N", "steps", "domain_ratio", "measured", "sd", "predicted", "low", "high")
    told = {
        "goal": kind,
        "corpus": corpus,
        "seeds": len(own[at]["seeds"]),
        "at": at,
        "places": [{name: row[name] for name in kept} for row in own],
    }
    if kind == "trade-off":
        return {**told, **_trade_off(own, at, question.goal.tolerance, recommendation, domain)}
    if len(own) < 2:
        return {**told, "verdict": UNTOLD, "sentence": "Nothing was run beside the answer: give confirm.around."}
    interval = recommendation["optimum"]["N"] if kind == "compute" else recommendation
    return {**told, **_least(own, at, axis, (interval["low"], interval["high"]), domain)}


def _trade_off(
    own: list[dict[str, Any]], at: int, tolerance: float, recommendation: dict[str, Any], domain: str
) -> dict[str, Any]:
    rises = np.array([row["seeds"] for row in own]) / own[at]["before"] - 1
    rise = mean_of_seeds(rises[at])
    shares = np.array([row["domain_ratio"] for row in own])
    met = crossing(shares, rises, tolerance)
    low, high = recommendation["low"], recommendation["high"]
    holds = rise.low <= tolerance <= rise.high
    verdict = WHERE if holds else NEAR if _meets(met, low, high) else ELSEWHERE
    if rises.shape[1] < 2:
        verdict = UNTOLD
    words = [
        f"At {percent(shares[at])} {domain} the loss on {own[at]['corpus']} rose by {rise.value:.2%}{_of(rise, '.2%')}",
        f"{100 * tolerance:.3g}% was asked",
    ]
    if met is None:
        words.append("the runs do not cross it" if len(own) > 1 else "nothing was run beside it, give confirm.around")
    else:
        words.append(
            f"measured, that is reached at {met.value:.1%}{_of(met, '.1%')}, predicted {low:.1%} to {high:.1%}"
        )
    parts = {"tolerance": tolerance, "rise": _plain(rise), "crossing": met and _plain(met), "verdict": verdict}
    return {**parts, "sentence": f"{'; '.join(words)}. {_seeds(rises.shape[1])}"}


def _least(own: list[dict[str, Any]], at: int, axis: str, interval: tuple[float, float], domain: str) -> dict[str, Any]:
    losses = np.array([row["seeds"] for row in own])
    found = around_optimum(losses, at)
    best = [row for row, among in zip(own, found.among_best) if among]
    verdict = WHERE if found.among_best[at] else ELSEWHERE
    if verdict == ELSEWHERE and any(interval[0] <= row[axis] <= interval[1] for row in best):
        verdict = NEAR
    if len(best) == len(own):
        verdict = UNTOLD
    names = [row["model"] if axis == "N" else percent(row["domain_ratio"]) for row in own]
    difference, side = found.difference, "above" if found.difference.value > 0 else "below"
    words = [
        f"At the predicted {names[at]} the loss on {domain} is {abs(difference.value):.4f} {side} the least of the "
        f"others, at {names[found.other]}{_of(difference, '+.4f')}",
        f"a run's noise is {found.sd:.4f}" if losses.shape[1] > 1 else "",
        "the least may lie at any of these places"
        if len(best) == len(own)
        else f"the least may lie at {', '.join(name for name, among in zip(names, found.among_best) if among)}, not at "
        + ", ".join(name for name, among in zip(names, found.among_best) if not among),
    ]
    return {
        "difference": _plain(difference),
        "other": found.other,
        "among_best": list(found.among_best),
        "sd": _plain(Estimate(found.sd, found.sd, found.sd))["value"],
        "verdict": verdict,
        "sentence": f"{'; '.join(word for word in words if word)}. {_seeds(losses.shape[1])}",
    }


def _meets(found: Estimate | None, low: float, high: float) -> bool:
    return found is not None and found.low <= high and low <= found.high


def _of(found: Estimate, form: str) -> str:
    return "" if np.isnan(found.low) else f" (90%: {found.low:{form}} to {found.high:{form}})"


def _seeds(count: int) -> str:
    return f"{count} seeds." if count > 1 else "One seed, so no noise is known: confirm.seeds=3 gives intervals."


def _plain(found: Estimate) -> dict[str, float | None]:
    return {name: None if np.isnan(value) else float(value) for name, value in found._asdict().items()}
