"""make chaos: kill and damage a small study until it was killed KILLS times; a ledger keeps every cycle."""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.cycle import Cycle
from tests.chaos.study import Reference
from training.durable import append_flushed, read_lines_whole

LEDGER = "ledger.jsonl"


def campaign(folder: Path, kills: int, seed: int, only: int | None = None) -> list[dict]:
    """Run cycles until the ledger has that many kills; returns the lines of the ledger.

    A campaign that was stopped goes on behind its last line. `only` repeats the cycle of that seed, in the folder
    `again`, and adds nothing to the ledger.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reference = Reference(folder.resolve() / "reference")
    if only is not None:
        return [Cycle(only, reference, folder.resolve() / "again").run()]
    ledger = folder / LEDGER
    lines = read_lines_whole(ledger) if ledger.exists() else []
    while sum(line["kills"] for line in lines) < kills:
        number = seed + len(lines)
        line = Cycle(number, reference, folder.resolve() / f"cycle-{number}").run()
        append_flushed(ledger, json.dumps(line) + "\n")
        lines.append(line)
        wrong = f": {line['problems'][0][:200]}" if line["problems"] else ""
        done = sum(one["kills"] for one in lines)
        print(f"{done}/{kills} kills, cycle {number}, {line['kind']} {line['stage']}{wrong}", flush=True)
    return lines


def table(lines: list[dict]) -> Table:
    """Kind and stage -> cycles, kills, and cycles with a problem."""
    shown = Table("kind", "stage", "cycles", "kills", "seconds", "with a problem", box=None, header_style="bold")
    cells: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for line in lines:
        for key in ((line["kind"], line["stage"]), ("~", "all")):
            cells[key].update(cycles=1, kills=line["kills"], seconds=line["seconds"], wrong=int(bool(line["problems"])))
    for (kind, stage), count in sorted(cells.items()):
        seconds = f"{count['seconds']:.0f}"
        kind = "total" if kind == "~" else kind
        shown.add_row(kind, stage, str(count["cycles"]), str(count["kills"]), seconds, str(count["wrong"]))
    return shown


def main() -> None:
    """Run the campaign, or print what its ledger says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="signals to send in all; default 1000")
    parser.add_argument("--folder", type=Path, default=Path("studies/chaos"), help="of the ledger and all studies")
    parser.add_argument("--seed", type=int, default=0, help="of the first cycle; each has the next")
    parser.add_argument("--cycle", type=int, help="repeat the cycle of this seed, and print its line")
    parser.add_argument("--table", action="store_true", help="print the counts of the ledger, and run nothing")
    arguments = parser.parse_args()
    if arguments.table:
        lines = read_lines_whole(arguments.folder / LEDGER)
    else:
        lines = campaign(arguments.folder, arguments.kills, arguments.seed, arguments.cycle)
    if arguments.cycle is not None:
        print(json.dumps(lines[0], indent=2))
        return
    Console(width=100).print(table(lines))
    for line in lines:
        for problem in line["problems"]:
            print(f"seed {line['seed']}: {problem[:300]}")


if __name__ == "__main__":
    main()
