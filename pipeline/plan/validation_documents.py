"""cptlaw prepare validation: validation documents chosen by their perplexity under given models."""

from pathlib import Path

from rich.console import Console

from pipeline.plan.model_shape import directory_of
from pipeline.plan.prepared_corpora import progress_bar, sources_of, validation_path
from pipeline.question.messages import ConfigError
from pipeline.question.schema import ModelConfig, Question
from pipeline.study.folder import Study
from training.corpora.locations import is_url, location
from training.corpora.readers import open_reader
from training.corpora.validation_choice import write_validation_set


def choose_validation(question: Question, console: Console) -> None:
    """Write a validation set for every corpus into corpora.validation.

    Raises ConfigError: no folder, no models, an impossible number; a line for each. CorpusError: a corpus or a model
    cannot be used.
    """
    settings, problems = question.validation, []
    if settings.keep > settings.sample:
        problems.append(f"validation.keep: {settings.keep}; allowed: 1 to validation.sample, {settings.sample}")
    if question.corpora.validation is None:
        problems.append("corpora.validation: has no value; give the folder for the sets, corpora.validation=FOLDER")
    elif is_url(question.corpora.validation):
        problems.append(f"corpora.validation: {question.corpora.validation!r} is a URL; give a local folder")
    if not settings.models:
        allowed = "Hugging Face directories, hub names, or studies with pre-training, [A,B]"
        problems.append(f"validation.models: empty; give {allowed}")
    if problems:
        raise ConfigError(problems)
    sources = sources_of(question, with_validation=False)
    pinned = {name: open_reader(name, source).pinned() for name, source in sources.items()}
    models = [directory for name in settings.models for directory in model_directories(name)]
    for name, source in pinned.items():
        file = location(validation_path(question, name) or "")
        if question.corpora.sources[name].validation is not None:
            console.print(f"{name}: uses its validation set {file}", highlight=False)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        with progress_bar(console) as bar:
            write_validation_set(file, open_reader(name, source, console.print), models, settings, bar)
    console.print(f"to use them: cptlaw prepare with corpora.validation={question.corpora.validation}")


def model_directories(name: str) -> list[Path]:
    """The directories of a model: a Hugging Face directory, a hub name, or of a study the last weights of pre-training.

    Raises ConfigError: a study without finished pre-training. SpecError: neither a folder nor a name on the hub.
    """
    study = Study(Path(name))
    if not study.plan_file.exists():
        return [directory_of(ModelConfig(name="validation", path=name), "validation.models")]
    runs = [run for run in study.read_plan() if run.role == "pretrain"]
    last = [study.runs / run.name / "checkpoints" / f"step-{run.spec.steps}" for run in runs]
    complete = [directory for directory in last if (directory / "config.json").exists()]
    if not complete:
        raise ConfigError([f"validation.models: {name} has no finished pre-training run; run cptlaw train on it first"])
    return complete
