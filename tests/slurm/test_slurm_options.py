"""launcher.slurm as options of sbatch, its mistakes, the output of squeue, the environment of a job's commands."""

import shlex
from pathlib import Path

import pytest

from pipeline.goals.registry import read_question
from pipeline.launch.slurm.client import environment, parse_queue
from pipeline.launch.slurm.script import train_script
from pipeline.plan.memory import node_memory
from pipeline.plan.processes import process_memory
from pipeline.plan.runs import estimate, planned_runs
from pipeline.question.messages import ConfigError
from pipeline.question.slurm_options import driver_options, prepare_options, train_options
from pipeline.study.context import context_of
from training.keys import key_problems

MISTAKES = {
    "partition='a b'": "allowed: a name",
    "account='$(id)'": "allowed: a name",
    "constraint='x\"y'": "allowed: a name",
    "mem=much": "allowed: a number and K, M, G or T, like 64G, or auto, or null",
    "time=soon": "allowed: minutes, or like 4:00:00",
    "nodes=3": "does not divide parallel.processes 1",
    "gpus=-1": "allowed: a number of GPUs per node like 8, with their type like h100:8",
    "srun=[mpi]": "an option of srun an entry",
    "cpus=0": "allowed: 1 to 10,000",
    "signal=0": "allowed: 1 to 65,535",
    "limit=-2": "allowed: 0 to 1,000,000",
    "patience=0": "allowed: above 0",
    "extra=['--wrap=id']": "cptlaw sets it itself",
    "driver=['--mem 4',exclusive]": "allowed: --option or --option=value",
    'python="it\'s"': "words as a shell reads them",
}


@pytest.mark.parametrize("mistakes", [MISTAKES, {"time=1": "allowed: more than launcher.slurm.signal"}])
def test_mistakes_are_one_line_each(mistakes: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        read_question(["launcher=slurm", *(f"launcher.slurm.{word}" for word in mistakes)])
    of_key = {word: f"launcher.slurm.{word.partition('=')[0]}: " for word in mistakes}
    lines = {word: [line for line in error.value.lines if line.startswith(key)] for word, key in of_key.items()}
    assert [len(found) for found in lines.values()] == [1 + word.startswith("driver") for word in mistakes]
    assert all(mistakes[word] in line for word, found in lines.items() for line in found)
    assert not any("\n" in line for line in error.value.lines)


def test_a_setup_entry_is_one_line() -> None:
    question = read_question(["launcher=slurm"])
    question.launcher.slurm.setup = ["module load x\nrm -r y"]
    (line,) = key_problems(question.launcher, "launcher.")
    assert line.startswith("launcher.slurm.setup: 'module load x\\nrm -r y'; allowed: one shell line")


@pytest.mark.parametrize("limit", ["30", "4:00:00", "2-00:00:00"])
def test_a_time_limit_reaches_sbatch_as_it_was_given(limit: str) -> None:
    assert f"--time={limit}" in train_options(read_question(["launcher=slurm", f"launcher.slurm.time={limit}"]))


def test_gpus_may_have_a_type_and_are_asked_for_once() -> None:
    words = ["launcher=slurm", "launcher.slurm.gpus=h100:8", "parallel=fsdp2", "parallel.processes=8"]
    words += ["pretrain.global_batch=16", "target.global_batch=16"]
    question = read_question(words)
    options = train_options(question)
    assert {"--gpus-per-node=h100:8", "--cpus-per-task=8"} <= {*options}
    # This machine, which submits, has no say in what they are fast in.
    assert context_of(question).known_precision == "bf16"
    assert {"--cpus-per-task=1", "--time=4:00:00"} <= {*train_options(read_question(["launcher=slurm"]))}
    for option in ("--gres=gpu:4", "--gpus-per-node=4", "--gpus=8"):
        with pytest.raises(ConfigError, match=rf"extra: '{option}' beside launcher.slurm.gpus 'h100:8'; allowed: one"):
            read_question([*words, f"launcher.slurm.extra=['{option}']"])
    allowed = r"gpus: h100:4 for 8 processes a node; allowed: as many, or 0, or launcher\.slurm\.nodes=2$"
    with pytest.raises(ConfigError, match=allowed):
        read_question([*words, "launcher.slurm.gpus=h100:4"])


def test_runs_of_a_gpu_share_its_cores_and_memory() -> None:
    words = ["launcher=slurm", "launcher.slurm.gpus=2", "launcher.device_memory=80", "precision=bf16"]

    def options(*more: str) -> tuple[str, str, str, float | None]:
        question = read_question([*words, *more])
        memory = node_memory(question, planned_runs(estimate(question)))
        given = dict(option.split("=", 1) for option in train_options(question, memory) if "=" in option)
        named = (given["--ntasks-per-node"], given["--cpus-per-task"], given["--mem"])
        return (*named, process_memory(question, here=False))

    assert options() == ("1", "8", "8G", 80e9)
    assert options("launcher.runs_per_device=4") == ("8", "2", "60G", 20e9)
    assert options("launcher.runs_per_device=1") == ("2", "8", "15G", 80e9)
    assert options("launcher.runs_per_device=16", "launcher.threads=2")[:2] == ("32", "2")
    assert options("launcher.runs_per_device=4", "launcher.slurm.cpus=3")[1] == "3"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["launcher=local", "launcher.workers=3"], "4 beside launcher.workers=3; allowed: one of them"),
        (["launcher.slurm.gpus=2", "parallel=ddp", "parallel.processes=2"], "4 with parallel.kind=ddp; allowed: null"),
        (["launcher.slurm.extra=['--gpus-per-task=1']"], "4 with GPUs by launcher.slurm.extra; allowed: GPUs by"),
        (["launcher.runs_per_device=0"], "0; allowed: 1 to 1,000"),
    ],
)
def test_runs_that_cannot_share_a_device_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^launcher.runs_per_device: {said}"):
        read_question(["launcher=slurm", "launcher.runs_per_device=4", *words])


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "zero3"])
def test_processes_of_a_run_need_gpus_or_cpus_in_words(kind: str) -> None:
    words = ["launcher=slurm", f"parallel={kind}", "parallel.processes=4", "launcher.slurm.nodes=2"]
    with pytest.raises(ConfigError, match=rf"^launcher.slurm.gpus: null with parallel.kind={kind}; .* or 0 to train"):
        read_question(words)
    for option in ("--gpus=0", "--tres-bind=gres/gpu:closest", "--gpus=h100:0"):
        with pytest.raises(ConfigError, match=r"^launcher.slurm.gpus: null with"):
            read_question([*words, f"launcher.slurm.extra=['{option}']"])
    for given, precision in (("gpus=0", None), ("extra=['--gpus-per-task=1']", "bf16")):
        assert context_of(read_question([*words, f"launcher.slurm.{given}"])).known_precision == precision


def test_memory_of_a_job_is_that_of_its_runs() -> None:
    def memory(*words: str) -> list[str]:
        question = read_question(["launcher=slurm", "precision=fp32", *words])
        train = train_options(question, node_memory(question, planned_runs(estimate(question))))
        every = (train, prepare_options(question), driver_options(question))
        return [" ".join(word[5:] for word in options if word.startswith("--mem")) for options in every]

    assert memory() == ["=2G", "=4G", "=4G"]
    # 16 bytes a parameter and 8 GB for each of two processes.
    shape = ["launcher.slurm.gpus=2", "parallel=ddp", "parallel.processes=4", "launcher.slurm.nodes=2"]
    assert memory(*shape, "model=qwen2.5-0.5b", "ladder=[]")[0] == "=30G"
    assert memory("launcher.slurm.mem=64G") == ["=64G", "=64G", "=4G"]
    assert memory("launcher.slurm.mem=null") == ["", "", ""]
    # sbatch refuses both --mem and --mem-per-cpu.
    assert memory("launcher.slurm.extra=['--mem-per-cpu=2G']")[0] == "-per-cpu=2G"
    assert memory("launcher.slurm.extra=['--mem-bind=local']")[0] == "=2G -bind=local"
    for option in ("--mem-per-cpu=2G", "--mem-per-gpu=2G", "--mem=2G"):
        with pytest.raises(ConfigError, match=rf"extra: '{option}' beside launcher.slurm.mem '64G'; allowed: one of"):
            memory("launcher.slurm.mem=64G", f"launcher.slurm.extra=['{option}']")
    words = ["launcher.slurm.mem=64G", "launcher.slurm.driver=['--mem-per-cpu=2G']"]
    assert memory(*words) == ["=64G", "-per-cpu=2G", "-per-cpu=2G"]
    assert memory("corpora.sources.general.max_bytes=2000000000")[2] == "=12G"


def test_options_of_srun_reach_it_as_they_are() -> None:
    option = "--container-image=nvcr.io#nvidia/pytorch:25.01-py3"
    question = read_question(["launcher=slurm", f"launcher.slurm.srun=['{option}','--mpi=pmix']"])
    (line,) = [one for one in train_script(Path("s"), question, "t").splitlines() if one.startswith("srun")]
    assert {option, "--mpi=pmix"} <= {*shlex.split(line)}


def test_other_jobs_in_the_queue_are_ignored() -> None:
    lines = ["9|N/A|RUNNING|None|other", "broken", "8|[3-5:2]|PENDING|Resources|cptlaw:x|y"]
    assert set(parse_queue("\n".join(lines))) == {"x|y"}
    assert sorted(parse_queue(lines[2])["x|y"]) == [3, 5]


def test_commands_in_a_job_do_not_inherit_its_variables() -> None:
    kept = environment({"SLURM_JOB_ID": "3", "SLURM_CONF": "c", "RANK": "0", "SBATCH_ACCOUNT": "a", "PATH": "p"})
    assert kept == {"SLURM_CONF": "c", "SBATCH_ACCOUNT": "a", "PATH": "p", "SLURM_BITSTR_LEN": "0"}
