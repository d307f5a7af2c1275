"""What follows from the keys of an active design: lengths of its candidates, and what is wrong with the keys."""

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from pipeline.question.phases import pieces
from pipeline.question.schema import GOAL_KINDS, PhaseConfig, Question
from training.evaluation_steps import evaluation_steps
from training.keys import MOST_STEPS
from training.schedule import Piece, learning_rates, piece_lengths

LONGEST = 20.0
"""How many times the domain's tokens a run may have, unless goal.most_tokens is given."""


def candidate_steps(question: Question) -> list[int]:
    """Lengths that runs may be chosen of, distinct, in increasing order.

    >>> from pipeline.question.loading import read_question
    >>> candidate_steps(read_question(["target.steps=600"]))
    [150, 300, 600]
    """
    return sorted({*steps_of_parts(question, candidate_lengths(question))})


def steps_of_parts(question: Question, parts: Sequence[float]) -> list[int]:
    """Steps of runs whose lengths are parts of target.steps, 1 at least."""
    return [max(1, round(part * question.target.steps)) for part in parts]


def candidate_lengths(question: Question) -> list[float]:
    """The same as parts of target.steps."""
    if not question.is_large():
        return question.design.lengths
    return [*question.large.lengths, *(one.length for one in question.large.first)]


def candidate_peaks(question: Question) -> list[float]:
    """Peak learning rates that runs may be chosen with, distinct, in increasing order.

    >>> from pipeline.question.loading import read_question
    >>> candidate_peaks(read_question(["target.peak_learning_rate=2e-4", "design.peaks=[0.5,1]"]))
    [0.0001, 0.0002]
    """
    return sorted({peak_of(question, factor) for factor in question.design.peaks})


def schedules_of_peaks(question: Question) -> dict[tuple[Piece, ...], float]:
    """Schedule of a continual run -> its peak learning rate; none where all have that of the question."""
    peaks = candidate_peaks(question)
    if peaks == [peak_of(question, 1.0)]:
        return {}
    return {pieces(with_peak(question, peak).target_phase): peak for peak in peaks}


def peak_of(question: Question, factor: float) -> float:
    """A multiple of the question's peak learning rate, rounded to 12 digits, so that it names runs on every machine."""
    return float(f"{factor * question.target.peak_learning_rate:.12g}")


def with_peak(question: Question, peak: float | None) -> Question:
    """The same question about a target with another peak learning rate; None: its own."""
    if peak is None:
        return question
    return dataclasses.replace(question, target=dataclasses.replace(question.target, peak_learning_rate=peak))


def rest_of_schedule(phase: PhaseConfig, shorter: int, steps: int) -> tuple[int, list[Piece]] | None:
    """How a run of `steps` may continue a shorter one of the same phase from where that one's last piece begins.

    Returns:
        (step of the shorter run, pieces of the longer one from there on, as its schedule has them); None where the
        longer run does not have a constant rate there, the same as the shorter one.

    >>> from pipeline.question.loading import read_question
    >>> phase = read_question(["schedule@target.schedule=wsd"]).target_phase
    >>> step, rest = rest_of_schedule(phase, 100, 200)
    >>> step, [(piece.shape, piece.steps) for piece in rest]
    (80, [('constant', 80), ('linear', 40)])
    """
    chain = phase.schedule.pieces
    step = sum(piece_lengths(chain, shorter)[:-1])
    ends = list(itertools.accumulate(piece_lengths(chain, steps)))
    number = bisect.bisect_right(ends, step)
    if not 1 <= step < shorter or chain[number].shape != "constant":
        return None
    # Whatever the rate before it, a piece without a start goes on from it.
    rates = [learning_rates(chain, count, before=1.0)[step - 1] for count in (shorter, steps)]
    if rates[0] != rates[1]:
        return None
    lengths = [end - begin for begin, end in itertools.pairwise([step, *ends[number:]])]
    rest = [dataclasses.replace(piece, steps=own, share=None) for piece, own in zip(chain[number:], lengths)]
    return step, [dataclasses.replace(rest[0], start=None), *rest[1:]]


def most_tokens(question: Question) -> float:
    """Tokens that a run of goal=limited-data may have at most; NaN for another goal.

    >>> from pipeline.question.loading import read_question
    >>> most_tokens(read_question(["goal=limited-data", "goal.domain_tokens=1e6"]))
    20000000.0
    """
    goal = question.goal
    longest = MOST_STEPS * question.tokens_per_step()
    return goal.most_tokens or min(LONGEST * (goal.domain_tokens or float("nan")), longest)


def extended_at(question: Question, steps: int) -> int | None:
    """The step at which a longer run that could be chosen may continue one of `steps`; None: there is none."""
    if not (is_active(question) and question.design.extend) or steps not in candidate_steps(question):
        return None
    phase, lengths = question.target_phase, candidate_steps(question)
    longer = (rest_of_schedule(phase, steps, more) for more in lengths if more > steps)
    return next((found[0] for found in longer if found), None)


def is_active(question: Question) -> bool:
    """Whether the runs for the fit are chosen round by round, rather than a grid.

    >>> from pipeline.question.loading import read_question
    >>> is_active(read_question(["mixture=chosen"])), is_active(read_question(["mixture=ratios"]))
    (True, False)
    """
    if question.design.kind == "auto":
        return bool(question.goal_kind.design_question) and not question.mixture.domain_ratio
    return question.design.kind == "active"


def designable() -> str:
    """The goals whose runs can be chosen round by round, for a message."""
    return ", ".join(name for name, kind in GOAL_KINDS.items() if kind.design_question)


def design_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in the keys of the design that a range does not find."""
    design = question.design
    if len({*design.ratios}) < 1 + is_active(question) and all(0 <= ratio <= 1 for ratio in design.ratios):
        allowed = "two or more ratios of the domain corpus, 0 to 1, like [0.1,0.5,0.9]"
        yield f"design.ratios: {design.ratios or 'empty'}; allowed: {allowed}"
    if not candidate_lengths(question):
        yield f"{_lengths_key(question)}: empty; allowed: parts of target.steps, above 0, up to 1, like [0.25,0.5,1]"
    if not design.peaks:
        yield "design.peaks: empty; allowed: multiples of target.peak_learning_rate, like [0.5,1,2]"
    if not is_active(question):
        return
    if 1 <= question.target.steps <= MOST_STEPS and all(0 < part <= 1 for part in candidate_lengths(question)):
        yield from _length_problems(question)
    if question.goal.kind in GOAL_KINDS and not question.goal_kind.design_question:
        able = f"allowed: auto, grid, or goal.kind of {designable()}"
        yield f"design.kind: 'active' with goal.kind={question.goal.kind}; {able}"
    from fitting import LAWS  # Loads scipy for half a second, which a grid does not need.

    known = [LAWS[law] for law in question.law if law in LAWS]
    limited = question.goal_kind.design_question == "limited_data"
    if limited and not any("D" in law.columns for law in known):
        yield f"law: {list(question.law)} with design.kind=active; allowed: at least one that reads D, like dcpt"
    if known and all("s2_pretrain" in law.columns for law in known):
        yield f"law: {list(question.law)} with design.kind=active; allowed: another beside it, like transfer-anchored"
    if not (question.ladder or design.target_size):
        yield "design.target_size: false with ladder=[]; allowed: true, or models in ladder=[...]"
    for key in ("variants", "transfer_steps", "continual.branches", "continual.phases"):
        section = question.continual if key.startswith("continual") else question
        if getattr(section, key.rpartition(".")[2]):
            yield f"{key}: given with runs chosen round by round; allowed: none, or a grid: mixture=ratios"


def _length_problems(question: Question) -> Iterator[str]:
    """A line for each candidate length whose schedule or evaluations do not fit into it."""
    phase = question.target_phase
    # What is wrong at any length is said of the phase.
    if _fits(phase, phase.steps) is not None:
        return
    for steps in candidate_steps(question):
        if error := _fits(phase, steps):
            section = "target" if str(error).startswith("schedule") else "continual"
            yield f"{_lengths_key(question)}: a run of {steps} steps: {section}.{error}"


def budget_key(question: Question) -> str:
    """The key that limits the cost of the runs that are chosen."""
    return "large.budget" if question.design.budget is None and question.is_large() else "design.budget"


def _lengths_key(question: Question) -> str:
    return "large.lengths" if question.is_large() else "design.lengths"


def _fits(phase: PhaseConfig, steps: int) -> ValueError | None:
    try:
        learning_rates(pieces(phase), steps)
        evaluation_steps(phase.evaluation, steps)
    except ValueError as error:
        return error
