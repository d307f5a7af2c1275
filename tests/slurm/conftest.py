"""A two-node Slurm for the test session, and studies to train on it."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.launch.slurm.client import Scheduler
from pipeline.study.folder import Study
from tests.pipeline.small import SMALL as ROAD
from tests.pipeline.small import worker
from tests.processes import run_forked
from tests.slurm import local_cluster
from tests.slurm.fake_slurm import FakeSlurm
from training.durable import read_lines_whole

SLURM = Path(__file__).parents[2] / "slurm"

SMALL = [
    *("experiment=own", "model=qwen2-0.05m", "ladder=[]", "mixture.domain_ratio=[0.2,0.5]", "mixture.replicates=1"),
    *("corpora.tokenizer.vocabulary=300", "corpora.validation_ratio=0.1", "precision=fp32", "engine=eager"),
    # Long evaluations, so that a test can stop the run between two steps; more steps would let rounding grow.
    *("sequence_length=16", "validation_windows=32", "evaluation_budget=1", "pretrain.steps=60"),
    "pretrain.global_batch=4",
    *("pretrain.evaluation.every=1", "target.steps=40", "target.global_batch=4", "launcher.resume_every=5"),
]


class Cluster:
    """Two nodes, 127.0.0.1 and 127.0.0.2, of two CPUs and two GPUs in name only; SLURM_CONF points at it.

    With accounting where slurmdbd is installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.conf = folder, folder / "slurm.conf"
        """All of Slurm's files, log/ holds its logs; the value of SLURM_CONF."""

    def daemons(self) -> list[int]:
        """Process ids of its daemons."""
        return [int(path.read_text()) for path in (self.folder / "pid").iterdir()]

    def down(self) -> None:
        """Stop it, and check that nothing is left."""
        daemons = self.daemons() if self.folder.exists() else []
        self.call("down")
        assert not any(map(local_cluster.runs, daemons))
        assert not self.folder.exists()

    def call(self, verb: str, *words: str) -> str:
        """Output of `local_cluster.py VERB ...`; `fail NODE` takes a node down, `up` restores it."""
        command = [sys.executable, local_cluster.__file__, verb, *words, "--folder", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str | Path, folder: Path, **environment: str) -> str:
        """Job number from `sbatch --parsable ...` in a folder."""
        command = ["sbatch", "--parsable", *map(str, words)]
        environment = _with_python() | environment
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(";")[0]

    def shell(self, text: str, folder: Path) -> list[str]:
        """Lines that bash prints for a script, run in a folder."""
        run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
        return run(["bash", "-euc", text], cwd=folder, env=_with_python()).stdout.splitlines()

    def job(self, number: str) -> dict[str, str]:
        """Fields of `scontrol show job`: JobState, Reason, Restarts, ExitCode, ..."""
        command = ["scontrol", "--oneliner", "show", "job", number]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str, *states: str, seconds: float = 60) -> dict[str, str]:
        """Fields of a job once it is in one of the states (default: ended); fails after some seconds."""
        states = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        deadline = time.monotonic() + seconds
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < deadline, f"job {number}: not {states} after {seconds} s: {job}"
            time.sleep(0.1)
        return job


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The running Slurm of the session; mark tests that use it `slurm`."""
    require_slurm()
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "slurm")
    # As Ctrl-C, after which pytest tears down: otherwise the daemons outlive a session ended by `timeout`.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.call("up", "--cpus", "2", *([] if local_cluster.missing(accounting=True) else ["--accounting"]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(cluster.conf))
            yield cluster
    finally:
        cluster.down()
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def accounting(cluster: Cluster) -> Cluster:
    """The same Slurm, with slurmdbd: sacct, limits, and a partition that preempts."""
    require_slurm(accounting=True)
    return cluster


def require_slurm(accounting: bool = False) -> None:
    """Skip the test if Slurm, or what its accounting needs, is not installed; fail it with CI_REQUIRE_SLURM=1."""
    if reason := local_cluster.missing(accounting):
        (pytest.fail if os.environ.get("CI_REQUIRE_SLURM") == "1" else pytest.skip)(reason)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Slurm command a second is for a controller that others use too."""
    monkeypatch.setattr(Scheduler.__init__, "__defaults__", (60.0, 0.0))


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel the jobs that a test leaves, and restore its nodes."""
    yield
    if "cluster" in request.fixturenames:
        left = subprocess.run(["squeue", "--noheader", "--format=%A"], capture_output=True, text=True).stdout.split()
        if left:
            subprocess.run(["scancel", "--quiet", *sorted(set(left))], check=False)
        request.getfixturevalue("cluster").call("up")


def _with_python() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def prepare_words(words: list[str], texts: Path, folder: Path) -> list[str]:
    """The overrides of a question whose corpora are prepared in a folder; without `studies`."""
    places = (f"corpora.sources.{name}.path={texts / of}" for name, of in (("general", "general"), ("domain", "code")))
    words = [*words, f"data={folder / 'data'}", *places]
    # Where runs are trained elsewhere no speed is measured, which takes 20 s.
    assert run(["prepare", *words, f"studies={folder}", "launcher=slurm"]) == 0
    return words


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the studies that `words` names."""
    return tmp_path_factory.mktemp("slurm-study")


@pytest.fixture(scope="session")
def words(texts: Path, studies: Path) -> list[str]:
    """The question of three small runs, one before the two others; its corpora are prepared."""
    return [*prepare_words([*SMALL, "name=whole"], texts, studies), f"studies={studies}"]


@pytest.fixture(scope="session")
def prepared(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A question with launcher=slurm whose corpora are prepared; a test adds `studies`."""
    return prepare_words([*ROAD, "launcher=slurm"], texts, tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Programs that answer as Slurm's do."""
    fake = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    return fake


@pytest.fixture(scope="session")
def planned(words: list[str], studies: Path) -> Callable[..., Study]:
    """Plan a study of that question under another name, with more overrides."""

    def plan(name: str, *more: str) -> Study:
        assert run(["plan", *words, f"name={name}", *more]) == 0
        return Study(studies / name)

    return plan


@pytest.fixture(scope="session")
def losses(planned: Callable[..., Study]) -> Callable[[Study], None]:
    """Check that a study has the same points as an undisturbed one."""
    whole = planned("whole")
    assert run_forked(worker(whole)).returncode == 0

    def check(study: Study, *names: str) -> None:
        for name in names:
            points, expected = (read_lines_whole(at.runs / name / "points.jsonl") for at in (study, whole))
            assert [(p["step"], p["corpus"]) for p in points] == [(p["step"], p["corpus"]) for p in expected]
            # Two processes add in another order than one: differences up to 1.4e-6.
            assert [p["loss"] for p in points] == pytest.approx([p["loss"] for p in expected], abs=5e-6)

    return check
