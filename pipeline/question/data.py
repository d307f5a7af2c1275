"""Where the prepared corpora of a question are."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from pipeline.question.schema import Question


def data_folder(question: Question) -> Path:
    """Folder of the prepared corpora of a question; questions with the same corpora share it."""
    parts = dataclasses.asdict(question.corpora)
    if domains := parts.pop("domains"):
        # The text is the same whichever of several domains the question is about.
        parts["domain"] = domains[0]
    for key in ("revision", "separator"):
        # Folders of questions without this key keep their names.
        if parts["tokenizer"][key] is None:
            del parts["tokenizer"][key]
    for source in parts["sources"].values():
        if source["kind"] != "generated":
            del source["generated"]
    generated = any(source["kind"] == "generated" for source in parts["sources"].values())
    if question.model.path and (generated or not question.corpora.tokenizer.path):
        # The model's tokenizer gives other tokens, and the model may write text.
        parts |= {"model": [question.model.path, question.model.revision]}
    corpora = json.dumps(parts, sort_keys=True)
    digest = hashlib.blake2b(corpora.encode(), digest_size=4).hexdigest()
    return Path(question.data) / f"{parts['general']}-{parts['domain']}-{digest}"
