"""A fake sbatch, squeue, scontrol, scancel and sacct, for plans of ten thousand runs and for failures.

The programs print what Slurm 22.05 prints, and record their calls in a folder.
"""

import json
import os
import re
import stat
import sys
import time
from pathlib import Path

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sacct")


class FakeSlurm:
    """The programs in `folder`/bin, their settings and their records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in PROGRAMS:
            # Without site-packages: a start takes 20 ms.
            words = f'#!/bin/sh\nexec "{sys.executable}" -S -E "{__file__}" "{folder}" {name} "$@"\n'
            (self.bin / name).write_text(words)
            (self.bin / name).chmod(stat.S_IRWXU)

    def set(self, **state: object) -> None:
        """refuse: {number of jobs: message of sbatch from then on}; hang: program; lose: sbatch never answers."""
        (self.folder / "set.json").write_text(json.dumps(state))

    def jobs(self) -> list[dict]:
        """The accepted jobs: id, indices, comment, dependency, words, state, reason."""
        return _jobs(self.folder)

    def change(self, job: str, state: str, reason: str) -> None:
        """Set the state of a job; GONE: it left the queue."""
        changed = {"state": state, "reason": reason}
        _write(self.folder, [each | (changed if each["id"] == job else {}) for each in self.jobs()])

    def calls(self) -> list[tuple[float, str, int]]:
        """(time, program, id of the calling process) of all calls."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(moment), program, int(caller)) for moment, program, caller in map(str.split, lines)]


def main(folder: Path, program: str, words: list[str]) -> int:
    with open(folder / "calls", "a") as log:
        log.write(f"{time.time()} {program} {os.getppid()}\n")
    path = folder / "set.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    if settings.get("hang") == program:
        time.sleep(600)
    jobs = _jobs(folder)
    if program == "sbatch":
        return _sbatch(folder, words, jobs, settings)
    if program == "squeue":
        for job in jobs:
            if job["state"] != "GONE":
                print(f"{job['id']}|{job['array'] or 'N/A'}|{job['state']}|{job['reason']}|{job['comment']}")
    elif program == "scontrol":
        print(f"MaxArraySize            = {settings.get('array', 1001)}\nMaxJobCount             = 10000")
    elif program == "scancel":
        cancelled = {"state": "CANCELLED", "reason": "None"}
        _write(folder, [job | (cancelled if job["id"] in words else {}) for job in jobs])
    else:
        print("Slurm accounting storage is disabled", file=sys.stderr)
        return 1
    return 0


def _sbatch(folder: Path, words: list[str], jobs: list[dict], settings: dict) -> int:
    given = {word.partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("--")}
    known = {job["id"] for job in jobs}
    array, after = given.get("--array", ""), given.get("--dependency", "")
    if not set(re.findall(r":(\d+)", after)) <= known:
        return _error("sbatch: error: Batch job submission failed: Job dependency problem")
    indices = map(int, re.findall(r"\d+", array.partition("%")[0]))
    if max(indices, default=0) >= settings.get("array", 1001):
        return _error("sbatch: error: Batch job submission failed: Invalid job array specification")
    for count, line in settings.get("refuse", {}).items():
        if len(jobs) >= int(count):
            return _error(f"sbatch: error: {line}")
    if not Path(words[-1]).read_text().startswith("#!"):
        return _error("sbatch: error: This does not look like a batch script.")
    job = {"id": str(len(jobs) + 1), "array": array, "comment": given.get("--comment", ""), "after": after}
    job |= {"words": words, "state": "PENDING", "reason": "Dependency" if after else "Priority"}
    _write(folder, [*jobs, job])
    if settings.get("lose"):
        time.sleep(600)
    print(job["id"])
    return 0


def _error(line: str) -> int:
    print(line, file=sys.stderr)
    return 1


def _jobs(folder: Path) -> list[dict]:
    path = folder / "jobs.json"
    return json.loads(path.read_text()) if path.exists() else []


def _write(folder: Path, jobs: list[dict]) -> None:
    part = folder / f"jobs.{os.getpid()}"
    part.write_text(json.dumps(jobs))
    part.replace(folder / "jobs.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
