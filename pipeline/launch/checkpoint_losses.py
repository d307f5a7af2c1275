"""Losses of the checkpoints that another trainer saves, measured on the study's validation text, each once."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from pipeline.plan.runs import continual_run
from pipeline.question.messages import ConfigError, StudyError
from pipeline.study.context import Context
from pipeline.study.folder import IMPORTED
from training.corpora.documents import json_hash
from training.durable import read_lines_whole, write_whole
from training.spec import RunSpec, SpecError

STEP = re.compile(r"(?:checkpoint|global_step|step|iter)[-_]?0*(\d+)$")
"""Names of the folders of checkpoints, and their step."""
MICRO_BATCH = 4
"""Sequences of a forward pass: this machine may be smaller than the device of the study."""
_ALLOWED = "allowed: a folder of Hugging Face directories whose names end in checkpoint-N or step-N"
Key = tuple[str, int, str]
"""Path of a checkpoint, date of its weights, and digest of what else its losses depend on."""


def checkpoint_losses(context: Context, folder: Path, model: str, log: Callable[[str], object]) -> pd.DataFrame:
    """step, corpus and loss of the Hugging Face checkpoints of a model in a folder, or of the one that it is.

    The study's checkpoints.jsonl keeps what was measured, also of checkpoints that are gone. The newest one is left out
    while it is being written, if there are others. ConfigError: the study has no text. StudyError: no such folder, no
    checkpoint, or one that is not of the model's shape.
    """
    question = context.question
    if question.model.path == IMPORTED:
        raise ConfigError(["checkpoints: the study was imported without its text; give a LOG with the losses"])
    spec = continual_run(context, context.models[model], 0.5, question.target.steps, question.seed, "confirm").spec
    digest = json_hash([spec.corpora, spec.sequence_length, spec.validation_windows, spec.precision, spec.boundaries,
                        spec.separator_first, asdict(spec.objective)], digest_size=8)  # fmt: skip
    file, own = context.study.folder / "checkpoints.jsonl", folder.resolve()
    known = _read(file)
    there = _directories(folder)
    for number, (path, date) in enumerate(there):
        key = str(path), date, digest
        if key in known:
            continue
        start = time.monotonic()
        try:
            known[key] = _measured(context, spec, path)
        except StudyError as error:
            if number == 0 or path != there[-1][0]:
                raise
            log(f"left out, it may not be whole yet: {error}")
            continue
        lines = ({"key": list(key), "losses": losses} for key, losses in known.items())
        write_whole(file, "".join(f"{json.dumps(line)}\n" for line in lines))
        shown = "  ".join(f"{corpus} {loss:.4f}" for corpus, loss in known[key].items())
        log(f"{path.name}: {shown} ({time.monotonic() - start:.0f} s)")
    latest: dict[int, tuple[int, dict[str, float]]] = {}
    for (path, date, of), losses in known.items():
        if of == digest and own in (Path(path), Path(path).parent) and (step := _step(Path(path))) is not None:
            latest[step] = max(latest.get(step, (0, {})), (date, losses), key=lambda one: one[0])
    rows, newest = [], 0
    for step, (date, losses) in sorted(latest.items()):
        if date >= newest:  # Otherwise it is of an earlier run in the same folder.
            newest = date
            rows += [{"step": step, "corpus": corpus, "loss": loss} for corpus, loss in losses.items()]
    if not rows:
        raise StudyError(f"checkpoints: {folder}: no checkpoint; {_ALLOWED}")
    return pd.DataFrame(rows)


def _directories(folder: Path) -> list[tuple[Path, int]]:
    """The checkpoints there, and the dates of their weights, by step."""
    if not folder.is_dir():
        raise StudyError(f"checkpoints: {folder}: no such folder; {_ALLOWED}")
    found = []
    for path in (folder.resolve(), *folder.resolve().iterdir()):
        try:
            dates = [file.stat().st_mtime_ns for file in (path / "config.json", *path.glob("*.safetensors"))]
        except OSError:  # It is none, or its trainer has just removed it.
            continue
        if (step := _step(path)) is not None:
            found.append((step, path, max(dates)))
    return [(path, date) for _, path, date in sorted(found)]


def _step(path: Path) -> int | None:
    return int(named[1]) if (named := STEP.search(path.name)) else None


def _read(file: Path) -> dict[Key, dict[str, float]]:
    """What was measured: corpus -> loss; lines of another form are measured again."""
    lines = read_lines_whole(file) if file.exists() else []
    whole = [line for line in lines if isinstance(line, dict) and {*line} == {"key", "losses"}]
    return {(str(path), int(date), str(of)): line["losses"] for line in whole for path, date, of in [line["key"]]}


def _measured(context: Context, spec: RunSpec, path: Path) -> dict[str, float]:
    from training.base_model.losses import directory_losses  # loads torch
    from training.devices.out_of_memory import is_out_of_memory

    threads = context.question.launcher.threads
    try:
        losses = directory_losses(spec, path, context.manifest, micro_batch=MICRO_BATCH, threads=threads)
    except SpecError as error:
        raise StudyError(str(error)) from None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise StudyError(f"{path}: the memory of this machine does not suffice to measure it") from None
    return {corpus: one.loss for corpus, one in losses.items()}
