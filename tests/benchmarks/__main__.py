"""make bench: every benchmark, peer and ours in turn; prints tables and writes bench.json."""

import argparse
import importlib
import json
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from training.durable import write_whole

BENCHMARKS = (
    *("sample", "fit", "tables", "collect", "preparation", "training"),
    *("memory", "startup", "plan_time", "sweep", "scale"),
)
ALSO = ("roofline",)
"""Only where it is named."""


def main() -> None:
    """Run the benchmarks that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    known = ", ".join([*BENCHMARKS, *ALSO])
    parser.add_argument("names", nargs="*", help=f"which: {known}; none: all but {', '.join(ALSO)}")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in (*BENCHMARKS, *ALSO)]:
        parser.error(f"{', '.join(unknown)}: not a benchmark; allowed: {known}")
    console = Console()
    results = {}
    for name in arguments.names or BENCHMARKS:
        start = time.perf_counter()
        table = Table("benchmark", "ours", "peer", "ratio", "unit", "what it means")
        for row in importlib.import_module(f"tests.benchmarks.{name}").measure():
            results[row["name"]] = {key: value for key, value in row.items() if key != "name"}
            numbers = ("" if row[key] is None else f"{row[key]:,.4g}" for key in ("ours", "peer", "ratio"))
            table.add_row(row["name"], *numbers, row["unit"], row["meaning"])
        console.print(table)
        console.print(f"{name}: {time.perf_counter() - start:.0f} s", highlight=False)
        # After each, since a later one may end with an error.
        write_whole(arguments.output, json.dumps(results, indent=2) + "\n")
    console.print(f"written to {arguments.output}", highlight=False)


if __name__ == "__main__":
    main()
