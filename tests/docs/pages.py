"""Run the Python blocks of a page of docs/, and compare their output with the page.

    .venv/bin/python -m tests.docs.pages docs/choosing.md

writes into the page what its blocks print now.
"""

import re
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def read(page: str) -> str:
    """The text of docs/<page>."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    """The words of each cptlaw command in the shell blocks of a text."""
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", "").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("cptlaw ")]


def run(page: str, namespace: dict) -> list[tuple[str, str]]:
    """The output on the page and the real one of each block of docs/<page>, in order; names stay in `namespace`."""
    outputs = []
    text = read(page)
    for block in BLOCK.finditer(text):
        printed = StringIO()
        line = text.count("\n", 0, block.start()) + 1
        with redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], page, "exec"), namespace)
        outputs.append((block["printed"] or "", printed.getvalue()))
    return outputs


def assert_same_output(outputs: list[tuple[str, str]]) -> None:
    """Equal words in what `run` returns; numbers equal to 2%, or to a few of the last digit that is shown."""
    for expected, printed in outputs:
        same = NUMBER.sub("#", expected) == NUMBER.sub("#", printed)
        assert same, f"the page says\n{expected}\nbut it prints\n{printed}"
        for a, b in zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True):
            digit = 10.0 ** -len(a.partition(".")[2].partition("e")[0])
            close = pytest.approx(float(a), rel=0.02, abs=3 * digit if "." in a else 0)
            assert float(b) == close, f"{a} in\n{printed}"


def renew(page: Path) -> None:
    """Write the real output of the blocks into the page."""
    printed = iter(run(page.name, {"__name__": "page"}))

    def with_output(block: re.Match) -> str:
        expected, now = next(printed)
        return block[0].replace(f"```text\n{expected}```", f"```text\n{now}```") if block["printed"] else block[0]

    page.write_text(BLOCK.sub(with_output, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew(ROOT / sys.argv[1])
