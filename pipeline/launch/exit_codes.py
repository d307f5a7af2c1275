"""From an error to an exit code and its line, for verbs, workers and jobs of sweeps."""

from __future__ import annotations

import errno
import sys

from pipeline.question.messages import ConfigError
from pipeline.study.folder import StudyError
from training.attempt import LeaseLostError
from training.corpora.documents import CorpusError
from training.run import DISK_ERRORS, Exit
from training.spec import SpecError
from training.stop import was_interrupted

STOPPED = "stopped; run the same command again to continue"


class JobError(RuntimeError):
    """A run of a job failed; the other jobs of the sweep continue."""


def exit_code_of(error: BaseException, place: object = "disk") -> tuple[Exit, str] | None:
    """The exit code of a process that an error ended, and the line that says why.

    Args:
        place: of an error of the disk that names no file.

    Returns:
        None: an error of the program.
    """
    if isinstance(error, (ConfigError, *_of_fitting())):
        return Exit.BAD_CONFIGURATION, str(error)
    if isinstance(error, (CorpusError, StudyError, SpecError)):
        return Exit.INPUT_MISSING, str(error)
    if isinstance(error, (LeaseLostError, JobError)):
        return Exit.CRASH, str(error)
    # A library may have turned the interrupt into an error of its own.
    if isinstance(error, KeyboardInterrupt) or was_interrupted():
        return Exit.RUN_ME_AGAIN, STOPPED
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        remedy = "make it writable" if error.errno == errno.EROFS else "make room"
        line = f"{error.filename or place}: {error.strerror}; {remedy} and give the same command again"
        return Exit.INPUT_MISSING, line
    return None


def _of_fitting() -> list[type[Exception]]:
    """The errors of `fitting` for a table that cannot be fitted; none where it is not loaded, to spare its import."""
    return [sys.modules["fitting"].PointsError] if "fitting" in sys.modules else []
