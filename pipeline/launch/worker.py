"""A worker process, which trains the open runs of a plan one after another: python -m pipeline.launch.worker STUDY."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from training.stop import ignore_signals, leave_on_signals


def main() -> None:
    """Entry point of the worker process."""
    leave_on_signals("stopped before the first run")
    arguments = _arguments()
    # Late, because they take most of a second, in which signals are answered.
    from pipeline.launch.exit_codes import exit_code_of
    from pipeline.launch.work import run_worker
    from pipeline.question.loading import load_question
    from pipeline.study.folder import Study
    from training.run import Exit

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


def _stop_with_parent(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--only", help="name or hash of the one run to train, or several with commas between them")
    number = int(os.environ.get("SLURM_PROCID", "0"))
    parser.add_argument("--number", type=int, default=number, help="of this worker among those that start together")
    parser.add_argument("--question", type=Path, help="file of the question, if not study.yaml")
    parser.add_argument("--parent", type=int, help="save and exit when the process of this id is gone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
