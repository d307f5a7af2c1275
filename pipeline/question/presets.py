"""Models and goals that files of conf/ define, and the laws of `fitting`, as sections of a question."""

import copy
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from conf import CONF, WORDS, options
from pipeline.question.messages import ConfigError, nearest, unknown_choice
from pipeline.question.schema import GOAL_KINDS, LawConfig, ModelConfig, Question
from pipeline.question.schema.answers import DesignConfig
from pipeline.question.schema.execution import LauncherConfig, TrackingConfig
from training.keys import allowed_values

IMPORTED = "imported"
"""In place of the fingerprints of corpora and weights that are elsewhere, and of their paths."""
HUB = {
    "gpt2": "openai-community/gpt2",
    "gpt2-large": "openai-community/gpt2-large",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    **{f"qwen1.5-{size.lower()}": f"Qwen/Qwen1.5-{size}" for size in ("0.5B", "1.8B", "4B")},
    **{f"qwen2.5-{size.lower()}": f"Qwen/Qwen2.5-{size}" for size in ("0.5B", "1.5B", "3B")},
    **{f"qwen3-{size.lower()}": f"Qwen/Qwen3-{size}-Base" for size in ("0.6B", "1.7B", "4B")},
}
"""Name of a model, also a shape of conf/model -> the base model of the hub that has this shape."""


def models(question: Question) -> tuple[list[ModelConfig], ModelConfig]:
    """The models that the fit trains, in the order of the ladder, and the target model."""
    ladder = [preset(name, question.data) for name in question.ladder]
    return ladder or [question.model], question.model


UNNAMED = ("local", "hf")
"""Files of conf/model for a model that is elsewhere."""


def preset(name: str, data: str = "data") -> ModelConfig:
    """The model of the ladder with that name, in the folder of prepared corpora and converted models `data`.

    That is a file of conf/model, or with a slash a base model: a Hugging Face directory, or a name of the hub.

    Raises ConfigError: no such file, or one that needs a path.
    """
    if "/" in name:
        return ModelConfig(name=name_in_tables(name), path=name)
    if tiny := re.fullmatch(r"tiny-(\w+)-(\d+)", name):
        return tiny_model(tiny[1], int(tiny[2]))
    names = options("model")
    if name not in names:
        allowed = f"{', '.join(names)}, a Hugging Face directory like ./NAME, or a hub name, ORG/NAME"
        raise ConfigError([f"ladder: {name!r} is not a model; allowed: {allowed}{nearest(name, names)}"])
    file = CONF / "model" / f"{name}.yaml"
    return copy.deepcopy(_model_of(file, file.stat().st_mtime_ns, data))


def name_in_tables(entry: str) -> str:
    """The name of a model of the ladder in run folders and tables.

    >>> name_in_tables("Qwen/Qwen1.5-0.5B"), name_in_tables("qwen2-0.3m")
    ('qwen1.5-0.5b', 'qwen2-0.3m')
    """
    return (name_of_place(entry) or entry) if "/" in entry else entry


def name_of_place(path: str) -> str:
    """What a directory or a name of the hub calls a model; a snapshot in the hub's cache is that of the name.

    >>> [*map(name_of_place, ("a/My Model", "hub/models--Qwen--Qwen2.5-1.5B/snapshots/1f8d5", "."))]
    ['my-model', 'qwen2.5-1.5b', '']
    """
    place = Path(path)
    name = place.parts[-3].rpartition("--")[2] if place.parts[-2:-1] == ("snapshots",) else place.name
    return re.sub(r"[^a-z0-9_.-]", "-", name.lower()).lstrip("_.-")


def ask_for_model(stored: Any, name: Any) -> str:
    """How to ask about a model of a stored question for which model=NAME was given, as the end of a line."""
    asks = "cptlaw predict with model.name="
    if stored.model.path == IMPORTED:
        return f"; {asks}... asks about a model that was imported"
    names = list(dict.fromkeys([*map(name_in_tables, stored.ladder), stored.model.name]))
    if name in names:
        return f"; {asks}{name} asks about that model of the study"
    return f"; models of this study: {', '.join(names)}; another one needs ladder=[...] in cptlaw plan"


def named(composed: Any) -> Any:
    """A composed question, whose model of another place is called by its directory or hub name."""
    model = composed.model
    if model.name in UNNAMED and isinstance(model.path, str):
        model.name = name_of_place(model.path) or model.name
    return composed


def ladder_names(question: Question) -> list[str]:
    """The names in tables of the models of a question's ladder."""
    return [*map(name_in_tables, question.ladder)]


def tiny_model(model_type: str, width: int) -> ModelConfig:
    """A model of two layers, for rehearsals."""
    return ModelConfig(
        f"tiny-{model_type}-{width}",
        model_type=model_type,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=width // 16,
        intermediate_size=2 * width,
    )


def published_shape(path: str | None) -> ModelConfig | None:
    """The file of conf/model with the shape of a base model of the hub; None: there is none, or `path` is a folder."""
    name = next((name for name, hub in HUB.items() if hub == path), None)
    return preset(name) if name and not Path(path or "").is_dir() else None


@functools.cache
def _model_of(file: Path, date: int, data: str) -> ModelConfig:
    """The model of a file as it is since `date`."""
    merged = OmegaConf.merge(OmegaConf.structured(ModelConfig), OmegaConf.load(file))
    # Below a parent with the key that its path refers to.
    merged = OmegaConf.create({"data": data, "model": merged}).model
    if not (merged.path or merged.hidden_size):
        raise ConfigError([f"ladder: {file.stem!r} needs a path; give the directory or hub name, 'ladder=[ORG/NAME]'"])
    return OmegaConf.to_object(merged)  # pyright: ignore[reportReturnType]


def laws() -> dict[str, LawConfig]:
    """The laws that a study can fit, each with the points that it is fitted to unless a question says otherwise."""
    from fitting import LAWS  # Loads scipy for half a second, which a worker does not need.

    return {name: LawConfig(**asdict(law.study)) for name, law in LAWS.items() if law.study}


def law_problems(names: Iterable[Any]) -> Iterator[str]:
    """A line for each name of no law that a study can fit."""
    from fitting import LAWS

    known = laws()
    for name in (text for text in map(str, names) if text not in known):
        line = unknown_choice("law", name, known)
        if name in LAWS:
            reads = f"answers in no study, since it reads {', '.join(LAWS[name].columns)}: cptlaw fit points= fits it"
            line = line.replace("does not exist", f"{reads}{'; dynamics-replay does' * name.startswith('dynamics')}")
        yield line


@functools.cache
def kinds() -> dict[str, dict[str, dict[str, str]]]:
    """Group -> word -> keys, of the sections whose `kind` names one of a few."""
    sections = {"launcher": LauncherConfig, "tracking": TrackingConfig, "design": DesignConfig}
    allowed = {group: allowed_values(section)["kind"] for group, section in sections.items()}
    words = {"goal": [*GOAL_KINDS], **{group: kind.choices for group, kind in allowed.items() if kind}}
    return {group: {word: {"kind": word} for word in of_group} for group, of_group in words.items()}


def is_group(name: str) -> bool:
    """Whether `name=word` selects a word, as `groups` lists them, without listing the files."""
    in_files = name.isidentifier() and name != "wandb_sweeps" and any((CONF / name).glob("*.yaml"))
    return in_files or name == "law" or name in WORDS or name in kinds()


def groups() -> dict[str, list[str]]:
    """Group -> its words, sorted: what `group=word` may select."""
    folders = [path.name for path in CONF.iterdir() if path.name != "wandb_sweeps" and any(path.glob("*.yaml"))]
    words = {name: options(name) for name in (*folders, *WORDS)}
    return words | {name: sorted(known) for name, known in {"law": laws(), **kinds()}.items()}
