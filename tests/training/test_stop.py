"""Stop requests by signals."""

from __future__ import annotations

import subprocess
import sys

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
