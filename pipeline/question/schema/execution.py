"""Sections of a question about how runs are executed and watched; they change no run's hash."""

import re
from dataclasses import dataclass, field
from typing import Annotated

from training.keys import Allowed, Count, Repeats, Seconds, Size, Step, between, one_of, up_to

GPU_OPTION = r"--gpus(-per-\w+)?=(?!(.*:)?0$)|--gres=.*\bgpu|--tres-per-\w+=.*\bgpu"
"""Options of sbatch that ask for GPUs."""
MEMORY_OPTION = r"--mem(-per-(cpu|gpu))?="
"""Options of sbatch that ask for memory; of two kinds it takes neither."""
_WORD = r"[A-Za-z0-9_.,:@%+/=*&|()!\[\]-]+"
_PLAIN = "without spaces, quotes and '$'"
Word = Annotated[str, Allowed(f"a name, {_PLAIN}", pattern=_WORD)]
GPUs = Allowed(
    "a number of GPUs per node like 8, with their type like h100:8", pattern=r"([A-Za-z0-9_.-]+:)?[0-9]{1,4}"
)
MEMORY = Allowed("a number and K, M, G or T, like 64G, or auto, or null", pattern=r"\d+[KMGT]?|auto")
TIME = Allowed("minutes, or like 4:00:00 or 2-00:00:00", pattern=r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
Option = Annotated[str, Allowed(f"--option or --option=value, {_PLAIN}", pattern=rf"--[a-z][a-z0-9-]*(={_WORD})?")]


@dataclass
class SlurmConfig:
    partition: Word | None = None
    """Partition; null, here and below: the cluster's default."""
    account: Word | None = None
    """Account that is charged."""
    qos: Word | None = None
    """Quality of service."""
    constraint: Word | None = None
    """Features that a node must have, like h100."""
    nodes: Annotated[int, between(1, 100_000)] = 1
    """Nodes per run; parallel.processes are distributed over them evenly."""
    gpus: Annotated[str, GPUs] | None = None
    """GPUs per node, a number like 8, or with their type like h100:8; null: none; 0: none, also for several processes
    a run, which train on CPUs then."""
    cpus: Annotated[int, between(1, 10_000)] | None = None
    """Cores per process; null: 8 where GPUs are asked for, which runs of one device share, else launcher.threads."""
    mem: Annotated[str, MEMORY] | None = "auto"
    """Memory per node of jobs that train or tokenise, like 64G; auto: what the runs of a job take by the formula of
    plan and 1 GB a process (with GPUs 16 bytes a parameter and 8 GB), where it is known; of other jobs 4G."""
    time: Annotated[str, TIME] | None = "4:00:00"
    """Time limit of a job, as 30 (minutes), 4:00:00 or 2-00:00:00. A longer run continues in the next job."""
    limit: Size = 0
    """Upper limit of tasks of an array that run at once; 0: none."""
    prepare_tasks: Annotated[int, between(0, 100_000)] = 0
    """Tasks of the array by which cptlaw prepare tokenises, with `cpus` cores each; 0: it tokenises where it runs."""
    signal: Annotated[int, between(1, 65_535)] = 120
    """Seconds before the time limit at which a run is asked to save."""
    setup: list[Annotated[str, Allowed("one shell line an entry", pattern=r"[^\n\0]*")]] = field(default_factory=list)
    """Shell lines before the run, like module load cuda, or . venv/bin/activate."""
    python: str | None = None
    """Command that starts Python in a job, like apptainer exec --nv image.sif python; null: this Python."""
    srun: list[str] = field(default_factory=list)
    """Options of srun, like --mpi=pmix, --cpu-bind=cores or --container-image=nvcr.io#nvidia/pytorch:25.01-py3."""
    extra: list[Option] = field(default_factory=list)
    """Further options of sbatch, like --exclusive."""
    driver: list[Option] = field(default_factory=list)
    """Options of sbatch for the small jobs that fit, recommend and report, after partition, account and qos."""
    patience: Seconds = 60.0
    """Seconds after which a Slurm command that does not answer is given up."""

    @property
    def gpu_count(self) -> int:
        """GPUs per node that `gpus` asks for."""
        count = (self.gpus or "").rpartition(":")[2]
        return int(count) if re.fullmatch(r"\d{1,4}", count, re.ASCII) else 0

    @property
    def has_gpus(self) -> bool:
        """Whether jobs that train have GPUs, by `gpus` or an option in `extra`."""
        return bool(self.gpu_count or any(re.match(GPU_OPTION, option) for option in self.extra))


@dataclass
class LauncherConfig:
    kind: Annotated[str, one_of("local", "slurm")] = "local"
    """local: worker processes on this machine; slurm: arrays of jobs, see docs/at-scale.md."""
    workers: Annotated[int, between(0, 10_000)] = 0
    """Runs that are trained at once on this machine; 0: one for each GPU, or for every `threads` cores."""
    runs_per_device: Annotated[int, between(1, 1000)] | None = None
    """Runs that are trained at once on each GPU, or on a machine without GPUs. With slurm a job trains so many side by
    side, on each of its GPUs. null: as `workers` has it, with slurm one run a job."""
    threads: Annotated[int, between(1, 10_000)] = 1
    """CPU threads per run."""
    micro_batch: Size = 0
    """Sequences per forward pass; 0: all that a process has of a step, or as many as fit. Must divide them."""
    device_memory: Annotated[float, up_to(100_000)] | None = None
    """GB (10^9 bytes) of a GPU, or without GPUs of a machine; null: of this machine. What does not fit is computed in
    smaller micro-batches, then with activation checkpointing."""
    device: str | None = None
    """Name of the GPUs, like H100, whose peak gives an assumed time where no speed is known, and whose memory
    device_memory then is; null: of this machine."""
    resume_every: Step = 200
    """Steps between saved states to resume from; 0: none by steps."""
    resume_minutes: Annotated[float, between(0, 1_000_000)] = 10.0
    """Minutes after which a state is saved whatever the steps, so that a kill costs no more; 0: none by time. A run
    that is asked to stop saves in any case."""
    retries: Annotated[int, between(0, 1000)] = 2
    """How often a run whose process died is started again without progress before it counts as failed."""
    stale_after: Seconds = 60.0
    """Seconds without a heartbeat after which a process on another host counts as dead."""
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    """What kind slurm requests from the cluster."""

    @property
    def elsewhere(self) -> bool:
        """Whether runs are queued for other machines, so that no verb waits for them."""
        return self.kind != "local"

    @property
    def at_once(self) -> int | None:
        """Runs to choose in a round where they are trained elsewhere; None: one for each worker of this machine."""
        return ((self.kind == "slurm" and self.slurm.limit * self.runs_per_job) or 8) if self.elsewhere else None

    @property
    def runs_per_job(self) -> int:
        """Runs that a task of an array of Slurm trains side by side."""
        return self.runs_per_device * max(self.slurm.gpu_count, 1) if self.runs_per_device else 1


@dataclass
class TrackingConfig:
    kind: Annotated[str, one_of("none", "wandb")] = "none"
    """none, or wandb: a group per study, a wandb run per attempt; see docs/at-scale.md."""
    project: str = "cptlaw"
    """Project of wandb."""
    entity: str | None = None
    """User or team of wandb; null: the owner of the API key."""
    mode: Annotated[str, one_of("auto", "online", "offline")] = "auto"
    """Mode of wandb: online, offline, or auto: WANDB_MODE, else online where an API key is known (wandb login)."""
    tags: list[str] = field(default_factory=list)
    """Tags in wandb, in addition to phase and model."""
    every: Seconds = 5.0
    """Seconds between two readings of a run's files for wandb."""
    wait: Seconds = 30.0
    """Time-out of wandb at the end of a process, seconds; cptlaw track sync uploads what is missing."""


@dataclass
class EvaluateConfig:
    tasks: list[str] = field(default_factory=list)
    """Names of lm-eval tasks; next: which of four passages continues each corpus' validation text (offline)."""
    few_shot: Count | None = None
    """How many solved questions go before each; null: as the task has it, none as a rule."""
    role: Annotated[str, one_of("", "pretrain", "fit", "confirm")] = ""
    """Only runs of this role: pretrain, fit or confirm; empty: all."""
    folder: str | None = None
    """Folder of YAML files with tasks of your own, in addition to lm-eval's."""
    checkpoints: Annotated[str, one_of("last", "all")] = "last"
    """last, or all: which kept weights of each run."""
    limit: Count | None = None
    """Number of documents of each task, the first ones; null: all."""
    batch: Repeats = 8
    """Sequences per forward pass."""
