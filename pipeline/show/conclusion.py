"""What is known of an answer, and the line that says so first on the terminal, in the report, in wandb and exports."""

import shlex
from dataclasses import dataclass, replace

from pipeline.done import has_trained, is_refitted, left_to_fit
from pipeline.goals.ratio.answer_warnings import UNFOLLOWED, beyond_runs, is_flat
from pipeline.goals.ratio.answering_laws import one_ratio, ratio_of_run
from pipeline.goals.ratio.averaged_laws import widening_law
from pipeline.goals.ratio.outcomes import CONFIRMED, NEARBY, NOT_CONFIRMED
from pipeline.goals.ratio.trade_off_goal import asked
from pipeline.goals.registry import goal_of
from pipeline.question.schema import Question
from pipeline.show.measured_beside import READ, measured_beside
from pipeline.study.artifacts import Confirmation, ConfirmationRow, Recommendation, read_if_there
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED, import_words
from pipeline.study.number_format import domain_ratio_of, percent, quantity, signed
from pipeline.study.status import is_followed

WIDEST = 0.5
"""A wider 90% interval of the domain ratio says too little to train on its centre."""
MISSED = 0.1
"""A loss increase further from the tolerance than this part of it, and than .1%, misses it."""


@dataclass(frozen=True)
class Conclusion:
    """What is known of an answer."""

    headline: str
    """One line, without a full stop."""
    is_known: bool
    """Whether the headline says what to train on."""
    verdict: str = "not yet"
    """Whether it is confirmed, in a few words."""
    inside: str = "no run at the recommended domain ratio has been compared"
    """How many measured losses are inside their intervals."""
    why: str = ""
    """How many losses are as predicted where the answer is not known all the same, and why, a sentence."""
    remedy: str = ""
    """What would tell, a sentence; empty where the answer is known."""
    command: tuple[str, ...] = ()
    """Verb and words of the command that `remedy` names first; empty: it names none."""
    is_outdated: bool = False
    """Whether the answer is of other points or another question."""
    domain_ratio: float | None = None
    """What to train on by the confirmation runs, where the recommended ratio is just beyond the tolerance."""

    @property
    def lines(self) -> list[str]:
        """The headline, why it does not say more, and what would tell, as sentences."""
        return [f"{self.headline[0].upper()}{self.headline[1:]}.", *filter(None, (self.why, self.remedy))]


def conclusion_of(context: Context) -> Conclusion:
    """What is known of the answer in a study's folder. Raises StudyError: a file is damaged."""
    answer = read_if_there(Recommendation, context.study)
    return conclude(context, answer, context.confirmation if answer else None)


def conclude(context: Context, answer: Recommendation | None, confirmation: Confirmation | None) -> Conclusion:
    """What is known of an answer by a confirmation, which counts only if it is of this answer."""
    known = _conclude(context, answer, confirmation)
    return replace(known, headline=context.question.marked(known.headline))


def _conclude(context: Context, answer: Recommendation | None, confirmation: Confirmation | None) -> Conclusion:
    domain, study = context.question.corpora.domain, shlex.join(_words(context))
    if answer is None:
        return Conclusion(f"which {domain_ratio_of(domain)}? No recommendation yet", False)
    if why := goal_of(context.question).outdated(context, answer):
        line = f"which {domain_ratio_of(domain)}? The recommendation is out of date: {why}"
        fit = "" if is_refitted(context) else f"cptlaw fit {study}, then "
        remedy = f"Run {fit}cptlaw recommend {study}, with the question that is meant."
        return Conclusion(line, False, remedy=remedy, is_outdated=True)
    if answer.mixture is None and one_ratio(answer):
        remedy, command = _remedy(context, answer, True)
        unknown = _unknown(domain, answer)
        return Conclusion(unknown, False, remedy=f"What would tell: {remedy}.", command=command)
    if answer.mixture is None:
        other = ("recommend", *_words(context), "goal.tolerance=TOLERANCE")
        remedy = f"Give another tolerance: cptlaw {shlex.join(other)}."
        headline = f"no mixture keeps {answer.target.model} within the tolerance"
        return Conclusion(headline, False, remedy=remedy, command=other)
    beside = contradicted = ""
    if confirmation is not None and not confirmation.is_of(answer, domain):
        beside, contradicted = measured_beside(context, answer, confirmation)
        confirmation = None
    found = _Measured(context.question, answer, confirmation) if confirmation else None
    verdict, inside = (found.verdict, found.inside) if found else (Conclusion.verdict, Conclusion.inside)
    unknown = _unknown(domain, answer) if not found or found.outcome.verdict != CONFIRMED else ""
    ratio_unknown = bool(unknown)
    is_open = found and not found.failure and found.outcome.verdict != CONFIRMED
    if unknown and is_open:
        verdict = f"{verdict}, which says little"
    if not unknown and not found and (wide := goal_of(context.question).too_wide(context.question, answer)):
        wide += widening_law(context, answer) + beyond_runs(context, answer.mixture[domain])
        followed = not any(UNFOLLOWED in line for line in answer.warnings)
        if followed and answer.low is not None and 0 < answer.low < answer.mixture[domain]:
            wide += (
                f"; up to {percent(answer.low)} {domain}, the lower end of its interval, it does with 95% probability"
            )
        unknown = f"whether {_mixed(answer, domain)} keeps to the tolerance is not known yet: {wide}"
    if not (unknown or found) and answer.missed:
        unknown, ratio_unknown = f"the {domain_ratio_of(domain)} is not known yet, since {answer.missed}", True
    unknown = unknown or contradicted
    if found and is_open and not unknown and (unknown := found.too_wide):
        verdict = f"{NOT_CONFIRMED}: the prediction is too wide"
    if line := unknown or (found.failure if found else ""):
        missed = bool(contradicted) or (found is not None and found.is_outside)
        remedy, command = _remedy(context, answer, ratio_unknown, found.outcome.seeds if found else 0, missed)
        why = found.why_not if found else ""
        return Conclusion(f"{line}{beside}", False, verdict, inside, why, f"What would tell: {remedy}.", command)
    keeps, mixture = found.keeps if found else None, _mixed(answer, domain)
    others = [f"{percent(ratio)} {name}" for name, ratio in answer.mixture.items() if name != domain]
    if keeps is not None:
        mixture, others = f"{percent(keeps)} {domain}", [f"{percent(1 - keeps)} {context.question.corpora.general}"]
    headline = f"train {answer.target.model} on {' and '.join([mixture, *others])}"
    if flat := _flat(answer, domain):
        headline = f"any ratio from {percent(answer.gain_from or 0.0)} to {mixture} will do: {flat}"
    elif found is None:
        outside = " outside the fit" if READ in beside else ""
        headline += f" by prediction; no run{outside} has confirmed it yet{beside}"
    else:
        headline = "; ".join(filter(None, [headline, found.remark, found.losses]))
    return Conclusion(headline, True, verdict, inside, domain_ratio=keeps)


def _unknown(domain: str, answer: Recommendation) -> str:
    """Why the answer is not known before any run confirms it; empty: it is."""
    low, high = answer.low or 0.0, answer.high or 0.0
    if one_ratio(answer):
        return f"the {domain_ratio_of(domain)} is not known yet: {one_ratio(answer)}"
    size = answer.optimum.get("N")
    if answer.goal.kind == "compute" and size and not answer.identified:
        sizes = " to ".join(quantity(1e9 * (side or 0.0)) for side in (size.low, size.high))
        return f"the best model for {domain} is not known yet: 90% interval of its size {sizes}"
    if not answer.identified or high - low > WIDEST:
        return f"the {domain_ratio_of(domain)} is not known yet: 90% interval {low:.1%} to {high:.1%}"
    return ""


def _mixed(answer: Recommendation, domain: str) -> str:
    return f"{percent((answer.mixture or {})[domain])} {domain}"


def _flat(answer: Recommendation, domain: str) -> str:
    """That the domain loss hardly depends on the ratio, in words; empty: it does, or that is not known."""
    loss = answer.predicted.get(domain)
    if answer.gain is None or answer.gain_from is None or loss is None:
        return ""
    if not is_flat(answer.gain, answer.loss_before[domain], loss.loss, loss.low, loss.high):
        return ""
    return f"the loss on {domain} hardly depends on it"


def _words(context: Context) -> list[str]:
    """The words that name a study, and of several domains the one that is asked about, to a command."""
    corpora = context.question.corpora
    return [str(context.study.folder), *([f"corpora.domain={corpora.domain}"] if corpora.domains else [])]


def _remedy(
    context: Context, answer: Recommendation, ratio_unknown: bool, seeds: int = 0, missed: bool = False
) -> tuple[str, tuple[str, ...]]:
    """What would tell, in words, and the command among them that comes first.

    `seeds`: of the confirmation runs; `missed`: they are not as the answer's interval has it.
    """
    question, words = context.question, _words(context)
    study = shlex.join(words)
    if question.model.path == IMPORTED:
        if one_ratio(answer):
            return "runs at other domain ratios, brought by cptlaw import", import_words(question)
        ratio = f"{(answer.mixture or {})[question.corpora.domain]:.3f}"
        run = f"{answer.target.model}, {answer.target.steps:,} steps"
        if seeds:
            return f"runs beside domain_ratio={ratio} ({run}), brought by cptlaw import", import_words(question)
        run += f", domain_ratio={ratio}"
        return f"runs nearer to the one asked about ({run}), brought by cptlaw import", import_words(question, ratio)
    if context.plan and not has_trained(context):
        train = ("train", str(context.study.folder))
        does = "trains the runs for the fit that are left" if left_to_fit(context) else "chooses the runs that it needs"
        return f"cptlaw {shlex.join(train)} {does}", train
    if question.goal_kind.design_question:
        improve = "correct" if missed else "narrow"
        narrower = f"cptlaw refine {study} trains the runs that should {improve} it most, and answers again"
        refine = ("refine", *words)
        if seeds or one_ratio(answer) or is_followed(context.study, question):
            return narrower, refine
        if ratio_unknown:
            ratio = _mixed(answer, question.corpora.domain)
            return f"{narrower}; cptlaw confirm {study} measures the losses at {ratio}", refine
        measures, confirm = f"cptlaw confirm {study} measures it", ("confirm", *words)
        half_width = ((answer.high or 0.0) - (answer.low or 0.0)) / 2
        if half_width <= question.design.tolerance and goal_of(question).too_wide(question, answer):
            return measures, confirm  # Rounds choose runs for the ratio, which is known.
        return f"{measures}; cptlaw refine {study} trains one more round of runs for the fit", confirm
    if one_ratio(answer):
        return "runs at other domain ratios, of mixture.domain_ratio", ()
    sizes, more = "a smaller and a larger model in ladder", ("confirm", *words, "confirm.seeds=3")
    return (f"cptlaw {shlex.join(more)}, or {sizes}", more) if seeds < 3 else (sizes, ())


class _Measured:
    """What confirmation runs say of an answer."""

    def __init__(self, question: Question, answer: Recommendation, confirmation: Confirmation) -> None:
        self.question, self.answer, self.outcome = question, answer, confirmation.outcome
        self.domain, self.general = question.corpora.domain, question.corpora.general
        self.rows = [row for row in confirmation.confirmations if row.recommended]
        self.all_inside = all(row.inside for row in self.rows)
        self.counted = f"{sum(row.inside for row in self.rows)} of {len(self.rows)}"
        self.ends = {row.corpus: row for row in self.rows if row.run == confirmation.confirmations[0].run}
        self.ratio, self.keeps = _mixed(answer, self.domain), None
        by_goal = self._of_tolerance if self.outcome.loss_increase else self._of_minimum
        self.failure, self.remark = by_goal()
        if wide := next((row for row in self.ends.values() if _is_far(row)), None):
            side = "low" if wide.relative_error < 0 else "high"
            far = f"the predicted loss on {wide.corpus} is {abs(wide.relative_error):.1%} too {side}"
            self.failure = self.failure or f"{self.ratio} is not confirmed: {far}"

    @property
    def is_outside(self) -> bool:
        """Whether the ratio that the runs measured is outside the answer's interval."""
        crossing, (low, high) = self.outcome.crossing, (self.answer.low or 0.0, self.answer.high or 0.0)
        return crossing is not None and not low <= crossing.value <= high

    @property
    def verdict(self) -> str:
        """Whether it is confirmed, in a few words."""
        if self.failure and self.outcome.verdict == CONFIRMED and self.all_inside:
            return "within its interval; the tolerance may be met or not"
        if self.failure and self.outcome.crossing and not self.is_outside and self.all_inside:
            return "within its interval, but misses the tolerance"
        if self.failure:
            return NOT_CONFIRMED
        if self.outcome.verdict in (CONFIRMED, NEARBY):
            return self.outcome.verdict
        seeds = "by one seed" if self.outcome.seeds == 1 else "but the places cannot be told apart"
        inside = {row.corpus: True for row in self.rows} | {row.corpus: False for row in self.rows if not row.inside}
        held, missed = ([corpus for corpus, of in inside.items() if of == wanted] for wanted in (True, False))
        if held and missed:
            return f"{' and '.join(held)} as predicted, {' and '.join(missed)} not, {seeds}"
        return f"{'nearly ' * (not self.all_inside)}as predicted, {seeds}"

    @property
    def too_wide(self) -> str:
        """That the prediction is too wide for any run to confirm it; empty: it is not, or the run alone is enough."""
        row, tolerance = self.ends[self.general], self.outcome.tolerance
        changed = row.measured / row.before - 1
        is_bound = (self.answer.mixture or {})[self.domain] == 1.0
        wide = goal_of(self.question).too_wide(self.question, self.answer)
        if tolerance is None or not wide or (is_bound and changed <= tolerance):
            return ""
        return f"{self.ratio} is not confirmed: {wide}; the run itself measured {signed(changed)}"

    @property
    def inside(self) -> str:
        """How many losses are inside their intervals, the largest error, and the loss increase of general."""
        worst, row = max(abs(row.relative_error) for row in self.rows), self.ends[self.general]
        changed, low, high = (side / row.before - 1 for side in (row.measured, row.low, row.high))
        increase = f"loss increase on {row.corpus}: {signed(changed)}, predicted {signed(low)} to {signed(high)}"
        tolerance = self.outcome.tolerance
        increase += f", {asked(tolerance)}" if tolerance is not None else ""
        return f"{self.counted} losses inside their 90% intervals, largest error {worst:.2%}; {increase}"

    @property
    def why_not(self) -> str:
        """How many losses are as predicted, and why that does not confirm the answer, a sentence."""
        if not self.all_inside:
            return f"{self.counted} measured losses are inside their 90% intervals."
        held, row = "All measured losses are inside their 90% intervals", self.ends[self.general]
        if (tolerance := self.outcome.tolerance) is None:
            return f"{held}, but they do not say where the loss on {self.outcome.corpus} is least."
        low, high = (signed(side / row.before - 1) for side in (row.low, row.high))
        wide = f"that of the loss on {row.corpus} is {low} to {high}, where {asked(tolerance)}"
        return f"{held}, but {wide}: to lie inside does not confirm {self.ratio}."

    @property
    def losses(self) -> str:
        """The domain loss beside its prediction, and how many losses are inside their intervals unless all are."""
        row = self.ends[self.domain]
        domain = f"the loss on {row.corpus} is {row.measured:.4f}, predicted {row.low:.4f} to {row.high:.4f}"
        return domain if self.all_inside else f"{domain}; {self.counted} losses as predicted"

    def _of_tolerance(self) -> tuple[str, str]:
        """Why the ratio fails, and a remark where it does not; of goal=trade-off."""
        outcome, tolerance = self.outcome, self.outcome.tolerance or 0.0
        assert outcome.loss_increase is not None
        increase, crossing = outcome.loss_increase.value, outcome.crossing
        changed = f"{'rose' if increase >= 0 else 'fell'} by {abs(increase):.2%}"
        measured = f"the loss on {self.general} {changed}, {asked(tolerance)}"
        most = increase if outcome.loss_increase.high is None else outcome.loss_increase.high
        if most <= tolerance and (self.answer.mixture or {})[self.domain] == 1.0:
            return "", measured  # No ratio is above it.
        if abs(increase - tolerance) <= max(MISSED * abs(tolerance), 1e-3) and outcome.verdict != NOT_CONFIRMED:
            if increase > tolerance:
                side = "inside" if self.ends[self.general].inside else "outside"
                # Of a fall that was asked for, "more" would read as a larger one.
                more = "more" if tolerance >= 0 else "short"
                more = f"{100 * (increase - tolerance):.2g} points {more}, {side} its 90% interval"
                if crossing and crossing.value < (self.answer.mixture or {})[self.domain]:
                    self.keeps = ratio_of_run(crossing.value)
                    measured = f"by the runs this keeps to the tolerance; at the predicted {self.ratio} {measured}"
                measured = f"{measured}: {more}"
            return "", measured
        if outcome.verdict == CONFIRMED:
            low, high = outcome.loss_increase.low or 0.0, outcome.loss_increase.high or 0.0
            between = f"{signed(low)} to {signed(high)} by {outcome.seeds} seeds"
            return f"{self.ratio} may be within the tolerance or not: {measured}, {between}", ""
        if increase <= tolerance and outcome.verdict != NOT_CONFIRMED and self.ends[self.general].inside:
            return "", measured
        if crossing is None:
            return f"{self.ratio} is too {'much' if increase > tolerance else 'little'}: {measured}", ""
        by_runs = percent(ratio_of_run(crossing.value))
        return f"about {by_runs} {self.domain}, not {self.ratio.split()[0]}, where {measured}", ""

    def _of_minimum(self) -> tuple[str, str]:
        """The same of goal=limited-data and compute."""
        outcome, places = self.outcome, self.outcome.places
        if outcome.difference is None or (outcome.other is None and outcome.other_ratio is None):
            return "", ""
        names = [place.model if outcome.goal == "compute" else percent(place.domain_ratio) for place in places]
        own, other = names[outcome.at], percent(outcome.other_ratio or 0.0)
        other = other if outcome.other is None else names[outcome.other]
        lower = f"the loss on {outcome.corpus} is {outcome.difference.value:.4f} lower at {other}"
        far = outcome.difference.value > places[outcome.at].high - places[outcome.at].predicted
        if outcome.verdict == NOT_CONFIRMED or (outcome.seeds == 1 and far):
            return f"{own} is not confirmed: {lower}", ""
        if outcome.verdict == NEARBY:
            return "", lower
        if outcome.verdict == CONFIRMED:
            best = [name for name, may_be in zip(names, outcome.among_best or []) if may_be]
            return "", f"{' and '.join(best)} cannot be told apart" if len(best) > 1 else ""
        if len(places) == 1 or (outcome.other_ratio is not None and outcome.difference.value > 0):
            higher = (
                f"the loss on {outcome.corpus} is {-outcome.difference.value:.4f} higher at {other}, the lowest beside"
            )
            return "", lower if outcome.difference.value > 0 else higher
        spread = max(place.measured for place in places) - min(place.measured for place in places)
        noise = "no more than the noise" if outcome.seeds > 1 else "by one seed, whose noise is not known"
        return "", f"{names[0]} to {names[-1]} differ by {spread:.4f} nats, {noise}"


def _is_far(row: ConfirmationRow) -> bool:
    """Whether a loss is twice as far from its prediction as the end of its interval."""
    room = row.high - row.predicted if row.measured > row.predicted else row.predicted - row.low
    return abs(row.measured - row.predicted) > 2 * room
