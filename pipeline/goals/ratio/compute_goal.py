"""goal=compute: the model with the least domain loss after a continual phase of so many FLOPs."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from fitting import compute_optimal
from fitting.answers.compute_optimal import LEAST_FLOPS
from fitting.schedule import FORWARD
from pipeline.goals.ratio.answering_laws import TESTED, AnsweringLaws, Solution, ratio_of_run
from pipeline.goals.ratio.confirm import Place
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcomes import NO_RUNS, Others, Rows, minimum_outcome
from pipeline.question.messages import ConfigError, finite_above, shown
from pipeline.question.presets import ladder_names, models
from pipeline.question.schema import Question
from pipeline.study.artifacts import ModelCandidate, Outcome, Recommendation
from pipeline.study.target import Target, find_target
from training.keys import MOST_STEPS


class ComputeGoal(LawGoal):
    """Usage 3 of the D-CPT Law."""

    chooses_run = True
    keys = ("flops", "domain_ratio", "tolerance")

    def problems(self, question: Question) -> Iterator[str]:
        flops = question.goal.flops
        if not finite_above(flops, LEAST_FLOPS - 1):
            value = f"goal.flops: {shown(flops)} with goal.kind=compute"
            yield f"{value}; allowed: {LEAST_FLOPS:g} or more, operations of the phase, like 5e19"
        if len({*ladder_names(question), question.model.name}) < 2:
            yield "goal.kind: 'compute' with one model; allowed: two or more, ladder=[...]"

    def solve(self, laws: AnsweringLaws) -> Solution:
        """The best model and the best size.

        Between models the loss before, and the ratio where it is not given, are monotone cubics in log N.
        """
        question, (general, domain) = laws.question, laws.corpora
        assert question.goal.flops is not None
        ladder, own = models(question)
        names = dict.fromkeys(model.name for model in [*ladder, own])
        measured = sorted((find_target(question, laws.points, name) for name in names), key=lambda target: target.N)
        flops, step = question.goal.flops, question.tokens_per_step()
        # C = 6 N D, N in billions.
        most = 6e9 * measured[0].N * step * MOST_STEPS
        if flops > most:
            of = f"{MOST_STEPS:,} steps of {measured[0].model}"
            raise ConfigError([f"goal.flops: {flops:g}; allowed: up to {most:.4g}, {of}"])
        targets = [target.lasting(max(1, round(flops / (6e9 * target.N * step)))) for target in measured]
        intervals = [_ratio(laws, target) for target in targets]
        if short := [target.model for target, (ratio, *_) in zip(targets, intervals) if ratio is None]:
            binding = f"no domain ratio keeps the loss of {', '.join(short)} on {general} within the tolerance"
            return Solution(targets[0], None, None, None, {}, f"{binding}; give goal.domain_ratio", [])
        ratios = [float(ratio or 0) for ratio, *_ in intervals]
        losses = [laws.loss(target, domain, ratio) for target, ratio in zip(targets, ratios)]
        best = int(np.argmin([loss for loss, *_ in losses]))
        target = targets[best]
        laws = laws.at(target)
        answer = compute_optimal(
            laws.fit(domain), flops, at=_by_size(laws, targets, ratios), sizes=(targets[0].N, targets[-1].N)
        )
        size = answer.values["N"]
        rows = [
            ModelCandidate(one.model, one.N, one.D, one.steps, ratio, *loss, tested=not laws.untested(one))
            for one, ratio, loss in zip(targets, ratios, losses)
        ]
        predicted = {general: laws.loss(target, general, ratios[best]), domain: losses[best]}
        identified = not (size.low <= 1.01 * targets[0].N and size.high >= 0.99 * targets[-1].N)
        optimum = {name: answer.values[name] for name in ("N", "D")}
        binding, warnings = answer.status.message, answer.warnings
        if far := [row.model for row in rows if not row.tested]:
            why = f"left out, since intervals were tested up to {TESTED:.0f} times as far as was fitted"
            warnings = [*warnings, f"{', '.join(far)}: the predicted loss of so many tokens is {why}"]
        return Solution(target, *intervals[best], predicted, binding, warnings, identified, optimum, rows)

    def places(self, question: Question, recommendation: Recommendation) -> list[Place]:
        places = [Place(row.model, ratio_of_run(row.domain_ratio), row.steps) for row in recommendation.candidates]
        return sorted(places, key=lambda place: place.model != recommendation.target.model)

    def outcome(self, question: Question, answer: Recommendation, rows: Rows, others: Others = NO_RUNS) -> Outcome:
        size = answer.optimum["N"]
        return minimum_outcome(question, rows, "N", (size.low, size.high))

    def constraint(self, question: Question) -> str:
        return f"The continual phase may take {question.goal.flops or 0:.3g} FLOPs."


def _ratio(laws: AnsweringLaws, target: Target) -> tuple[float | None, float | None, float | None]:
    """The domain ratio that is given, or the largest within the tolerance, and its interval."""
    if (given := laws.question.goal.domain_ratio) is not None:
        return given, given, given
    answer = laws.trade_off(target)
    return answer.domain_ratio, answer.low, answer.high


def _by_size(
    laws: AnsweringLaws, targets: Sequence[Target], ratios: Sequence[float]
) -> Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    """What the domain's law reads, as a function of N and D, each (n,)."""
    domain = laws.question.corpora.domain
    least, most = sorted((targets[0].D, targets[-1].D))
    by_length = targets[-1].columns_by_length(domain, laws.fit(domain), least, most)
    sizes = np.log([target.N for target in targets])
    own = pd.DataFrame([target.columns(domain, laws.fit(domain)) for target in targets])
    of_a_run = ("N", "D", *FORWARD, "s2", "s2_square")
    own = own[[name for name in own if str(name).split(".")[-1] not in of_a_run]]
    own["r"] = ratios
    between = PchipInterpolator(sizes, own.to_numpy(float))

    def at(N: np.ndarray, D: np.ndarray) -> dict[str, np.ndarray]:
        known = between(np.clip(np.log(N), sizes[0], sizes[-1]))
        return {**by_length(D), **dict(zip(map(str, own.columns), known.T))}

    return at
