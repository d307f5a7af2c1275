"""The runs that a question plans, before prepare by an estimate, and whether its text is enough for them."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.goals.registry import goal_of
from pipeline.plan.model_shape import shape_without_weights
from pipeline.plan.prepared_corpora import estimated_tokens, refused_text, size_lines, text_sizes
from pipeline.plan.runs import estimate
from pipeline.plan.token_supply import repeat_lines, short_ratios
from pipeline.plan.validation_noise import noise_lines
from pipeline.plan.write import with_planned
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.artifacts import Machine
from pipeline.study.context import Context, context_of
from pipeline.study.folder import PlannedRun
from training.spec import SpecError


@dataclass(frozen=True)
class Planned:
    """The runs of a question, and what they were planned on."""

    context: Context
    """With the prepared corpora, or before prepare with estimated ones."""
    runs: list[PlannedRun]
    missing: str = ""
    """What prepare has yet to do, before which the runs are an estimate; empty: nothing."""
    sizes: Sequence[str] = ()
    """How many tokens an estimate takes the text for, a line, where files are."""
    refused: Sequence[str] = ()
    """What plan is likely to refuse after prepare, by the sizes of files, a line each; the runs are then of endless
    corpora."""

    def text_lines(self) -> list[str]:
        """What the corpora are too short for, in the words of a plan after prepare; where they are estimated, so.

        Before it are rows that prepare refuses.
        """
        if self.context.is_prepared:
            return notes_on_text(self.context, self.runs)
        lines = refusals(self.refused, before_prepare=True) or notes_on_text(self.context, self.runs)
        refused = [f"note: {line}; prepare refuses this" for line in refused_text(self.context.question)]
        return [*refused, *(line.replace("note:", "note, estimated:", 1) for line in lines)]


def planned_now(context: Context, *, keep: bool = False) -> list[PlannedRun]:
    """The runs of a question, and its confirmation runs that have begun already; with `keep` all planned runs."""
    return with_planned(context, goal_of(context.question).runs(context), keep=keep)


def planned_or_estimated(context: Context, machine: Machine | None = None, *, with_weights: bool = False) -> Planned:
    """The runs of a plan, or what can be known of them before prepare, with the speeds of a machine if that is given.

    Raises:
        SpecError: with `with_weights`, a model's directory has none; else config.json is enough before prepare.
        CorpusError: a corpus is not there.
        ConfigError: the prepared text is too short for them, or what a model is to write.
    """
    if not context.is_prepared:
        return _estimated(context.question, machine, with_weights)
    if missing := context.unprepared:
        # Another study has prepared the same text.
        precision = machine.precision if machine else "fp32"
        context = dataclasses.replace(context, given_precision=precision, given_machine=machine)
        runs = goal_of(context.question).runs(context)
        return Planned(context, runs, missing)
    return Planned(context, planned_now(context))


def _estimated(question: Question, machine: Machine | None, with_weights: bool) -> Planned:
    sizes, missing = text_sizes(question), context_of(question).unprepared
    without = [path for model in context_of(question).models.values() if shape_without_weights(path := model.path)]
    if without and with_weights:
        raise SpecError(f"{without[0]}: no *.safetensors; save the model there with model.save_pretrained(...)")
    if without:
        missing += f", and {', '.join(map(str, without))} has config.json alone, no *.safetensors"

    def planned(tokens: dict[str, int], refused: Sequence[str] = ()) -> Planned:
        context = estimate(question, machine.precision if machine else "fp32", tokens)
        context = dataclasses.replace(context, given_machine=machine)
        return Planned(context, goal_of(question).runs(context), missing, size_lines(question, sizes), refused)

    try:
        return planned(estimated_tokens(sizes))
    except ConfigError as error:
        return planned({}, error.lines)


def refused_by_plan(context: Context) -> list[str]:
    """A line for each mistake that plan finds with the prepared corpora, such as one that is too short."""
    try:
        goal_of(context.question).runs(dataclasses.replace(context, given_precision=context.known_precision or "fp32"))
    except ConfigError as error:
        return error.lines
    return []


def refusals(lines: Sequence[str], *, before_prepare: bool = False) -> list[str]:
    """The lines of `refused_by_plan` as notes."""
    return [f"note: {line}; {'after prepare, ' * before_prepare}plan refuses this" for line in lines]


def notes_on_text(context: Context, runs: Sequence[PlannedRun]) -> list[str]:
    """What the corpora are too short for: the runs, some ratios of one whose length is given, and an exact loss."""
    question = context.question
    given = not (question.goal_kind.many_domains or goal_of(question).chooses_run)
    short = short_ratios(context) if given else ()
    prepared = context.manifest.corpora.items()
    repeated = [f"corpora.sources.{name}: {line}" for name, corpus in prepared if (line := corpus.repetition)]
    return [f"note: {line}" for line in (*repeat_lines(runs, context), *short, *noise_lines(context), *repeated)]
