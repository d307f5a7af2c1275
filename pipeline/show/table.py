"""A table of plain cells, which the terminal and the report's templates show each in its way."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

Cell = str | tuple[str, str]
"""Plain text, or plain text and the colour of the spot before it on a page."""


@dataclass(frozen=True)
class Table:
    """Rows of plain cells under the names of their columns."""

    title: str
    """Heading; may be empty on a terminal."""
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    """Cells, as many as columns."""
    note: str = ""
    """How to read it."""
    left: int = 1
    """Columns of words, which stand left; the rest are numbers."""
    words: bool = False
    """Whether cells are sentences, so that they wrap."""
    group: int = 0
    """Columns that on a terminal become a line above the rows that share them."""
    page_only: int = 0
    """Columns at the end that a terminal has no room for."""
    rules: Sequence[int] = ()
    """Rows above which a terminal has a line."""

    def __rich__(self) -> RichTable:
        """As rich prints it, as narrow as its numbers allow."""
        last = len(self.columns) - self.page_only
        title, note = (Text(words) if words else None for words in (self.title, self.note))
        table = RichTable(title=title, caption=note, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for number, name in enumerate(self.columns[self.group : last], start=self.group):
            # Names wrap before a number is cut.
            named = number < self.left
            side, whole = "left" if named else "right", not (named or self.words)
            table.add_column(Text(name), justify=side, no_wrap=whole, overflow="fold")
        above: list[str] = []
        for number, row in enumerate(self.rows):
            cells = [cell if isinstance(cell, str) else cell[0] for cell in row]
            if number in self.rules:
                table.add_section()
            if above != (above := cells[: self.group]):
                table.add_row(Text(" at ".join(above)))
            table.add_row(*map(Text, cells[self.group : last]))
        return table
