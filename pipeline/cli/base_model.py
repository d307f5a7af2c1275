"""cptlaw model: bring a base model along, and say what it is."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from pipeline.cli.words import names_and_keys, print_line, text_keys
from pipeline.plan.model_download import PACKAGES, bring_model, shape_line
from pipeline.question.messages import ConfigError, nearest
from training.base_model.description import BaseModel
from training.corpora.tokenizer import declared_separator
from training.run import Exit
from training.spec import SpecError

KEYS = ("data",)
HELP = {"packages": PACKAGES}


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Bring the model that the words name, and print what it is and how a question uses it."""
    names, given = names_and_keys(words)
    keys = text_keys(given)
    problems = [f"{key}: no such key; allowed: data{nearest(key, KEYS)}" for key in keys if key not in KEYS]
    if len(names) != 1:
        problems.append(f"cptlaw model: {len(names)} models; allowed: one, see cptlaw model --help")
    if problems:
        raise ConfigError(problems)
    log = partial(print_line, console)
    try:
        folder, model = bring_model(names[0], Path(keys.get("data", "data")), log)
    except SpecError:
        if line := shape_line(names[0]):
            log(f"  {line}")
        raise
    for line in model.lines():
        log(f"  {line}")
    data = [f"data={keys['data']}"] if folder.name in PACKAGES and "data" in keys else []
    line = shlex.join(["cptlaw", "plan", "experiment=base-model", *overrides(names[0], folder, model), *data])
    log(f"next: {line} corpora.sources.domain.path=TEXT corpora.sources.general.path=TEXT")
    return Exit.DONE


def overrides(name: str, folder: Path, model: BaseModel) -> list[str]:
    """The overrides with which a question uses a model that `bring_model` brought."""
    chosen = [f"model={name}"] if folder.name in PACKAGES else ["model=local", f"model.path={folder}"]
    if model.separator != (declared_separator(folder) or model.end_of_text):
        # Hydra reads quotes of its own.
        chosen.append(f'corpora.tokenizer.separator="{model.separator}"')
    return chosen
