"""Stop requests by signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import tiny_spec
from tests.processes import FORKS
from training.attempt import attempts
from training.checkpoints.states import saved_states
from training.run import Exit, RunFolders, run_once
from training.spec import Execution
from training.stop import PATIENCE, end_in_time

_SIGNALS_IN_SIGNALS = """
import signal, sys
from training.stop import StopRequest

def at_each_line(frame, event, argument):
    sys.settrace(None)
    signal.raise_signal(signal.SIGTERM)
    sys.settrace(at_each_line)
    return at_each_line

with StopRequest() as stop:
    sys.settrace(at_each_line)
    stop._receive(signal.SIGINT, None)
    sys.settrace(None)
    print(stop.requested)
"""


def test_a_signal_during_the_handler_of_another_does_not_block() -> None:
    # A group's Ctrl-C and its launcher's SIGTERM come at once: one in some 1,500 processes hung until its group's
    # timeout, and lost what it had trained since its last state.
    command = [sys.executable, "-c", _SIGNALS_IN_SIGNALS]
    assert subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout == "True\n"


IN_ONE_CALL = """
import hashlib
from training import stop
stop.PATIENCE = 1.0
stop.end_in_time()
stop.interrupt_on_signals()
print("now", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


def test_a_signal_in_a_call_of_minutes_is_obeyed_in_seconds() -> None:
    process = subprocess.Popen([sys.executable, "-c", IN_ONE_CALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"now\n"
    time.sleep(0.5)  # until it is in the call
    start = time.monotonic()
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[1].endswith(b"run the same command again to continue\n")
    assert process.returncode == 75
    assert 1 <= time.monotonic() - start < 4
    assert PATIENCE <= 4


def _train(folder: Path, manifest, spec) -> None:
    end_in_time()
    code = run_once(spec, RunFolders(folder, manifest, folder / "memory"), Execution(engine="eager", metrics_every=1))
    os._exit(code or 0)


@pytest.mark.slow
def test_a_signal_in_a_step_of_a_large_model_drops_the_step(manifest, tmp_path) -> None:
    sizes = {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048}
    shape = {**tiny_spec().model, **sizes, "vocab_size": manifest.vocabulary, "max_position_embeddings": 512}
    corpora = {name: corpus.fingerprint for name, corpus in manifest.corpora.items()}
    spec = tiny_spec(model=shape, corpora=corpora, sequence_length=256, validation_windows=1)
    process = FORKS.Process(target=_train, args=(tmp_path, manifest, spec))
    process.start()
    while not (tmp_path / "metrics.jsonl").exists():
        time.sleep(0.1)
    time.sleep(1)
    start = time.monotonic()
    process.terminate()
    process.join()
    assert process.exitcode == Exit.RUN_ME_AGAIN
    # A state of this size is written in a second or two, on a busy disk in some ten.
    assert time.monotonic() - start < 20
    assert attempts(tmp_path)[-1].get("exit_code") == Exit.RUN_ME_AGAIN
    # At the end of the step, of some seconds, the state would be that of the next one.
    assert [path.name for path in saved_states(tmp_path)] == ["step-1"]
