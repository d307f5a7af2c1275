"""design.jsonl: the runs of a study that were chosen one round after another, and why, a line a round."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fitting.design.design import WIDEST
from pipeline.question.design import candidate_peaks
from pipeline.question.schema import GoalConfig, Question
from pipeline.study.folder import Study, StudyError
from pipeline.study.number_format import cost_in
from pipeline.study.quantities import Number, Ratio, Steps
from training.durable import as_counted_lines, read_counted_lines, record_of, write_whole

SCHEMA = 1
TOLERANCE, BUDGET, CANDIDATES = "tolerance reached", "budget spent", "no candidate left that tells more"
"""Why no further runs are chosen, as design.jsonl keeps it."""
CONFIRMATION = "confirmation"
"""Reason of a round in which finished confirmation runs became points for the fit."""
ANSWER_BEYOND = "it is beyond all runs"
"""Beginning of the reason of a run at an answer above or below the domain ratios of all runs for the fit."""
APART = 0.3
"""How far apart the domain ratios of runs for a large run are, as long as such runs are left."""
APART_ONLY = f"among domain ratios {APART:g} or more from those of other runs, since laws may err elsewhere"
"""Part of the reason of runs that were chosen among such."""
_LITTLE = 0.9
"""Runs after which more than this part of the half-width is expected to be left narrow it little."""
_REMEDY = "delete the file to choose anew, the finished runs are kept"


@dataclass(frozen=True)
class ChosenRun:
    """A run that was chosen, and what it takes to plan it again."""

    run: str
    model: str
    domain_ratio: Ratio
    steps: Steps
    """Length of the whole continual phase, with the runs that it continues."""
    seed: int
    cost: Number
    """With the pre-training of its model where no run before it had one; that of the target is never in it."""
    half_width: Number | None
    """That the answer is expected to have after it and those before it; None: it was not chosen for that."""
    peak: Number | None = None
    """Peak learning rate; None: that of the question."""
    continues: list[Steps] = dataclasses.field(default_factory=list)
    """Steps of the runs that it continues, the first one first: of the same model, ratio, seed and peak."""
    why: str = ""
    """What the run that is nearest to the answer would bring against it, in words; empty: it is that, or not known."""


@dataclass(frozen=True)
class DesignRound:
    """A round: what was known before it, and the runs that were chosen; none where choosing has stopped."""

    round: int
    """Its number among those that chose runs to train, or the next one."""
    state: str
    """Digest of what decided: the finished runs, models, goal, laws and limits. The same state decides the same."""
    spent: Number
    """Cost of the runs that had been chosen before, the sum of theirs."""
    budget: Number
    """Upper limit of that."""
    tolerance: Number
    answer: Ratio | None
    """The domain ratio that answers, before this round; None: not known."""
    half_width: Number | None
    """Half-width of its 90% interval; None: not known."""
    batch: Steps
    """Runs that were asked for."""
    chosen: list[ChosenRun]
    reason: str
    """Why these runs; CONFIRMATION for those that had confirmed an answer."""
    more: bool = False
    """Whether it was asked for by cptlaw refine, whatever tolerance and budget are."""
    unit: str = "FLOPs"
    unsettled: bool = False
    """Whether they are not to end the rounds: those of a recommendation that is not known to hold, or where there was
    none the posterior's."""
    by_posterior: bool = False
    """Whether answer and half-width are the posterior's, which takes the laws for right: no recommendation has them."""
    asked: str = ""
    """The question that the answer is of, as keys and values; empty: not written."""
    stop: str | None = None
    """TOLERANCE, BUDGET or CANDIDATES; None: runs were chosen."""

    @property
    def is_beyond(self) -> bool:
        """Whether its run is at an answer above or below the domain ratios of all runs before it."""
        return self.reason.startswith(ANSWER_BEYOND)

    @property
    def trains(self) -> bool:
        """Whether it chose runs to train."""
        return bool(self.chosen) and self.reason != CONFIRMATION

    @property
    def ending(self) -> str:
        """Why no further runs are chosen, for a line that names design.tolerance; empty: runs were chosen."""
        return "the ratio is known closely enough" if self.stop == TOLERANCE else self.stop or ""

    @property
    def remedy(self) -> str:
        """What lets train go on after a budget that is spent, as the end of a line."""
        return "; a larger design.budget lets cptlaw train go on" if self.stop == BUDGET else ""

    def line(self) -> str:
        """The cost so far, what is known, the next runs, and what they should bring, in a line."""
        known = "nothing measured yet"
        if self.half_width is not None and self.answer is not None:
            asked, known = f"design.tolerance={self.tolerance:g}", f"domain ratio {self.answer:.3f}"
            # Beside it may be the ratio by the laws fitted to all points, which is another one.
            known += " by the posterior" * (self.more or self.by_posterior)
            known += ", which takes the laws for right" * self.more
            if self.half_width <= self.tolerance and not self.more and self.stop != TOLERANCE:
                known += f", within {asked}"
                unsettled = "neither runs around it nor the round before confirm that"
                unsettled = (
                    "by the laws fitted to all points it is not known to hold yet" if self.unsettled else unsettled
                )
                open_ = self.reason if self.is_beyond else unsettled
                known += f", but {open_}, so one more round" if self.chosen else ""
            else:
                known += f", half of its 90% interval {self.half_width:.3f} ({asked})"
        # The budget holds for the rounds that follow by themselves alone.
        limit = "" if self.more or self.spent > self.budget else f" of at most {cost_in(self.unit, self.budget)}"
        speed = " at the speed that prepare measured" * (self.unit == "device-hours")
        cost = f"{cost_in(self.unit, self.spent)}{limit} {self.unit} so far{speed}"
        if self.stop:
            rounds = self.round - 1
            return f"after {rounds} round{'s' * (rounds != 1)}: {cost}; {known}; {self.ending}{self.remedy}"
        return f"round {self.round}: {cost}; {known}; next: {self.next_runs()}{self._why()}"

    def _why(self) -> str:
        """Why these runs, and that they tell little of the answer, if refine chose them."""
        if not self.chosen or self.is_beyond:
            return ""
        expected, before = self.chosen[-1].half_width, self.half_width
        if expected is None:
            return f"; {self.reason}"
        these, narrow = (
            ("these", "narrow it most for their cost") if self.chosen[1:] else ("this", "narrows it most for its cost")
        )
        why = f"; by the laws {these} {narrow}"
        if before is None:
            why = f"; by what the laws assume before any measurement {these} {narrow}"
        why += f", {APART_ONLY}" * (APART_ONLY in self.reason)
        if self.more and expected and before and _LITTLE * before < expected < WIDEST:
            why += ", but little: what is left is how well the laws hold, which cptlaw confirm measures"
        return why

    def next_runs(self) -> str:
        """The chosen runs, and the half-width that is expected after them."""
        runs = ", ".join(
            f"{run.model} at {run.domain_ratio:g} for {run.steps} steps{f', peak {run.peak:g}' if run.peak else ''}"
            + f" ({run.why})" * bool(run.why)
            for run in self.chosen
        )
        expected = self.chosen[-1].half_width if self.chosen else None
        return runs if expected is None else f"{runs}; expected half of the interval by the posterior {expected:.3f}"


def beyond_reason(answer: float, runs: Sequence[ChosenRun]) -> str:
    """Reason of a run at an answer above or below the domain ratios of all these runs."""
    ratios = [run.domain_ratio for run in runs]
    side, end = ("above the largest", max(ratios)) if answer > max(ratios) else ("below the smallest", min(ratios))
    return f"{ANSWER_BEYOND}, {side} domain ratio trained ({end:g})"


def asked_of(goal: GoalConfig, steps: int) -> str:
    """The question that the answer of a round is of: the keys of its goal that are given, and the run's length.

    >>> asked_of(GoalConfig(tolerance=0.02), 60)
    'goal.kind=trade-off goal.tolerance=0.02 goal.weight=0.5 target.steps=60'
    """
    given = {key: value for key, value in dataclasses.asdict(goal).items() if value not in (None, [])}
    return " ".join([*(f"goal.{key}={value}" for key, value in given.items()), f"target.steps={steps}"])


def history_file(study: Study) -> Path:
    """Where the rounds are: all goals of a domain share them."""
    return study.folder / study.fitted("design.jsonl")


def awaits_round(study: Study) -> bool:
    """Whether the last round has runs that train chose by itself: it chooses another one behind them, or stops.

    Raises:
        StudyError: as `read_rounds`.
    """
    return any(one.chosen and not one.more and one.reason != CONFIRMATION for one in read_rounds(study)[-1:])


def read_rounds(study: Study) -> list[DesignRound]:
    """The rounds of a study, in order; none without a file.

    Raises:
        StudyError: lines are missing, or one is damaged or of another schema.
    """
    path = history_file(study)
    try:
        lines = enumerate(read_counted_lines(path), start=1)
        return [record_of(line, f"{path} line {number}", DesignRound, SCHEMA) for number, line in lines]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise StudyError(f"{error}; {_REMEDY}") from None


def write_rounds(study: Study, rounds: Sequence[DesignRound]) -> None:
    """Replace design.jsonl, whole."""
    path = history_file(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, as_counted_lines({"schema": SCHEMA, **dataclasses.asdict(one)} for one in rounds))


def is_enough(question: Question, last: DesignRound, one: DesignRound, runs: Sequence[ChosenRun]) -> bool:
    """Whether an answer within design.tolerance, that of the round `one`, is enough to choose no further `runs`.

    The round before was as narrow and near, since the first narrow interval may be so by chance: not one that cptlaw
    refine asked for, which has no answer of fits, only the posterior's, which is narrower. Or runs of the target's
    model and length enclose the interval, since only extrapolated ones were wrong.
    """
    if one.answer is None or one.half_width is None:
        return False
    if last.answer is not None and last.half_width is not None and not (last.more or last.unsettled):
        is_as_before = last.half_width <= one.tolerance and abs(last.answer - one.answer) <= one.tolerance
        if is_as_before:
            return True
    if question.goal_kind.design_question != "trade_off" or len(candidate_peaks(question)) > 1:
        return False
    target = question.model.name, question.target.steps
    ratios = [run.domain_ratio for run in runs if (run.model, run.steps) == target]
    low, high = max(one.answer - one.half_width, 0.0), min(one.answer + one.half_width, 1.0)
    return bool(ratios) and min(ratios) <= low and high <= max(ratios)
