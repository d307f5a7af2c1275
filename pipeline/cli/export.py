"""cptlaw export: the recommended run of a study as the configuration of another trainer."""

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from omegaconf import MISSING
from rich.console import Console

from pipeline.cli.trainers.formats import FORMATS, dataset_info
from pipeline.cli.trainers.plan import Remark, TrainingPlan, never_expressed, training_plan
from pipeline.cli.trainers.texts import loadable
from pipeline.cli.trainers.tokenization import tokenised_alike
from pipeline.cli.words import names_and_keys, own_words, print_line, refuse_rehearsal, settings_of
from pipeline.done import answer_digest
from pipeline.goals.registry import goal_of, question_of_study
from pipeline.question.data import below
from pipeline.question.messages import ConfigError, studies_beside
from pipeline.question.schema import Question
from pipeline.study.artifacts import Export
from pipeline.study.context import Context, context_of
from pipeline.study.folder import IMPORTED, import_words, study_of
from training.corpora.locations import is_url
from training.durable import write_whole
from training.keys import Ratio, between, one_of
from training.run import Exit


@dataclass
class ExportSettings:
    """The settings of `cptlaw export`."""

    format: Annotated[str, one_of(*FORMATS)] = MISSING
    """The trainer, of the names above."""
    output: str | None = None
    """File to write; null: print. Documents that the trainer would read otherwise than cptlaw (.txt files, filters,
    text of a model) are written into a folder beside it, whose name ends in -data"""
    domain_ratio: Ratio | None = None
    """Ratio of the domain corpus in the training tokens, 0 to 1; null: that of the answer"""
    devices: Annotated[int, between(1, 999_999)] = 1
    """GPUs that train one run together; default: 1"""
    micro_batch: Annotated[int, between(1, 999_999)] = 1
    """Sequences per forward pass of a GPU; default: 1"""
    without_validation: bool = False
    """true: write the text without the documents that the study validates on, so that the run can be measured on them;
    false: its files as they are"""


HELP = {"formats": FORMATS, "keys": ExportSettings}


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Write the configuration that the words ask for."""
    folders, keys = names_and_keys(words)
    own, overrides = own_words(keys, ExportSettings)
    problems = []
    if len(folders) != 1:
        there = studies_beside(Path("studies") / "NAME")
        problems.append(f"cptlaw export: {len(folders)} study folders; allowed: one, see cptlaw export --help{there}")
    asked = settings_of(ExportSettings, own, problems)
    name, ratio = asked.format, asked.domain_ratio
    question = question_of_study(Path(folders[0]), overrides)
    refuse_rehearsal(question)
    is_read, kind = "domain_ratio" in goal_of(question).keys, f"goal.kind={question.goal.kind}"
    if not is_read and any(word.startswith("goal.domain_ratio=") for word in overrides):
        raise ConfigError([f"goal.domain_ratio: not read with {kind}; domain_ratio=... sets the ratio in the file"])
    if ratio is not None and question.goal_kind.many_domains:
        raise ConfigError([f"domain_ratio: {kind} answers with a weight of each domain; change those in the file"])
    output = Path(asked.output) if asked.output else None
    folder = output.absolute().with_name(f"{output.stem}-data") if output else None
    apart = question.corpora.validation_ratio if asked.without_validation else None
    if (of_paths := _folder_of_paths(question)) != Path.cwd():
        question.studies = str(Path(question.studies).resolve())
    with contextlib.chdir(of_paths):
        plan = training_plan(question, study_of(question), asked.devices, asked.micro_batch, ratio)
        plan, unread = loadable(plan, FORMATS[name].loader, folder, partial(print_line, console), apart)
        plan, unlike = tokenised_alike(plan, question, folder, FORMATS[name].reads_tokenizer_json)
    if folder and name == "llama-factory":
        plan = dataclasses.replace(plan, data_folder=str(folder.resolve()))
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "dataset_info.json", dataset_info(plan))
    text, missing = FORMATS[name].write(plan)
    missing = [*unlike, *missing, *never_expressed(plan), *_validation(question, name), *unread]
    run = "predicted run" if plan.unknown else "recommended run" if ratio is None else "run at a given domain ratio"
    about = [f"{name}: the {run} of {plan.study}, {plan.tokens:,} tokens, by cptlaw export", *plan.facts]
    about += [f"note: {line}" for line in missing]
    text = "".join(f"# {' '.join(line.split())}\n" for line in about) + text
    if plan.unknown:
        print(plan.unknown, file=sys.stderr)
    first = plan.facts[: bool(output and not plan.unknown)]
    for line in [*first, *(fact for fact in plan.facts if isinstance(fact, Remark)), *missing]:
        print(f"note: {line}", file=sys.stderr)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, text)
        print_line(console, f"written to {output}")
        if not plan.unknown and not overrides:
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
    elif FORMATS[name].extends_trainer and not question.goal_kind.many_domains:
        line += f"; {follow} checkpoints=FOLDER compares what it saves"
    again = f"cptlaw confirm {context_of(question).study.word} again"
    if not plan.unknown and any(fact.endswith(again) for fact in plan.facts):
        line = f"cptlaw confirm {shlex.quote(folders[0])}; or, unconfirmed, {line}"
    if any(fact.startswith("the mixture: ") for fact in missing):
        line = f"write the files that the note on the mixture asks for, and name them in that file; then {line}"
    if not output and (unread or unlike or apart or name == "llama-factory"):
        what = f"the text that {name} cannot read" if unread or not unlike else "a model that is tokenised as here"
        line = f"cptlaw export {shlex.join(words)} output=FILE writes it, and {what}"
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
    saved = ", or let it measure checkpoints=FOLDER" * (
        question.model.path != IMPORTED and FORMATS[name].extends_trainer
    )
    line = f"validation: not in this file, and cptlaw follow reads {keys} of a log"
    return [f"{line}: log both, before the first step too (eval_on_start){saved}"]


def _keep(context: Context, command: str, devices: int, output: Path) -> None:
    """Keep which file the run was last written to; a study on a read-only disk keeps nothing."""
    command = command.format(file=shlex.quote(str(output)), devices=devices)
    with contextlib.suppress(OSError):
        Export(str(output), command, answer_digest(context)).write(context.study)


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
