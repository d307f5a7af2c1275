"""cptlaw advise: from a base model and corpora to a confirmed domain ratio and peak learning rate, in one command."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from pipeline.cli import base_model, verbs
from pipeline.cli.words import names_and_keys, print_line, text_keys
from pipeline.goals.registry import read_question
from pipeline.plan.model_download import PACKAGES, bring_model
from pipeline.question.messages import ConfigError
from training.run import Exit

HELP = {"packages": PACKAGES}
DRY_RUN = "dry_run=true"
GENERAL = ("corpora=", *(f"corpora.sources.general.{key}=" for key in ("kind", "path", "name")))
"""Words that say where general text comes from."""


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Bring the model of the first word, then take every step of a study of it."""
    names, given = names_and_keys(words)
    if len(names) != 1:
        scratch = "" if names else "; of a model from scratch: cptlaw train experiment=own"
        raise ConfigError([f"cptlaw advise: {len(names)} models; allowed: one, see cptlaw advise --help{scratch}"])
    data = text_keys(word for word in given if word.startswith("data=")).get("data", "data")
    if not any(word.startswith(GENERAL) for word in given):
        given.append("corpora.sources.general.kind=generated")
    # The keys are checked before a model is fetched and measured, which takes a minute.
    kept = [word for word in given if word != DRY_RUN]
    elsewhere = read_question(["experiment=base-model", *kept]).launcher.elsewhere
    # Where runs are trained here, the cost of a plan is the dry run.
    dry = DRY_RUN in given and not elsewhere
    given = kept if dry else given
    log = partial(print_line, console)
    folder, model = bring_model(names[0], Path(data), log)
    for line in model.lines():
        log(f"  {line}")
    question = read_question(["experiment=base-model", *base_model.overrides(names[0], folder, model), *given])
    code = verbs.carry_out("plan" if dry else "quickstart", replace(question, dry_run=dry or question.dry_run), console)
    verbs.print_next("advise", words, question, code, console)
    return code
