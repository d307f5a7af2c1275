"""The Python of a page of docs/, run from top to bottom, and what it prints beside what the page says it prints.

    .venv/bin/python -m tests.docs.pages docs/choosing.md

writes into the page what its blocks print now.
"""

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def run(page: str, namespace: dict) -> list[tuple[str, str]]:
    """(what the page says, what was printed) of each block of docs/<page>, in order; names are left in `namespace`."""
    found = []
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        printed = StringIO()
        line = text.count("\n", 0, block.start()) + 1
        with redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], page, "exec"), namespace)
        found.append((block["printed"] or "", printed.getvalue()))
    return found


def assert_same(said: str, printed: str) -> None:
    """Equal words; numbers equal to 2%, or to a few of the last digit that is shown."""
    assert NUMBER.sub("#", said) == NUMBER.sub("#", printed), f"the page says\n{said}\nbut it prints\n{printed}"
    for a, b in zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True):
        digit = 10.0 ** -len(a.partition(".")[2].partition("e")[0])
        assert float(b) == pytest.approx(float(a), rel=0.02, abs=3 * digit if "." in a else 0), f"{a} in\n{printed}"


def renew(page: Path) -> None:
    """Write what the blocks print now where the page says what they print."""
    printed = iter(run(page.name, {"__name__": "page"}))

    def with_output(block: re.Match) -> str:
        said, now = next(printed)
        return (
            block[0].replace(f"```text\n{said}```", f"```text\n{now}```") if block["printed"] is not None else block[0]
        )

    page.write_text(BLOCK.sub(with_output, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew(ROOT / sys.argv[1])
