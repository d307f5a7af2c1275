"""Where verbs print: a terminal, or a log, in which every line stays whole whatever its length."""

import os
from typing import Any

from rich.console import Console
from rich.rule import Rule


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
