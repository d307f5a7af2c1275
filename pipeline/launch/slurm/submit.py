"""launcher=slurm: submit the runs as dependent job arrays, and behind them a job that continues the study.

    pretrain -> continual -> branches -> continue -> further runs, or those that confirm -> continue -> ...

The job runs `cptlaw continue`, which submits the runs that follow from results and another such job behind them; once
no more follow it fits, recommends, submits the confirmation runs with a last such job, which compares and reports.

Plain sbatch, not submitit: users read these scripts and submit them by hand, and a task can wait for the single run
that it starts from. No process of the user stays alive. Runs that are done, running or queued are not submitted again,
so the same command continues after any failure.
"""

import functools
import re
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table

from pipeline.done import needs_no_job
from pipeline.launch.slurm.arrays import dependency, submit_runs
from pipeline.launch.slurm.client import SchedulerError
from pipeline.launch.slurm.jobs import DryRun, Job, Submission, read_jobs, submitting, write_jobs
from pipeline.launch.slurm.script import driver_script, prepare_script, train_script
from pipeline.plan.memory import node_memory
from pipeline.plan.prepared_corpora import begin_corpora
from pipeline.question.data import data_folder
from pipeline.study.context import Context
from pipeline.study.folder import PlannedRun, question_yaml
from pipeline.study.status import is_followed, print_failed
from training.durable import write_whole
from training.run import Exit

PREPARING = ("tokenise", "merge")
"""Kinds of jobs of `cptlaw prepare`: an array that tokenises shards, and the job behind it that merges them."""


def submit(context: Context, console: Console, only: Collection[str] | None = None) -> Exit:
    """Submit all open runs of the plan, whatever runs are named in `only`, and behind them the job that continues.

    DONE when every run is done or queued; CRASH when one has failed: the runs that need it are not submitted.
    SchedulerError: a Slurm command failed; the jobs submitted before it stay recorded.
    """
    study, plan = context.study, context.plan
    with submitting(study, console.print):
        submission = Submission(context, functools.partial(_script, context, plan))
        # With the numbers that were not known.
        write_jobs(study, submission.jobs)
        try:
            failed = _send_all(context, plan, submission)
        except SchedulerError as error:
            numbers = [job.number for job in submission.new if job.number]
            before = f"; submitted before that: {', '.join(numbers)}" if numbers else ""
            raise SchedulerError(f"{error}{before}; the same command submits what is missing") from None
    if submission.new:
        table = Table("job", "work", "after", box=None, header_style="bold", padding=(0, 2, 0, 0))
        for job in submission.new:
            table.add_row(job.number, job.work, job.after)
        console.print(table)
        console.print(f"cptlaw status shows them, cptlaw cancel stops them; their scripts: {study.folder / 'jobs'}")
    return _code_of(context, failed, submission, console)


def show(context: Context, plan: Sequence[PlannedRun], more: bool, console: Console) -> Exit:
    """Print the scripts and commands of `submit` for a plan, and what follows; writes and submits nothing."""
    submission, question = DryRun(context, functools.partial(_script, context, plan), console), context.question
    failed = _send_all(context, plan, submission)
    if failed or not submission.new:
        return _code_of(context, failed, submission, console)
    confirms = not question.is_large() or question.large.confirm
    line = "fits and answers; no other runs follow"
    if more:
        which = ", those that confirm the answer among them" if confirms else ", if any"
        line = f"submits the runs that follow from results{which}, and behind them another such job"
    elif confirms:
        line = "fits and answers, and submits the runs that confirm the answer, and behind them another such job"
    console.print(f"the job continue {line}", soft_wrap=True)
    return Exit.DONE


def _code_of(context: Context, failed: Sequence[PlannedRun], submission: Submission, console: Console) -> Exit:
    """The exit code of a submission; prints the runs that have failed, or why there was nothing to submit."""
    if not (submission.new or failed):
        numbers = ", ".join(job.number or "" for job in submission.alive)
        line = f"nothing to submit: jobs {numbers} run or wait; cptlaw status shows why"
        answered = "answered" if is_followed(context.study, context.question) else "confirmed"
        done = f"all {len(context.plan)} runs of the plan are done and {answered}; cptlaw report shows the result"
        console.print(line if numbers else done)
    print_failed(context.study, failed, console)
    return Exit.CRASH if failed else Exit.DONE


def cancel(context: Context) -> list[str]:
    """Cancel all running and waiting jobs of a study; a line each."""
    if not read_jobs(context.study):
        return []
    submission = Submission(context, functools.partial(_script, context, []))
    jobs = submission.alive
    submission.cancel(jobs)
    return [f"cancelled job {job.number}: {job.work}" + (f", after {job.after}" if job.after else "") for job in jobs]


def _send_all(context: Context, plan: Sequence[PlannedRun], submission: Submission) -> list[PlannedRun]:
    """Send the open runs and the job behind them; returns the runs that cannot be sent."""
    study, tasks = context.study, submission.alive_runs
    states = {run.spec.hash: study.state(run) for run in plan}
    if any(states[run.spec.hash] == "open" and run.spec.hash not in tasks for run in plan):
        together = context.question.launcher.runs_per_job
        blocked = submit_runs(plan, states, tasks, submission.largest_array, submission.send, together)
    else:
        blocked = [run for run in plan if states[run.spec.hash] == "failed"]
    if blocked:
        return blocked
    behind = [job for job in submission.alive if job.kind == "continue"]
    waiting = [job for job in behind if submission.is_pending(job)]
    needed = {number for number, _ in tasks.values()}
    if any(needed <= {*re.findall(r"\d+", job.after)} for job in waiting):
        return []
    if not tasks and (behind or needs_no_job(context)):
        return []
    # One that waits for fewer runs than are queued now would start too early. One that runs goes on before.
    submission.cancel(waiting)
    running = [job.number or "" for job in behind if job not in waiting]
    submission.send("continue", {}, dependency(tasks.values(), running))
    return []


def _script(context: Context, plan: Sequence[PlannedRun], job: Job) -> str:
    folder, question = context.study.folder, context.question
    if not job.tasks:
        return driver_script(question, "continue", folder)
    memory = node_memory(question, [run for run in plan if run.spec.hash in job.tasks])
    return train_script(folder, question, job.token, memory)


def submit_preparation(context: Context, console: Console) -> Exit | None:
    """Submit the jobs that tokenise and merge the corpora, unless they are queued; a dry run prints and writes nothing.

    None where launcher.slurm.prepare_tasks is 0, or all corpora are prepared. SchedulerError: a Slurm command failed;
    the same command submits what is missing. ConfigError: precision=auto is to be chosen, and on a node.
    """
    study, question = context.study, context.question
    count = question.launcher.slurm.prepare_tasks
    if question.dry_run:
        # Their names follow from the tokenizer, which is not made.
        names = [] if context.is_prepared else sorted(question.corpora.sources)
        folders = [data_folder(question) / f"{name}-EXAMPLE.unfinished" for name in names]
    else:
        folders = begin_corpora(question, console.print) if count else []
    if not count or not folders:
        context.chooses_precision()  # Refuses one that cannot be chosen here before hours of tokenising.
        return None

    def script_of(job: Job) -> str:
        if job.tasks:
            return prepare_script(question, folders)
        return driver_script(question, "prepare", study.folder, "launcher.slurm.prepare_tasks=0")

    def send_all(submission: Submission) -> None:
        number = submission.send("tokenise", {f"task-{index}": index for index in range(count)}, "")
        submission.send("merge", {}, dependency([(number, 0)]))

    if question.dry_run:
        send_all(DryRun(context, script_of, console))
        return Exit.DONE
    with submitting(study, console.print):
        submission = Submission(context, script_of)
        waiting = [job for job in submission.alive if job.kind in PREPARING]
        # An array without the job behind it, after a kill, is left to end; its shards are skipped.
        if any(job.kind == "merge" for job in waiting):
            numbers = ", ".join(job.number or "" for job in waiting)
            console.print(f"nothing to submit: jobs {numbers} run or wait")
            return Exit.DONE
        # The job that merges reads the question here.
        write_whole(study.folder / "study.yaml", question_yaml(question))
        send_all(submission)
        tokenise, merge = (job.number for job in submission.new)
        console.print(f"job {tokenise}: {count} tasks tokenise; job {merge} merges after them")
        console.print("cptlaw cancel stops them; the same command submits them again, and complete shards stay")
    return Exit.DONE
