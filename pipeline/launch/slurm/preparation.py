"""cptlaw prepare on a cluster: an array tokenises the shards of the corpora, and a job behind it merges them."""

from __future__ import annotations

import functools
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline.launch.slurm.arrays import dependency
from pipeline.launch.slurm.client import Scheduler
from pipeline.launch.slurm.jobs import Job, read_jobs, submitting, with_known_numbers, write_jobs
from pipeline.launch.slurm.script import merge_script, prepare_script
from pipeline.launch.slurm.submit import is_alive, job_command, send_job
from pipeline.question.schema import Question
from pipeline.study.folder import Study, question_yaml
from training.durable import write_whole
from training.run import Exit

KINDS = ("tokenise", "merge")


def submit_preparation(study: Study, question: Question, folders: Sequence[Path], console: Console) -> Exit:
    """Submit the jobs that tokenise and merge corpora, unless they are queued; a dry run prints them.

    Args:
        study, question: whose corpora they are.
        folders: of their shards, from `begin_corpora`.
        console: for the jobs.

    Raises:
        SchedulerError: a Slurm command failed; the same command submits what is missing.
    """
    line = functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)
    scripts = {"tokenise": prepare_script(question, folders), "merge": merge_script(study.folder, question)}
    tasks = {f"task-{index}": index for index in range(question.launcher.slurm.prepare_tasks)}
    if question.dry_run:
        for kind, after in zip(KINDS, ("", "afterok:JOB1"), strict=True):
            job = Job(f"EXAMPLE-{kind}", kind, None, after, tasks if kind == "tokenise" else {})
            path, options = job_command(study, question, job)
            console.rule(f"{path}", align="left")
            line(scripts[kind])
            line(f"$ {shlex.join(['sbatch', '--parsable', *options, str(path)])}")
        return Exit.DONE
    scheduler = Scheduler(question.launcher.slurm.patience)
    with submitting(study, console.print):
        queue, jobs = scheduler.queue(), read_jobs(study)
        jobs = with_known_numbers(jobs, queue)
        waiting = [job for job in jobs if job.kind in KINDS and is_alive(job, queue)]
        # An array without the job behind it, after a kill, is left to end; its shards are skipped.
        if any(job.kind == "merge" for job in waiting):
            line(f"nothing to submit: jobs {', '.join(job.number or '' for job in waiting)} run or wait")
            return Exit.DONE
        # The job that merges reads the question here.
        write_whole(study.folder / "study.yaml", question_yaml(question))
        write_jobs(study, jobs)
        send_job(
            study,
            question,
            Job(secrets.token_hex(6), "tokenise", None, "", tasks),
            scripts["tokenise"],
            jobs,
            scheduler,
        )
        after = dependency([(jobs[-1].number or "", 0)])
        send_job(study, question, Job(secrets.token_hex(6), "merge", None, after), scripts["merge"], jobs, scheduler)
        line(f"job {jobs[-2].number}: {len(tasks)} tasks tokenise; job {jobs[-1].number} merges after them")
        line("cptlaw cancel stops them; the same command submits them again, and complete shards stay")
    return Exit.DONE
