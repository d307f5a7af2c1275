"""cptlaw export: the recommended run of a study as the configuration of another trainer."""

import contextlib
import dataclasses
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from pipeline.cli.trainers.formats import FORMATS, dataset_info
from pipeline.cli.trainers.plan import CONFIRM_AGAIN, KEEPS, PREDICTED, TrainingPlan, never_expressed, training_plan
from pipeline.cli.trainers.texts import loadable
from pipeline.cli.words import names_and_keys, print_line, refuse_misspelt, refuse_rehearsal, text_keys
from pipeline.done import answer_digest
from pipeline.goals.registry import goal_of, question_of_study
from pipeline.question.data import below
from pipeline.question.messages import ConfigError, nearest, studies_beside
from pipeline.question.schema import Question
from pipeline.study.artifacts import Export
from pipeline.study.context import Context, context_of
from pipeline.study.folder import IMPORTED, import_words, study_of
from training.corpora.locations import is_url
from training.durable import write_whole
from training.run import Exit

KEYS = ("format", "output", "domain_ratio", "devices", "micro_batch", "without_validation")
SAVES_DIRECTORIES = ("trl", "llama-factory", "axolotl")
"""Formats of trainers whose checkpoints are Hugging Face directories."""
HELP = f"""usage: cptlaw export STUDY_FOLDER format=NAME [output=FILE] [devices=N] [micro_batch=N] [key=value ...]

  format       {", ".join(FORMATS)}
  output       file to write; default: print. Documents that the trainer would read otherwise than cptlaw (.txt files,
               filters, text of a model) are written into a folder beside it, whose name ends in -data
  domain_ratio ratio of the domain corpus in the training tokens, 0 to 1; default: that of the answer
  devices      GPUs that train one run together; default: 1
  micro_batch  sequences per forward pass of a GPU; default: 1
  without_validation
               true: write the text without the documents that the study validates on, so that the run can be measured
               on them; default: false, its files as they are
  key=value    changes the study's question, like goal.tolerance=0.05 after recommend with the same

It writes mixture, schedule, peak learning rate, steps, batch, sequence length and optimizer of the recommended run.
What the trainer cannot express, or is left to do, is a comment in the file and a line on stderr.
"""


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Write the configuration that the words ask for."""
    keys = tuple(f"{key}=" for key in KEYS)
    folders, given = names_and_keys(words)
    refuse_misspelt(given, KEYS)
    own = text_keys(word for word in given if word.startswith(keys))
    problems = []
    if len(folders) != 1:
        there = studies_beside(Path("studies") / "NAME")
        problems.append(f"cptlaw export: {len(folders)} study folders; allowed: one, see cptlaw export --help{there}")
    name = own.get("format", "")
    if name not in FORMATS:
        problems.append(f"format: {name!r}; allowed: {', '.join(FORMATS)}{nearest(name, FORMATS)}")
    counts = {key: own.get(key, "1") for key in ("devices", "micro_batch")}
    wrong = {key: count for key, count in counts.items() if not re.fullmatch("[1-9][0-9]{0,5}", count)}
    problems += [f"{key}: {count}; allowed: a number, 1 to 999,999" for key, count in wrong.items()]
    if (without := own.get("without_validation", "false")) not in ("true", "false"):
        problems.append(f"without_validation: {without}; allowed: true, false")
    ratio = _number(own["domain_ratio"]) if "domain_ratio" in own else None
    if ratio is not None and not 0 <= ratio <= 1:
        problems.append(f"domain_ratio: {own['domain_ratio']}; allowed: a number, 0 to 1")
    if problems:
        raise ConfigError(problems)
    question = question_of_study(Path(folders[0]), [word for word in given if not word.startswith(keys)])
    refuse_rehearsal(question)
    goal, kind = goal_of(question), f"goal.kind={question.goal.kind}"
    if any(word.startswith("goal.domain_ratio=") for word in given) and "domain_ratio" not in getattr(goal, "keys", ()):
        raise ConfigError([f"goal.domain_ratio: not read with {kind}; domain_ratio=... sets the ratio in the file"])
    if ratio is not None and question.goal_kind.many_domains:
        raise ConfigError([f"domain_ratio: {kind} answers with a weight of each domain; change those in the file"])
    output = Path(own["output"]) if "output" in own else None
    folder = output.absolute().with_name(f"{output.stem}-data") if output else None
    apart = question.corpora.validation_ratio if without == "true" else None
    if (of_paths := _folder_of_paths(question)) != Path.cwd():
        question.studies = str(Path(question.studies).resolve())
    with contextlib.chdir(of_paths):
        numbers = int(counts["devices"]), int(counts["micro_batch"])
        plan = training_plan(question, study_of(question), *numbers, ratio)
        plan, unread = loadable(plan, FORMATS[name].loader, folder, partial(print_line, console), apart)
    if folder and name == "llama-factory":
        plan = dataclasses.replace(plan, data_folder=str(folder.resolve()))
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "dataset_info.json", dataset_info(plan))
    text, missing = FORMATS[name].write(plan)
    missing = [*missing, *never_expressed(plan), *_validation(question, name), *unread]
    run = "predicted run" if plan.unknown else "recommended run" if ratio is None else "run at a given domain ratio"
    about = [f"{name}: the {run} of {plan.study}, {plan.tokens:,} tokens, by cptlaw export", *plan.facts]
    about += [f"note: {line}" for line in missing]
    text = "".join(f"# {' '.join(line.split())}\n" for line in about) + text
    if plan.unknown:
        print(plan.unknown, file=sys.stderr)
    again = CONFIRM_AGAIN.format(context_of(question).study.word)
    first = plan.facts[: bool(output and not plan.unknown)]
    for line in [*first, *(fact for fact in plan.facts if fact.endswith((again, KEEPS, PREDICTED))), *missing]:
        print(f"note: {line}", file=sys.stderr)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, text)
        print_line(console, f"written to {output}")
        if not plan.unknown and all(word.startswith(keys) for word in given):
            _keep(context_of(question), FORMATS[name].command, plan.devices, output.resolve())
    else:
        print(text, end="")
    command = FORMATS[name].command.format(file=shlex.quote(str(output or "FILE")), devices=plan.devices)
    gpus = f"{plan.devices} GPU{'s' * (plan.devices > 1)}"
    line = f"{command}, on {gpus}, where the text and the model are under the paths in that file"
    ratio = plan.domain_ratio
    follow = shlex.join(["cptlaw", "follow", folders[0], *([] if ratio is None else [f"domain_ratio={ratio}"])])
    if question.model.path == IMPORTED:
        # Without its text no checkpoint can be measured.
        line += f"; {follow} LOG compares its log{_bring(question, plan) if ratio is None and not plan.unknown else ''}"
    elif name in SAVES_DIRECTORIES and not question.goal_kind.many_domains:
        line += f"; {follow} checkpoints=FOLDER compares what it saves"
    if not plan.unknown and any(fact.endswith(again) for fact in plan.facts):
        line = f"cptlaw confirm {shlex.quote(folders[0])}; or, unconfirmed, {line}"
    if any(fact.startswith("the mixture: ") for fact in missing):
        line = f"write the files that the note on the mixture asks for, and name them in that file; then {line}"
    if not output and (unread or apart or name == "llama-factory"):
        line = f"cptlaw export {shlex.join(words)} output=FILE writes it, and the text that {name} cannot read"
    print(f"next: {line}", file=sys.stderr)
    return Exit.DONE


def _bring(question: Question, plan: TrainingPlan) -> str:
    """The import of the recommended run that confirms the answer, in words."""
    ratio = next((one.weight for one in plan.corpora if one.name == question.corpora.domain), 0.0)
    return f", {shlex.join(['cptlaw', *import_words(question, f'{ratio:.3f}'), 'role=confirm'])} keeps its losses"


def _validation(question: Question, name: str) -> list[str]:
    """That no format validates on the corpora, where `cptlaw follow` reads the losses of both, a line or none."""
    if question.goal_kind.many_domains:
        return []
    keys = " and ".join(f"eval_{corpus}_loss" for corpus in (question.corpora.general, question.corpora.domain))
    saved = ", or let it measure checkpoints=FOLDER" * (question.model.path != IMPORTED and name in SAVES_DIRECTORIES)
    line = f"validation: not in this file, and cptlaw follow reads {keys} of a log"
    return [f"{line}: log both, before the first step too (eval_on_start){saved}"]


def _keep(context: Context, command: str, devices: int, output: Path) -> None:
    """Keep which file the run was last written to; a study on a read-only disk keeps nothing."""
    command = command.format(file=shlex.quote(str(output)), devices=devices)
    with contextlib.suppress(OSError):
        Export(str(output), command, answer_digest(context)).write(context.study)


def _number(text: str) -> float:
    """The number that a text is; nan: none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _folder_of_paths(question: Question) -> Path:
    """The folder from which the relative paths of a study are found: this one, or one in which the study lies."""
    here, studies = Path.cwd(), Path(question.studies).resolve()
    sources = question.corpora.sources.values()
    texts = [below(question.corpora.folder, source.path) for source in sources if source.path]
    relative = [path for path in texts if not (is_url(path) or Path(path).is_absolute())] or [question.data]
    around = [studies, *studies.parents]
    # Elsewhere another text may have the same name.
    folders = [here, *around] if here in around else [*around, here]
    return next((folder for folder in folders if all(map(os.path.exists, map(folder.joinpath, relative)))), here)
