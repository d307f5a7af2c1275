"""A run that is trained for real: its losses beside the predicted ones, its end by them too, and ways to end it.

The end is the predicted one times exp(e): e is the log error of the last loss. Its interval is that of a prediction
from here on (`fitting.uncertainty.horizon`: its steps over those so far), wider by log(steps / steps so far) times
`LEVEL` e and times `DRIFT` the slope of the errors in the logarithm of the steps; it is no wider than the one before,
unless the last loss is outside its own: the laws are refuted then. Chosen on the runs of docs/results that no fit had
(docs/negative-results.md, where fitting the laws anew with the run's losses among the points was worse too).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from fitting import Fit, LawAverage
from fitting.schedule import ANNEALING, FORWARD
from fitting.uncertainty.horizon import half_width
from pipeline.goals.ratio.answering_laws import CHANGE_LAW, AnsweringLaws
from pipeline.question.messages import StudyError
from pipeline.study.fitted_points import first_step
from pipeline.study.number_format import percent
from pipeline.study.target import Target

LEVEL = 0.5
"""Half-width that an error of one adds over a step of one in log steps."""
DRIFT = 2.0
"""The same of a slope of one of the errors in log steps."""
RECENT = 1 / 3
"""Part of the steps so far from which on errors count for that slope."""
DRIFTING = 6
"""Recent losses from which on a drift is named; a choice."""
SAME_TEXT = 0.1
"""Relative difference of the loss before the run up to which another sample of the same text is measured."""
GRID = np.linspace(0.0, 1.0, 101)
"""Domain ratios that the rest of a run may have."""
DECAYS = 20
"""Ends of an earlier decay that are tried."""
Loss = tuple[float, float, float]
"""Loss, and the ends of its 90% interval, nats per token."""


@dataclass(frozen=True)
class Ending:
    """A way to go on with a run: in words, its length in steps, and the loss of each corpus at its end."""

    what: str
    steps: int
    losses: Mapping[str, Loss]


@dataclass(frozen=True)
class FollowedRun:
    """A run whose log is read, and the laws that predicted it; losses are at the level of the log's."""

    laws: AnsweringLaws
    target: Target
    domain_ratio: float
    measured: pd.DataFrame
    """step, corpus, loss."""
    levels: Mapping[str, float]
    """Corpus -> loss before the run in the log less that in the study, nats per token."""

    @property
    def step(self) -> int:
        """The last step with a loss."""
        return int(self.measured["step"].max())

    @property
    def corpora(self) -> tuple[str, str]:
        """General, then domain."""
        return self.laws.corpora

    def loss_before(self, corpus: str) -> float:
        """The loss before the run."""
        return self.target.before[corpus] + self.levels[corpus]

    def increase(self, corpus: str, loss: float) -> float:
        """How much higher a loss is than before the run, relative to it."""
        return loss / self.loss_before(corpus) - 1

    def curve(self, corpus: str, steps: Sequence[int]) -> pd.DataFrame:
        """The losses that were predicted before the run after some steps of it: step, predicted, low, high."""
        fit = self.laws.fit(corpus)
        frame = self.target.along(corpus, fit, steps).assign(r=self._r(corpus))
        return self._losses(corpus, fit, frame).assign(step=[*steps])

    def _losses(self, corpus: str, fit: Fit | LawAverage, frame: pd.DataFrame) -> pd.DataFrame:
        low, high = fit.predict_interval(frame)
        return pd.DataFrame({"predicted": fit.predict(frame), "low": low, "high": high}) + self.levels[corpus]

    @cached_property
    def compared(self) -> dict[str, pd.DataFrame]:
        """Corpus -> its losses that laws speak of: step, loss, predicted, low, high."""
        rows = {corpus: self.measured[self.measured["corpus"] == corpus] for corpus in self.corpora}
        rows = {name: own[own["step"] >= self.first_step(name)].sort_values("step") for name, own in rows.items()}
        none = pd.DataFrame(columns=["predicted", "low", "high", "step", "loss"], dtype=float)
        return {
            name: self.curve(name, own["step"].tolist()).assign(loss=[*own["loss"]]) if len(own) else none
            for name, own in rows.items()
        }

    def first_step(self, corpus: str) -> int:
        """The first step whose loss the laws that answer for a corpus speak of: they were fitted from there on."""
        fit, sections = self.laws.fit(corpus), self.laws.question.law
        laws = fit.fits if isinstance(fit, LawAverage) else [self.laws.law[corpus]]
        return max(first_step(self.laws.points, corpus, sections[law]) for law in laws)

    def last_step(self, corpus: str) -> int:
        """The last step with a loss of a corpus, of which there is one: another may be measured more often."""
        return int(self.compared[corpus]["step"].iloc[-1])

    def ahead(self, corpus: str, steps: Sequence[int]) -> pd.DataFrame:
        """The same as `curve`, from the last loss on, with what the losses so far have shown."""
        return self._learned(corpus, self.curve(corpus, steps))

    def end(self, corpus: str) -> Loss:
        """The loss at the end of the run as it was planned, with what its losses have shown."""
        return _of_row(self.ahead(corpus, [self.target.steps]))

    def is_refuted(self, corpus: str) -> bool:
        """Whether the last loss of a corpus is outside its interval."""
        last = self.compared[corpus].tail(1)
        return bool(((last["loss"] < last["low"]) | (last["loss"] > last["high"])).any())

    def predicted_end(self, corpus: str) -> Loss:
        """The same as it was predicted before the run."""
        return _of_row(self.curve(corpus, [self.target.steps]))

    def drift(self, corpus: str) -> tuple[np.ndarray, float]:
        """The recent log errors of a corpus where they drift, and that of its end at the same pace; else 0.

        They drift where `DRIFTING` or more are all on one side, the mean of each third is farther from the prediction
        than that of the third before, and the pace takes the end beyond half of its interval.
        """
        errors, slope = self._recent_errors(corpus)
        step = self.last_step(corpus)
        if len(errors) < DRIFTING or step >= self.target.steps or not (errors * errors[-1] > 0).all():
            return errors, 0.0
        thirds = [float(np.abs(part).mean()) for part in np.array_split(errors, 3)]
        at_end = float(errors[-1] + slope * np.log(self.target.steps / step))
        loss, low, high = self.predicted_end(corpus)
        half = np.log(high / loss) if at_end > 0 else np.log(loss / low)
        steady = thirds[0] < thirds[1] < thirds[2] and abs(at_end) > max(abs(errors[-1]), half / 2)
        return errors, at_end if steady else 0.0

    def _recent_errors(self, corpus: str) -> tuple[np.ndarray, float]:
        """Log errors of the recent losses of a corpus, of which there is one, and their slope in log steps."""
        known = self.compared[corpus]
        known = known[known["step"] >= RECENT * known["step"].iloc[-1]] if len(known) else known
        errors = np.log((known["loss"] / known["predicted"]).to_numpy(float))
        slope = np.polyfit(np.log(known["step"].to_numpy(float)), errors, 1)[0] if len(errors) > 2 else 0.0
        return errors, float(slope)

    def _learned(self, corpus: str, curve: pd.DataFrame) -> pd.DataFrame:
        known, fit = self.compared[corpus], self.laws.fit(corpus)
        if known.empty:
            return curve
        errors, drift = self._recent_errors(corpus)
        ahead = np.maximum(curve["step"].to_numpy() / self.last_step(corpus), 1.0)
        half = half_width(ahead, fit.growth or (), fit.metrics["log_rmse"], fit.spread.law)
        half = np.hypot(half, np.log(ahead) * np.hypot(LEVEL * errors[-1], DRIFT * drift))
        down = up = half
        if not self.is_refuted(corpus):
            down = np.minimum(half, np.log(curve["predicted"] / curve["low"]))
            up = np.minimum(half, np.log(curve["high"] / curve["predicted"]))
        predicted = curve["predicted"] * np.exp(errors[-1])
        return curve.assign(predicted=predicted, low=predicted * np.exp(-down), high=predicted * np.exp(up))

    def endings(self, exceeds: bool) -> Iterator[Ending | str]:
        """Other ways to end the run with the general loss within the tolerance; a sentence where the laws know none.

        With one mixture to its end it `exceeds` the tolerance; else only another mixture may do better.
        """
        if not self.step:
            return
        general, domain = self.corpora
        known = ", ".join(self.laws.question.law)
        if all(CHANGE_LAW in self.laws.fits[corpus] for corpus in self.corpora):
            yield self._other_mixture()
        elif exceeds:
            yield (
                f"another mixture for the rest: not known, since the fits ({known}) are of runs of one mixture; "
                f"{CHANGE_LAW} knows a change, see docs/training.md"
            )
        if exceeds and reads_rates(self.laws, general) and reads_rates(self.laws, domain):
            yield self._earlier_decay()
        elif exceeds:
            yield f"an earlier decay: not known, since {known} read no learning rates; a transfer law does"

    def is_within(self, general: np.ndarray | float) -> np.ndarray | bool:
        """Whether the general loss is within the tolerance."""
        return general <= self.loss_before(self.corpora[0]) * (1 + self.laws.question.goal.tolerance)

    def _other_mixture(self) -> Ending | str:
        """The largest domain ratio of the rest at which the general loss ends within the tolerance."""
        first, ends = float(self.target.rates[: self.step].sum()), {}
        for corpus in self.corpora:
            fit = self.laws.fits[corpus][CHANGE_LAW]
            r = 1 - GRID if corpus == self.corpora[0] else GRID
            columns = {**self.target.columns(corpus, fit), "r_first": self._r(corpus), "s1_first": first}
            table = self._losses(corpus, fit, pd.DataFrame({**columns, "r": r}))
            ends[corpus] = self._learned(corpus, table.assign(step=self.target.steps))
        within = np.flatnonzero(self.is_within(ends[self.corpora[0]]["predicted"].to_numpy()))
        if not len(within):
            return f"another mixture for the rest: even general text alone ends above the tolerance, by {CHANGE_LAW}"
        losses = {corpus: _of_row(end.iloc[[within[-1]]]) for corpus, end in ends.items()}
        what = f"{percent(float(GRID[within[-1]]))} {self.corpora[1]} after step {self.step:,}"
        return Ending(what, self.target.steps, losses)

    def _earlier_decay(self) -> Ending | str:
        """The longest run whose rate falls in a line from now on, and whose general loss ends within the tolerance."""
        now, rates = self.step, self.target.rates
        for end in np.unique(np.linspace(now + 1, self.target.steps, DECAYS).astype(int))[::-1].tolist():
            falling = np.linspace(rates[now - 1], rates[-1], end - now + 1)[1:]
            target = replace(self.target.lasting(end), given_rates=np.concatenate([rates[:now], falling]))
            ended = replace(self, target=target)
            curves = {corpus: self._learned(corpus, ended.curve(corpus, [end])) for corpus in self.corpora}
            losses = {corpus: _of_row(curve) for corpus, curve in curves.items()}
            if self.is_within(losses[self.corpora[0]][0]):
                return Ending(f"decay in a line from step {now:,} to {end:,}", end, losses)
        return "an earlier decay: none that begins now ends within the tolerance, by these laws"

    def _r(self, corpus: str) -> float:
        return 1 - self.domain_ratio if corpus == self.corpora[0] else self.domain_ratio


def _of_row(curve: pd.DataFrame) -> Loss:
    loss, low, high = (float(curve[name].iloc[0]) for name in ("predicted", "low", "high"))
    return loss, low, high


def reads_rates(laws: AnsweringLaws, corpus: str) -> bool:
    """Whether what answers for a corpus reads the learning rates of a run, their fall too."""
    read = {name.rpartition(".")[2] for name in laws.fit(corpus).columns}
    return bool(read & {*FORWARD}) and bool(read & {*ANNEALING} - {"s2_pretrain"})


def follow(laws: AnsweringLaws, target: Target, domain_ratio: float, measured: pd.DataFrame) -> FollowedRun:
    """Compare the losses (step, corpus, loss) of a run, of both corpora, with what the laws predicted.

    Raises:
        StudyError: before the run another loss than the study's.
    """
    levels = {}
    for corpus in laws.corpora:
        rows = measured[measured["corpus"] == corpus]
        first, known = rows.loc[rows["step"] == 0, "loss"], target.before[corpus]
        levels[corpus] = float(first.iloc[0]) - known if len(first) else 0.0
        if abs(levels[corpus]) > SAME_TEXT * known:
            raise StudyError(
                f"the loss on {corpus} before the run is {first.iloc[0]:.4g}, in the study {known:.4g}: another model, "
                f"another text, or another tokenizer; allowed: within {SAME_TEXT:.0%}"
            )
    return FollowedRun(laws, target, domain_ratio, measured, levels)
