"""Run the Python blocks of a page of docs/, and compare their output with the page.

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
    """The output on the page and the real one of each block of docs/<page>, in order; names stay in `namespace`."""
    found = []
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        printed = StringIO()
        line = text.count("\n", 0, block.start()) + 1
        with redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], page, "exec"), namespace)
        found.append((block["printed"] or "", printed.getvalue()))
    return found


def assert_same(expected: str, printed: str) -> None:
    """Equal words; numbers equal to 2%, or to a few of the last digit that is shown."""
    assert NUMBER.sub("#", expected) == NUMBER.sub("#", printed), f"the page says\n{expected}\nbut it prints\n{printed}"
    for a, b in zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True):
        digit = 10.0 ** -len(a.partition(".")[2].partition("e")[0])
        assert float(b) == pytest.approx(float(a), rel=0.02, abs=3 * digit if "." in a else 0), f"{a} in\n{printed}"


def renew(page: Path) -> None:
    """Write the real output of the blocks into the page."""
    printed = iter(run(page.name, {"__name__": "page"}))

    def with_output(block: re.Match) -> str:
        expected, now = next(printed)
        return (
            block[0].replace(f"```text\n{expected}```", f"```text\n{now}```")
            if block["printed"] is not None
            else block[0]
        )

    page.write_text(BLOCK.sub(with_output, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew(ROOT / sys.argv[1])
