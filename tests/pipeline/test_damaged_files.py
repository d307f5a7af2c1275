"""Damaged files of every kind that cptlaw reads: no traceback, no hang, no file changed.

Through its verbs: FILES=10000 tries more of them. By the functions with which verbs read, where verbs spend little of
their time: READ=10000 of each kind; SECONDS ends a kind after so many seconds of the processor. KIND=wandb tries one
kind, WORLD=FOLDER keeps what they are made of.
"""

import os
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.import_runs import read_settings
from pipeline.cli.run_logs import loss_keys, read_logs
from pipeline.goals.registry import question_of_study
from pipeline.launch.exit_codes import exit_code_of
from pipeline.question.loading import load_question
from pipeline.study.artifacts import Artifact
from pipeline.study.collect import measured_points, read_points
from pipeline.study.fits import read_back_test, read_fits
from pipeline.study.folder import Study
from pipeline.study.status import statuses
from tests.pipeline.damage import HANG, KINDS, World, build, room
from tests.pipeline.small import limited
from training.attempt import attempts
from training.base_model.gguf_file import read_gguf_header
from training.corpora.manifest import Manifest
from training.corpora.readers import open_reader
from training.corpora.source import Source
from training.corpora.store import TokenStore
from training.corpora.tokenizer import end_of_text_id, load_tokenizer
from training.model import model_from_directory, read_model_directory


def _texts(file: Path) -> object:
    return deque(open_reader("x", Source("files", path=str(file))).documents(), maxlen=0)


def _answers(file: Path) -> object:
    study = Study(file.parent)
    return [kind.read(study) for kind in Artifact.__subclasses__() if file.name == kind.NAME]


def _runs(file: Path) -> object:
    study = Study(next(folder.parent for folder in file.parents if folder.name == "runs"))
    plan = study.read_plan()
    return [measured_points(study, plan, "general"), statuses(study, plan, 60.0)]


READERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    "study.yaml": (lambda file: load_question(file, again=False),),
    "plan": (lambda file: Study(file.parent).read_plan(),),
    "points": (lambda file: read_points(Study(file.parent)),),
    "fit": (lambda file: read_fits(Study(file.parents[1]), question_of_study(file.parents[1], [], again=False)),),
    "held out": (lambda file: read_back_test(Study(file.parents[1])),),
    "artifact": (_answers,),
    "attempt": (lambda file: attempts(file.parents[1]), _runs),
    "run": (_runs,),
    "corpora": (lambda file: Manifest.open(file.parent),),
    "corpus": (lambda file: TokenStore.open(file.parent).batch("validation", np.array([0, 1]), 16),),
    "tokenizer": (lambda file: end_of_text_id(load_tokenizer(file.parent)),),
    "model": (lambda file: read_model_directory(file.parent),),
    "weights": (lambda file: model_from_directory(file.parent, "eager"),),
    "gguf": (read_gguf_header,),
    "text": (_texts,),
    **dict.fromkeys(("wandb", "trainer"), (lambda file: read_logs(file, loss_keys(["general", "domain"]), {}),)),
    **dict.fromkeys(("csv", "parquet", "jsonl"), (lambda file: read_logs(file, loss_keys(["domain"]), {}),)),
    "runs": (lambda file: read_settings([f"runs={file}", "name=other"]),),
}
"""Kind of file -> the functions with which verbs read it."""


def carry_out_reading(read: Callable[[Path], object], file: Path) -> str:
    """What is wrong with how a function reads a file: an error of no known class, or of several lines, or a hang."""
    start = time.process_time()
    try:
        with limited(12 * HANG):
            read(file)
    except FileNotFoundError:
        pass
    except BaseException as error:
        code, line = exit_code_of(error) or (70, "")
        if code not in (2, 3) or len(line.splitlines()) > 6:
            return f"{type(error).__name__}: {line or traceback.format_exc()[-900:]}"
    seconds = time.process_time() - start
    return f"{seconds:.1f} s" if seconds > HANG else ""


@pytest.fixture(scope="module")
def world(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = Path(os.environ.get("WORLD") or tmp_path_factory.mktemp("damaged"))
    if not (folder / "pristine").exists():
        build(folder, texts)
    return World(folder)


@pytest.mark.slow
def test_a_damaged_file_is_one_line_and_changes_nothing(world: World, few_positions) -> None:
    names = [name for name in KINDS if name == os.environ.get("KIND", name)]
    seeds = -(-int(os.environ.get("FILES", 36)) // len(names))
    with room():
        wrong = [line for seed in range(seeds) for name in names if (line := world.trial(name, seed))]
    assert not wrong, f"{len(wrong)} of {seeds * len(names)} files:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in READERS if name == os.environ.get("KIND", name)])
def test_a_damaged_file_is_read_or_refused(name: str, world: World) -> None:
    end = time.process_time() + float(os.environ.get("SECONDS", "inf"))
    wrong, tried = [], 0

    def read(file: Path) -> str:
        return carry_out_reading(READERS[name][seed % len(READERS[name])], file)

    with room():
        for seed in range(10**6, 10**6 + int(os.environ.get("READ", 20))):
            wrong += [line] if (line := world.trial(name, seed, read)) else []
            tried += 1
            if time.process_time() > end:
                break
    print(f"{name}: {tried} files")
    assert not wrong, f"{len(wrong)} of {tried} files:\n" + "\n".join(wrong[:20])
