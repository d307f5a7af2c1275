"""What a log does not say of a run that was made elsewhere: its facts, and its schedule by them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Annotated, Any

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.question.messages import ConfigError, one_line
from pipeline.question.overrides import with_whole_numbers
from training.keys import Allowed, Count, Ratio, Seed, Step, Steps, between, one_of, up_to
from training.schedule import Piece, learning_rates

SAME_RATE = 0.01
"""Difference between a logged and a given learning rate, over the peak, up to which they are the same."""
DECAYS = ("linear", "cosine", "none", "one_minus_sqrt", "exponential")
# A smaller number counts billions.
Parameters = Annotated[float, between(1000, 10**15, "a count of parameters, not billions")]
Loss = Annotated[float, Allowed("a finite loss above 0", above=0, below=math.inf)]
Facts = dict[str, object]
"""Name of a fact of `RunFacts` -> value, as a file gives it."""


@dataclass
class RunFacts:
    """What a log does not say of a run."""

    domain_ratio: Ratio | None = None
    """Ratio of the domain in the training tokens, 0 to 1."""
    tokens_per_step: Count | None = None
    """Tokens that an optimizer step trains on, over all devices."""
    non_embedding: Parameters | None = None
    """Parameters of the model outside the embeddings."""
    peak: Annotated[float, up_to(10)] | None = None
    """Largest learning rate."""
    steps: Steps | None = None
    """Length of the schedule, steps; null: max_steps of Trainer's log, else the last step of the log."""
    warmup: Step = 0
    """Steps of the linear warm-up from 0."""
    decay: Annotated[str, one_of(*DECAYS)] = "cosine"
    """none, linear (Trainer's default, with final=0), cosine, exponential or one_minus_sqrt."""
    decay_steps: Step | None = None
    """Steps of the decay, at the end; null: all after the warm-up."""
    final: Ratio = 0.1
    """Learning rate of the last step over the peak."""
    model_name: str = "model"
    """Name of the model; another name for another size."""
    role: Annotated[str, one_of("fit", "confirm")] = "fit"
    """fit, or confirm: a run at the recommended ratio, which no fit reads and cptlaw confirm compares."""
    sequence_length: Count | None = None
    """Tokens of a training sequence, which cptlaw export writes; null: not known."""
    seed: Seed = 0
    """Tells runs of one name apart."""
    loss_before: dict[str, Loss] = field(default_factory=dict)
    """Corpus -> loss before CPT, where the log has no loss at step 0; in a column, of the row's corpus."""


def constants(label: str, table: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Column -> the value that the rows of a run have there, of those columns that the table has.

    Raises:
        ConfigError: rows that differ; the line begins with `label`.
    """
    found = {}
    for name in (name for name in names if name in table):
        values = table[name].dropna().drop_duplicates()
        if len(values) > 1:
            rows, (one, other) = " and ".join(map(str, values.index[:2])), values.tolist()[:2]
            raise ConfigError([f"{label}: rows {rows} have {name} {one} and {other}; allowed: one value for a run"])
        if len(values):
            found[name] = values.tolist()[0]
    return found


def facts_of(label: str, given: Facts, table: pd.DataFrame, own: Facts) -> RunFacts:
    """The facts of a run: its own in a YAML file, else a column of its table, else those `given` for all runs.

    Raises:
        ConfigError: values that differ, in the table or from the given ones; each line begins with `label`.
    """
    names = [item.name for item in dataclasses.fields(RunFacts)]
    if unknown := [key for key in own if key not in names]:
        raise ConfigError([f"runs: {key}: no such fact; allowed: {', '.join(names)}" for key in unknown])
    columns = constants(label, table, [name for name in names if name not in (*own, "loss_before")])
    if "loss_before" in table and "loss_before" not in own:
        of_corpora = {name: constants(label, rows, ["loss_before"]) for name, rows in table.groupby("corpus")}
        columns["loss_before"] = {name: found["loss_before"] for name, found in of_corpora.items() if found}
    columns, own = (with_whole_numbers(facts, RunFacts) for facts in (columns, own))
    try:
        of_table = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(RunFacts), columns))
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(RunFacts), given, columns, own))
    except OmegaConfBaseException as error:
        raise ConfigError([f"{label}: {one_line(error, RunFacts)}"]) from None
    assert isinstance(made, RunFacts)
    assert isinstance(of_table, dict)
    said = _by_key({name: of_table[name] for name in columns})
    other = {key: value for key, value in _by_key(given).items() if value is not None and said.get(key, value) != value}
    if other:
        values = "; ".join(f"{key}={value} is given, its table has {said[key]}" for key, value in other.items())
        raise ConfigError([f"{label}: {values}; leave out the wrong one"])
    return made


def _by_key(facts: Mapping[str, Any]) -> dict[str, object]:
    """The facts with those of a mapping, like loss_before, by their whole keys."""
    parts = [
        {name: value} if not isinstance(value, Mapping) else {f"{name}.{of}": one for of, one in value.items()}
        for name, value in facts.items()
    ]
    return {key: value for part in parts for key, value in part.items()}


def pieces_of(facts: RunFacts, steps: int) -> tuple[Piece, ...]:
    """Warm-up, constant piece and decay of a run's learning rate, whose pieces of no steps are left out."""
    peak = facts.peak or 0.0
    warmup = (Piece("linear", 0.0, peak, steps=facts.warmup),) if facts.warmup else ()
    if facts.decay == "none":
        return (*warmup, Piece("constant", peak))
    decay = Piece(facts.decay, None, facts.final * peak, steps=facts.decay_steps)
    if facts.decay_steps is not None and facts.decay_steps + facts.warmup < steps:
        return (*warmup, Piece("constant", peak), decay)
    return (*warmup, decay if warmup else dataclasses.replace(decay, start=peak))


def first_other_rate(rates: Sequence[float], logged: Mapping[int, float]) -> int | None:
    """The first step at which a log has another learning rate than a run of these rates, one a step; None: none."""
    of_steps, peak = [0.0, *rates], max(rates, default=0.0)
    for step, rate in sorted(logged.items()):
        # Trainers count from 0 or from 1, and log the rate of the step before or after.
        near = of_steps[max(step - 1, 0) : step + 2]
        if near and not min(near) - SAME_RATE * peak <= rate <= max(near) + SAME_RATE * peak:
            return step
    return None


def schedule_of(facts: RunFacts, table: pd.DataFrame) -> str:
    """The schedule that the facts give, in words, and what a column schedule has, which is not read."""
    parts = [f"{facts.warmup} steps of warm-up"] if facts.warmup else []
    length = f" in the last {facts.decay_steps} steps" if facts.decay_steps else ""
    decay = "the peak to the end" if facts.decay == "none" else f"{facts.decay} to {facts.final:g} of the peak{length}"
    named = table["schedule"].dropna().astype(str).unique() if "schedule" in table else ()
    unread = f" (column schedule, {', '.join(named)}, is not read)" if len(named) else ""
    return ", then ".join([*parts, decay]) + unread


def other_rates(facts: RunFacts, steps: int, logged: Mapping[int, float]) -> str:
    """What is wrong with the schedule that the facts give; '' where the log has the same learning rates, or none."""
    try:
        rates = learning_rates(pieces_of(facts, steps), steps)
    except ValueError as error:
        return str(error)
    first = first_other_rate(rates.tolist(), logged)
    if first is None:
        return ""
    given = f"but peak, warmup, decay and final give {rates[first - 1]:.4g}"
    line = f"learning_rate={logged[first]:.4g} at step {first} in the log, {given}"
    for decay, final in product(DECAYS, (0.0, 0.1)):
        unit = dataclasses.replace(facts, decay=decay, final=final, decay_steps=None, peak=1.0)
        with contextlib.suppress(ValueError):
            rates = learning_rates(pieces_of(unit, steps), steps)
            known = [rate / rates[step - 1] for step, rate in logged.items() if rates[step - 1] > 0]
            for peak in (facts.peak, float(f"{median(known):.3g}")):
                rates = learning_rates(pieces_of(dataclasses.replace(unit, peak=peak), steps), steps)
                if first_other_rate(rates.tolist(), logged) is None:
                    changed = "" if peak == facts.peak else f"peak={peak:g} "
                    return f"{line}; {changed}decay={decay} final={final:g} fits all of them"
    none = f"no decay of all steps after the warm-up ({', '.join(DECAYS)}) fits, at any peak, to 0 or a tenth of it"
    give = "give warmup, decay, final and decay_steps as the run was trained"
    other = "of another shape cptlaw fit points=FILE reads a table with step and lr, the learning rate of each row"
    return f"{line} (steps={steps}); {none}: {give}; {other}"
