"""The memory that the runs of a plan take of a device, and what is said where it does not suffice."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from pipeline.plan.processes import gpus, process_memory
from pipeline.question.messages import ConfigError
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.devices.memory import Fitted, fitted
from training.parameters import model_size
from training.spec import Parallel, RunSpec

_MOST_PROCESSES = 64
"""Of a run, where a kind that shards its model is proposed."""
_SHORTEST = 128
"""Tokens of a sequence below which none is proposed."""
_SMALL_DEVICE = 16e9
"""Bytes below which a run fits nearly any GPU."""


def process_bytes(question: Question, spec: RunSpec) -> float | None:
    """Peak bytes of a process of a run; None: not known."""
    memory = fitted_run(question, spec).memory
    return memory and memory.of_process(gpu=on_gpu(question))


def fitted_run(question: Question, spec: RunSpec, parallel: Parallel | None = None) -> Fitted:
    """How a process of a run computes a step in the memory that it has, as far as that is known."""
    given, limit = question.launcher.micro_batch, process_memory(question, here=not question.launcher.elsewhere)
    return fitted(spec, parallel or question.parallel, given, question.engine, limit, gpu=on_gpu(question))


def node_memory(question: Question, runs: Iterable[PlannedRun]) -> str | None:
    """Main memory that a node of Slurm needs for its processes of runs, as sbatch reads it; None: not known."""
    specs = [run.spec for run in distinct(runs)]
    if on_gpu(question):
        # First weights and the copy of a state that is being written; libraries and the driver.
        sizes = [16 * model_size(spec.model, spec.sequence_length).total + 8e9 for spec in specs]
    else:
        sizes = [(process_bytes(question, spec) or math.inf) + 1e9 for spec in specs]
    processes = question.parallel.processes * question.launcher.runs_per_job // question.launcher.slurm.nodes
    of_node = processes * max(sizes, default=math.inf)
    return f"{math.ceil(of_node / 2**30)}G" if of_node < math.inf else None


def distinct(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """A run of each shape; others take as much memory."""
    return [*{shape_key(run): run for run in runs}.values()]


Shape = tuple[str, int, int, str]
"""What a step computes: model, batch, length and precision."""


def shape_key(run: PlannedRun) -> Shape:
    """The shape of a run."""
    return run.model, run.spec.global_batch, run.spec.sequence_length, run.spec.precision


def memory_lines(question: Question, runs: Iterable[PlannedRun]) -> Iterator[str]:
    """A line on each model whose runs are not computed as asked, or do not fit."""
    yield from {run.model: line for run in distinct(runs) if (line := _line(question, run.model, run.spec))}.values()


def check_memory(question: Question, runs: Iterable[PlannedRun]) -> None:
    """Raise ConfigError where runs do not fit a device, with a line for each model."""
    misfits = [run for run in distinct(runs) if not all_fit(question, [run])]
    if lines := list(memory_lines(question, misfits)):
        raise ConfigError(lines)


def all_fit(question: Question, runs: Iterable[PlannedRun]) -> bool:
    """Whether every run fits a device, as far as that is known."""
    return all(fitted_run(question, run.spec).fits for run in distinct(runs))


def on_gpu(question: Question) -> bool:
    """Whether runs of a question train on GPUs, here, in jobs or as a plan assumes by launcher.device."""
    launcher = question.launcher
    return launcher.slurm.has_gpus if launcher.elsewhere else bool(gpus() or launcher.device)


def _line(question: Question, model: str, spec: RunSpec) -> str:
    fit, local = fitted_run(question, spec), spec.global_batch // question.parallel.processes
    memory, limit = fit.memory, process_memory(question, here=not question.launcher.elsewhere)
    asked = (question.launcher.micro_batch or local, bool(question.parallel.activation_checkpointing))
    if memory is not None and limit is None and question.launcher.elsewhere and memory.total > _SMALL_DEVICE:
        size = f"{memory.of_process(gpu=on_gpu(question)) / 1e9:,.0f} GB a process in micro-batches of {asked[0]}"
        return f"{model}: {size}; give launcher.device_memory, the GB of a device, and micro-batches are chosen to fit"
    if memory is None or limit is None or (fit.fits and (fit.micro_batch, fit.checkpointing) == asked):
        return ""
    taken = memory.of_process(gpu=on_gpu(question))
    parts = ", ".join(f"{name} {size / 1e9:.2g}" for name, size in asdict(memory).items() if size)
    parts += f", the process itself and what its allocator loses {(taken - memory.total) / 1e9:.2g}"
    how = f"micro-batches of {fit.micro_batch} of {local}" + (", activation checkpointing" if fit.checkpointing else "")
    line = f"{model}: {how}: {taken / 1e9:.1f} GB a process ({parts})"
    if fit.fits:
        return f"{line}, to fit in {limit / 1e9:.1f} GB"
    of = f"memory of {'a GPU' if on_gpu(question) else 'this machine'}"
    of = "launcher.device_memory" if question.launcher.device_memory else of
    return f"{of}: {limit / 1e9:.1f} GB a process is too little for {line}; {_remedy(question, spec)}"


def _remedy(question: Question, spec: RunSpec) -> str:
    parallel = question.parallel
    if parallel.activation_checkpointing is False:
        return "give parallel.activation_checkpointing=true"
    if (sharing := question.launcher.runs_per_device or 1) > 1:
        return f"give launcher.runs_per_device={sharing // 2}"
    freed = "launcher.micro_batch=0, " if question.launcher.micro_batch > 1 else ""
    freed += "parallel.replicas=1, " if parallel.replicas > 1 else ""
    for count in range(parallel.shards + 1, _MOST_PROCESSES + 1) if on_gpu(question) else ():
        if spec.global_batch % count == 0:
            fit = fitted_run(question, spec, replace(parallel, kind="fsdp2", processes=count, replicas=1))
            if fit.fits and fit.memory is not None:
                each = f"{fit.memory.of_process(gpu=True) / 1e9:.1f} GB each"
                return f"give {freed}parallel=fsdp2 parallel.processes={count} ({each}), or larger devices"
    launcher, fewer = replace(question.launcher, micro_batch=0), ""
    if not launcher.elsewhere and launcher.workers != 1:
        launcher, fewer = replace(launcher, workers=1), "launcher.workers=1 "
    alone, length = replace(question, launcher=launcher), spec.sequence_length
    key = "target.sequence_length" if question.target.sequence_length else "sequence_length"
    while length == spec.sequence_length or length >= _SHORTEST:
        if fitted_run(alone, replace(spec, sequence_length=length)).fits:
            shorter = f"{key}={length}" if length < spec.sequence_length else ""
            return f"give {freed}{fewer}{shorter}".rstrip(" ,")
        length //= 2
    return "give a smaller model, or more memory: shorter sequences, and one worker, do not suffice"
