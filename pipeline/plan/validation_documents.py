"""cptlaw prepare validation: validation documents chosen by what given models make of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from pipeline.plan.model_shape import directory_of
from pipeline.plan.prepare import progress_bar, sources_of, validation_set
from pipeline.question.messages import ConfigError
from pipeline.question.schema import ModelConfig, Question
from pipeline.study.folder import Study
from training.corpora.source import SourceReader


def choose_validation(question: Question, console: Console) -> None:
    """Write a validation set for every corpus into corpora.validation.

    Raises:
        ConfigError: no folder, no models, an impossible number; a line for each.
        CorpusError: a corpus or a model cannot be used.
    """
    # torch is needed from here on.
    from training.corpora.validation_choice import Choice, write_validation_set

    asked = question.validation
    choice = Choice(asked.sample, asked.keep, asked.worst, asked.tokens)
    problems = choice.problems("validation")
    if question.corpora.validation is None:
        problems.append("corpora.validation: has no value; give the folder for the sets, corpora.validation=FOLDER")
    if not asked.models:
        problems.append(
            "validation.models: empty; give Hugging Face directories, hub names, or studies with pre-training, [A,B]"
        )
    if problems:
        raise ConfigError(problems)
    sources = {name: source.pinned() for name, source in sources_of(question, with_validation=False).items()}
    models = [directory for given in asked.models for directory in model_directories(given)]
    reader = SourceReader(sources)
    for name, source in sources.items():
        file = validation_set(question, name)
        assert file is not None
        if question.corpora.sources[name].validation is not None:
            console.print(f"{name}: has a validation set of its own, {file}", highlight=False)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        with progress_bar(console) as bar:
            write_validation_set(file, reader.documents(name), source.fingerprint(), models, choice, console.print, bar)
    console.print(f"use them: the same words with cptlaw prepare, corpora.validation={question.corpora.validation}")


def model_directories(given: str) -> list[Path]:
    """The models behind a word: a Hugging Face directory, a name on the hub, or a study, of which the last weights of
    each pre-training run are taken.

    Raises:
        ConfigError: a study without finished pre-training.
        SpecError: neither a folder nor a name on the hub.
    """
    study = Study(Path(given))
    if not study.plan_file.exists():
        return [directory_of(ModelConfig(name="validation", path=given))]
    last = [
        study.runs / run.name / "checkpoints" / f"step-{run.spec.steps}"
        for run in study.read_plan()
        if run.role == "pretrain"
    ]
    there = [directory for directory in last if (directory / "config.json").exists()]
    if not there:
        raise ConfigError([f"validation.models: {given} has no finished pre-training run; cptlaw train makes them"])
    return there
