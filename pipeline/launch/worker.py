"""A process that trains the runs of a plan one after another, beside others that do the same."""

from __future__ import annotations

import argparse
import errno
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

from pipeline.launch.ranks import place_in_step, run_ranks
from pipeline.plan.checkpoint_steps import kept_steps
from pipeline.plan.runs import data_folder
from pipeline.question.loading import load_question
from pipeline.question.schema import Question
from pipeline.study.folder import PlannedRun, Study, question_yaml
from pipeline.tracking.mirror import NO_MIRROR, Mirror, mirrored
from training.attempt import LeaseLostError, attempts, is_live
from training.corpora.documents import CorpusError
from training.corpora.manifest import Manifest
from training.devices.group import ALONE, Group, join, leave
from training.durable import write_whole
from training.run import Exit, Places, run_once
from training.spec import Execution, SpecError
from training.stop import StopRequest

STOPPING = 5.0
"""Most seconds that a process which was asked to stop waits for wandb."""
_STARTED = time.monotonic()
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors that a person mends at the disk: room, or the right to write."""


def work(
    study: Study,
    question: Question,
    stop: StopRequest,
    *,
    only: str | None = None,
    number: int = 0,
    group: Group = ALONE,
    mirror: Mirror = NO_MIRROR,
) -> Exit:
    """Train what is open in the plan until nothing is left that this process could do.

    Runs are taken in the plan's order, but those of the shape trained last come first, since its compiled code is here,
    and workers of different numbers begin with different shapes, so that not all of them need the code of all.

    Args:
        study: with plan.jsonl.
        question: its launcher section says how to train.
        stop: heard between runs and by each of them.
        only: name or hash of the one run to train; of several with commas between.
        number: of this worker among those that start together.
        group: the processes of this worker; the first decides which run all of them train.
        mirror: is told which attempts this process makes.

    Returns:
        DONE when all runs are done; CRASH when one failed; RUN_ME_AGAIN when asked to stop.

    Raises:
        CorpusError, SpecError, OSError: as `run_once`.
    """
    plan = study.read_plan()
    manifest = Manifest.open(data_folder(question))
    by_name = {run.name: run for run in plan}
    if only is not None:
        asked = set(only.split(","))
        named = [run.name for run in plan if asked & {run.name, run.spec.hash, run.spec.hash[:8]}]
        if not named:
            raise SpecError(f"run: {only!r} is not in {study.plan_file}; see cptlaw status")
        only = ",".join(named)
    wanted = [run for run in plan if only is None or run.name in named]
    done_before = {run.spec.hash for run in wanted if study.state(run) == "done"}
    last_model = None
    while not group.maximum(int(stop.requested)):
        todo = group.broadcast(partial(_todo, study, question, plan, only, number, last_model))
        if isinstance(todo, Exit):
            return todo
        for run in (by_name[name] for name in todo):
            outcome = run_once(
                run.spec,
                _places(study, run, manifest, plan),
                _execution(question, run, plan),
                tokens_ahead=_tokens_of_shape(plan, run, done_before),
                stale_after=question.launcher.stale_after,
                log=lambda line: print(line, file=sys.stderr, flush=True),
                group=group,
                stop=stop,
                claimed_as=partial(mirror.begin, run),
            )
            if outcome is None:
                continue
            if outcome == Exit.RUN_ME_AGAIN:
                return outcome
            last_model = run.model
            break
        else:
            # Everything that could be trained is in other hands, or waits for a parent that is.
            time.sleep(0.5)
    return Exit.RUN_ME_AGAIN


def _todo(
    study: Study, question: Question, plan: list[PlannedRun], only: str | None, number: int, last_model: str | None
) -> Exit | list[str]:
    """Names of the runs that could be trained now, the best first; or how it all ended."""
    named = set() if only is None else set(only.split(","))
    wanted = [run for run in plan if only is None or run.name in named]
    # Not those of all: ten thousand jobs of one run each would ask a shared disk a hundred million times.
    needed = {run.spec.hash for run in wanted} | {run.after for run in wanted}
    states = {run.spec.hash: study.state(run) for run in plan if run.spec.hash in needed}
    open_runs = [run for run in wanted if states[run.spec.hash] == "open"]
    ready = [run for run in open_runs if run.after is None or states.get(run.after, "done") == "done"]
    waiting = [run for run in open_runs if run not in ready and states.get(run.after or "", "") == "open"]
    if only is not None and open_runs and not ready and not (waiting and _seen_late(question)):
        raise SpecError(f"{open_runs[0].name}: the run that it starts from is not done; train that one first")
    if [run for run in ready if _given_up(study.runs / run.name, question, run.name)]:
        return _todo(study, question, plan, only, number, last_model)
    if not ready and not waiting:
        failed = any(states[run.spec.hash] != "done" for run in wanted)
        return Exit.CRASH if failed else Exit.DONE
    if last_model is None and ready:
        shapes = list(dict.fromkeys(run.model for run in ready))
        last_model = shapes[number % len(shapes)]
    return [run.name for run in sorted(ready, key=lambda run: run.model != last_model)]


def _seen_late(question: Question) -> bool:
    """Whether a shared disk may yet show that the parent is done: Slurm starts a job only when it is."""
    return "SLURM_JOB_ID" in os.environ and time.monotonic() - _STARTED < question.launcher.stale_after


def _given_up(folder: Path, question: Question, name: str) -> bool:
    """Mark a run as failed whose processes died too often."""
    records = [] if question.retry_failed else attempts(folder)
    if not records or is_live(folder, records[-1], question.launcher.stale_after):
        return False
    # Counted from where the run last moved on, since a long one may lose a node every few days.
    began = next((record["from_step"] for record in reversed(records) if "from_step" in record), 0)
    since = list(takewhile(lambda record: record.get("from_step", began) == began, reversed(records)))
    died = [record for record in since if record.get("exit_code", 1) == Exit.CRASH]
    if len(died) <= question.launcher.retries:
        return False
    reason = died[0].get("reason", "the process died without a word")
    write_whole(folder / "FAILED", f"{len(died)} attempts ended badly, the last: {reason}\n")
    print(f"{name}: given up after {len(died)} attempts: {reason}", file=sys.stderr, flush=True)
    return True


def _tokens_of_shape(plan: list[PlannedRun], run: PlannedRun, done: set[str]) -> int:
    same = [other for other in plan if other.spec.model == run.spec.model and other.spec.hash not in done]
    return sum(other.spec.tokens for other in same)


def _places(study: Study, run: PlannedRun, manifest: Manifest, plan: list[PlannedRun]) -> Places:
    reference = None
    if run.spec.reweighting:
        after = next((other for other in plan if other.spec.hash == run.after), None)
        reference = after and study.runs / after.name / "checkpoints" / f"step-{after.spec.steps}"
    return Places(
        folder=study.runs / run.name,
        manifest=manifest,
        engines=study.folder / "engines",
        start=(study.folder / run.start) if run.start else None,
        reference=reference,
    )


def _execution(question: Question, run: PlannedRun, plan: list[PlannedRun]) -> Execution:
    launcher = question.launcher
    checkpoints, states = kept_steps(question, run, plan)
    return Execution(
        micro_batch=launcher.micro_batch,
        engine=question.engine,
        threads=launcher.threads,
        resume_every=launcher.resume_every,
        checkpoints=tuple(checkpoints),
        kept_states=tuple(states),
        parallel=question.parallel,
    )


def _stop_with_parent(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Entry of the worker process: python -m pipeline.launch.worker STUDY."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--only", help="name or hash of the one run to train; of several with commas between")
    number = int(os.environ.get("SLURM_PROCID", "0"))
    parser.add_argument("--number", type=int, default=number, help="of this worker among those that start together")
    parser.add_argument("--question", type=Path, help="file of the question, if not study.yaml")
    parser.add_argument("--parent", type=int, help="end, saving, when this process is gone")
    arguments = parser.parse_args()
    if arguments.parent:
        _stop_with_parent(arguments.parent)
    study = Study(arguments.study)
    try:
        question = load_question(arguments.question or study.folder / "study.yaml", again=False)
        code = run_worker(study, question, arguments.only, arguments.number)
    except Exception:
        traceback.print_exc()
        code = Exit.UNEXPECTED
    if "RANK" in os.environ:
        # Everything is written; the interpreter's own end aborted once in six in what the process group leaves behind.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def disk_message(error: OSError, place: object) -> str:
    """One line on an error of DISK_ERRORS: where, what, and what to do."""
    todo = "make it writable" if error.errno == errno.EROFS else "make room"
    return f"{error.filename or place}: {error.strerror}; {todo} and give the same command again"


def run_worker(study: Study, question: Question, only: str | None, number: int = 0) -> Exit:
    """`work`, with a user's mistakes and a full disk as one line on stderr and their exit code.

    A run of several processes is started here, unless this is one of them, started by torchrun, Slurm or this.
    """
    parallel = question.parallel
    try:
        os.environ.update(place_in_step(parallel.kind, parallel.processes))
    except SpecError as error:
        print(error, file=sys.stderr)
        return Exit.INPUT_MISSING
    if parallel.kind != "single" and "RANK" not in os.environ:
        command = [sys.executable, "-m", "pipeline.launch.worker", str(study.folder), "--number", str(number)]
        command += ["--parent", str(os.getpid()), *(["--only", only] if only else [])]
        # study.yaml does not know what the command line of a single run says otherwise.
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as asked:
            asked.write(question_yaml(question))
            asked.flush()
            command += ["--question", asked.name]
            return run_ranks(command, parallel.processes, question.launcher.threads)
    group = ALONE
    try:
        with StopRequest(study.folder / "STOP") as stop:
            group = join(parallel)
            with mirrored(study, question, group.first) as mirror:
                code = work(study, question, stop, only=only, number=number, group=group, mirror=mirror)
                leave(group)
                if code == Exit.RUN_ME_AGAIN:
                    # Whoever asked to stop does not wait long.
                    mirror.end(min(STOPPING, question.tracking.wait))
            return code
    except (CorpusError, SpecError, LeaseLostError) as error:
        if group.first:
            print(error, file=sys.stderr)
        return Exit.CRASH if isinstance(error, LeaseLostError) else Exit.INPUT_MISSING
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        if group.first:
            print(disk_message(error, study.folder), file=sys.stderr)
        return Exit.INPUT_MISSING


if __name__ == "__main__":
    main()
