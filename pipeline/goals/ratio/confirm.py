"""Confirmation runs, which no fit has seen, and the predictions of every law for them.

Whether they confirm an answer is judged in `outcomes`.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np
import pandas as pd

from fitting import Fit, LawAverage
from fitting.law_average import AVERAGE
from pipeline.goals.ratio.outcomes import Others, Rows, balance_weights
from pipeline.plan.runs import continual_run
from pipeline.plan.token_supply import supply_problems
from pipeline.question.design import with_peak
from pipeline.question.messages import ConfigError
from pipeline.question.phases import pieces
from pipeline.question.schema import Question
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Outcome, Recommendation
from pipeline.study.collect import last_losses
from pipeline.study.context import Context
from pipeline.study.fits import horizon_weights, with_average
from pipeline.study.folder import PlannedRun, Study, StudyError, import_words
from pipeline.study.number_format import percent, signed
from pipeline.study.status import ended_points
from pipeline.study.target import find_target
from training.schedule import learning_rates

SAME = 5e-4
"""Difference of two domain ratios up to which they are the same."""
NEAR = 0.02
"""Difference of two domain ratios up to which a run at one is held against the prediction for the other."""

_REASONS = {
    True: ("the fit has read it", "the fit has read them"),
    False: ("it was for another answer", "they were for another answer"),
}
"""Whether the fit has read a run -> why it is not counted, and why several are not."""


@dataclass(frozen=True)
class Place:
    """A confirmation run without its seed."""

    model: str
    domain_ratio: float
    steps: int


def imported_runs(context: Context, recommendation: Recommendation, any_length: bool) -> list[PlannedRun]:
    """The confirmation runs that were trained elsewhere, those nearest to the recommended ratio first.

    `any_length`: also those of another model or length than the recommended run.

    Raises:
        StudyError: there are none, or one has other learning rates or another batch than the recommended run.
    """
    study = context.study
    question = with_peak(context.question, recommendation.peak_learning_rate)
    domain, target = question.corpora.domain, recommendation.target
    runs = [run for run in context.plan if run.role == "confirm"]
    runs = [run for run in runs if any_length or (run.model, run.spec.steps) == (target.model, target.steps)]
    assert recommendation.mixture is not None
    ratio = recommendation.mixture[domain]
    if not runs:
        parts = ["no run to confirm with", *_not_judged(context, runs), import_remedy(context, recommendation)]
        raise StudyError(f"{study.folder}: {'; '.join(parts)}")
    recommended = pieces(question.target_phase)
    for run in runs:
        spec = run.spec
        rates, asked = (learning_rates(schedule, spec.steps) for schedule in (spec.schedule, recommended))
        if not np.allclose(rates, asked, rtol=1e-6, atol=0.0):
            peaks = f"peak {max(rates):g}, recommended {max(asked):g}"
            raise StudyError(f"{run.name}: its learning rates are not those of the recommended run ({peaks})")
        if spec.tokens_per_step != question.tokens_per_step():
            tokens = f"{spec.tokens_per_step:,}, recommended {question.tokens_per_step():,}"
            raise StudyError(f"{run.name}: tokens_per_step={tokens}")
    return sorted(runs, key=lambda run: abs(run.ratio_of(domain) - ratio))


def _not_judged(context: Context, judged: Sequence[PlannedRun]) -> Iterator[str]:
    """Which runs that were brought to confirm the answer are not compared with it, in words."""
    others = [run for run in context.plan if run.imported and run.role == "confirm" and run not in judged]
    if others:
        listed = ", ".join(f"{run.name} ({run.model}, {run.spec.steps:,} steps)" for run in others)
        yield f"not judged, of another model or length: {listed}"


def import_remedy(context: Context, answer: Recommendation | None) -> str:
    """Which run would confirm the answer to runs made elsewhere, and how it comes here; empty: it is there.

    Empty too for a study that trains its own, and without an answer.
    """
    domain, mixture = context.question.corpora.domain, answer.mixture if answer else None
    if not answer or not mixture or not any(run.imported for run in context.plan):
        return ""
    asked = answer.target.model, answer.target.steps
    for run in (run for run in context.plan if run.role == "confirm"):
        ratio = run.ratio_of(domain)
        if abs(ratio - mixture[domain]) < SAME and (run.model, run.spec.steps) == asked:
            return ""
    place = f"domain_ratio={mixture[domain]:.3f}, {answer.target.steps:,} steps"
    bring = shlex.join(["cptlaw", *import_words(context.question, f"{mixture[domain]:.3f}"), "role=confirm"])
    return f"train the recommended run ({place}), which cptlaw export {context.study.word} writes, then {bring}"


def ratios(question: Question, recommendation: Recommendation) -> list[float]:
    """The recommended domain ratio, and those around it: `confirm.around`, or one at `confirm.neighbour`."""
    assert recommendation.mixture is not None
    ratio, confirm = recommendation.mixture[question.corpora.domain], question.confirm
    distance = confirm.neighbour
    distances = confirm.around or ([-distance if ratio >= distance else distance] if distance else [])
    # Each once: a run that is there twice would count as two seeds.
    places = dict.fromkeys([ratio, *(round(ratio + distance, 3) for distance in distances)])
    return [place for place in places if 0 <= place <= 1]


def confirmation_runs(context: Context, asked: Sequence[Place], seen: Collection[str] = ()) -> list[PlannedRun]:
    """The runs of some places, over `confirm.seeds`: of the next seeds where a fit has seen one of these hashes."""
    question = context.question
    first = question.seed
    while True:
        runs = [
            continual_run(context, context.models[place.model], place.domain_ratio, place.steps, seed, "confirm")
            for seed in range(first, first + question.confirm.seeds)
            for place in asked
        ]
        if not any(run.spec.hash in seen for run in runs):
            break
        # All of them, so that seeds stay paired between the ratios.
        first += 1
    if problems := list(supply_problems(runs, context)):
        raise ConfigError(problems)
    return runs


def why_another_seed(context: Context, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """A line where the confirmation runs have another seed than the question, since the fit has read one of them."""
    _, domain = context.corpora
    fitted = {run.spec.hash for run in context.plan if run.role == "fit"}
    first = min((run.spec.seed for run in runs), default=0)
    for run, seed in itertools.product(runs, range(context.question.seed, first)):
        if replace(run.spec, seed=seed).hash in fitted:
            same = f"{percent(run.ratio_of(domain))} {domain} for {run.spec.steps:,} steps"
            last = max(run.spec.seed for run in runs)
            seeds = f"seed {first}" if last == first else f"seeds {first} to {last}"
            yield (
                f"{same} is among the runs for the fit, with seed {seed}: so the confirmation runs have {seeds}, "
                "another order of the text"
            )
            return


def compare(
    context: Context,
    runs: list[PlannedRun],
    outcome: Callable[[Question, Recommendation, Rows, Others], Outcome],
    steps: Callable[[Question, float], int] | None = None,
) -> Confirmation:
    """Every law's prediction for the end of each place beside the mean over its seeds; writes confirmation.json.

    `steps`: length of a run that answers at a domain ratio; None: as long as the first run.
    """
    study, points = context.study, context.points
    recommendation = Recommendation.read(study)
    question = with_peak(context.question, recommendation.peak_learning_rate)
    by_place: dict[tuple, list[PlannedRun]] = {}
    for run in runs:
        # Runs of a place differ in their seed alone.
        by_place.setdefault((run.model, run.spec.steps, tuple(run.spec.mixture.items())), []).append(run)
    rows = []
    for place in by_place.values():
        place.sort(key=lambda run: run.spec.seed)
        run = place[0]
        target = find_target(question, points, run.model).lasting(run.spec.steps)
        weights = horizon_weights(context.fits, context.tested, target.N, target.D) if recommendation.weights else {}
        answering = with_average(context.fits, weights, context.tested)
        for corpus in (question.corpora.general, question.corpora.domain):
            ends = _ends(points, place, corpus, study)
            measured, bits = float(ends["loss"].mean()), float(ends["bits_per_byte"].mean())
            seen = {
                "before": target.before[corpus],
                "measured": measured,
                "seeds": [float(value) for value in ends["loss"]],
                "sd": float(np.std(ends["loss"], ddof=1)) if len(place) > 1 else None,
                "perplexity": math.exp(measured),
                "bits_per_byte": None if math.isnan(bits) else bits,
                "domain_ratio": float(ends["ratio"].iloc[0]),
            }
            weight = _weights_at(answering[corpus], ends["r"].iloc[0])
            for law, fit in answering[corpus].items():
                frame = pd.DataFrame([{**target.columns(corpus, fit), "r": ends["r"].iloc[0]}])
                sides = (fit.predict(frame), *fit.predict_interval(frame))
                predicted, low, high = (float(side[0]) for side in sides)
                rows.append(
                    ConfirmationRow(
                        run=run.name, model=run.model, N=target.N, D=target.D, steps=target.steps, corpus=corpus,
                        law=law, recommended=law == recommendation.law[corpus], predicted=predicted, low=low, high=high,
                        relative_error=predicted / measured - 1, inside=low <= measured <= high,
                        weight=weight.get(law), **seen,
                    )
                )  # fmt: skip
    known = sum(ended_points(study, context.plan).values())
    alike = _alike(context, runs[0], steps and partial(steps, question))
    beside = _losses_of_others(context, runs, alike)
    judged = outcome(question, recommendation, rows, beside)
    others = [*_other_run(context, runs[0], recommendation), *_not_counted(context, runs, judged, recommendation)]
    others += _kept_above(judged, recommendation, beside)
    others += [f"N{line[1:]}." for line in _not_judged(context, runs)]
    judged = replace(judged, sentence=" ".join([judged.sentence, *others]))
    losses = last_losses(points, [run.name for run in runs])
    confirmation = Confirmation(0.9, rows, judged, known, recommendation.identity, losses)
    confirmation.write(study)
    return confirmation


def _weights_at(answering: Mapping[str, Fit | LawAverage], r: float) -> dict[str, float]:
    """Law -> its weight in the average at a ratio of the corpus, 0 for one that is not in it; empty without average."""
    average = answering.get(AVERAGE)
    if not isinstance(average, LawAverage):
        return {}
    weights = dict(zip(average.fits, average.weights_at(pd.DataFrame({"r": [r]}))[:, 0]))
    return {law: float(weights.get(law, 0.0)) for law in answering if law != AVERAGE}


def _other_run(context: Context, run: PlannedRun, answer: Recommendation) -> Iterator[str]:
    """That a run made elsewhere is not the recommended one, and what to do, a sentence."""
    if remedy := import_remedy(context, answer):
        domain = context.question.corpora.domain
        own = f"{percent(run.ratio_of(domain))} {domain}, {run.spec.steps:,} steps"
        recommended = f"{percent((answer.mixture or {})[domain])} {domain}, {answer.target.steps:,} steps"
        yield f"This run is at {own}, the answer is {recommended}: {remedy}."


def _ends(points: pd.DataFrame, runs: Sequence[PlannedRun], corpus: str, study: Study) -> pd.DataFrame:
    """The last loss of each run on a corpus, in their order."""
    ends = []
    for run in runs:
        end = points[(points["run"] == run.name) & (points["corpus"] == corpus) & (points["step"] == run.spec.steps)]
        if end.empty:
            raise StudyError(f"{run.name}: has not ended; run cptlaw confirm {study.word}")
        ends.append(end.iloc[:1])
    return pd.concat(ends)


def _alike(context: Context, own: PlannedRun, steps: Callable[[float], int] | None = None) -> list[PlannedRun]:
    """The runs of the plan that differ from one in seed, ratio and evaluations alone; with `steps`, in length too.

    `steps`: of a run at a domain ratio.
    """
    spec, domain = own.spec, context.corpora[1]
    of_length = [
        run for run in context.plan if run.spec.steps == (steps(run.ratio_of(domain)) if steps else spec.steps)
    ]
    same = {"seed": spec.seed, "mixture": spec.mixture, "steps": spec.steps, "evaluation": spec.evaluation}
    return [run for run in of_length if not run.variant and replace(run.spec, **same).hash == spec.hash]


def _deciding_losses(context: Context, runs: Sequence[PlannedRun]) -> dict[str, float]:
    """Run -> its last loss on the corpus that decides on the answer, or the sum of two that does."""
    question, (general, domain) = context.question, context.corpora
    weights = {general if question.goal.kind == "trade-off" else domain: 1.0}
    weights = balance_weights(question) if question.goal.kind == "balance" else weights
    points = context.points[context.points["corpus"].isin(weights)]
    ends = points[points["step"] == points["run"].map({run.name: run.spec.steps for run in runs})]
    losses = (ends["loss"] * ends["corpus"].map(weights)).groupby(ends["run"]).sum()
    return dict(zip(losses.index.tolist(), losses.tolist()))


def _losses_of_others(context: Context, runs: Sequence[PlannedRun], alike: Sequence[PlannedRun]) -> Others:
    """Domain ratio -> mean loss that decides on the answer of runs like these, where none of these is."""
    domain, losses = context.corpora[1], _deciding_losses(context, alike)
    # A run that is nearly at the place is another measurement of it, and no other place.
    apart = SAME if context.question.goal.kind == "trade-off" else NEAR
    compared, by_ratio = [run.ratio_of(domain) for run in runs], defaultdict[float, list[float]](list)
    for run in alike:
        if run.name in losses and all(abs(run.ratio_of(domain) - own) >= apart for own in compared):
            by_ratio[run.ratio_of(domain)].append(losses[run.name])
    return {ratio: fmean(each) for ratio, each in by_ratio.items()}


def _not_counted(
    context: Context, runs: Sequence[PlannedRun], outcome: Outcome, answer: Recommendation
) -> Iterator[str]:
    """What other runs at the recommended place, or nearly there, measured: a sentence, with the mean of all there.

    The predictions are judged by none of them: the fit has read them, or they were for another answer.
    """
    domain, own, alike = context.question.corpora.domain, runs[0], _alike(context, runs[0])
    losses = _deciding_losses(context, alike)
    before = answer.loss_before[outcome.corpus] if outcome.loss_increase else 1.0
    shown = (lambda loss: signed(loss / before - 1)) if outcome.loss_increase else (lambda loss: f"{loss:.4f}")
    alike = [run for run in alike if run.name in losses]
    compared, ratio = {run.name for run in runs}, own.ratio_of(domain)
    others = [run for run in alike if run.name not in compared and abs(run.ratio_of(domain) - ratio) <= NEAR]
    if not others:
        return
    parts = []
    for is_read, reasons in _REASONS.items():
        group = [run for run in others if (run.role == "fit") == is_read]
        seen = [f"{shown(losses[run.name])} at {percent(run.ratio_of(domain))} (seed {run.spec.seed})" for run in group]
        parts += [f"since {reasons[len(seen) > 1]}: {', '.join(seen)}"] if seen else []
    line = f"Not counted as a test of the prediction, {'; '.join(parts)}"
    there = [losses[run.name] for run in alike if run.spec.mixture == own.spec.mixture]
    if any(run.spec.mixture == own.spec.mixture for run in others):
        sd = float(np.std(there, ddof=1))
        noise = f"{100 * sd / before:.2f} points" if outcome.loss_increase else f"{sd:.4f}"
        mean = f"{shown(np.mean(there))} in the mean, standard deviation {noise}"
        all_there = "both" if len(there) == 2 else f"all {len(there)}"
        line += f"; {all_there} runs at {percent(ratio)} together: {mean}"
    yield f"{line}."


def _kept_above(outcome: Outcome, answer: Recommendation, others: Others) -> Iterator[str]:
    """The largest domain ratio above that of an answer which keeps to the tolerance where others do too, a sentence."""
    increase, tolerance = outcome.loss_increase, outcome.tolerance
    if not increase or tolerance is None or increase.value is None or increase.value > tolerance:
        return
    own, before = outcome.places[outcome.at].domain_ratio, answer.loss_before[outcome.corpus]
    if kept := [ratio for ratio, loss in others.items() if ratio > own and loss / before - 1 <= tolerance]:
        yield f"Another run of the study, at {percent(max(kept))}, kept to {100 * tolerance:.3g}% as well."
