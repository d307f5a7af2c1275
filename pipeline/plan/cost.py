"""The cost of a plan before it is trained: runs, tokens, FLOPs, time and disk."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.plan.kept_steps import kept_steps
from pipeline.plan.memory import distinct, fitted_run, on_gpu, process_bytes, shape_key
from pipeline.plan.processes import gpu_name, runs_on_device
from pipeline.plan.token_supply import length_key
from pipeline.question.design import is_active
from pipeline.question.evaluation_budget import LEAST_WINDOWS, MOST_WINDOWS, affordable_windows
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun
from training.devices.memory import most_graphed
from training.evaluation_steps import EvaluationPolicy, evaluation_steps
from training.parameters import model_size, peak_flops
from training.spec import RunSpec

_BYTES_A_POINT = 170
START_SECONDS = 5.0
"""Time of a worker until it trains."""
ASSUMED_MFU = 0.4
"""Of a GPU's dense bf16 peak."""
LAYER_LAUNCH, LAYER_REPLAY = 3e-3, 4.5e-4
"""Least seconds of a layer's work on a micro-batch: that a core launches, and of a CUDA graph (docs/performance.md)."""
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
"""What configurations of transformers call the number of layers."""
_LARGE = 50_000_000
"""Non-embedding parameters from which a run on cores takes hours."""
_LEAST_STEPS = 10
"""Below which a run for the fit has hardly a schedule; a choice."""
_STATES_IN_TRAINING = 3
"""The two newest, and the one that is being written."""


@dataclass(frozen=True)
class Cost:
    """Cost of the runs of one role and model."""

    role: str
    """pretrain, fit or confirm."""
    model: str
    non_embedding: int
    """Its non-embedding parameters."""
    runs: int
    tokens: int
    """Training tokens."""
    flops: float
    """Floating-point operations of training and evaluation."""
    seconds: float | None
    """Seconds of training and evaluation with one worker, without starts; None without a measured speed."""
    memory: int | None
    """Peak bytes of a process; None: not known."""
    assumed_seconds: float | None
    """Seconds of one GPU by FLOPs at an assumed part of its peak, where the speed is not known; None: no known GPU."""
    disk: int
    """Bytes of kept weights, states and points, and of the resume states of one run while it trains."""


def costs(
    runs: Sequence[PlannedRun], speed: Callable[[PlannedRun], float | None] | None, question: Question
) -> list[Cost]:
    """Costs by role and model, in the plan's order.

    `speed`: training tokens per second of one worker in a run; None, for all or for one: the time is not known.
    """
    children: dict[str | None, list[PlannedRun]] = {}
    for run in runs:
        children.setdefault(run.parent, []).append(run)
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault((run.role, run.model), []).append(run)
    rows = []
    for (role, model), members in groups.items():
        flops = sum(run_flops(run.spec) for run in members)
        size = model_size(members[0].spec.model, members[0].spec.sequence_length)
        tokens = sum(run.spec.tokens for run in members)
        times = [run_seconds(run.spec, speed(run) if speed else None) for run in members]
        seconds = None if None in times else sum(filter(None, times))
        peaks = (process_bytes(question, run.spec) for run in distinct(members))
        memory = max((round(peak) for peak in peaks if peak is not None), default=None)
        assumed = sum(each) if seconds is None and (each := assumed_seconds(members, question)) else None
        kept = [kept_steps(question, run, children.get(run.spec.hash, [])) for run in members]
        lines = (_evaluations(run.spec.evaluation, run.spec.steps) * len(run.spec.corpora) for run in members)
        # Kept weights, and states of them and both moments.
        in_weights = sum(len(weights) + 3 * len(states) for weights, states in kept) + 3 * _STATES_IN_TRAINING
        disk = 4 * size.total * in_weights + _BYTES_A_POINT * sum(lines)
        numbers = (size.non_embedding, len(members), tokens, flops, seconds, memory, assumed, disk)
        rows.append(Cost(role, model, *numbers))
    return rows


def assumed_seconds(members: Sequence[PlannedRun], question: Question) -> list[float] | None:
    """Seconds of one GPU for each run, by its name's peak in bf16 or what steps take at least; None: no such GPU."""
    if (peak := peak_flops(gpu_name(question))) is None or question.precision == "fp32":
        return None
    least = {shape_key(run): _least_step_seconds(run.spec, question) for run in distinct(members)}
    return [max(run_flops(run.spec) / (peak * ASSUMED_MFU), run.spec.steps * least[shape_key(run)]) for run in members]


def _least_step_seconds(spec: RunSpec, question: Question) -> float:
    """Seconds in which a GPU is given a step's layers, each micro-batch by itself, however few tokens it has."""
    model = spec.model.get("text_config") or spec.model
    layers = next((model[name] for name in _LAYERS if model.get(name)), 0)
    micro_batch = fitted_run(question, spec).micro_batch
    # Of several runs on a GPU each has a core to wait for, but their graphs are replayed one after another.
    graphed = micro_batch <= most_graphed(spec, question.parallel)
    of_layer = LAYER_REPLAY if graphed else LAYER_LAUNCH / runs_on_device(question)
    return of_layer * layers * (spec.global_batch // question.parallel.processes) / micro_batch


def run_flops(spec: RunSpec) -> float:
    """FLOPs of a run's training and evaluations."""
    return model_size(spec.model, spec.sequence_length).flops_per_token * step_tokens(spec)


def run_seconds(spec: RunSpec, speed: float | None) -> float | None:
    """Seconds of training and evaluation at a speed, in training tokens per second."""
    return speed and step_tokens(spec) / speed


def device_hours(spec: RunSpec, speed: float, processes: int) -> float:
    """Hours of a run's devices at a speed, in training tokens per second, with its start."""
    return (START_SECONDS + (run_seconds(spec, speed) or 0.0)) * processes / 3600


def step_tokens(spec: RunSpec) -> float:
    """Training tokens whose steps cost what a run's training and evaluations do; a forward pass is a third of a step.

    Forward passes without a backward pass are also those of a reference model.
    """
    return spec.tokens + (_evaluated(spec) + (spec.tokens if spec.reweighting else 0)) / 3


def evaluation_note(runs: Sequence[PlannedRun], question: Question) -> str:
    """Lines on what `evaluation_budget` left out, or on what exceeds it all the same; else empty."""
    specs: dict[str, list[RunSpec]] = {"pretrain": [], "continual": []}
    for run in runs:
        specs.setdefault(run.spec.phase, []).append(run.spec)
    lines = [_windows_note(question), *(_phase_note(phase, of_phase, question) for phase, of_phase in specs.items())]
    return "\n".join(filter(None, lines))


def _windows_note(question: Question) -> str:
    """A line on `validation_windows`, if it is the number that the budget leaves; a given one may be the same."""
    windows, budget = question.validation_windows, question.evaluation_budget
    if windows == MOST_WINDOWS or windows != affordable_windows(question):
        return ""
    limits = f"{LEAST_WINDOWS} to {MOST_WINDOWS}"
    return f"validation_windows={windows} of each corpus: as many of {limits} as evaluation_budget={budget:g} allows"


def _phase_note(phase: str, specs: Sequence[RunSpec], question: Question) -> str:
    """A line on the evaluations of the runs of a phase, where steps were left out or the budget is exceeded."""
    asked = question.pretrain if phase == "pretrain" else question.continual
    tokens, evaluated = sum(spec.tokens for spec in specs), sum(map(_evaluated, specs)) / 3
    ratio = evaluated / (evaluated + tokens) if specs else 0.0
    name, budget = {"pretrain": "pre-training"}.get(phase, phase), question.evaluation_budget
    line = f"evaluation takes {ratio:.0%} of the FLOPs of the {name} runs"
    if ratio > budget:
        fewer = int(question.validation_windows * tokens * budget / (1 - budget) / evaluated)
        remedy = f"validation_windows={max(fewer, 1)} keeps to it, and makes each loss a mean over fewer windows"
        return f"{line}, more than evaluation_budget={budget:g}: {remedy}"
    thinned = sum(spec.evaluation.policy == "explicit" for spec in specs)
    if not thinned or asked.evaluation.policy == "explicit":
        return ""
    limit = f"to keep to evaluation_budget={budget:g} (1: no limit)"
    return f"{line}: {thinned} of {len(specs)} runs skip steps of their policy, {limit}"


def variant_note(runs: Sequence[PlannedRun], question: Question) -> str:
    """A line on variants of whose runs each is one of the question or of a variant before; else empty."""
    known = {run.variant for run in runs}
    same = [name for name in question.variants if name not in known]
    if not same:
        return ""
    return f"variants: nothing is trained for {', '.join(same)}: each run is one of the question or of another variant"


def short_note(runs: Sequence[PlannedRun], question: Question) -> str:
    """A line on runs for the fit of fewer than `_LEAST_STEPS` steps, unless chosen for a large run; else empty."""
    fitted = [run for run in runs if run.role == "fit" and run.spec.phase == "continual"]
    short = [run for run in fitted if run.spec.steps < _LEAST_STEPS]
    if not short or question.rehearsal or (question.is_large() and is_active(question)):
        return ""
    least = min(short, key=lambda run: run.spec.steps)
    key = length_key(least, question)
    count = f"note: runs for the fit of fewer than {_LEAST_STEPS} steps: {len(short)} of {len(fitted)}"
    more = f"say little of longer runs; give more steps{f', in {key}' if key else ''}"
    return f"{count}, the shortest of {least.spec.steps}; they {more}"


def budget_note(runs: Sequence[PlannedRun], question: Question) -> str:
    """A line on a budget that limits nothing, since no run is chosen; else empty."""
    if question.design.budget is None or is_active(question):
        return ""
    ways = "mixture=chosen has runs chosen" if question.goal_kind.design_question else "leave it out"
    return f"note: design.budget={question.design.budget:g} limits nothing: all planned runs are trained; {ways}"


def gpu_note(runs: Sequence[PlannedRun], question: Question) -> str:
    """A line on GPUs that a job asks for and does not use, on runs in fp32, or on a large model that may get no GPU."""
    launcher, processes = question.launcher, question.parallel.processes
    idle = launcher.slurm.gpu_count * max(launcher.slurm.nodes, 1) - processes
    if launcher.kind == "slurm" and idle > 0 and not launcher.runs_per_device and not question.rehearsal:
        ways = "launcher.runs_per_device=1 for a run on each"
        nodes, batches = max(launcher.slurm.nodes, 1), {run.spec.global_batch for run in runs}
        more = range(processes + idle, processes, -1)
        most = next((many for many in more if not many % nodes and not any(batch % many for batch in batches)), None)
        if most:
            rest = f" (the most up to {processes + idle} that divides each batch)" if most < processes + idle else ""
            ways += f", or parallel=ddp parallel.processes={most}{rest}"
        gpus, each = f"launcher.slurm.gpus={launcher.slurm.gpus}", f"{processes} process{'es' * (processes > 1)}"
        return f"note: {gpus}: a job trains one run, of {each}, and {idle} of its GPUs do nothing; give fewer, {ways}"
    each = launcher.runs_per_device or 0
    needed = -(-len(runs) // max(each, 1)) * processes
    idle = launcher.slurm.gpu_count - needed
    if launcher.kind == "slurm" and each and idle > 0 and launcher.slurm.nodes <= 1 and not question.rehearsal:
        these = f"{len(runs)} run{'s' * (len(runs) > 1)}"
        given = f"launcher.slurm.gpus={launcher.slurm.gpus} launcher.runs_per_device={each}"
        return f"note: {given}: for {these} at least {idle} of a job's GPUs do nothing; {needed} would do"
    if question.precision == "fp32" and on_gpu(question) and not question.rehearsal:
        slower = "a plan in fp32 on GPUs, without TF32, whose products in bf16 are many times as fast"
        return f"note: precision=fp32: {slower}; precision=bf16 takes them"
    sizes = {run.model: model_size(run.spec.model, run.spec.sequence_length) for run in runs}
    large = [name for name, size in sizes.items() if size.non_embedding >= _LARGE]
    if not large or not launcher.elsewhere or launcher.slurm.has_gpus or launcher.slurm.gpus is not None:
        return ""
    cores = launcher.slurm.cpus or launcher.threads
    each = f"each run of {', '.join(large)} trains on {cores} core{'s' * (cores > 1)}"
    return f"note: no GPUs are asked for, {each}; launcher.slurm.gpus=1 asks for one, launcher.slurm.gpus=0 for none"


NOTES = (evaluation_note, variant_note, short_note, budget_note, gpu_note)
"""What a plan says of its cost, each a function of runs and question."""


def _evaluated(spec: RunSpec) -> int:
    """Tokens of a run's evaluations."""
    evaluations = _evaluations(spec.evaluation, spec.steps)
    return evaluations * len(spec.corpora) * spec.validation_windows * spec.sequence_length


@functools.lru_cache(maxsize=64)
def _evaluations(policy: EvaluationPolicy, steps: int) -> int:
    # Thousands of runs have a handful of policies.
    return len(evaluation_steps(policy, steps))
