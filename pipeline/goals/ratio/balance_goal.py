"""goal=balance: the domain ratio of the least weighted sum of the general and the domain loss."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fitting.answers.answer import beyond, estimate
from fitting.answers.grid_minimum import parabola_minima
from fitting.answers.trade_off import GRID
from pipeline.goals.ratio.answering_laws import AnsweringLaws, Solution, at_best_peak
from pipeline.goals.ratio.law_goal import LawGoal
from pipeline.goals.ratio.outcomes import NO_RUNS, Others, Rows, balance_weights, minimum_outcome
from pipeline.goals.ratio.turning_goal import Facts, best_length_and_start, turning_facts
from pipeline.question.schema import Question
from pipeline.study.artifacts import ConfirmationRow, Outcome, Recommendation
from pipeline.study.target import find_target


class BalanceGoal(LawGoal):
    """Equation 5 of Wang et al. (2025), for the replay ratio and the peak of a run of given length."""

    keys = ("weight", "find")

    def solve(self, laws: AnsweringLaws) -> Solution:
        """The answer, at the peak learning rate of `design` with the least weighted loss."""
        factors = dict(zip(laws.corpora, balance_weights(laws.question).values()))
        return at_best_peak(
            laws, _at_one_peak, lambda found: sum(factors[corpus] * found.predicted[corpus][0] for corpus in factors)
        )

    def beside(self, laws: AnsweringLaws, answer: Solution) -> Facts:
        """Turning length, critical point, and what `goal.find` asks for."""
        (turning, lines), (best, more) = turning_facts(laws, answer), best_length_and_start(laws, answer)
        return {**turning, **best}, [*lines, *more]

    def outcome(self, question: Question, answer: Recommendation, rows: Rows, others: Others = NO_RUNS) -> Outcome:
        interval, weights = (answer.low, answer.high), balance_weights(question)
        return minimum_outcome(question, _summed(rows, weights), "domain_ratio", interval, _name(weights), others)

    def constraint(self, question: Question) -> str:
        return f"The least of {_name(balance_weights(question))}, the weighted losses on both, is sought."


def _name(weights: dict[str, float]) -> str:
    return " + ".join(f"{weight:.3g} {corpus}" for corpus, weight in weights.items())


def _at_one_peak(laws: AnsweringLaws) -> Solution:
    target, (general, domain) = find_target(laws.question, laws.points), laws.corpora
    curve, drawn, warnings = np.zeros(len(GRID)), [], []
    for corpus, weight in balance_weights(laws.question).items():
        fit = laws.fit(corpus)
        frame = pd.DataFrame({**target.columns(corpus, fit), "r": GRID if corpus == domain else 1 - GRID})
        curve += weight * fit.predict(frame)
        drawn.append(weight * fit.predict_draws(frame) if len(fit.draws) else np.zeros((0, len(GRID))))
    count = min(map(len, drawn))
    of_draws = parabola_minima(GRID, drawn[0][:count] + drawn[1][:count])
    ratio, low, high = estimate(float(parabola_minima(GRID, curve[None])[0]), of_draws)
    for corpus, r in ((general, 1 - ratio), (domain, ratio)):
        fit = laws.fit(corpus)
        name = "domain" if corpus == domain else "general"
        warnings += beyond(name, fit, pd.DataFrame([{**target.columns(corpus, fit), "r": r}]))
    predicted = {corpus: laws.loss(target, corpus, ratio) for corpus in laws.corpora}
    end = {0.0: f"all {general}", 1.0: f"all {domain}"}.get(ratio)
    binding = f"the range of ratios: {end} is best" if end else "nothing: the least lies inside"
    identified = not (low <= 0.01 and high >= 0.99)
    return Solution(target, ratio, low, high, predicted, binding, warnings, identified)


def _summed(rows: list[ConfirmationRow], weights: dict[str, float]) -> list[ConfirmationRow]:
    """A row for each run, of the weighted sum of the losses by the laws that answered."""
    summed = []
    for run in dict.fromkeys(row.run for row in rows):
        pair = [next(row for row in rows if row.recommended and (row.run, row.corpus) == (run, of)) for of in weights]
        factors = np.array(list(weights.values()))
        predicted, before = factors @ [(row.predicted, row.before) for row in pair]
        half = float(np.linalg.norm(factors * [(row.high - row.low) / 2 for row in pair]))
        seeds = [float(factors @ losses) for losses in zip(*(row.seeds for row in pair))]
        sd = float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None
        numbers = {"measured": float(np.mean(seeds)), "sd": sd, "predicted": predicted, "before": before}
        ends = {"low": predicted - half, "high": predicted + half}
        summed.append(replace(pair[1], corpus=_name(weights), seeds=seeds, **numbers, **ends))
    return summed
