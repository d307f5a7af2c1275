"""cptlaw export: the recommended run of a study as the configuration of another trainer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from pipeline.cli.trainers.by_token import megatron, nemo, torchtitan
from pipeline.cli.trainers.plan import Config, TrainingPlan, missing_data, training_plan
from pipeline.cli.trainers.transformers_trainer import axolotl, llama_factory, trl
from pipeline.goals.registry import question_of_study
from pipeline.question.messages import ConfigError, nearest
from pipeline.study.folder import study_of
from training.durable import write_whole
from training.run import Exit

FORMATS: dict[str, Callable[[TrainingPlan], Config]] = {
    "llama-factory": llama_factory,
    "trl": trl,
    "axolotl": axolotl,
    "megatron": megatron,
    "nemo": nemo,
    "torchtitan": torchtitan,
}
"""Name of a trainer -> what writes its configuration."""
KEYS = ("format", "output", "devices", "micro_batch")
HELP = f"""usage: cptlaw export STUDY_FOLDER format=NAME [output=FILE] [devices=N] [micro_batch=N] [key=value ...]

  format       {", ".join(FORMATS)}
  output       file to write; default: print
  devices      GPUs that train one run together; default: 1
  micro_batch  sequences per forward pass of a GPU; default: 1
  key=value    changes the study's question, like goal.tolerance=0.05 after recommend with the same

It writes mixture, schedule, peak learning rate, steps, batch, sequence length and optimizer of the recommended run.
What the trainer cannot express is a comment in the file and a line on stderr.
"""


def carry_out(words: Sequence[str], console: Console) -> Exit:
    """Write the configuration that the words ask for.

    Raises:
        ConfigError, StudyError: as `training_plan`; no study, or an unknown format.
    """
    own = dict(word.split("=", 1) for word in words if word.split("=", 1)[0] in KEYS and "=" in word)
    rest = [word for word in words if word.split("=", 1)[0] not in KEYS or "=" not in word]
    folders = [word for word in rest if "=" not in word]
    problems = []
    if len(folders) != 1:
        problems.append(f"cptlaw export: {len(folders)} study folders; allowed: one, see cptlaw export --help")
    name = own.get("format", "")
    if name not in FORMATS:
        problems.append(f"format: {name!r}; allowed: {', '.join(FORMATS)}{nearest(name, FORMATS)}")
    counts = {key: own.get(key, "1") for key in ("devices", "micro_batch")}
    problems += [
        f"{key}: {n}; allowed: a number, 1 or more" for key, n in counts.items() if not n.isdigit() or n == "0"
    ]
    if problems:
        raise ConfigError(problems)
    question = question_of_study(Path(folders[0]), [word for word in rest if word not in folders])
    plan = training_plan(question, study_of(question), int(counts["devices"]), int(counts["micro_batch"]))
    text, missing = FORMATS[name](plan)
    missing = [*missing, *_warm_up(plan), *missing_data(plan)]
    about = [f"{name}: the recommended run of {plan.study}, {plan.tokens:,} tokens, by cptlaw export", *plan.facts]
    about += [f"not expressed: {line}" for line in missing]
    text = "".join(f"# {' '.join(line.split())}\n" for line in about) + text
    for line in missing:
        print(f"not expressed: {line}", file=sys.stderr)
    if "output" in own:
        Path(own["output"]).parent.mkdir(parents=True, exist_ok=True)
        write_whole(own["output"], text)
        console.print(f"written to {own['output']}", highlight=False, soft_wrap=True)
    else:
        print(text, end="")
    return Exit.DONE


def _warm_up(plan: TrainingPlan) -> list[str]:
    start = plan.schedule.start
    return [f"the warm-up starts at {start:.3g} of the peak, the tool's at 0"] if plan.schedule.warmup and start else []
