"""The section launcher.slurm as options of sbatch, and its preflight."""

import math
import re
import shlex
from collections.abc import Iterator

from pipeline.question.schema import Question
from pipeline.question.schema.execution import GPU_OPTION, MEMORY_OPTION, TIME, SlurmConfig

OURS = (
    *("--array", "--chdir", "--comment", "--dependency", "--job-name", "--kill-on-invalid-dep", "--no-requeue"),
    *("--open-mode", "--output", "--parsable", "--requeue", "--signal", "--test-only", "--wait", "--wrap"),
)
"""Options that cptlaw sets itself."""
CPUS_A_GPU = 8
"""Cores of the processes of a GPU: their data and their writing of states are not to wait."""
_RESTART = ("--requeue", "--open-mode=append")


def train_options(question: Question, memory: str | None = None) -> list[str]:
    """Options of sbatch for the jobs that train; `memory` is that of a node where mem=auto, None: the cluster's."""
    slurm = question.launcher.slurm
    return [
        *(*_named(slurm, "partition", "account", "qos", "constraint"), f"--nodes={slurm.nodes}"),
        f"--ntasks-per-node={question.parallel.processes * question.launcher.runs_per_job // slurm.nodes}",
        f"--cpus-per-task={_cores(question)}",
        *([f"--gpus-per-node={slurm.gpus}"] if slurm.gpu_count else []),
        *(*_limits(slurm, slurm.mem, memory, slurm.extra), f"--signal=B:USR1@{slurm.signal}", *_RESTART, *slurm.extra),
    ]


def prepare_options(question: Question) -> list[str]:
    """Options of sbatch for the jobs that tokenise."""
    slurm = question.launcher.slurm
    return _small_job(question, slurm.cpus, slurm.mem, f"--signal=B:USR1@{slurm.signal}")


def driver_options(question: Question) -> list[str]:
    """Options of sbatch for the small jobs that fit, recommend and submit; what is given as mem is for others."""
    return _small_job(question, None, question.launcher.slurm.mem and "auto")


def _cores(question: Question) -> int:
    """Cores of each process of a job that trains."""
    launcher = question.launcher
    if launcher.slurm.cpus or not launcher.slurm.has_gpus:
        return launcher.slurm.cpus or launcher.threads
    return max(CPUS_A_GPU // launcher.runs_per_device, launcher.threads) if launcher.runs_per_device else CPUS_A_GPU


def _small_job(question: Question, cpus: int | None, memory: str | None, *more: str) -> list[str]:
    slurm = question.launcher.slurm
    # Collecting ten thousand runs takes .6 GB; a text that is drawn is held whole.
    drawn = max((source.max_bytes or 0 for source in question.corpora.sources.values()), default=0)
    limits = _limits(slurm, memory, f"{math.ceil((4e9 + 4 * drawn) / 2**30)}G", slurm.driver)
    size = ("--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus or question.launcher.threads}")
    return [*_named(slurm, "partition", "account", "qos"), *size, *limits, *more, *_RESTART, *slurm.driver]


def slurm_problems(question: Question) -> Iterator[str]:
    """A line for each mistake in launcher.slurm, apart from single values that are not allowed."""
    slurm, key = question.launcher.slurm, "launcher.slurm"
    if slurm.time and slurm.time in TIME and _seconds(slurm.time) <= slurm.signal:
        yield f"{key}.time: {slurm.time!r}; allowed: more than launcher.slurm.signal, {slurm.signal} s, and the start"
    processes, kind = question.parallel.processes, question.parallel.kind
    if slurm.nodes >= 1 and processes % slurm.nodes:
        yield f"{key}.nodes: {slurm.nodes} does not divide parallel.processes {processes}; allowed: a divisor of it"
    elif slurm.nodes >= 1 and 0 < slurm.gpu_count < processes // slurm.nodes:
        nodes = "" if processes % slurm.gpu_count else f", or {key}.nodes={processes // slurm.gpu_count}"
        yield f"{key}.gpus: {slurm.gpus} for {processes // slurm.nodes} processes a node; allowed: as many, or 0{nodes}"
    if question.launcher.elsewhere and kind != "single" and not (slurm.gpus or slurm.has_gpus):
        yield f"{key}.gpus: null with parallel.kind={kind}; allowed: GPUs per node, as 8, or 0 to train on CPUs"
    for option in slurm.srun:
        if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
            yield f"{key}.srun: {option!r}; allowed: --option or --option=value, an option of srun an entry"
    for name in ("extra", "driver"):
        for option in getattr(slurm, name):
            if name == "extra" and slurm.gpu_count and re.match(GPU_OPTION, option):
                yield f"{key}.extra: {option!r} beside {key}.gpus {slurm.gpus!r}; allowed: one of them"
            elif name == "extra" and slurm.mem not in (None, "auto") and re.match(MEMORY_OPTION, option):
                yield f"{key}.extra: {option!r} beside {key}.mem {slurm.mem!r}; allowed: one of them"
            elif option.partition("=")[0] in OURS:
                yield f"{key}.{name}: {option!r}; cptlaw sets it itself; allowed: other options of sbatch"
    try:
        if slurm.python is not None and not shlex.split(slurm.python):
            yield f"{key}.python: empty; allowed: a command that starts Python, or null"
    except ValueError as error:
        yield f"{key}.python: {slurm.python!r}; {str(error).lower()}; allowed: words as a shell reads them"


def _seconds(time: str) -> int:
    """Seconds of a time limit of sbatch: minutes, minutes:seconds or hours:minutes:seconds, with days before a dash.

    >>> _seconds("90"), _seconds("90:30"), _seconds("2:00:00"), _seconds("1-2"), _seconds("1-2:30")
    (5400, 5430, 7200, 93600, 95400)
    """
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return int(days or 0) * 86400 + sum(part * unit for part, unit in zip(parts, units))


def _limits(slurm: SlurmConfig, given: str | None, known: str | None, further: list[str]) -> list[str]:
    """Memory, of auto the known one, unless an option that follows asks for it, and time."""
    if any(re.match(MEMORY_OPTION, option) for option in further):
        given = None
    elif given == "auto":
        given = known
    return [*([f"--mem={given}"] if given else []), *_named(slurm, "time")]


def _named(slurm: SlurmConfig, *names: str) -> list[str]:
    return [f"--{name}={getattr(slurm, name)}" for name in names if getattr(slurm, name) is not None]
