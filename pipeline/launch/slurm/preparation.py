"""cptlaw prepare on a cluster: an array tokenises the shards of the corpora, and a job behind it merges them."""

from __future__ import annotations

from rich.console import Console

from pipeline.launch.slurm.arrays import dependency
from pipeline.launch.slurm.jobs import Job, submitting
from pipeline.launch.slurm.script import driver_script, prepare_script
from pipeline.launch.slurm.submission import DryRun, Submission
from pipeline.plan.prepare import begin_corpora
from pipeline.study.context import Context
from pipeline.study.folder import question_yaml
from training.durable import write_whole
from training.run import Exit

KINDS = ("tokenise", "merge")


def prepare(context: Context, console: Console) -> Exit | None:
    """Submit the jobs that tokenise and merge the corpora, unless they are queued; a dry run prints them.

    Returns:
        None where launcher.slurm.prepare_tasks is 0, or all corpora are prepared.

    Raises:
        SchedulerError: a Slurm command failed; the same command submits what is missing.
    """
    study, question = context.study, context.question
    count = question.launcher.slurm.prepare_tasks
    if not count or not (folders := begin_corpora(question, console.print)):
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
        waiting = [job for job in submission.alive if job.kind in KINDS]
        # An array without the job behind it, after a kill, is left to end; its shards are skipped.
        if any(job.kind == "merge" for job in waiting):
            numbers = ", ".join(job.number or "" for job in waiting)
            console.print(f"nothing to submit: jobs {numbers} run or wait", highlight=False)
            return Exit.DONE
        # The job that merges reads the question here.
        write_whole(study.folder / "study.yaml", question_yaml(question))
        send_all(submission)
        tokenise, merge = (job.number for job in submission.new)
        console.print(f"job {tokenise}: {count} tasks tokenise; job {merge} merges after them", highlight=False)
        console.print("cptlaw cancel stops them; the same command submits them again, and complete shards stay")
    return Exit.DONE
