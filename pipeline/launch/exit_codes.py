"""From an error to an exit code and its line, for verbs, workers and jobs of sweeps."""

import errno
import sys

from pipeline.question.messages import ConfigError, StudyError
from training.attempt import LeaseLostError
from training.corpora.documents import CorpusError
from training.durable import FileError
from training.run import DISK_ERRORS, PATH_ERRORS, Exit, StartAgainError
from training.spec import SpecError
from training.stop import was_interrupted

STOPPED = "stopped; run the same command again to continue"
_LOST = {
    **dict.fromkeys(
        ("Connection closed by peer", "Connection reset by peer", "NCCL error", "Socket Timeout", "Timed out waiting"),
        "another process of the run is gone, or does not answer",
    ),
    **dict.fromkeys(
        ("CUDA-capable device", "uncorrectable", "fallen off the bus", "CUDA error: unknown error", "Xid"),
        "the GPU is gone, or damaged: see nvidia-smi",
    ),
}
"""Words of errors of torch, by which a process is to be started again -> what has happened."""


class JobError(RuntimeError):
    """A run of a job failed; the other jobs of the sweep continue."""


def exit_code_of(error: BaseException, disk: object = "disk") -> tuple[Exit, str] | None:
    """The exit code of a process that an error ended, and the line that says why; None: an error of the program.

    `disk` stands for the file that an error of the disk does not name.
    """
    # Only where a table could not be fitted; `fitting` is not loaded for its error alone.
    of_fitting = [sys.modules["fitting"].PointsError] if "fitting" in sys.modules else []
    if isinstance(error, (ConfigError, *of_fitting)):
        return Exit.BAD_CONFIGURATION, str(error)
    if isinstance(error, (CorpusError, StudyError, SpecError, FileError)):
        return Exit.INPUT_MISSING, str(error)
    if isinstance(error, (LeaseLostError, JobError)):
        return Exit.CRASH, str(error)
    if isinstance(error, StartAgainError):
        return Exit.UNEXPECTED, str(error)
    if isinstance(error, RuntimeError) and (lost := next(filter(str(error).__contains__, _LOST), None)):
        line = f"{_LOST[lost]} ({str(error).splitlines()[0][:200]}); the run goes on from its last state"
        return Exit.UNEXPECTED, line
    # A library may have turned the interrupt into an error of its own.
    if isinstance(error, KeyboardInterrupt) or was_interrupted():
        return Exit.RUN_ME_AGAIN, STOPPED
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        remedy = "make it writable" if error.errno == errno.EROFS else "make room"
        line = f"{error.filename or disk}: {error.strerror}; {remedy} and give the same command again"
        return Exit.INPUT_MISSING, line
    if isinstance(error, OSError) and error.errno in PATH_ERRORS and error.filename is not None:
        return Exit.INPUT_MISSING, f"{error.filename}: {error.strerror}"
    return None
