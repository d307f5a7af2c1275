"""cptlaw prepare as an array of a real Slurm: a task is killed and repeated, and the bytes are those of one process."""

import re
import subprocess
from pathlib import Path

import pytest

from pipeline.cli.main import run
from pipeline.launch.slurm.jobs import read_jobs
from pipeline.study.folder import Study
from tests.pipeline.small import SMALL, wait_until
from tests.slurm.conftest import Cluster
from tests.slurm.fake_slurm import FakeSlurm
from tests.training.corpora.rows import as_lines, write

ROWS = 12_000


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus of four shards, and one of a single shard."""
    folder = tmp_path_factory.mktemp("rows")
    rows = [{"text": f"The case {number % 99} was heard by the court of {number}. " * 30} for number in range(ROWS)]
    general, domain = write(folder / "g.jsonl", as_lines(rows)), write(folder / "d.jsonl", as_lines(rows[:500]))
    assert general.stat().st_size > 3 * 4_000_000
    return [f"corpora.sources.general.path={general}", f"corpora.sources.domain.path={domain}"]


@pytest.fixture
def words(paths: list[str], tmp_path: Path) -> list[str]:
    return [*SMALL, *paths, f"studies={tmp_path}", "launcher=slurm", "launcher.slurm.prepare_tasks=2", "name=one"]


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.suffix in (".bin", ".json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_dry_run_prints_both_scripts_and_leaves_nothing(words: list[str], tmp_path: Path, capsys) -> None:
    data = tmp_path / "data"
    assert run(["prepare", *words, f"data={data}", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert re.search(rf'"\$SLURM_ARRAY_TASK_ID" 2 {data}/\S+/domain-EXAMPLE.unfinished {data}/\S+general-\S+ &', out)
    assert "--array=0-1 " in out
    assert "--dependency=afterok:JOB1 --kill-on-invalid-dep=yes" in out
    here = ["launcher.slurm.prepare_tasks=0", "precision=fp32", "dry_run=true"]
    assert run(["prepare", *words, f"data={data}", *here]) == 0
    assert "a dry run: prepare tokenises the corpora here, without a job; nothing is written" in capsys.readouterr().out
    assert not data.exists()
    assert not (tmp_path / "one").exists()


@pytest.mark.slow
def test_status_says_how_far_the_jobs_are(words: list[str], slurm: FakeSlurm, tmp_path, capsys, monkeypatch) -> None:
    study = tmp_path / "one"
    monkeypatch.setenv("COLUMNS", "250")
    assert run(["prepare", *words, f"data={tmp_path / 'data'}"]) == 0

    def lines() -> list[str]:
        capsys.readouterr()
        assert run(["status", str(study)]) == 0
        *shown, following = capsys.readouterr().out.splitlines()
        assert following == f"next: cptlaw status {study}"
        return shown

    waits = "PENDING (Priority)"
    assert lines() == [f"prepare, tokenise: job 1: 2 {waits}", "prepare, merge: job 2: PENDING (Dependency)"]
    slurm.change("1", "RUNNING", "None")
    slurm.change("2", "GONE", "")
    again = "logs/slurm-2.out; cptlaw prepare submits what is missing"
    assert lines() == [
        "prepare, tokenise: job 1: 2 RUNNING", f"prepare, merge: job 2: not in the queue any more; {again}"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.slurm
def test_a_task_is_killed_and_repeated(cluster: Cluster, words: list[str], tmp_path: Path, capsys) -> None:
    data, study = tmp_path / "data", Study(tmp_path / "one")
    assert run(["prepare", *words, f"data={data}"]) == 0
    tokenise, merge = read_jobs(study)
    assert (tokenise.kind, merge.kind, merge.after) == ("tokenise", "merge", f"afterok:{tokenise.number}")
    wait_until(lambda: list(data.glob("*/general*.unfinished/0000[13]*")))
    capsys.readouterr()
    assert run(["status", str(study.folder)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"prepare, tokenise: job {tokenise.number}: (2 RUNNING|1 RUNNING, 1 COMPLETED)", out)
    assert f"prepare, merge: job {merge.number}: PENDING (Dependency)" in out
    subprocess.run(["scontrol", "requeue", f"{tokenise.number}_1"], check=True)
    # The same command submits nothing twice.
    assert run(["prepare", *words, f"data={data}"]) == 0
    assert len(read_jobs(study)) == 2
    assert cluster.wait(merge.number or "", seconds=300)["JobState"] == "COMPLETED"
    log = (study.folder / merge.log(0)).read_text()
    assert f"general: resumes after {ROWS:,} documents" in log
    assert "domain: resumes after 500 documents" in log
    assert (study.folder / tokenise.log(1)).read_text().count("general: ") == 2
    assert not list(data.glob("*/*.unfinished"))
    assert run(["status", str(study.folder)]) == 0
    assert f"prepare, merge: job {merge.number}: COMPLETED" in " ".join(capsys.readouterr().out.split())
    # On one process of this machine it gives the same bytes; and again there is nothing to do.
    assert run(["prepare", *words, f"data={tmp_path / 'alone'}", "launcher=local"]) == 0
    assert _files(data) == _files(tmp_path / "alone")
    capsys.readouterr()
    assert run(["prepare", *words, f"data={data}"]) == 0
    assert "general: prepared already" in capsys.readouterr().out
    assert len(read_jobs(study)) == 2
