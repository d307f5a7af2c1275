"""make chaos: kill and damage a small study until it was killed KILLS times; a ledger keeps every cycle."""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cycle import KINDS, Cycle
from tests.chaos.study import STAGES, Reference
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


def tables(lines: list[dict]) -> str:
    """Two tables in Markdown: cycles by what happened in them (docs/architecture.md sums it up); signals by target."""
    cycles: dict[str, Counter] = defaultdict(Counter)
    signals: dict[str, Counter] = defaultdict(Counter)
    for line in lines:
        for kind in (line["kind"], "total"):
            problem = int(bool(line["problems"]))
            cycles[kind].update(cycles=1, signals=line["kills"], seconds=line["seconds"], problem=problem)
        for event in filter(lambda event: "signal" in event, line["events"]):
            for stage in (event["stage"], "total"):
                with_children = int(event["children"] > 0)
                signals[stage].update(signals=1, with_children=with_children, **{event["whom"]: 1})
    by_kind = ("cycles", "signals", "seconds", "problem")
    by_stage = ("signals", "process", "group", "child", "with_children")
    return "\n".join(
        [
            "| kind | cycles | signals | seconds | cycles with a difference or failure |",
            "|---|---|---|---|---|",
            *_rows(cycles, [*KINDS, "total"], by_kind),
            "",
            "| command | signals | to itself | to its group | to a child | while it had children |",
            "|---|---|---|---|---|---|",
            *_rows(signals, [*STAGES, "total"], by_stage),
        ]
    )


def _rows(counts: dict[str, Counter], names: list[str], columns: Sequence[str]) -> list[str]:
    cells = {name: [f"{counts[name][column]:,.0f}" for column in columns] for name in names if name in counts}
    return [f"| {' | '.join([name, *row])} |" for name, row in cells.items()]


def main() -> None:
    """Run the campaign, or print what its ledger says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="signals to send in all; default 1000")
    parser.add_argument("--folder", type=Path, default=Path("studies/chaos"), help="of the ledger and all studies")
    parser.add_argument("--seed", type=int, default=0, help="of the first cycle; each has the next")
    parser.add_argument("--cycle", type=int, help="repeat the cycle of this seed, and print its line")
    parser.add_argument("--table", action="store_true", help="print the counts of the ledger, and run nothing")
    parser.add_argument("--ledger", type=Path, help="of --table, if not the folder's")
    arguments = parser.parse_args()
    if arguments.table:
        lines = read_lines_whole(arguments.ledger or arguments.folder / LEDGER)
    else:
        lines = campaign(arguments.folder, arguments.kills, arguments.seed, arguments.cycle)
    if arguments.cycle is not None:
        print(json.dumps(lines[0], indent=2))
        return
    print(tables(lines))
    for line in lines:
        for problem in line["problems"]:
            print(f"seed {line['seed']}: {problem[:300]}")


if __name__ == "__main__":
    main()
