"""What limits an answer, a line each, in the order of its weight."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from fitting import LAWS, Fit, LawAverage
from fitting.law_selection import PREDICTED, error_percent, worse_than_mean
from pipeline.goals.ratio.answering_laws import ONE_RATIO, AnsweringLaws, Solution, ratio_of_run
from pipeline.goals.ratio.confirm import NEAR
from pipeline.question.design import budget_key, candidate_peaks
from pipeline.study.artifacts import MISSED_RUN
from pipeline.study.context import Context
from pipeline.study.earlier import earlier_line
from pipeline.study.fitted_points import selected
from pipeline.study.folder import IMPORTED
from pipeline.study.number_format import percent, signed
from pipeline.study.target import other_batch
from training.schedule import learning_rates

UNFOLLOWED = "are not followed by"
"""What a warning says of the losses of a corpus that the answering laws miss by more than their mean would."""
_TELLING = {
    **{"ratio": "runs at more ratios", "tokens": "longer runs", "size": "runs of more sizes"},
    "size-and-tokens": "longer runs of more sizes",
}
"""Split -> runs that say more of what the laws miss there."""
INFEASIBLE = "no ratio is feasible"
"""What `fitting.answers.trade_off` warns of where it is likely that no ratio answers."""
WEIGHTS = (
    f"^not known|{ONE_RATIO}",
    "do not say where the optimum", "end with a higher loss", "a spike", MISSED_RUN, "is flat", UNFOLLOWED,
    "have failed|runs are failed", INFEASIBLE,
    "runs? only", "beyond the points", "could not be fitted|left out", "could be tested", "not done",
    "not in the average", "", "not identified|do not fix",
)  # fmt: skip
"""Patterns of warnings, those that say most of an answer first; the empty one stands for all others."""
TELLING_RUNS = {
    "another size": {"A", "alpha", "nu"},
    "a longer run": {"E", "B", "beta", "C", "G"},
    "a ratio near 0 of the corpus": {"eps", "K", "b", "gamma"},
    "ratios further apart": {"eta"},
    "another schedule": {"C2", "lambda"},
}
"""What would identify a parameter, in short -> its names; docs/laws.md has the causes."""
FLAT = (0.002, 0.02)
"""Parts of the loss; a choice: one that differs by more than the second between the ratios is not called flat, and from
the first on not by more than `FLAT_PART` of what the run changes it by."""
FLAT_PART = 0.1
SPIKE = 8.0
"""A log error of so many standard deviations, by their median, is a spike if few runs have one."""
LEAST_SPIKE = 0.03
POINT = 0.01
"""A domain ratio that is nearer to the fitted ones is hardly beyond them."""
BESIDE = 0.1
"""Difference of domain ratios up to which a run for the fit is near the answer; a choice."""
READ = 0.05
"""Domain ratio from which a run that learns lowers the loss on the domain."""


def by_weight(warnings: Iterable[str]) -> list[str]:
    """The warnings in the order of their weight, extrapolations by how far they go.

    >>> by_weight(["dcpt: not identified: E", "D is beyond the points, 2 times", "D is beyond the points, 3 times"])
    ['D is beyond the points, 3 times', 'D is beyond the points, 2 times', 'dcpt: not identified: E']
    >>> by_weight(["D is beyond the points, 2 times", "dcpt on law: 3 runs only: intervals rest on how runs differ"])[0]
    'dcpt on law: 3 runs only: intervals rest on how runs differ'
    """

    def weight(line: str) -> tuple[int, float]:
        kinds = [number for number, words in enumerate(WEIGHTS) if words and re.search(words, line)]
        far = re.search(r"beyond the points, ([\d.e+]+) times", line)
        return min(kinds, default=WEIGHTS.index("")), -float(far[1]) if far else 0.0

    return sorted(dict.fromkeys(warnings), key=weight)


def domain_gain(laws: AnsweringLaws, answer: Solution) -> float | None:
    """Domain loss at the smallest fitted domain ratio less that at the answer; of goal=trade-off."""
    _, domain = laws.corpora
    least = least_ratio(laws.fit(domain))
    if laws.question.goal.kind != "trade-off" or not answer.predicted or least >= (answer.domain_ratio or 0.0):
        return None
    if ONE_RATIO in beyond_ratios(laws, answer.domain_ratio):
        return None
    return laws.loss(answer.target, domain, least)[0] - answer.predicted[domain][0]


def least_ratio(fit: Fit | LawAverage) -> float:
    """The smallest domain ratio that every law of a fit has seen."""
    alone = fit.fits.values() if isinstance(fit, LawAverage) else [fit]
    return max(one.ranges.get("r", (1.0, 1.0))[0] for one in alone)


def beyond_ratios(laws: AnsweringLaws, ratio: float | None) -> str:
    """That a domain ratio lies outside those of the points that the laws of either corpus read; empty: it does not.

    None, where no ratio answers, is outside one ratio alone; of several ratios it is outside from `POINT` on.
    """
    (general, domain), seen, fitted, far = laws.corpora, {}, set[str](), False
    for corpus in laws.corpora:
        low, high = laws.fit(corpus).ranges.get("r", (0.0, 1.0))
        low, high = (1 - high, 1 - low) if corpus == general else (low, high)
        fitted |= {percent(low), percent(high)}
        if ratio is not None and not low - 1e-4 <= ratio <= high + 1e-4:
            seen[f"{percent(low)} to {percent(high)}"] = [*seen.get(f"{percent(low)} to {percent(high)}", []), corpus]
            far |= max(low - ratio, ratio - high) >= POINT
    if len(fitted) == 1 and (ratio is None or seen):
        return f"all runs for the fit are at one domain ratio, {fitted.pop()}: {ONE_RATIO}"
    if ratio is None:
        return ""
    of = "; ".join(f"the loss on {' and '.join(corpora)} was fitted at {ends}" for ends, corpora in seen.items())
    return f"{percent(ratio)} {domain} is beyond the points: {of}" if far else ""


def beyond_peaks(context: Context, peak: float) -> str:
    """That a peak learning rate lies outside those of the runs for the fit; empty: it does not."""
    peaks = [run.peak for run in context.plan if run.role == "fit"]
    if not peaks or 0.99 * min(peaks) <= peak <= 1.01 * max(peaks):
        return ""
    seen = f"{min(peaks):.3g} to {max(peaks):.3g}" if max(peaks) > 1.01 * min(peaks) else f"{max(peaks):.3g}"
    end = max(peaks) if peak > max(peaks) else min(peaks)
    return f"peak {peak:g} is beyond the points, {peak / end:.3g} times the nearest: the runs for the fit have {seen}"


def beyond_runs(context: Context, ratio: float) -> str:
    """The end of a sentence: a domain ratio is well above or below those of all runs for the fit; empty: it is not."""
    _, domain = context.corpora
    own = [run.ratio_of(domain) for run in context.plan if run.role == "fit"]
    # Runs of other studies tell of other ratios too.
    if not own or context.question.general_from or min(own) - NEAR <= ratio <= max(own) + NEAR:
        return ""
    ends = f"above {percent(max(own))}" if ratio > max(own) else f"below {percent(min(own))}"
    return f"; no run for the fit is {ends} {domain}"


def _beyond_lengths(context: Context, ratio: float, tokens: float) -> str:
    """That runs for the fit near a domain ratio are shorter than the run asked about, and others are longer, in words.

    Empty: they are not. Where all are too short the fits warn of it.
    """
    of_fit = [(run.ratio_of(context.corpora[1]), run.spec.tokens / tokens) for run in context.plan if run.role == "fit"]
    near = max((length for at, length in of_fit if abs(at - ratio) <= BESIDE), default=1.0)
    length, at = max(((length, at) for at, length in of_fit), default=(0.0, 0.0))
    if near >= 1 or length <= near or context.question.general_from:
        return ""
    longest = f"the longest run for the fit within {100 * BESIDE:.0f} points of it is {near:.0%} as long as the run"
    return f"{longest} asked about, one at {percent(at)} is {length:.0%}"


def beyond_ratios_at_peak(context: Context, ratio: float, peak: float) -> str:
    """That a domain ratio is well outside those of the runs for the fit with this peak; empty: it is not."""
    domain, of_fit = context.corpora[1], (run for run in context.plan if run.role == "fit")
    at_peak = [run.ratio_of(domain) for run in of_fit if math.isclose(run.peak, peak, rel_tol=0.01)]
    if not at_peak or min(at_peak) - NEAR <= ratio <= max(at_peak) + NEAR:
        return ""
    own = " to ".join(dict.fromkeys(percent(end) for end in (min(at_peak), max(at_peak))))
    return f"{percent(ratio)} {domain} at a peak of {peak:g} is beyond the points: runs for the fit with it have {own}"


def is_flat(gain: float, before: float, loss: float, low: float, high: float) -> bool:
    """Whether a loss hardly depends on the domain ratio, by its gain over the smallest ratio and its 90% interval.

    `before`: the loss before the run. Far ahead an interval is wide by errors that the losses at all ratios have in
    common, and of few short runs by all that is not known: neither says anything of a gain.

    >>> is_flat(0.08, 7.15, 6.92, 6.8, 7.1), is_flat(0.01, 7.15, 6.92, 6.8, 7.1)
    (False, True)
    """
    least, most = (part * loss for part in FLAT)
    return abs(gain) < min((high - low) / 2, most, max(least, FLAT_PART * abs(before - loss)))


def answer_warnings(context: Context, laws: AnsweringLaws, answer: Solution, gain: float | None) -> Iterator[str]:
    """What limits an answer: the optimum that is not found, the laws that were left out, the fits' own warnings."""
    general, domain = context.corpora
    if line := laws.untested(answer.target):
        yield line
    elif not answer.identified:
        yield "the points do not say where the optimum is: its interval is all that was asked"
    if line := other_batch(context.plan, answer.target.tokens_per_step):
        yield line
    if line := _end_of_peaks(context, candidate_peaks(laws.question), answer.peak):
        yield line
    if context.question.general_from:
        yield earlier_line(context.points, context.question, context.plan)
    if gain is not None and is_flat(gain, answer.target.before[domain], *answer.predicted[domain]):
        least = least_ratio(laws.fit(domain))
        yield (
            f"the loss on {domain} is flat: {answer.predicted[domain][0] + gain:.4f} at {percent(least)}, "
            f"{answer.predicted[domain][0]:.4f} at {percent(answer.domain_ratio or 0.0)}, less apart than its interval"
        )
    yield from unfollowed(context, laws)
    yield from _harmed(context)
    yield from _spikes(context, laws)
    yield from _missed(context, laws, answer)
    yield from faded(laws, answer.domain_ratio)
    beyond = beyond_ratios(laws, answer.domain_ratio and ratio_of_run(answer.domain_ratio))
    if answer.domain_ratio is not None and ONE_RATIO not in beyond:
        ratio = ratio_of_run(answer.domain_ratio)
        lengths = _beyond_lengths(context, ratio, 1e9 * answer.target.D)
        words = beyond or f"{percent(ratio)} {domain} is beyond the points in length"
        beyond = f"{words}{'; ' if beyond else ': '}{lengths}" if lengths else beyond
    yield from filter(None, [beyond])
    if answer.domain_ratio is not None and answer.peak is not None:
        yield from filter(None, [beyond_ratios_at_peak(context, ratio_of_run(answer.domain_ratio), answer.peak)])
    # The fitter's warnings with the corpora's own names, and one line where both laws are warned of the same.
    names, merged = {"general": general, "domain": domain, "fit": domain}, {}
    # Of one ratio nothing is known of any other, nor whether one is feasible.
    left_out = f": r = |{INFEASIBLE}" if ONE_RATIO in beyond_ratios(laws, None) else ": r = "
    for warning in (line for line in answer.warnings if not re.search(left_out, line)):
        kind, _, rest = warning.partition(": ")
        merged.setdefault(rest, []).append(names.get(kind, kind))
    yield from (f"{', '.join(corpora)}: {rest}" for rest, corpora in merged.items())
    if unfitted := [name for name in context.question.law if name not in context.fits[general]]:
        yield f"{', '.join(unfitted)}: left out, cptlaw fit says why"
    if context.tested.empty:
        yield "no law could be tested on points held out of its fit; the first one was taken"
    if blind := context.laws_without_peaks:
        several = "no learning rates are read, and the runs for the fit have several peaks"
        yield f"{', '.join(blind)}: not in the average, since {several}"
    for corpus in context.corpora:
        weight = laws.weights.get(corpus)
        if weight and (left := [name for name in laws.question.law if name not in {*weight, *blind}]):
            tested = set(context.tested.loc[context.tested["corpus"] == corpus, "law"])
            near = [name for name in left if name in tested and np.isfinite(LAWS[name].furthest)]
            limited = [*near, *(name for name in left if name in tested and LAWS[name].nearest)]
            if others := [name for name in left if name not in limited]:
                yield f"{', '.join(others)} on {corpus}: not in the average, since no run could be held out of them"
            if near:
                ends = ", ".join(f"{name} (up to {LAWS[name].furthest:g} times them)" for name in near)
                yield f"{corpus}: not in the average so far beyond the fitted tokens: {ends}"
    names = dict.fromkeys(name for corpus in laws.corpora for name in laws.weights.get(corpus) or [laws.law[corpus]])
    by_law = {name: {corpus: context.fits[corpus][name] for corpus in context.corpora} for name in names}
    yield from _not_identified(by_law, context.points)


def _end_of_peaks(context: Context, tried: list[float], peak: float | None) -> str:
    """That the best peak is the first or last of those that runs for the fit have, in order; empty: it is not."""
    best = tried[0] if len(tried) == 1 else peak
    if best not in (tried[0], tried[-1]):
        return ""
    end = "only one" if len(tried) == 1 else "largest" if best == tried[-1] else "smallest"
    line = f"its peak learning rate is the {end} of those tried ({', '.join(f'{one:g}' for one in tried)})"
    asked = candidate_peaks(context.question)
    if left := [one for one in asked if (one < best == tried[0]) or (one > best == tried[-1])]:
        which = f"design.peaks has {', '.join(f'{one:g}' for one in left)} too, not tried and maybe better"
        remedy = "import such a run"
        if context.question.model.path != IMPORTED:
            refine = shlex.join(["cptlaw", "refine", str(context.study.folder)])
            remedy = (
                f"{refine} may choose such a run, and so may cptlaw train with a larger {budget_key(context.question)}"
            )
        return f"{line}: {which}; {remedy}"
    return f"{line}: one beyond may be better (design.peaks)" if len(tried) > 1 else ""


def unfollowed(context: Context, laws: AnsweringLaws) -> Iterator[str]:
    """A line for each corpus and split whose held-out losses all answering laws miss by more than their mean would."""
    folds = context.tested.assign(by=context.tested["split"], row=context.tested["step"])
    for corpus, rows in folds.groupby("corpus", sort=False):
        answering = [*(laws.weights.get(str(corpus)) or [laws.law[str(corpus)]])] if corpus in laws.corpora else []
        for split in rows["by"].unique() if answering else ():
            missing, spread = worse_than_mean(rows, split)
            if {*answering} <= missing.keys():
                errors = ", ".join(f"{law} (error {error_percent(missing[law])})" for law in answering)
                better = [law for law in rows["law"].unique() if law not in {*missing, *context.laws_without_peaks}]
                remedy = f"{_TELLING[split]} tell more"
                if better:
                    remedy = f"{better[0]} predicts them: cptlaw fit with law=[{better[0]}] answers by it alone"
                yield (
                    f"the losses on {corpus} {UNFOLLOWED} {errors} on {PREDICTED[split]}: the mean of the held-out "
                    f"losses would err by {error_percent(spread)}, less than every law of this answer; {remedy}"
                )


def _harmed(context: Context) -> Iterator[str]:
    """A line where runs end with a higher loss on the domain than before, though they read it: too high a peak."""
    _, domain = context.corpora
    points = context.points
    if "loss_before" not in points:
        return
    own = points[(points["corpus"] == domain) & (points["role"] == "fit")]
    ends = own.sort_values("step").groupby("run").last()
    worse = ends[(ends["loss"] > ends["loss_before"]) & (ends["r"] >= READ)]
    if peaks := [run.peak for run in context.plan if run.name in worse.index]:
        high = f"a peak learning rate of {min(peaks):g} is too high for this model and batch"
        yield (
            f"{len(worse)} of {len(ends)} runs for the fit end with a higher loss on {domain} than they begin with, "
            f"though they read it: {high}; give a fifth, target.peak_learning_rate={min(peaks) / 5:g}"
        )


def _spikes(context: Context, laws: AnsweringLaws) -> Iterator[str]:
    """A line for each of few runs that has a loss far from what the law of the largest weight fits.

    A spike leaves the losses before and behind it; a law may miss a whole curve, as that of the only run at its peak.
    Without any text of a corpus its loss drifts, which is no spike.
    """
    for corpus in context.corpora:
        weight = laws.weights.get(corpus) or {laws.law[corpus]: 1.0}
        law = max(weight, key=lambda name: weight[name])
        fit, rows = context.fits[corpus][law], selected(context.points, corpus, laws.question.law[law])
        if rows.empty:
            continue
        error = np.log(rows["loss"].to_numpy(float) / fit.predict(rows, context.schedules))
        # The scale of a normal distribution of this median.
        usual = float(np.median(np.abs(error))) / 0.6745
        rows, least = rows.assign(error=error).sort_values("step", kind="stable"), max(SPIKE * usual, LEAST_SPIKE)
        jumps = rows.groupby("run")["error"].diff().abs()
        rows = rows.assign(jump=np.fmax(jumps, jumps.groupby(rows["run"]).shift(-1)))
        off = rows[rows["error"].abs() > least]
        if 0 < off["run"].nunique() <= max(1, rows["run"].nunique() // 5):
            for run, of_run in off.groupby("run"):
                worst = of_run.iloc[int(of_run["error"].abs().argmax())]
                far = f"{signed(np.expm1(worst['error']), 1)} from what {law} fits, most within {usual:.1%} of {law}"
                why = "a spike?" if worst["jump"] > least else f"{law} does not follow the curve of this run."
                if worst["r"] == 0:
                    why = f"the run reads no {corpus}, and {law} does not follow such a loss."
                yield (
                    f"{run}: {why} Its loss on {corpus} at step {worst['step']}, {worst['loss']:.4f}, is {far}; the "
                    "fit limits the weight of such points: leave the run as it is"
                )


def faded(laws: AnsweringLaws, ratio: float | None) -> Iterator[str]:
    """A line for each corpus of which laws count less at a domain ratio than elsewhere, by `LawAverage.weights_at`."""
    if ratio is None:
        return
    r = ratio_of_run(ratio)
    for corpus, now in laws.weights_at(r).items():
        side = percent(1 - r if corpus == laws.corpora[0] else r)
        for law, weight in laws.weights[corpus].items():
            if now[law] < weight - 0.01:
                least = percent(laws.fits[corpus][law].ranges["r"][0])
                yield (
                    f"{law} was fitted to no run below {least} {corpus}: at {side} its weight is {now[law]:.0%}, not "
                    f"{weight:.0%}"
                )


def _missed(context: Context, laws: AnsweringLaws, answer: Solution) -> Iterator[str]:
    """A line for each loss that the laws miss of runs of the fit like the recommended one, at the next ratios to it."""
    target, points, ratio = answer.target, laws.points, answer.domain_ratio or 0.0
    alike = [run for run in context.plan if run.role == "fit" and run.model == laws.question.model.name]
    alike = [run for run in alike if run.spec.steps == target.steps]
    names = [run.name for run in alike if np.allclose(learning_rates(run.spec.schedule, target.steps), target.rates)]
    ends = points[(points["step"] == target.steps) & points["run"].isin(names)]
    if ends.empty:
        return
    general, goal = laws.corpora[0], context.question.goal
    # The loss on the domain tells the peak alone.
    deciding = {general} if goal.kind == "trade-off" and len(candidate_peaks(laws.question)) == 1 else {*laws.corpora}
    for corpus, rows in ends[ends["corpus"].isin(laws.corpora)].groupby("corpus", sort=False):
        ratios = rows["ratio"]
        beside = [ratios[ratios <= ratio].max(), ratios[ratios >= ratio].min()]
        seeds = rows[ratios.isin(beside)].groupby("ratio")["loss"].apply(list).to_dict()
        for near, losses in sorted((float(str(at)), of) for at, of in seeds.items()):
            measured, (predicted, low, high) = float(np.mean(losses)), laws.loss(target, str(corpus), near)
            if not low <= measured <= high:
                missed = f"{MISSED_RUN} is not as predicted" if corpus in deciding else "may be off"
                runs = f"the mean of {len(losses)} runs" if len(losses) > 1 else "a run"
                yield (
                    f"the loss on {corpus} {missed}: {runs} of the fit at {percent(near)} measured {measured:.4f}, "
                    f"where the laws predict {predicted:.4f} ({low:.4f} to {high:.4f})"
                )
    at_it = ends[(ends["corpus"] == general) & ((ends["ratio"] - ratio_of_run(ratio)).abs() < 5e-4)]
    changes = sorted(at_it["loss"] / target.before[general] - 1)
    if goal.kind == "trade-off" and changes and changes[0] > goal.tolerance:
        measured = ", ".join(signed(change) for change in changes)
        over = f"the tolerance is exceeded {MISSED_RUN}: at {percent(ratio)} runs of the fit measured {measured}"
        yield f"{over} on {general}, where {100 * goal.tolerance:g}% is allowed"


def _not_identified(fits: Mapping[str, Mapping[str, Fit]], points: pd.DataFrame) -> Iterator[str]:
    """One line: how many parameters of laws (law -> corpus -> fit) the points leave open, and what would tell."""
    left, telling = {}, set()
    for law, of_corpora in fits.items():
        for corpus, fit in of_corpora.items():
            if names := {name for name, known in fit.identified.items() if not known}:
                left[law] = left.get(law, set()) | names
                runs = {run for run, parameters in TELLING_RUNS.items() if names & parameters}
                telling |= runs - _trained(points[(points["role"] == "fit") & (points["corpus"] == corpus)])
    if left:
        count = sum(map(len, left.values()))
        parts = [f"not identified on one corpus or both: {count} parameters of {', '.join(left)}, listed in the report"]
        runs = ", ".join(run for run in TELLING_RUNS if run in telling)
        parts += [f"to know them takes {runs} (docs/laws.md)"] if runs else []
        yield "; ".join([*parts, "an answer may be known without them"])


def _trained(points: pd.DataFrame) -> set[str]:
    """Which of `TELLING_RUNS` the points of a corpus have already."""
    sizes = {"another size"} if points["N"].nunique() > 1 else set()
    return sizes | ({"a ratio near 0 of the corpus"} if (points["r"] <= NEAR).any() else set())
