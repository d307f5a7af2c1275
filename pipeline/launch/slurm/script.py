"""The batch scripts of launcher=slurm: plain text that a user can read and submit again."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.question.schema import Question
from pipeline.question.slurm_options import driver_options, prepare_options, train_options

# As slurm/*.sbatch. Slurm signals the time limit to the shell only; TERM (cancelled, preempted) goes to all processes.
# A cancelled run exits with 75 too, so the script requeues its job only while Slurm calls it RUNNING. Slurm itself
# requeues the job after a preemption or the failure of a node.
_TRAIN = """\
runs=$(awk -v task="${{SLURM_ARRAY_TASK_ID:-0}}" '$1 == task {{ print $2 }}' {tasks} | paste -sd, -)
trap 'kill -USR1 "$step"' USR1
trap : TERM
# When a process exits, the others of its run have a minute, and those of other runs go on (0).
srun --kill-on-bad-exit=0 --wait={wait} {srun}{python} -m pipeline.launch.worker {study} --only "$runs" &
step=$!
while wait "$step"; code=$?; kill -0 "$step" 2> /dev/null; do :; done

# 75: state saved, run again. 70 or above 128: the process died; the worker allows launcher.retries deaths.
((code == 75)) && limit=1000 || limit=50
if ((code == 75 || code == 70 || code > 128)) && ((${{SLURM_RESTART_COUNT:-0}} < limit)) && [[ ! -e {stop} ]] &&
  [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) == RUNNING ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
_RANKS = """\
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
"""
# At the time limit the task is queued again; complete shards stay.
_PREPARE = """\
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
{python} -m training.corpora.shards "$SLURM_ARRAY_TASK_ID" {tasks} {folders} &
step=$!
while wait "$step"; code=$?; kill -0 "$step" 2> /dev/null; do :; done
exit "$code"
"""


def train_script(study: Path, question: Question, token: str, memory: str | None = None) -> str:
    """The script of an array: task i trains the runs listed for i in jobs/TOKEN.tasks; `memory`: see train_options."""
    folder = study.resolve()
    places = {"study": folder, "tasks": folder / "jobs" / f"{token}.tasks", "stop": folder / "STOP"}
    options = "".join(f"{shlex.quote(option)} " for option in question.launcher.slurm.srun)
    together = question.parallel.kind != "single"
    words = {"srun": options, "python": _python(question), "wait": 60 if together else 0}
    body = _TRAIN.format(**words, **{name: shlex.quote(str(path)) for name, path in places.items()})
    return _head(question, train_options(question, memory)) + _RANKS * together + body


def prepare_script(question: Question, folders: Sequence[Path]) -> str:
    """The script of an array: task i tokenises every so-many-th shard of the corpora in these folders."""
    words = {"python": _python(question), "folders": shlex.join(str(folder.resolve()) for folder in folders)}
    threads = 'export RAYON_NUM_THREADS="$SLURM_CPUS_PER_TASK" TOKENIZERS_PARALLELISM=1\n'
    body = _PREPARE.format(tasks=question.launcher.slurm.prepare_tasks, **words)
    return _head(question, prepare_options(question)) + threads + body


def driver_script(question: Question, verb: str, study: Path, *overrides: str) -> str:
    """The script of a small job that runs a verb on a study."""
    words = shlex.join([verb, str(study.resolve()), *overrides])
    return _head(question, driver_options(question)) + f"{_python(question)} -m pipeline.cli.main {words}\n"


def _head(question: Question, options: Sequence[str]) -> str:
    threads = question.launcher.threads
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in options),
        *question.launcher.slurm.setup,
        f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads} TOKENIZERS_PARALLELISM=0",
        # Since Slurm 22.05 srun does not inherit it.
        'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _python(question: Question) -> str:
    return shlex.join(shlex.split(question.launcher.slurm.python or "") or [sys.executable])
