"""Corpora, tokenizer and precision of a question, made ready once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.config import models
from pipeline.plan import data_folder
from pipeline.schema import Question
from pipeline.study import Study, StudyError
from training.corpus_error import CorpusError
from training.manifest import Manifest
from training.prepare import Source, TokenizerChoice, prepare


def prepare_corpora(question: Question, tell: Callable[[str], object]) -> Manifest:
    """Tokenise the question's corpora; what is prepared already is left alone.

    Raises:
        CorpusError: a corpus or the tokenizer cannot be used.
    """
    absent = [
        f"corpora.sources.{name}.path: {source.path!r} does not exist; give a file or folder of text"
        for name, source in question.corpora.sources.items()
        if source.kind == "files" and not Path(source.path).exists()
    ]
    if absent:
        raise CorpusError("\n".join(absent))
    sources = {
        name: Source(
            kind=source.kind,
            part=source.part or "prose",
            exclude=tuple(source.exclude),
            path=source.path,
            column=source.column,
            max_bytes=source.max_bytes,
        )
        for name, source in question.corpora.sources.items()
    }
    path = question.corpora.tokenizer.path or question.model.path
    choice = TokenizerChoice(path=path) if path else TokenizerChoice(vocabulary=question.corpora.tokenizer.vocabulary)
    share = question.corpora.validation_share
    return prepare(sources, choice, data_folder(question), validation_share=share, progress=tell)


def decide_precision(question: Question, study: Study, manifest: Manifest, tell: Callable[[str], object]) -> str:
    """fp32 or bf16 for the whole study: as asked, or the faster one here, measured once and kept in machine.json."""
    if question.precision != "auto":
        return question.precision
    if (known := known_precision(question, study)) is None:
        from pipeline.plan import shape_of
        from training.engine import faster_precision

        _, target = models(question)
        batch = question.launcher.micro_batch or question.continual.global_batch
        measured = faster_precision(shape_of(question, target, manifest), batch, question.sequence_length)
        study.write_json("machine.json", measured)
        known = measured["precision"]
        speeds = ", ".join(f"{name} {value:,} tokens/s" for name, value in measured["measured"].items())
        tell(f"precision: {known} ({speeds} on one thread, {target.name}, not compiled)")
    return known


def known_precision(question: Question, study: Study) -> str | None:
    """The study's precision if it is asked for or was measured, else None."""
    if question.precision != "auto":
        return question.precision
    machine = machine_record(study)
    return machine["precision"] if machine else None


def machine_record(study: Study) -> dict[str, Any] | None:
    """What prepare measured on this study's machine, or None."""
    try:
        return study.read_json("machine.json", "prepare")
    except StudyError:
        return None
