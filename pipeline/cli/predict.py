"""cptlaw predict: the losses of a run of any length, peak and mixture, by the laws that a study has fitted."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from pipeline.cli.words import names_and_keys
from pipeline.goals.ratio.answering_laws import AnsweringLaws
from pipeline.goals.ratio.law_goal import answering_laws
from pipeline.goals.registry import question_of_study
from pipeline.question.messages import ConfigError
from pipeline.question.overrides import key_and_value
from pipeline.show.table import Table
from pipeline.show.terminal import print_items
from pipeline.study.artifacts import Recommendation
from pipeline.study.context import context_of
from pipeline.study.folder import study_of
from pipeline.study.number_format import laws_used, percent, quantity
from pipeline.study.target import Target, find_target
from training.run import Exit

KEY = "domain_ratio="
HELP = f"""usage: cptlaw predict STUDY_FOLDER {KEY}RATIO [key=value ...]

  {KEY}     ratio of the domain corpus in the training tokens, 0 to 1, or a list: {KEY}[0.1,0.3]
  key=value         changes the run that is asked about, like target.steps=6000 target.peak_learning_rate=1e-4,
                    or the laws: law=[dcpt]

It prints the loss on both corpora at the end of that run, with the 90% interval of a run that is measured, and how far
the run lies beyond those that the laws were fitted to. Nothing is written: the study's question stays as it is.
"""


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Print the predictions that the words ask for.

    Raises:
        ConfigError: not one study, no ratio, or a mistake in the keys.
        StudyError: the study has no fits, or no loss of the model before its continual phase.
        PointsError: a law cannot predict such a run.
    """
    folders, keys = names_and_keys(words)
    own = [word for word in keys if word.startswith(KEY)]
    problems = []
    if len(folders) != 1:
        problems.append(f"cptlaw predict: {len(folders)} study folders; allowed: one, see cptlaw predict --help")
    given = [key_and_value(word)[1] for word in own]
    ratios = [each for value in given for each in (value if isinstance(value, list) else [value])]
    if not ratios:
        problems.append("domain_ratio: not given; allowed: 0 to 1, or a list: domain_ratio=[0.1,0.3]")
    wrong = [each for each in ratios if isinstance(each, bool | str | None) or not 0 <= each <= 1]
    problems += [f"domain_ratio: {each!r}; allowed: 0 to 1" for each in wrong]
    if problems:
        raise ConfigError(problems)
    question = question_of_study(Path(folders[0]), [word for word in keys if word not in own])
    laws = answering_laws(context_of(question))
    target = find_target(laws.question, laws.points)
    peak = laws.question.target.peak_learning_rate
    run = f"{target.model}, {target.steps:,} steps, {quantity(target.D * 1e9)} tokens, peak {peak:g}"
    items = [f"{run}: by {laws_used(laws.law)}", _table(laws, target, ratios), *_distance_lines(laws, target)]
    answered = Recommendation.path(study_of(question)).exists()
    verb = "report" if answered else "recommend"
    print_items([*items, f"next: cptlaw {verb} {shlex.quote(folders[0])}"], console)
    return Exit.DONE


def _table(laws: AnsweringLaws, target: Target, ratios: Sequence[float]) -> Table:
    rows = []
    for ratio in ratios:
        for corpus in laws.corpora:
            loss, low, high = laws.loss(target, corpus, ratio)
            change = f"{loss / target.before[corpus] - 1:+.2%}"
            rows.append(
                [
                    percent(ratio),
                    corpus,
                    f"{target.before[corpus]:.4f}",
                    f"{loss:.4f}",
                    change,
                    f"{low:.4f} to {high:.4f}",
                ]
            )
    columns = ["domain ratio", "loss on", "before", "predicted", "change", "90% interval"]
    return Table("", columns, rows, left=2)


def _distance_lines(laws: AnsweringLaws, target: Target) -> Iterator[str]:
    """How far the run is beyond the fitted ones, by tokens and by size."""
    ranges = laws.fit(laws.corpora[1]).ranges
    for column, value, what in (("D", target.D, "tokens"), ("N", target.N, "parameters")):
        low, high = ranges.get(column, (value, value))
        if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            end, times = ("most", value / high) if value > high else ("fewest", value / low)
            yield f"horizon: {times:.3g} times the {end} {what} of a fitted run"
