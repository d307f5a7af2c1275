"""Where verbs print: a terminal, or a log, in which every line stays whole whatever its length."""

import contextlib
import os
import select
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.rule import Rule

from training.run import Exit


class LineConsole(Console):
    """Prints text as it is, without markup; a terminal wraps it at words."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, **options)
        self.soft_wrap = not self.is_terminal
        if self.soft_wrap and "COLUMNS" not in os.environ:
            self.width = 10_000

    def rule(self, title: Any = "", **options: Any) -> None:
        """A heading, not as wide as a log is."""
        self.print(Rule(title, **options), width=min(self.width, 80))

    def on_broken_pipe(self) -> NoReturn:
        """End as verbs do whose output's reader has gone, in place of rich's exit code."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(Exit.RUN_ME_AGAIN)


def is_closed(output: TextIO) -> bool:
    """Whether the reader of the output has closed it, as `| head` does."""
    poll = select.poll()
    poll.register(output.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
