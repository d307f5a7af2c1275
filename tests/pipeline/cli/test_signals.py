"""A signal that arrives while a process loads: one line and an exit code, at whatever import it is."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.goals.registry import read_question
from pipeline.study.folder import question_yaml

SIGNALLED = """
import importlib, os, sys

class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

main, module, number, *sys.argv = sys.argv[1:]
number = int(number)
importlib.import_module(main)
sys.meta_path.insert(0, Signalling())
importlib.import_module(main).main()
"""


def _signalled(main: str, module: str, number: int, *words: str) -> tuple[int, str]:
    """Exit code and stderr of an entry point that gets a signal as it begins to import a module."""
    command = [sys.executable, "-c", SIGNALLED, main, module, str(int(number)), main, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


INT, TERM = signal.SIGINT, signal.SIGTERM


# One handler answers both from the first line on; each import meets one of them.
@pytest.mark.parametrize(("module", "number"), [("rich.console", INT), ("pipeline.cli.verbs", TERM), ("scipy", INT)])
def test_a_command_that_is_stopped_while_it_loads(module: str, number: int, tmp_path: Path) -> None:
    words = ["plan", "experiment=quickstart", f"studies={tmp_path}", f"data={tmp_path / 'data'}"]
    code, error = _signalled("pipeline.cli.main", module, number, *words)
    assert (code, len(error.splitlines())) == (75, 1), error
    assert error.endswith("; run the same command again\n") or error.startswith("stopped; run the same command again")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("module", "number"), [("pipeline.launch.work", TERM), ("pipeline.question.validation", INT)])
def test_a_worker_that_is_stopped_while_it_loads(module: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(question_yaml(read_question(["experiment=quickstart"])))
    (tmp_path / "plan.jsonl").write_text("\n")
    code, error = _signalled("pipeline.launch.worker", module, number, str(tmp_path))
    assert (code, error) == (75, "stopped before the first run; run the same command again\n")
