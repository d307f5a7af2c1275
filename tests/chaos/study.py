"""The study of the campaign: its commands in order, and what it holds when nothing disturbs it."""

import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.processes import CLI, SHARD_BYTES, WORKER, Command
from tests.conftest import write_text
from tests.pipeline.tiny_model import tiny_model
from training.durable import write_whole

NAME = "small"
FOLDER = f"studies/{NAME}"
# Paths are relative: a copy of the study in another folder is the same study.
WORDS = (
    *("experiment=own", f"name={NAME}", "studies=studies", "data=data", "precision=fp32", "engine=eager"),
    *("model=qwen2-0.15m", "ladder=[qwen2-0.05m]", "mixture.domain_ratio=[0.1,0.5,0.9]", "mixture.replicates=1"),
    *("corpora.sources.general.path=texts/general", "corpora.sources.domain.path=texts/domain"),
    *("corpora.validation_ratio=0.1", "corpora.tokenizer.vocabulary=300", "sequence_length=16", "validation_windows=8"),
    *("pretrain.steps=30", "pretrain.global_batch=4", "target.steps=48", "target.global_batch=4"),
    *("continual.evaluation.every=2", "continual.checkpoints.steps=[6,12]", "launcher.resume_every=5"),
    # A run of which the mixture changes after 18 steps.
    "variants.switch={mixture: {domain_ratio: [0.5]}, continual: {phases: [{share: 0.75}, {domain_ratio: 0.9}]},"
    " held_out: true}",
    *("law=transfer-anchored", "law.transfer-anchored.from_step=2", "goal.tolerance=0.5", "bootstrap=8"),
    # Killed workers are no reason to give up, and one worker at a time suffices for a run of a second.
    *("launcher.workers=2", "launcher.retries=1000", "launcher.stale_after=2", "design.batch=1"),
)
_NOT_ADVISED = (
    *(
        "experiment=",
        "model=",
        "ladder=",
        "corpora.tokenizer",
        "law",
        "pretrain.",
        "mixture.",
        "continual.",
        "bootstrap",
    ),
    *("variants.", "design.", "target."),
)
ADVISED = (
    *(word for word in WORDS if not word.startswith(_NOT_ADVISED)),
    *("design.ratios=[0.2,0.5,0.8]", "design.peaks=[1,4]", "design.batch=4", "design.tolerance=0.01", "bootstrap=4"),
    *("design.lengths=[0.5,1]", "design.budget=1e9", "target.peak_learning_rate=1e-3", "confirm.neighbour=0"),
    *("target.steps=24", "target.global_batch=4", "continual.evaluation.every=4", "law=transfer-anchored"),
)
"""Of a study of a base model, which chooses its runs round by round."""


@dataclass(frozen=True)
class Stage:
    """A command, and the stage that has to be done before it."""

    name: str
    words: tuple[str, ...]
    after: str = ""


STAGES = {
    stage.name: stage
    for stage in (
        Stage("prepare", (CLI, "prepare", *WORDS)),
        Stage("plan", (CLI, "plan", *WORDS), "prepare"),
        Stage("train", (CLI, "train", *WORDS), "prepare"),
        Stage("worker", (WORKER, FOLDER), "plan"),
        Stage("collect", (CLI, "collect", FOLDER), "train"),
        Stage("fit", (CLI, "fit", FOLDER), "collect"),
        Stage("recommend", (CLI, "recommend", FOLDER), "fit"),
        Stage("refine", (CLI, "refine", FOLDER), "recommend"),
        Stage("advise", (CLI, "advise", "texts/model", *ADVISED)),
    )
}
CHAIN = ("prepare", "train", "collect", "fit", "recommend")
"""Stages from text to answer."""


class Reference:
    """The undisturbed study after each stage, in a folder each; made when it is asked for, once, by commands with the
    campaign's settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        settings, file = json.dumps([WORDS, ADVISED, SHARD_BYTES]), folder / "settings.json"
        if any(folder.iterdir()) and (not file.exists() or file.read_text() != settings):
            sys.exit(f"{folder.parent}: a campaign with other settings; give another --folder, or remove this one")
        write_whole(file, settings)
        # The first process waits until the one that it forks from has loaded everything.
        Command((CLI, "--version"), folder).wait()

    def before(self, stage: str, place: Path) -> None:
        """Make a place hold what a study holds before a stage."""
        self.after(stage)
        self._copy_before(STAGES[stage], place)

    def after(self, stage: str) -> Path:
        """The folder of the study after a stage; of no stage, of the texts."""
        place = self.folder / (stage or "texts")
        if stage and stage not in self.seconds:
            self._make(STAGES[stage], place)
        elif not place.exists():
            for seed, corpus in enumerate(("general", "domain"), start=1):
                write_text(self.folder / ".texts" / "texts" / corpus, seed, 80)
            # A link, since the path of the model is kept, and is to be the same in every copy.
            (self.folder / ".texts" / "texts" / "model").symlink_to(tiny_model(self.folder / "model"))
            (self.folder / ".texts").rename(place)
        return place

    def contents(self, stage: str) -> dict[str, str]:
        """What a study holds after a stage: path -> digest."""
        return contents(self.after(stage))

    def _copy_before(self, stage: Stage, place: Path) -> None:
        shutil.copytree(self.after(stage.after), place, symlinks=True, dirs_exist_ok=True)

    def _make(self, stage: Stage, place: Path) -> None:
        note = place.with_name(f"{place.name}.json")
        if not note.exists():
            shutil.rmtree(place, ignore_errors=True)
            self._copy_before(stage, place)
            start = time.monotonic()
            command = Command(stage.words, place)
            code = command.wait()
            command.end_group()
            assert code == 0, f"{stage.name}: {code}: {command.output}"
            note.write_text(json.dumps({"seconds": time.monotonic() - start}) + "\n")
        self.seconds[stage.name] = json.loads(note.read_text())["seconds"]


def contents(folder: Path) -> dict[str, str]:
    """Path -> digest of the files that must not depend on kills.

    Not among them: records of attempts, metrics (both hold times), reports (with measured costs), logs, locks, measured
    engines, resume states (which of them are left depends on when), and hidden parts of files that a kill left, which
    nothing reads. Of DONE the number of the attempt is left out, of manifest.json the times of the text's files, which
    each copy has of its own.
    """
    digests = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_dir() or relative.parts[0] == "texts" or _varies(relative):
            continue
        data = path.read_bytes()
        if path.name == "DONE" and path.parent.parent.name == "runs":
            data = json.dumps({**json.loads(data), "attempt": 0}).encode()
        if path.name == "manifest.json":
            data = re.sub(rb'"state": "\w+"', b"", data)
        digests[str(relative)] = hashlib.blake2b(data, digest_size=8).hexdigest()
    return digests


def differences(found: dict[str, str], expected: dict[str, str], but: Sequence[str] = ()) -> list[str]:
    """Paths that are missing, too many or of other content, without those in `but`."""
    paths = sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path) and path not in but)
    states = {path: "changed" if path in found and path in expected else "extra" for path in paths}
    return [f"{states[path] if path in found else 'missing'} {path}" for path in paths]


def _varies(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return (
        hidden
        or bool({"attempts", "logs", "resume", "engines"} & {*path.parts})
        or path.name in ("metrics.jsonl", "report.html")
    )
