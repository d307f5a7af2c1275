"""A rehearsal: a question made so small that its whole road takes minutes on a laptop, before a GPU-day is spent."""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from pipeline.question.data import below
from pipeline.question.messages import ConfigError
from pipeline.question.presets import name_in_tables, preset, published_shape, tiny_model
from pipeline.question.schema import Question
from training.corpora.listing import ENDINGS
from training.corpora.source import Source, TokenizerChoice
from training.spec import Parallel

TOLERANCE = 0.99
"""Of the general loss: no loss of a tiny model rises so far, so that there is an answer, and runs that confirm it."""
LONGEST = 120
"""Steps of the longest run."""
EVALUATIONS = 40
"""Of a run, where it is evaluated every so many steps: at every step they take longer than the steps do."""
BATCH, LENGTH, WINDOWS, VOCABULARY = 4, 64, 8, 1024
BYTES = 2_000_000
"""Of each corpus."""
SEEDS = 2
"""Most replicates of a run."""
NARROWEST, WIDER = 32, 16
"""Width of the smallest model, and how much wider each next one is."""
PEAK = 3e-3
"""Largest learning rate: at that of a large model a small one learns nothing in so few steps."""
PARTS = ("prose", "code", "math", "graphs", "statistics", "tables", "arrays")
"""Parts of the installed text, in the order in which corpora get them, the general one first."""
SUFFIX = "-rehearsal"
STEP_KEYS = ("steps", "step", "every", "scales", "target", "transfer_steps", "from_step")


def give_texts(composed: DictConfig) -> list[str]:
    """Replace the text of each source of a composed question by some megabytes that this machine has; a line on each.

    By `rehearsal_corpora`: `installed` keeps local files that exist and takes installed text for the others; `own`
    keeps all; a folder has a file or folder of each source.

    Raises ConfigError: the folder lacks one, a line each.
    """
    given, corpora, lines, missing = str(composed.rehearsal_corpora), composed.corpora, [], []
    # ${oc.env:...,???} of a variable that is not set.
    if no_folder := OmegaConf.is_missing(corpora, "folder") or corpora.folder == "???":
        corpora.folder = ""
    taken = {source.part for source in corpora.sources.values() if _is_installed(source)}
    parts = itertools.cycle(part for part in PARTS if part not in taken)
    for name in sorted(corpora.sources, key=lambda name: name != corpora.general):
        source = corpora.sources[name]
        path = "" if OmegaConf.is_missing(source, "path") else source.path
        is_here = _is_installed(source) or (path and not no_folder and Path(below(corpora.folder, path)).exists())
        if given not in ("installed", "own"):
            found = [file for end in ("", *ENDINGS) if (file := Path(given) / f"{name}{end}").exists()]
            if found:
                corpora.sources[name] = Source(path=str(found[0].resolve()))
            elif not _is_installed(source):
                missing.append(f"rehearsal_corpora: {given!r} has no {name}, {name}.jsonl.gz or the like")
        elif given == "installed" and not is_here:
            part = next(parts)
            # What may be a corpus of its own is no general text.
            others = PARTS[2:] if part == "prose" else ()
            corpora.sources[name] = Source("installed-python", part=part, exclude=others)
        source = corpora.sources[name]
        source.max_bytes = min(source.max_bytes or BYTES, BYTES) if source.kind != "generated" else None
        text = f"{source.part} of the installed Python" if _is_installed(source) else source.path or source.name
        lines.append(f"{name}: {text}, {BYTES / 1e6:g} MB at most")
    if missing:
        raise ConfigError(missing)
    corpora.validation = None
    corpora.tokenizer = TokenizerChoice(min(corpora.tokenizer.vocabulary, VOCABULARY))
    return lines


def _is_installed(source: Any) -> bool:
    return source.kind == "installed-python"


def rehearsed(question: Question, texts: list[str]) -> Question:
    """A question in small: the same runs of tiny models, short, one process each, in a folder of its own.

    `texts` are the lines of `give_texts`. A base model becomes a tiny one of its architecture, which is pre-trained.
    """
    config: Any = OmegaConf.structured(question)
    lines = [*_make_models_tiny(config), *_make_runs_short(config), *texts]
    config.launcher.update({"threads": 1, "micro_batch": 0, "device": None, "device_memory": None})
    # What is asked of nodes is for large models.
    slurm, given = config.launcher.slurm, question.launcher.slurm
    slurm.update({"nodes": 1, "gpus": given.gpus and re.sub(r"[1-9]\d*$", "1", given.gpus), "cpus": None})
    slurm.mem = slurm.mem and "auto"
    changes = {
        "parallel.processes": (question.parallel.processes, 1),
        "launcher.slurm.nodes": (given.nodes, 1),
        "launcher.slurm.gpus": (given.gpus, slurm.gpus),
    }
    if others := [f"{key}={now} in place of {before}" for key, (before, now) in changes.items() if before != now]:
        lines.append(f"processes: {', '.join(others)}; a run of a tiny model is one process, on one device")
    small = OmegaConf.to_object(config)
    assert isinstance(small, Question)
    return replace(
        small,
        name=f"{question.name}{SUFFIX}",
        rehearsal_changes=lines,
        precision="fp32",
        engine="sdpa",
        parallel=Parallel(),
        objective=replace(question.objective, mask_token=-1),
        validation_windows=WINDOWS,
        evaluation_budget=0.6,
        allow_repeats=True,
        bootstrap=min(question.bootstrap, 10),
    )


def _make_models_tiny(config: Any) -> Iterator[str]:
    """Two layers each, wider in the order of the ladder, so that sizes differ; the target last, unless it is in it."""
    target, of_name = config.model, {}
    entries = [*config.ladder, *(name for keys in config.variants.values() for name in keys.get("ladder", []))]
    for entry in entries:
        model = published_shape(entry) or preset(entry, config.data)
        of_name[name_in_tables(entry)] = model.model_type
    of_name.setdefault(target.name, (published_shape(target.path) or target).model_type)
    tiny = {
        name: tiny_model(model_type, NARROWEST + WIDER * number)
        for number, (name, model_type) in enumerate(of_name.items())
    }
    if target.path:
        # What a base model was pre-trained on is not known: pre-train as long as the target run, at its peak.
        config.pretrain.update({key: config.target[key] for key in ("steps", "global_batch", "peak_learning_rate")})
    config.model = tiny[target.name]
    for owner in (config, *config.variants.values()):
        if owner.get("ladder"):
            owner.ladder = [tiny[name_in_tables(entry)].name for entry in owner.ladder]
    config.dense = {domain: tiny[name].name for domain, name in config.dense.items()}
    yield "models, from scratch: " + ", ".join(f"{model.name} for {name}" for name, model in tiny.items())


def _make_runs_short(config: Any) -> Iterator[str]:
    many, target = config.goal.kind == "weights", config.target
    before = target.steps * target.global_batch * (target.sequence_length or config.sequence_length)
    phases = (config.pretrain, target, config.continual)
    changed = (keys.get(name) for keys in config.variants.values() for name in ("pretrain", "continual"))
    owners = (*phases, *filter(None, changed))
    longest = max(*(owner.get("steps") or 0 for owner in owners), *([config.weights.target] if many else []))
    factor = min(1.0, LONGEST / longest)
    peak = max(1.0, PEAK / max(owner.get("peak_learning_rate") or PEAK for owner in owners))
    for owner in owners:
        if owner.get("peak_learning_rate"):
            owner.peak_learning_rate = float(f"{owner.peak_learning_rate * peak:.6g}")
        for key, most in (("global_batch", BATCH), ("sequence_length", LENGTH)):
            if owner.get(key):
                owner[key] = min(owner[key], most)
    config.sequence_length = min(config.sequence_length, LENGTH)
    for node in (*phases, config.weights, config.variants, config.law, config.tables):
        _scale(node, factor)
    for owner in owners:
        if every := owner.get("evaluation", {}).get("every"):
            owner.evaluation.every = max(every, (owner.get("steps") or target.steps) // EVALUATIONS)
    config.transfer_steps = _scaled(config.transfer_steps, factor)
    after = target.steps * target.global_batch * config.sequence_length
    for key in ("domain_tokens", "most_tokens", "flops"):
        if config.goal[key]:
            # Of FLOPs the models are smaller too: one that the run which is asked about takes is as good.
            of_target = 6 * after * 12 * 2 * config.model.hidden_size**2
            config.goal[key] = of_target if key == "flops" else config.goal[key] * after / before
    # Other studies have no runs of the tiny model.
    config.design.budget, config.goal.tolerance, config.general_from = None, TOLERANCE, []
    config.mixture.replicates = min(config.mixture.replicates, SEEDS)
    higher = f"peak learning rates are {peak:g} times as high, " if peak != 1 else ""
    yield (
        f"runs: {longest:,} steps are {round(longest * factor)}, others in proportion, of {BATCH} x {LENGTH} tokens at "
        f"most; {higher}goal.tolerance is {TOLERANCE}, which any ratio meets, and there are at most {SEEDS} replicates"
    )


def _scale(node: Any, factor: float) -> None:
    """Scale all numbers of steps in a section, in place; at least 1 of what is not 0."""
    for key, value in node.items() if isinstance(node, DictConfig) else enumerate(node):
        if key in STEP_KEYS and isinstance(value, int | ListConfig):
            node[key] = _scaled(value, factor)
        elif isinstance(value, DictConfig | ListConfig):
            _scale(value, factor)


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, ListConfig):
        return sorted({_scaled(each, factor) for each in value})
    return value and max(1, math.floor(value * factor + 0.5))
