"""Damaged files of every kind that cptlaw reads: no traceback, no hang, no file changed.

FILES=10000 tries more of them, KIND=wandb one kind; WORLD=FOLDER keeps what they are made of.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import struct
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

import pandas as pd
import pytest

from pipeline.cli.main import run
from pipeline.launch.work import run_worker
from pipeline.plan.runs import data_folder
from pipeline.question.loading import load_question
from pipeline.study.folder import Study
from tests.fitting.synthetic import TRUE, grid, measured
from tests.pipeline.cli.trainer_logs import BEFORE, FACTS, LOSS_BEFORE, losses, trainer_state
from tests.pipeline.plan.test_model_download import write_gguf
from tests.pipeline.small import limited, small_words
from training.corpora.manifest import Manifest
from training.model import model_from_directory
from training.run import RunFolders, run_once
from training.spec import Execution

MANY = ("csv", "parquet", "jsonl", "csv of losses", "parquet of losses", "jsonl of losses", "runs")
"""Kinds of which each run may have a line."""
MOST_MEMORY = 2**35
"""Bytes of address space; torch and its libraries take most of them."""
HANG = 5.0
"""Seconds that a verb may spend on a damaged file."""
ODD = (
    *(None, True, -1, 0, 1e308, 10**30, float("nan"), float("inf"), "", "x", "\ud800", "a\nb", "../..", "1" * 5000),
    *([], {}, [[]], {"a": None}, [None], "[" * 2000),
)
"""Values that a key of JSON may have instead of its own."""


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    pattern: str
    """Glob pattern below the world."""
    commands: tuple[str, ...]
    """What reads it; {file} and {folder} stand for it and its folder."""
    codes: tuple[int, ...] = (0, 3)


STUDY = ("status {world}/studies/small", "report {world}/studies/small")
PLAN = ("plan {world}/words",)
WORKER = ("worker {world}/studies/open",)
IMPORT = " ".join(["import {file} studies={world}/imported name=other domain_ratio=0.5", *FACTS, *LOSS_BEFORE])
FIT_TABLE = "fit points={file} law=dcpt-l2 bootstrap=2"
KINDS = {
    "study.yaml": Kind("studies/small/study.yaml", (STUDY[0], "recommend {world}/studies/small"), (0, 1, 2, 3)),
    "plan": Kind("studies/small/plan.jsonl", (STUDY[0], "collect {world}/studies/small")),
    "points": Kind("studies/small/points.parquet", ("fit {world}/studies/small", STUDY[1])),
    "fit": Kind("studies/small/fits/*.[jt]*", ("recommend {world}/studies/small", STUDY[1]), (0, 1, 3)),
    "held out": Kind("studies/small/fits/*.parquet", ("recommend {world}/studies/small", STUDY[1]), (0, 1, 3)),
    "artifact": Kind("studies/small/*.json", (*STUDY, "export {world}/studies/small format=trl"), (0, 1, 3)),
    "attempt": Kind("studies/small/runs/*/attempts/*.json", STUDY),
    "run": Kind("studies/small/runs/*/[DFmps]*", (*STUDY, "collect {world}/studies/small")),
    "worker": Kind("studies/open/runs/*/[RFmps]*", WORKER, (0, 1, 3)),
    "open attempt": Kind("studies/open/runs/*/attempts/*", (*WORKER, "status {world}/studies/open"), (0, 3)),
    "checkpoint": Kind("studies/open/runs/pretrain*/checkpoints/*/*", WORKER),
    "state": Kind("studies/open/runs/continual*/resume/*/*", WORKER),
    "plan again": Kind("studies/brought/*", ("plan {world}/brought",), (0, 2, 3)),
    "corpora": Kind("data/*/*", (*WORKER, *PLAN)),
    "corpus": Kind("data/*/*/*", (*WORKER, *PLAN)),
    "model": Kind("base/*.json", ("plan {world}/brought", "model {folder} data={world}/data")),
    "weights": Kind("base/*.safetensors", ("plan {world}/brought", "model {folder} data={world}/data")),
    "tokenizer": Kind("base/tokenizer*", ("plan {world}/brought", "model {folder} data={world}/data")),
    "gguf": Kind("*.gguf", ("model {file} data={world}/converted",)),
    "wandb": Kind("*.wandb", (IMPORT,), (0, 2, 3)),
    "trainer": Kind("trainer_state.json", (IMPORT,), (0, 2, 3)),
    "csv": Kind("table.csv", (FIT_TABLE,), (0, 1, 2, 3)),
    "csv of losses": Kind("losses.csv", (IMPORT,), (0, 2, 3)),
    "parquet": Kind("table.parquet", (FIT_TABLE,), (0, 1, 2, 3)),
    "parquet of losses": Kind("losses.parquet", (IMPORT,), (0, 2, 3)),
    "jsonl": Kind("table.jsonl", (FIT_TABLE,), (0, 1, 2, 3)),
    "jsonl of losses": Kind("losses.jsonl", (IMPORT,), (0, 2, 3)),
    "runs": Kind(
        "runs.yaml", ("import {world}/trainer_state.json runs={file} studies={world}/imported name=other",), (0, 2, 3)
    ),
}


def damaged(data: bytes, draw: random.Random) -> bytes:
    """The bytes with a damage of some kind."""
    at, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    few = draw.randbytes(draw.randint(1, 8))
    kinds = [
        lambda: data[:at],
        lambda: data[:at] + data[end:],
        lambda: data[:at] + data[at:end] * 2 + data[end:],
        lambda: data[:at] + few + data[at:],
        lambda: data[:at] + few + data[at + len(few) :],
        lambda: data[:at] + bytes(end - at) + data[end:],
        lambda: data[:at] + struct.pack("<Q", 2**63 - 1) + data[at + 8 :],
        lambda: b"",
        lambda: b"\0" * len(data),
        lambda: draw.randbytes(200),
        lambda: b"[" * 100_000,
        lambda: b'{"schema": 1, "a": ' + b"[" * 100_000,
        lambda: b"\xff\xfe" + data.decode("latin1").encode("utf-16le"),
        lambda: data.replace(b'"', "é".encode("latin1"), 3),
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.replace(b": ", b":\t*x ", 1),
    ]
    if data[:1] in b"[{" and len(data) < 10**6:
        kinds += [lambda: _changed_json(data, draw)] * len(kinds)
    return draw.choice(kinds)()


def _changed_json(data: bytes, draw: random.Random) -> bytes:
    """JSON, or lines of JSON, with one value replaced, removed or renamed."""
    text = data.decode()
    lines = [text] if "\n " in text or "\n" not in text.strip() else text.splitlines()
    number = draw.randrange(len(lines))
    value = root = json.loads(lines[number]) if lines[number].strip() else {}
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
            value = value[key]
            continue
        kind = draw.randrange(8)
        if kind == 0:
            del value[key]
        elif kind == 1 and isinstance(value, dict):
            value[f"{key}x"] = value.pop(key)
        else:
            value[key] = draw.choice(ODD)
        break
    if draw.random() < 0.05:
        root = draw.choice(ODD)
    lines[number] = json.dumps(root)
    return "\n".join([*lines, ""]).encode()


def put_in_place(path: Path, draw: random.Random) -> str:
    """Put something that is no regular file at a path; returns what it is."""
    kind = draw.choice(["folder", "pipe", "ring", "dangling", "device", "missing"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.symlink_to({"ring": path, "dangling": path.with_name("nowhere"), "device": "/dev/zero"}[kind])
    return kind


def build(folder: Path, texts: Path, model: Path) -> None:
    """Fill a folder with a study that has everything, one whose runs are open, a model, logs and tables."""
    texts = shutil.copytree(texts, folder / "texts")
    words = small_words(texts, folder, "corpora.validation_ratio=0.2", "confirm.neighbour=0")
    for verb in ("prepare", "plan", "train", "collect", "fit", "recommend", "confirm", "report"):
        assert run([verb, *words]) == 0
    (folder / "words").write_text("\n".join(words))
    _open_runs(Study(folder / "studies" / "small"), folder / "studies" / "open")
    shutil.copytree(model, folder / "base")
    own = ["name=brought", "model=local", f"model.path={folder / 'base'}", "ladder=[]"]
    brought = [*(word for word in words if not word.startswith(("name=", "model=", "ladder=", "corpora.token"))), *own]
    assert [run([verb, *brought]) for verb in ("prepare", "plan")] == [0, 0]
    (folder / "brought").write_text("\n".join(brought))
    write_gguf(folder / "tiny.gguf", model_from_directory(folder / "base", "eager"), folder / "base")
    trainer_state(folder / "log", 0.5)
    (folder / "log" / "trainer_state.json").rename(folder / "trainer_state.json")
    (folder / "run-x.wandb").write_bytes(wandb_file(range(10, 50, 10)))
    table = measured(
        grid(ratios=(0.0, 0.2, 0.5, 1.0), evaluations=3, every=100_000), "dcpt", TRUE["dcpt"], 0.002, run_noise=0.001
    )
    rows = [(step, corpus, loss) for step in (10, 20, 30, 40) for corpus, loss in losses(0.5, step).items()]
    logged = pd.DataFrame(rows, columns=["step", "corpus", "loss"]).assign(run="first", seed=0)
    for name, rows in {"table": table, "losses": pd.concat([logged, logged.assign(run="second", seed=1)])}.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
        rows.to_parquet(folder / f"{name}.parquet", index=False)
        rows.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    facts = dict(word.split("=") for word in FACTS)
    runs = {str(folder / "trainer_state.json"): {"domain_ratio": 0.5}}
    (folder / "runs.yaml").write_text(json.dumps({**facts, "loss_before": BEFORE, "runs": runs}, indent=1))


def _open_runs(study: Study, folder: Path) -> None:
    """A copy of a study in which the pre-training run is to be trained again, and a run goes on from a state."""
    shutil.copytree(study.folder, folder)
    opened = Study(folder)
    question = load_question(folder / "study.yaml", again=False)
    run = next(run for run in study.read_plan() if run.role == "fit")
    shutil.rmtree(opened.runs / run.name)
    folders = RunFolders(
        opened.runs / run.name, Manifest.open(data_folder(question)), opened.memory, folder / run.start
    )
    assert run_once(run.spec, folders, Execution(engine="auto", kept_states=(5,))) == 0
    (opened.runs / run.name / "DONE").unlink()
    (opened.runs / run.name / "RETRIED").write_text("1\n")
    (folder / "study.yaml").write_text((folder / "study.yaml").read_text().replace("name: small", "name: open"))


def wandb_file(steps: Sequence[int]) -> bytes:
    """An offline run of wandb."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data = b":W&B\xe1\xbe\0"
    for step in steps:
        record = Record()
        row = {"train/global_step": step, **{f"eval_{name}_loss": value for name, value in losses(0.5, step).items()}}
        for key, value in row.items():
            record.history.item.add(key=key, value_json=json.dumps(value))
        content = record.SerializeToString()
        data += struct.pack("<IHB", 0, len(content), 1) + content
    return data


class World:
    """A folder with a file of every kind, and a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._copy = folder / "world", folder / "copy"
        self._whole = _listing(self._copy)

    def files(self, kind: Kind) -> list[Path]:
        return sorted(path for path in self.folder.glob(kind.pattern) if path.is_file())

    def trial(self, name: str, seed: int) -> str:
        """Damage a file of a kind by a seed, read it with a verb, and restore all; what was wrong, or nothing."""
        draw, kind = random.Random(f"{name}-{seed}"), KINDS[name]
        file = draw.choice(self.files(kind))
        data, what = file.read_bytes(), "bytes"
        file.unlink()
        try:
            if draw.random() < 0.1:
                what = put_in_place(file, draw)
            else:
                file.write_bytes(damaged(data, draw))
            command = draw.choice(kind.commands).format(world=self.folder, file=file, folder=file.parent)
            before = _listing(self.folder)
            code, output, seconds = carry_out(command.split())
            lines = output.strip().splitlines()
            problems = [
                *(["error of the program"] if "--debug shows where" in output or "Traceback" in output else []),
                *([f"exit code {code}"] if code not in kind.codes else []),
                *([f"{len(lines)} lines"] if code in (2, 3) and name not in MANY and len(lines) > 3 else []),
                *([f"{seconds:.1f} s"] if seconds > HANG else []),
            ]
            differ = before.items() ^ _listing(self.folder).items() if code in (2, 3) else ()
            if changed := {path for path, stat in differ if not (S_ISDIR(stat[0]) or _may_change(path))}:
                problems.append(f"changed: {sorted(changed)}")
            line = f"{name} {seed} [{what}] {file.relative_to(self.folder)} by {command.split()[0]}: "
            return line + f"{'; '.join(problems)}: {output[-1500:]}" if problems else ""
        finally:
            self._restore()

    def read_undamaged(self) -> None:
        """Each verb reads what is not damaged: of another error no damage would be seen."""
        files = [(self.files(kind)[0], command) for kind in KINDS.values() for command in kind.commands]
        for line in {command.format(world=self.folder, file=file, folder=file.parent): None for file, command in files}:
            code, output, _ = carry_out(line.split())
            assert code == 0, f"{line}: {output}"
            self._restore()

    def _restore(self) -> None:
        """Make every file what it was."""
        now = _listing(self.folder)
        for name in sorted(name for name, stat in now.items() if self._whole.get(name) != stat):
            path = self.folder / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        for name in sorted(name for name, stat in self._whole.items() if not os.path.lexists(self.folder / name)):
            copied = self._copy / name
            (self.folder / name).mkdir() if copied.is_dir() else shutil.copy2(copied, self.folder / name)


def _listing(folder: Path, below: str = "") -> dict[str, tuple[int, ...]]:
    """Every file with its kind, size and date, every folder with its kind, by the path below a folder."""
    found = {}
    for entry in os.scandir(folder / below):
        stat, name = entry.stat(follow_symlinks=False), f"{below}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            found |= {name: (stat.st_mode,), **_listing(folder, f"{name}/")}
        else:
            found[name] = (stat.st_mode, stat.st_size, stat.st_mtime_ns)
    return found


def _may_change(path: str) -> bool:
    """A worker records its attempt before it reads the input."""
    return any(f"/{name}/" in f"/{path}" for name in ("attempts", "wandb")) or path.endswith((".lock", "spec.yaml"))


def carry_out(words: Sequence[str]) -> tuple[int, str, float]:
    """Exit code, errors and seconds of the processor of a verb, or of a worker, in this process."""
    start, out, error = time.process_time(), io.StringIO(), io.StringIO()
    if words[0] == "plan":
        words = [words[0], *Path(words[1]).read_text().split("\n")]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), limited(12 * HANG):
        try:
            if words[0] == "worker":
                study = Study(Path(words[1]))
                code = run_worker(study, load_question(study.folder / "study.yaml", again=False), None)
            else:
                code = run(words)
        except BaseException:
            traceback.print_exc()
            code = 70
    return int(code), error.getvalue(), time.process_time() - start


@contextlib.contextmanager
def room() -> Iterator[None]:
    """A limit on memory, which a device without end would fill."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def world(texts: Path, brought: Path, tmp_path_factory) -> World:
    folder = Path(os.environ.get("WORLD") or tmp_path_factory.mktemp("damaged"))
    if not (folder / "copy").exists():
        (folder / "world").mkdir(parents=True)
        build(folder / "world", texts, brought)
        shutil.copytree(folder / "world", folder / "copy")
        World(folder).read_undamaged()
    return World(folder)


@pytest.mark.slow
def test_a_damaged_file_is_one_line_and_changes_nothing(world: World) -> None:
    names = [name for name in KINDS if name == os.environ.get("KIND", name)]
    seeds = -(-int(os.environ.get("FILES", 1)) // len(names))
    with room():
        wrong = [line for seed in range(seeds) for name in names if (line := world.trial(name, seed))]
    assert not wrong, f"{len(wrong)} of {seeds * len(names)} files:\n" + "\n".join(wrong)
