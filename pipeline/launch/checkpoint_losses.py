"""Losses of the checkpoints that another trainer saves, measured on the study's validation text, each once."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from pipeline.goals.active.candidates import asked_run
from pipeline.plan.memory import fitted_run
from pipeline.question.messages import StudyError
from pipeline.study.context import Context
from training.durable import read_lines_whole, write_whole
from training.spec import SpecError

STEP = re.compile(r"(?:checkpoint|global_step|step|iter)[-_]?0*(\d+)$")
"""Names of the folders of checkpoints, and their step."""


def checkpoint_losses(context: Context, folder: Path, log: Callable[[str], object]) -> pd.DataFrame:
    """step, corpus and loss of the Hugging Face checkpoints in a folder, or of the one that it is.

    What was measured is kept in the study's checkpoints.jsonl, and measured again only where its weights have changed.

    Raises:
        StudyError: the folder has no checkpoint, or one is not of the target's shape.
    """
    found = {path: int(named[1]) for path in _directories(folder) if (named := STEP.search(path.name))}
    if not found:
        allowed = "a folder of Hugging Face directories whose names end in checkpoint-N or step-N"
        raise StudyError(f"checkpoints: {folder}: no checkpoint; allowed: {allowed}")
    kept = context.study.folder / "checkpoints.jsonl"
    known = _read(kept)
    rows = []
    for path, step in sorted(found.items(), key=lambda item: item[1]):
        key = str(path.resolve()), max(file.stat().st_mtime_ns for file in path.iterdir())
        if key not in known:
            start = time.monotonic()
            known[key] = _measured(context, path)
            lines = ({"path": name, "modified": date, "losses": losses} for (name, date), losses in known.items())
            write_whole(kept, "".join(f"{json.dumps(line)}\n" for line in lines))
            shown = "  ".join(f"{corpus} {loss:.4f}" for corpus, loss in known[key].items())
            log(f"{path.name}: {shown} ({time.monotonic() - start:.0f} s)")
        rows += [{"step": step, "corpus": corpus, "loss": loss} for corpus, loss in known[key].items()]
    return pd.DataFrame(rows)


def _directories(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise StudyError(f"checkpoints: {folder}: no such folder")
    return (path for path in (folder, *folder.iterdir()) if (path / "config.json").is_file())


def _read(kept: Path) -> dict[tuple[str, int], dict[str, float]]:
    """What was measured: path and date -> corpus -> loss; lines of another form are measured again."""
    lines = read_lines_whole(kept) if kept.exists() else []
    whole = [line for line in lines if isinstance(line, dict) and {*line} == {"path", "modified", "losses"}]
    return {(line["path"], line["modified"]): line["losses"] for line in whole}


def _measured(context: Context, path: Path) -> dict[str, float]:
    from training.base_model.losses import directory_losses  # loads torch

    spec, launcher = asked_run(context).spec, context.question.launcher
    micro_batch = fitted_run(context.question, spec).micro_batch
    try:
        losses = directory_losses(spec, path, context.manifest, micro_batch=micro_batch, threads=launcher.threads)
    except SpecError as error:
        raise StudyError(f"{path}: {error}") from None
    return {corpus: one.loss for corpus, one in losses.items()}
