"""Choose the runs that are expected to sharpen an answer most for their cost."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fitting.design.answer_draws import QUESTIONS, Answers, answer_draws, losses_at, residuals_at
from fitting.design.features import Features
from fitting.design.inputs import Laws, LossColumn, Points, Runs, read_candidates, read_outputs, read_points
from fitting.design.selection import Draws, Score, centred, choose
from fitting.points import PointsError
from fitting.uncertainty.posterior import PARTICLES, Posterior, posterior

MOST_RUNS = 256
"""Runs chosen at once at most: what is measured then should decide on the next."""
ELEMENTS = 6_000_000
"""Numbers in the draws of the losses at all candidates, at most."""
HALF = float(ndtri(0.95))
COST_POWER = 0.4
WIDEST = 0.5
"""Half-width of the interval of all ratios: the variance of answers at both ends gives more."""


@dataclass(frozen=True)
class Design:
    """The runs to make next, in order.

    `chosen`: the label of each run in the index of the candidates (of its first row, where a run has several); `rows`:
    the labels of all rows of these runs. `half_width`, one a run: half-width of the 90% interval of the answer that is
    expected after it and all before it, in nats per token (root mean square over the target rows and losses), or in the
    unit of the answer to the question: a ratio, .5 at most, or billions of parameters. `cost`, one a run. `before`: the
    half-width today. `reason`: why these. `answer`: its posterior median, None without a question and for several
    targets. `gains`, one a run: label of each candidate that could be chosen then -> what it would have taken from the
    variance of the answer, over its cost to a power; the chosen one takes most.
    """

    chosen: tuple[Hashable, ...]
    rows: tuple[Hashable, ...]
    half_width: tuple[float, ...]
    cost: tuple[float, ...]
    before: float
    reason: str
    answer: float | None = None
    gains: tuple[Mapping[Hashable, float], ...] = field(default=(), repr=False)


def design(
    laws: Laws,
    measured: pd.DataFrame | None,
    candidates: pd.DataFrame,
    target: pd.DataFrame,
    *,
    cost: str = "cost",
    question: str | None = None,
    budget: float | None = None,
    batch: int | None = None,
    side_by_side: bool = False,
    seed: int = 0,
) -> Design:
    """Choose the next runs among candidates: those that sharpen an answer most for their cost.

    Parameters: `laws`, a name in `fitting.LAWS`, a `Law`, a list of them (alternatives: their disagreement counts), or
    a list of pairs (law, loss column) for several losses, general and domain, say. `measured`, the points so far with
    the laws' columns and losses (column `loss` without pairs) and perhaps `run`; may be empty or None. `candidates`,
    the runs that could be made, with the laws' columns and `cost`; rows that share a `run` are points of one run, whose
    cost is the largest of theirs. `target`, rows to predict; or with `question`, one of "trade_off", "limited_data" and
    "compute_optimal", a row with its parameters (N, D, tolerance, general_before; N, domain_tokens and perhaps
    most_tokens; flops) and what else the law reads. A column `<loss column>.<name>` goes before `<name>` for that loss.
    In trade_off the first pair is the general loss, r is the domain ratio, and the general law reads 1 - r. `cost`, the
    name of the column, in any unit. `budget`, in the same unit: the sum of the costs never exceeds it. `batch`, how
    many runs at most: by default one, or as many as a budget pays for. `side_by_side`: whether the runs of a batch
    train at the same time, each on its own device; each then counts at least the cost of the most expensive one.
    `seed`, of the random draws.

    Each run is the one with the largest expected fall of the answer's posterior variance over its cost to the power .4,
    chosen as if those before it had been measured. Without points the posterior is the prior. The result depends on the
    points and the seed alone.

    Raises PointsError for tables that cannot be used, a budget below the cheapest run, and a target that no candidate
    can teach.

    Source: V-optimal design (Chaloner & Verdinelli 1995) with posterior draws; docs/choosing.md compares.

    >>> runs = pd.DataFrame([(N, D, 6 * N * D) for N in (1, 2, 4) for D in (5, 20, 80)], columns=["N", "D", "cost"])
    >>> plan = design("chinchilla", None, runs, pd.DataFrame({"N": [8], "D": [160]}), budget=300)
    >>> sum(plan.cost) <= 300
    True
    """
    _check(question, budget, batch)
    task = design_task(laws, measured, candidates, target, cost, question, seed)
    if budget is not None and budget < task.runs.costs.min():
        least = task.runs.costs.min()
        raise PointsError(f"budget = {budget:g} is below the cheapest run, which costs {least:g}: raise it")
    before = task.half_width([one.variance for one in task.draws])
    most = min(batch or (1 if budget is None else MOST_RUNS), len(task.runs.costs))
    limit = inf if budget is None else budget
    least, longest, chosen = -1.0, 0.0, []
    while longest > least:
        least = longest
        chosen = choose(task.copied(), task.rows, task.runs.costs, task.score(least), limit, most)
        longest = max(task.runs.costs[run] for run, *_ in chosen) if side_by_side else least
    numbers = [run for run, *_ in chosen]
    widths = [task.half_width(variances) for _, variances, _ in chosen]
    lacking = f"{task.lacking} points are wanting for as many as parameters, so the prior counts; "
    what = "the run that takes" if len(numbers) == 1 else f"the {len(numbers)} runs that take"
    expected = f"half-width {before:.3g} now, {widths[-1]:.3g} expected"
    return Design(
        chosen=tuple(task.runs.labels[run] for run in numbers),
        rows=tuple(label for run in numbers for label in task.runs.every[run]),
        half_width=tuple(widths),
        cost=tuple(float(task.runs.costs[run]) for run in numbers),
        before=before,
        reason=f"{lacking * (task.lacking > 0)}{what} most from the variance of the answer for the cost: {expected}",
        answer=task.median() if question and len(target) == 1 else None,
        gains=tuple(
            {label: float(gain) for label, gain in zip(task.runs.labels, gains, strict=True) if gain > -inf}
            for *_, gains in chosen
        ),
    )


@dataclass(frozen=True, eq=False)
class Task:
    """What a choice is made from.

    `draws` of each output; `rows` (runs, points) of each run in them, -1 for none; `parameters` (k, p), those of the
    first law of each output; `lacking`, how many points are wanting for as many as parameters; `widest`, half-width of
    all that the answer can be.
    """

    runs: Runs
    draws: list[Draws]
    answers: list[Answers]
    parameters: list[np.ndarray]
    rows: np.ndarray
    lacking: int
    widest: float

    def copied(self) -> list[Draws]:
        """The draws to choose with, which changes them."""
        return [replace(one, losses=one.losses.copy(), answers=one.answers.copy()) for one in self.draws]

    def score(self, least: float = 0.0) -> Score:
        """What a run takes from the variance of the answers, over a power of its cost, `least` or more."""
        costs = np.maximum(self.runs.costs, least) ** COST_POWER
        return lambda outputs: sum(output.gains(self.rows) for output in outputs) / costs

    def median(self) -> float:
        """The median answer to a question, of its first target."""
        values, unit = self.answers[0].values[:, 0], self.answers[0].unit[0]
        return float(np.median(values)) if unit == 1 else float(unit)

    def half_width(self, variances: list[np.ndarray]) -> float:
        """Half-width of the 90% interval in the unit of the answer, for its variances (t,) of each output."""
        squares = [variance * one.unit**2 for variance, one in zip(variances, self.answers, strict=True)]
        return min(HALF * float(np.sqrt(np.mean(np.concatenate(squares)))), self.widest)


def design_task(
    laws: Laws,
    measured: pd.DataFrame | None,
    candidates: pd.DataFrame,
    target: pd.DataFrame,
    cost: str,
    question: str | None,
    seed: int,
) -> Task:
    """Check the tables and draw from the posterior; arguments as in `design`."""
    outputs = read_outputs(laws, candidates, question)
    points = [read_points(measured, output) for output in outputs]
    runs = read_candidates(candidates, cost, outputs)
    _check_target(target, outputs, points, runs, question)
    rows = np.concatenate(runs.rows)
    reference = runs.frame.iloc[rows[np.linspace(0, len(rows) - 1, min(len(rows), 60)).astype(int)]]
    frame = runs.frame.iloc[rows]
    of_a_particle = int(np.clip(ELEMENTS // len(rows) // PARTICLES, 1, 8))
    draws, answers, parameters = [], [], []
    # What the answer to a question does not depend on need not be known.
    for number, (output, known) in enumerate(zip(outputs[: 1 if question else None], points, strict=False)):
        posteriors, features = [], []
        for place, law in enumerate(output.laws):
            x = output.columns(known.frame, law) if len(known.frame) else {name: np.zeros(0) for name in law.columns}
            there = output.columns(frame, law)
            features.append(Features.of(x, there))
            rng = np.random.default_rng([seed, number, place])
            reference_x = output.columns(reference, law)
            posteriors.append(posterior(law, x, known.loss, features[-1](x), reference_x, rng, of_a_particle))
        kept = _weighted(posteriors, np.random.default_rng([seed, number, len(posteriors)]))
        of_laws = list(zip(kept, features, strict=True))
        one = answer_draws(question, target, output, of_laws) if question else losses_at(target, output, of_laws)
        noise = np.median(np.concatenate([each.noise for each in kept])) ** 2
        count = one.values.shape[1]
        losses = centred(residuals_at(frame, output, of_laws))
        draws.append(Draws(losses, centred(one.values), np.full(len(frame), noise), np.full(count, 1 / count)))
        answers.append(one)
        parameters.append(np.hstack([kept[0].coefficients, kept[0].psi]))
    widest = WIDEST if question in ("trade_off", "limited_data") else inf
    counts = np.array([len(of_run) for of_run in runs.rows])
    there = np.arange(counts.max()) < counts[:, None]
    padded = np.full(there.shape, -1)
    padded[there] = np.arange(len(rows))
    asked = zip(outputs[: 1 if question else None], points, strict=False)
    lacking = max(min(len(law.parameters) for law in output.laws) - len(known.loss) for output, known in asked)
    return Task(runs, draws, answers, parameters, padded, lacking, widest)


def _check(question: str | None, budget: float | None, batch: int | None) -> None:
    if question is not None and question not in QUESTIONS:
        raise PointsError(f"question = {question!r} is unknown: there are {', '.join(QUESTIONS)}, or None for losses")
    if batch is not None and (isinstance(batch, bool) or int(batch) != batch or batch < 1):
        raise PointsError(f"batch = {batch!r} is not allowed: how many runs to choose, 1 or more")
    if budget is not None and not 0 < budget < inf:
        raise PointsError(f"budget = {budget:g} is not allowed: a finite sum of costs above 0, or None")


def _check_target(
    target: pd.DataFrame, outputs: list[LossColumn], points: list[Points], runs: Runs, question: str | None
) -> None:
    """Raise PointsError for a target without rows, and for one that neither points nor candidates can teach."""
    if not isinstance(target, pd.DataFrame) or not len(target):
        raise PointsError("target has no rows: give the runs to predict, or the parameters of the question, as a table")
    for output, measured in zip(outputs, points, strict=True):
        for law in output.laws:
            names = [name for name in law.varies if question is None or (name in target.columns and name != "r")]
            at = output.columns(target, law) if question is None else {name: target[name].to_numpy() for name in names}
            taught = output.columns(runs.frame.iloc[np.concatenate(runs.rows)], law)
            seen = output.columns(measured.frame, law) if len(measured.frame) else None
            for name in names:
                values = np.unique(taught[name] if seen is None else np.concatenate([taught[name], seen[name]]))
                if len(values) > 1 or np.all(at[name] == values[0]):
                    continue
                other = at[name][at[name] != values[0]][0]
                raise PointsError(
                    f"no candidate can teach the target: all have {name} = {values[0]:g}, and it has {other:g}; "
                    f"add candidates at another {name}"
                )


def _weighted(posteriors: list[Posterior], rng: np.random.Generator) -> list[Posterior]:
    """Draws of alternative laws in proportion to their weights.

    The evidence is halved: it takes the points for independent and a law for true.
    """
    if len(posteriors) == 1:
        return posteriors
    evidence = np.array([one.evidence for one in posteriors]) / 2
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    counts = np.maximum((share * len(posteriors[0].noise)).round().astype(int), 2)
    return [one.some(rng.permutation(len(one.noise))[:count]) for one, count in zip(posteriors, counts, strict=True)]
