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

HELP = f"""usage: cptlaw advise MODEL corpora.sources.domain.path=TEXT [corpora.sources.general.path=TEXT] [key=value]

  MODEL        {", ".join(PACKAGES)}, a GGUF file, a Hugging Face directory or a hub name, as cptlaw model takes it
               qwen2.5-1.5b, gpt2 and other published shapes of conf/model: their base models, from the hub
  general      text to replay and to measure forgetting on; left out: the model writes it, which takes hours on a CPU
  key=value    keys of experiment=base-model; cptlaw plan --help all lists them

It says what the model is, tokenises the corpora, chooses short runs of the model round by round, fits, recommends a
domain ratio and a peak learning rate for a run of target.steps steps, trains that run to confirm it where it has
less than large.tokens (1e8: beyond, cptlaw follow reads the run's own log), and writes a report. Kill it at any moment
and give the same command again. The cost alone, without the weights, of a hub name that cptlaw knows:
cptlaw plan experiment=base-model model=hf model.path=Qwen/Qwen2.5-1.5B CORPORA

  cptlaw advise MODEL ... dry_run=true           the model, the first runs, tokens, FLOPs, time; writes no study
  cptlaw advise MODEL ... goal.tolerance=0.01    the general loss may increase by 1%; -0.05: it must fall by 5%
  cptlaw advise MODEL ... target.steps=3000 target.global_batch=64 sequence_length=2048   a longer question
"""
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
