"""A two-node Slurm of this test session's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.study.folder import Study
from training.durable import read_lines_whole

SLURM = Path(__file__).parents[2] / "slurm"
LOCAL_CLUSTER = SLURM / "local-cluster"
APT = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"

SMALL = [
    "experiment=own",
    "model=qwen2-0.05m",
    "ladder=[]",
    "mixture.domain_ratio=[0.2,0.5]",
    "mixture.replicates=1",
    "corpora.tokenizer.vocabulary=300",
    "corpora.validation_ratio=0.1",
    "precision=fp32",
    "engine=eager",
    "sequence_length=16",
    # So that the steps take long enough to be stopped in: more of them would let rounding grow.
    "validation_windows=32",
    "pretrain.steps=60",
    "pretrain.global_batch=4",
    "pretrain.evaluation.every=1",
    "continual.steps=20",
    "continual.global_batch=4",
    "launcher.resume_every=5",
]


class Cluster:
    """Two nodes, 127.0.0.1 and 127.0.0.2, of two CPUs and two GPUs in name only; SLURM_CONF points at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """All of Slurm's own files; log/ says what it thought."""

    @property
    def conf(self) -> Path:
        """slurm.conf: what SLURM_CONF is set to."""
        return self.folder / "slurm.conf"

    def call(self, verb: str, *words: str) -> str:
        """What `slurm/local-cluster verb ...` prints; `fail NODE` takes a node down, `up` brings it back."""
        command = [sys.executable, str(LOCAL_CLUSTER), verb, *words, "--folder", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str | Path, folder: Path, **environment: str) -> str:
        """`sbatch --parsable ...` in a folder; the job's id."""
        command = ["sbatch", "--parsable", *map(str, words)]
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=folder, env=os.environ | path | environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().split(";")[0]

    def shell(self, text: str, folder: Path) -> list[str]:
        """The lines that bash prints for a text, run in a folder as a user would."""
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        command = ["bash", "-euc", text]
        return subprocess.run(
            command, cwd=folder, env=os.environ | path, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says of a job: JobState, Reason, Restarts, ExitCode, ..."""
        command = ["scontrol", "--oneliner", "show", "job", number]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str, *states: str, seconds: float = 60) -> dict[str, str]:
        """Until a job is in one of the states (else: has ended, however); fails after some seconds."""
        wanted = states or ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        deadline = time.monotonic() + seconds
        while (job := self.job(number))["JobState"] not in wanted:
            assert time.monotonic() < deadline, f"job {number}: not {wanted} after {seconds} s: {job}"
            time.sleep(0.1)
        return job


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The session's Slurm, up; mark what asks for it `slurm`."""
    require_slurm()
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "slurm")
    # As Ctrl-C, after which pytest still tears down: daemons would outlive a session that `timeout` ends.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.call("up", "--cpus", "2")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(cluster.conf))
            yield cluster
    finally:
        cluster.call("down")
        signal.signal(signal.SIGTERM, before)


def require_slurm() -> None:
    """Skip where Slurm is not installed; fail where CI_REQUIRE_SLURM=1 says that it must be."""
    if shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        return
    why = f"slurmctld is missing; {APT}"
    if os.environ.get("CI_REQUIRE_SLURM") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves jobs or a dead node to the next."""
    yield
    if "cluster" in request.fixturenames:
        left = subprocess.run(["squeue", "--noheader", "--format=%A"], capture_output=True, text=True).stdout.split()
        if left:
            subprocess.run(["scancel", "--quiet", *sorted(set(left))], check=False)
        request.getfixturevalue("cluster").call("up")


@pytest.fixture(scope="session")
def words(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The question of three small runs, one before the two others; its corpora are prepared."""
    folder = tmp_path_factory.mktemp("slurm-study")
    words = [
        *SMALL,
        f"studies={folder}",
        f"data={folder / 'data'}",
        f"corpora.sources.general.path={texts / 'general'}",
        f"corpora.sources.domain.path={texts / 'code'}",
    ]
    assert run(["prepare", *words, "name=whole"]) == 0
    return words


@pytest.fixture(scope="session")
def planned(words: list[str]) -> Callable[..., Study]:
    """Plan a study of that question under a name of its own; further words after it."""

    def plan(name: str, *more: str) -> Study:
        assert run(["plan", *words, f"name={name}", *more]) == 0
        folder = next(word for word in words if word.startswith("studies=")).removeprefix("studies=")
        return Study(Path(folder) / name)

    return plan


@pytest.fixture(scope="session")
def losses(planned: Callable[..., Study]) -> Callable[[Study], None]:
    """Check that a study has no other points than one that nobody disturbed."""
    whole = planned("whole")
    command = [sys.executable, "-m", "pipeline.launch.worker", str(whole.folder)]
    assert subprocess.run(command, check=False).returncode == 0

    def check(study: Study, *names: str) -> None:
        for name in names:
            own, alone = (read_lines_whole(at.runs / name / "points.jsonl") for at in (study, whole))
            assert [(point["step"], point["corpus"]) for point in own] == [(p["step"], p["corpus"]) for p in alone]
            # Two processes add up in another order than one; 1.4e-6 was seen.
            assert [point["loss"] for point in own] == pytest.approx([point["loss"] for point in alone], abs=5e-6)

    return check
