"""Sweeps of Hydra and of wandb: the same folders and names as without, and the very command line of wandb's agent."""

import itertools
import os
import queue
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf import CONF
from pipeline.cli.main import run
from pipeline.goals.registry import read_question
from pipeline.study.folder import Study
from tests.pipeline.show.tracking.test_tracking import no_wandb_of_ours, records  # noqa: F401
from tests.pipeline.small import CPTLAW, refused, small_words, study_in
from tests.processes import run_forked
from training.durable import read_lines_whole

ROOT = Path(__file__).parents[3]
SWEEPS = sorted((CONF / "wandb_sweeps").glob("*.yaml"))


@pytest.fixture(scope="module")
def words(texts: Path, tmp_path_factory) -> list[str]:
    without = ("name=", "mixture.domain_ratio=", "ladder=")
    words = small_words(texts, tmp_path_factory.mktemp("swept"), "ladder=[]", "launcher.workers=1", without=without)
    assert run(["prepare", *words, "name=whole"]) == 0
    return words


@pytest.fixture(scope="module")
def planned(words: list[str]) -> Study:
    """What the same question is called when it is asked at once."""
    assert run(["plan", *words, "name=whole", "mixture.domain_ratio=[0.1,0.3]"]) == 0
    return study_in(words, "whole")


def train(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return run_forked([*CPTLAW, "train", *words], os.environ | environment)


def names(study: Study) -> set[str]:
    done = {run.name for run in study.read_plan() if study.state(run) == "done"}
    assert done == {run.name for run in study.read_plan()} == {path.name for path in study.runs.iterdir()}
    return done


@pytest.mark.slow
def test_a_multirun_fills_the_folders_of_the_plan(words: list[str], planned: Study) -> None:
    done = train(["-m", *words, "name=hydra", "mixture.domain_ratio=0.1,0.3"])
    assert done.returncode == 0, done.stderr
    study = study_in(words, "hydra")
    assert names(study) == {run.name for run in planned.read_plan()}
    attempts = sorted(path.parent.parent.name for path in study.runs.glob("*/attempts/*.json"))
    assert len(attempts) == len(set(attempts)) == 3
    # The whole question finds nothing left to do.
    assert "all 3 runs of the plan are done" in train([*words, "name=hydra", "mixture.domain_ratio=[0.1,0.3]"]).stdout


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        ("mixture.domain_ratio=0.1,1.3", "mixture.domain_ratio: 1.3; allowed: 0 to 1, the ratio of the domain corpus"),
        ("seed=1,1e400", "seed: inf; allowed: a whole number, 0 to 4,294,967,295"),
        ("goal=trade-off,tradeof", "goal: 'tradeof' does not exist; allowed: "),
    ],
)
def test_a_mistake_in_a_multirun_is_one_line(mistake: str, line: str, words: list[str], capsys) -> None:
    assert line in refused(["train", "-m", *words, "name=wrong", mistake], capsys, 2)


@pytest.mark.slow
def test_optuna_is_told_the_loss_on_the_domain(words: list[str]) -> None:
    search = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=1"]
    search += ["+hydra.sweeper.sampler.seed=1"]
    done = train(["-m", *words, "name=optuna", "mixture.domain_ratio=choice(0.1,0.9)", *search])
    assert done.returncode == 0, done.stderr
    study = study_in(words, "optuna")
    found = yaml.safe_load((study.folder / "hydra" / "sweep" / "optimization_results.yaml").read_text())
    ends = {}
    for planned in study.read_plan():
        if planned.role == "fit":
            points = read_lines_whole(study.runs / planned.name / "points.jsonl")
            losses = [point["loss"] for point in points if point["corpus"] == "domain"]
            ends[float(Fraction(planned.spec.mixture["domain"]))] = losses[-1]
    assert found["best_value"] == min(ends.values())
    assert ends[found["best_params"]["mixture.domain_ratio"]] == found["best_value"]


def agent_command(sweep: dict[str, Any], values: dict[str, Any], patch: pytest.MonkeyPatch) -> list[str]:
    """The command line that wandb's own agent starts for a job of a sweep."""
    from wandb import wandb_agent

    started: list[list[str]] = []
    patch.setattr(wandb_agent, "AgentProcess", lambda command, **more: started.append(command) or _Process())
    patch.setenv("WANDB_SWEEP_ID", "sweep")
    agent = wandb_agent.Agent(None, queue.Queue(), sweep_id="sweep", count=1)
    # As Agent.run takes it from what the server keeps of the file.
    agent._sweep_command = yaml.safe_load(yaml.safe_dump(sweep))["command"]
    arguments = {key: {"value": value} for key, value in values.items()}
    answer = agent._process_command({"type": "run", "run_id": "job", "program": sweep["program"], "args": arguments})
    assert "exception" not in answer, answer
    return started[0]


class _Process:
    last_sigterm_time = None


def jobs(sweep: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameter -> value, of every job of a grid, or of the ends of what is searched."""
    choices = {
        name: [given["value"]] if "value" in given else given.get("values") or [given["min"], given["max"]]
        for name, given in sweep["parameters"].items()
    }
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_command_line_of_an_agent_is_a_question(path: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = yaml.safe_load(path.read_text())
    assert sweep["command"] == ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]
    assert (ROOT / sweep["program"]).exists()
    assert sweep["metric"] == {"name": "objective", "goal": "minimize"}
    for values in jobs(sweep):
        command = agent_command(sweep, values, monkeypatch)
        assert command[:3] == ["/usr/bin/env", "python", "pipeline/cli/sweep.py"]
        question = read_question(command[3:])
        assert question.mixture.domain_ratio == [values["mixture.domain_ratio"]]
        asked = (question.seed, question.name, question.tracking.kind)
        assert asked == (values.get("seed", 0), values["name"], "wandb")


@pytest.mark.slow
def test_what_two_agents_start_at_once_is_trained_in_the_same_folders(words, planned, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("WANDB_MODE", "offline")
    sweep = yaml.safe_load((CONF / "wandb_sweeps" / "mixture.yaml").read_text())
    values = {**jobs(sweep)[0], **dict(word.split("=", 1) for word in words), "name": "wandb"}
    agents = []
    for job, ratio in (("job", 0.1), ("other", 0.3)):
        command = agent_command(sweep, {**values, "mixture.domain_ratio": ratio}, monkeypatch)
        # What the agent has set by now: the id of its run, and the sweep.
        assert os.environ["WANDB_RUN_ID"] == "job"
        agents.append(subprocess.Popen(command, cwd=ROOT, env=os.environ | {"WANDB_RUN_ID": job}))
    assert [agent.wait() for agent in agents] == [0, 0]
    study = study_in(words, "wandb")
    assert names(study) == {run.name for run in planned.read_plan()}
    assert len(list(study.runs.glob("*/attempts/*.json"))) == 3, "nothing is trained twice"
    (job,) = study.folder.glob("wandb/offline-run-*-job/*.wandb")
    told = {}
    for record in records(job):
        for item in record.history.item:
            told["/".join(item.nested_key) or item.key] = item.value_json
    continual = next(run for run in study.read_plan() if "domain0.1" in run.name)
    ends = [point for point in read_lines_whole(study.runs / continual.name / "points.jsonl") if point["step"] == 24]
    assert float(told["objective"]) == next(point["loss"] for point in ends if point["corpus"] == "domain")
    # The runs of the study are others than the agent's.
    assert len(list(study.folder.glob("wandb/offline-run-*"))) == 2 + 3
