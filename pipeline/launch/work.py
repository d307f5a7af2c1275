"""A worker process, which trains the open runs of a plan one after another: python -m pipeline.launch.worker STUDY."""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from functools import partial
from itertools import takewhile
from pathlib import Path

from pipeline.launch.exit_codes import exit_code_of
from pipeline.launch.ranks import rank_environment, run_ranks
from pipeline.plan.kept_steps import kept_steps
from pipeline.plan.processes import process_memory
from pipeline.question.data import data_folder
from pipeline.question.loading import load_question
from pipeline.question.schema import Question
from pipeline.show.tracking.mirror import NO_MIRROR, Mirror, mirrored
from pipeline.study.folder import PlannedRun, Study, question_yaml
from training.attempt import attempts, forgive_attempts, is_live
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group, join, leave
from training.durable import read_text, write_whole
from training.run import Exit, RunFolders, run_once
from training.spec import Execution, SpecError
from training.stop import StopRequest, ignore_signals

_STARTED = time.monotonic()
MIRROR_SECONDS = 5.0
"""Longest wait for wandb, seconds, in a process that was asked to stop."""


def main() -> None:
    """Train what the arguments of the process name, and exit."""
    arguments = _arguments()
    if arguments.parent:
        _stop_with_parent(arguments.parent)
    study = Study(arguments.study)
    try:
        question = load_question(arguments.question or study.folder / "study.yaml", again=False)
        code = run_worker(study, question, arguments.only, arguments.number)
    except Exception as error:
        if known := exit_code_of(error, study.folder):
            code, line = known
            print(line, file=sys.stderr)
        else:
            traceback.print_exc()
            code = Exit.UNEXPECTED
    ignore_signals()
    if "RANK" in os.environ:
        # All files are written. The interpreter's shutdown after a process group aborted in one of six exits.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--only", help="name or hash of the one run to train, or several with commas between them")
    number = int(os.environ.get("SLURM_PROCID", "0"))
    parser.add_argument("--number", type=int, default=number, help="of this worker among those that start together")
    parser.add_argument("--question", type=Path, help="file of the question, if not study.yaml")
    parser.add_argument("--parent", type=int, help="save and exit when the process of this id is gone")
    return parser.parse_args()


def _stop_with_parent(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def work(
    study: Study, question: Question, stop: StopRequest, *, only: str | None = None, number: int = 0,
    group: Group = ALONE, mirror: Mirror = NO_MIRROR,
) -> Exit:  # fmt: skip
    """Train the open runs of the plan until this process can train no more of them.

    Runs start in the plan's order, apart from `next_runs`. `only` are the names or hashes of the runs to train, with
    commas between them. Of a group of processes the first one chooses the run that all of them train. It ends with
    DONE when all runs are done, CRASH when one failed, RUN_ME_AGAIN when asked to stop.

    Raises CorpusError, SpecError, OSError: as `run_once`.
    """
    plan, manifest = study.read_plan(), Manifest.open(data_folder(question))
    by_name, selected = {run.name: run for run in plan}, select_runs(study, plan, only)
    last_model, waited_for, since = None, None, 0.0
    while not group.maximum(int(stop.requested)):
        names = group.broadcast(next_runs, study, question, plan, selected, number, last_model)
        if isinstance(names, Exit):
            return names
        for run in (by_name[name] for name in names):
            code = run_once(
                run.spec, _places(study, run, manifest, plan), _execution(question, run, plan),
                tokens_of_shape=sum(other.spec.tokens for other in plan if other.spec.model == run.spec.model),
                stale_after=question.launcher.stale_after,
                log=partial(print, file=sys.stderr, flush=True),
                group=group, stop=stop, claimed_as=partial(mirror.begin, run),
            )  # fmt: skip
            if code == Exit.RUN_ME_AGAIN:
                return code
            if code is not None:
                last_model = run.model
                break
        else:
            if names != waited_for:
                waited_for, since = names, time.monotonic()
                if group.first:
                    named = f": {', '.join(names[:3])}" + ", ..." * (len(names) > 3) if names else ""
                    print(f"waiting for runs that other processes train{named}", file=sys.stderr, flush=True)
            # Each look reads a disk that many workers may share.
            time.sleep(min(max(0.5, (time.monotonic() - since) / 20), 5.0))
    return Exit.RUN_ME_AGAIN


def run_worker(study: Study, question: Question, only: str | None, number: int = 0) -> Exit:
    """Exit code of `work`; a user's mistake and a full disk are one line on stderr.

    The processes of a run start here, unless this is one of them, started by torchrun, Slurm or this function.
    """
    parallel = question.parallel
    group = ALONE
    try:
        os.environ.update(rank_environment(parallel.kind, parallel.processes))
        if parallel.kind != "single" and "RANK" not in os.environ:
            return _start_ranks(study, question, only, number)
        with StopRequest(study.folder / "STOP") as stop:
            group = join(parallel)
            with mirrored(study, question, group.first) as mirror:
                code = work(study, question, stop, only=only, number=number, group=group, mirror=mirror)
                leave(group)
                if code == Exit.RUN_ME_AGAIN:
                    mirror.end(min(MIRROR_SECONDS, question.tracking.wait))
            return code
    except Exception as error:
        if (known := exit_code_of(error, study.folder)) is None:
            raise
        if group.first:
            print(known[1], file=sys.stderr)
        return known[0]


def _start_ranks(study: Study, question: Question, only: str | None, number: int) -> Exit:
    command = [sys.executable, "-m", "pipeline.launch.worker", str(study.folder), "--number", str(number)]
    command += ["--parent", str(os.getpid()), *(["--only", only] if only else [])]
    # A file of its own, since the command line of a single run may differ from study.yaml.
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(question_yaml(question))
        file.flush()
        return run_ranks([*command, "--question", file.name], question.parallel.processes, question.launcher.threads)


def _places(study: Study, run: PlannedRun, manifest: Manifest, plan: list[PlannedRun]) -> RunFolders:
    reference = None
    if run.spec.reweighting:
        after = next((other for other in plan if other.spec.hash == run.after), None)
        reference = after and study.runs / after.name / "checkpoints" / f"step-{after.spec.steps}"
    start = study.folder / run.start if run.start else None
    return RunFolders(study.runs / run.name, manifest, study.memory, start, reference)


def _execution(question: Question, run: PlannedRun, plan: list[PlannedRun]) -> Execution:
    launcher = question.launcher
    checkpoints, states = kept_steps(question, run, plan)
    return Execution(
        micro_batch=launcher.micro_batch, engine=question.engine, threads=launcher.threads,
        resume_every=launcher.resume_every, resume_minutes=launcher.resume_minutes, checkpoints=tuple(checkpoints),
        kept_states=tuple(states), parallel=question.parallel, device_memory=process_memory(question),
    )  # fmt: skip


def select_runs(study: Study, plan: list[PlannedRun], only: str | None) -> list[PlannedRun]:
    """The runs named in `only` by name or hash, split by commas; None: all. Raises SpecError: there is none."""
    if only is None:
        return plan
    names = {*only.split(",")}
    if not (selected := [run for run in plan if names & {run.name, run.spec.hash, run.spec.hash[:8]}]):
        raise SpecError(f"run: {only!r} is not in {study.plan_file}; see cptlaw status {study.word}")
    return selected


def next_runs(
    study: Study, question: Question, plan: list[PlannedRun], selected: list[PlannedRun], number: int,
    last_model: str | None,
) -> Exit | list[str]:  # fmt: skip
    """Names of the `selected` runs that can start now, in the order to try them; empty while all wait for others.

    Workers of different numbers begin with different models. Runs of `last_model`, whose compiled code is in memory,
    come first. Where none is left it is an exit code: DONE when all are done, CRASH when one failed.

    Raises SpecError: the selected runs start from a run that is not done and that nobody here will train.
    """
    # Not the states of the whole plan: ten thousand jobs of one run each would read a shared disk 10^8 times.
    needed = {run.spec.hash for run in selected} | {run.after for run in selected}
    states = {run.spec.hash: study.state(run) for run in plan if run.spec.hash in needed}
    open_runs = [run for run in selected if states[run.spec.hash] == "open"]
    startable = [run for run in open_runs if run.after is None or states.get(run.after, "done") == "done"]
    waiting = [run for run in open_runs if run not in startable and states.get(run.after or "", "") == "open"]
    # A slow shared disk may still hide that the parent is done: Slurm starts a job only after its parent.
    may_appear = "SLURM_JOB_ID" in os.environ and time.monotonic() - _STARTED < question.launcher.stale_after
    if selected is not plan and open_runs and not startable and not (waiting and may_appear):
        raise SpecError(f"{open_runs[0].name}: the run that it starts from is not done; train that one first")
    if any([fail_after_retries(study.runs / run.name, question) for run in startable]):
        return next_runs(study, question, plan, selected, number, last_model)
    if not startable and not waiting:
        return Exit.CRASH if any(states[run.spec.hash] != "done" for run in selected) else Exit.DONE
    if last_model is None and startable:
        shapes = list(dict.fromkeys(run.model for run in startable))
        last_model = shapes[number % len(shapes)]
    return [run.name for run in sorted(startable, key=lambda run: run.model != last_model)]


def try_again(folder: Path) -> None:
    """Let a run that is marked as failed be trained again; its attempts so far no longer count."""
    if not (folder / "FAILED").exists():
        return
    forgive_attempts(folder)
    (folder / "FAILED").unlink()


def fail_after_retries(folder: Path, question: Question) -> bool:
    """Mark a run as failed if its process died more often than launcher.retries without progress.

    Attempts before the last `forgive_attempts` do not count. Returns whether the run is marked as failed now.
    """
    text = read_text(folder / "RETRIED") if (folder / "RETRIED").exists() else ""
    before = int(text) if text.strip().isdecimal() else 0
    records = [record for record in attempts(folder) if record["attempt"] > before]
    if not records or is_live(folder, records[-1], question.launcher.stale_after):
        return False
    # Deaths count from the last progress, since a long run may lose a node every few days.
    start = next((record["from_step"] for record in reversed(records) if "from_step" in record), 0)
    since = takewhile(lambda record: record.get("from_step", start) == start, reversed(records))
    crashes = [record for record in since if record.get("exit_code", 1) == Exit.CRASH]
    if len(crashes) <= question.launcher.retries:
        return False
    reason = crashes[0].get("reason", "the process ended without a message")
    write_whole(folder / "FAILED", f"{len(crashes)} attempts failed, the last one: {reason}\n")
    print(f"{folder.name}: failed after {len(crashes)} attempts: {reason}", file=sys.stderr, flush=True)
    return True
