"""A cycle of the campaign: one stage of the study, disturbed at random, repeated until it ends, and compared."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import processes
from tests.chaos.processes import CLI, SIGNALS, Command
from tests.chaos.study import CHAIN, FOLDER, STAGES, WORDS, Reference, contents, differences

KINDS = {"kill": 16, "life": 1, "disk": 1, "cut": 3, "clock": 1, "skewed": 1}
"""Kind of a cycle -> how often it is drawn."""
MOST_TRIES = 30
"""Times that a command is repeated before the cycle is a failure."""
MOST_REMEDIES = 10
"""Times that what a message says is done, before the cycle is a failure."""
HANG = 600
"""Seconds from which a command that still runs is a failure: hundreds of times what it takes, on a busy machine."""
_KILLED_STAGES = ("prepare", "train", "train", "train", "worker", "collect", "fit", "recommend", "refine", "advise")
_ROOT = Path(__file__).parents[2]
_ALLOWED = {0, 1, 2, 3, 75, -signal.SIGKILL}


class Cycle:
    """One cycle; everything random in it comes from its seed, but when the operating system runs which process."""

    def __init__(self, seed: int, reference: Reference, place: Path) -> None:
        self.draw, self.reference, self.place = random.Random(seed), reference, place
        self._left: list[Command] = []
        self.record: dict[str, Any] = {"seed": seed, "kills": 0, "events": [], "problems": []}

    def run(self) -> dict[str, Any]:
        """Carry the cycle out; returns its line of the ledger. Its folder is kept where anything is wrong."""
        start = time.monotonic()
        kind = self.draw.choices([*KINDS], [*KINDS.values()])[0]
        stage = self.draw.choice(_KILLED_STAGES)
        self.record |= {"kind": kind, "stage": stage if kind in ("kill", "disk", "clock", "skewed") else "all"}
        if os.path.ismount(self.place):  # of a campaign that was stopped
            subprocess.run(["umount", "--lazy", str(self.place)], check=True)
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        try:
            {
                "kill": self._kill,
                "life": lambda _: [self._kill(name, again=bool(number)) for number, name in enumerate(CHAIN)],
                "disk": self._full_disk,
                "cut": self._cut,
                "clock": self._dates,
                "skewed": self._skewed,
            }[kind](stage)
        finally:
            self._unmount()
        self.record["seconds"] = round(time.monotonic() - start, 2)
        if not self.record["problems"]:
            shutil.rmtree(self.place)
            self.place.with_name(f"{self.place.name}.txt").unlink(missing_ok=True)
        return self.record

    def _kill(self, stage: str, again: bool = False) -> None:
        """Signals at random moments, up to eight of them, and then the command until it ends."""
        if not again:
            self.reference.before(stage, self.place)
        for _ in range(self.draw.randint(1, 8)):
            if self._signalled(stage) == 0:
                break
        else:
            self._until_done(stage)
        self._compare(stage)

    def _signalled(self, stage: str) -> int | None:
        """Exit code of the command, which got a signal unless it had ended before."""
        self.reference.after(stage)  # How long it takes undisturbed.
        if self._is_answered(stage):
            return 0
        number, whom = self.draw.choice(SIGNALS), self.draw.choice(("process", "process", "group", "child"))
        after = self.draw.random() * self.reference.seconds[stage]
        command = Command(STAGES[stage].words, self.place)
        code, facts = command.wait(after), {}
        if sent := code is None:
            hit, children = command.kill(number, whom, self.draw)
            facts = {"signal": signal.Signals(number).name, "whom": hit, "children": children, "at": round(after, 3)}
            self.record["kills"] += 1
            code = command.wait(HANG)
            if code is None:
                self.record["problems"].append(f"{stage}: runs on {HANG} s after {facts['signal']} to {hit}")
                command.kill(signal.SIGKILL, "group", self.draw)
                code = command.wait()
        # Half of the time the next command meets the workers of the one before.
        if self.draw.random() < 0.5 or not sent:
            command.end_group()
        else:
            self._left.append(command)
        self._note(stage, code, command.output, **facts)
        return code

    def _until_done(self, stage: str) -> None:
        for _ in range(MOST_TRIES):
            if self._is_answered(stage):
                break
            command = Command(STAGES[stage].words, self.place)
            start = time.monotonic()
            code = command.wait(HANG)
            if code is None:
                self.record["problems"].append(f"{stage}: runs for more than {HANG} s")
                command.kill(signal.SIGKILL, "group", self.draw)
            elif code == 0:
                # How long it takes now, so that the next kills come before the end on a machine that is less busy.
                self.reference.seconds[stage] = (self.reference.seconds[stage] + time.monotonic() - start) / 2
            command.end_group()
            self._note(stage, code, command.output)
            if code == 0:
                break
        else:
            self.record["problems"].append(f"{stage}: not done after {MOST_TRIES} commands: {command.output[-300:]}")
        self._end_left()

    def _end_left(self) -> None:
        """Wait for the workers of killed drivers."""
        while self._left:
            self._left.pop().end_group()

    def _is_answered(self, stage: str) -> bool:
        """Whether a refine that was killed had answered already; a second one would rightly choose one more round."""
        answer, whole = (
            folder / FOLDER / "recommendation.json" for folder in (self.place, self.reference.after(stage))
        )
        return stage == "refine" and answer.read_bytes() == whole.read_bytes()

    def _note(self, stage: str, code: int | None, output: str, **facts: Any) -> None:
        self.record["events"].append({"stage": stage, "code": code, **facts})
        # An interrupt within Python's own callbacks around a fork is printed and lost; the command goes on.
        output = output if "Exception ignored in: <function _releaseLock" not in output else ""
        if "Traceback" in output or "--debug" in output or code not in _ALLOWED:
            self.record["problems"].append(f"{stage}: exit code {code}: {output[-1500:]}")

    def _compare(self, stage: str, but: Sequence[str] = ()) -> None:
        self._end_left()
        self.record["problems"] += differences(contents(self.place), self.reference.contents(stage), but)

    def _full_disk(self, stage: str) -> None:
        """A disk that is full after some more kilobytes, and then has room: a tmpfs, or else a limit to files."""
        free = int(2 ** self.draw.uniform(2, 11))
        self.record["free_kib"] = free
        source = self.reference.after(STAGES[stage].after)
        used = sum(-(-path.stat().st_size // 4096) * 4 for path in source.rglob("*")) + 64
        mount = ["mount", "-t", "tmpfs", "-o", f"size={used + free}k", "chaos", str(self.place)]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        self.record["disk"] = "tmpfs" if mounted else "RLIMIT_FSIZE"
        self.reference.before(stage, self.place)
        command = Command(STAGES[stage].words, self.place, None if mounted else free << 10)
        code = command.wait()
        command.end_group()
        self._note(stage, code, command.output)
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=200m", str(self.place)], check=True)
        self._until_done(stage)
        self._compare(stage)

    def _unmount(self) -> None:
        if os.path.ismount(self.place):
            copied = self.place.with_name(f"{self.place.name}-kept")
            if self.record["problems"]:
                shutil.copytree(self.place, copied, dirs_exist_ok=True)
            subprocess.run(["umount", str(self.place)], check=True)

    def _dates(self, stage: str) -> None:
        """Every file with a date of its own, within ten years of now; then as a kill."""
        self.reference.before(stage, self.place)
        for path in (self.place / "studies").rglob("*"):
            date = time.time() + self.draw.uniform(-3e8, 3e8)
            os.utime(path, (date, date))
        self._kill(stage, again=True)

    def _skewed(self, stage: str) -> None:
        """A command under a clock that is days off, killed, and then the same under the right clock."""
        if not shutil.which("faketime"):
            self.record["skipped"] = "faketime is not installed"
            return
        self.reference.before(stage, self.place)
        module, *words = STAGES[stage].words
        offset = f"{self.draw.randint(-400, 400):+d}d"
        command = ["faketime", "-f", offset, sys.executable, "-m", processes.__name__, module, *words]
        after, facts = self.draw.uniform(0.5, 6.0), {}
        with open(self.place.with_name(f"{self.place.name}.txt"), "wb") as log:
            options = {"stdout": log, "stderr": log, "env": {**os.environ, "PYTHONPATH": str(_ROOT)}}
            process = subprocess.Popen(command, cwd=self.place, start_new_session=True, **options)
            try:
                code = process.wait(after)
            except subprocess.TimeoutExpired:
                children = psutil.Process(process.pid).children(recursive=True)
                facts = {"signal": "SIGKILL", "whom": "group", "children": len(children), "at": round(after, 3)}
                os.killpg(process.pid, signal.SIGKILL)
                self.record["kills"] += 1
                code = process.wait()
        self.record["offset"] = offset
        self._note(stage, code, Path(log.name).read_text(errors="replace"), **facts)
        if code != 0 or stage != "refine":
            self._until_done(stage)
        self._compare(stage)

    def _cut(self, stage: str) -> None:
        """A file of a finished or killed study cut at a random byte; then what the messages say, until the answer."""
        if self.draw.random() < 0.5:
            shutil.copytree(self.reference.after("recommend"), self.place, dirs_exist_ok=True)
        else:
            self.reference.before("train", self.place)
            self._signalled("train")
        self._end_left()
        files = [path for path in self.place.rglob("*") if path.is_file() and path.stat().st_size and _is_cut(path)]
        # By name, since most files are those of checkpoints.
        name = self.draw.choice(sorted({path.name for path in files}))
        cut = self.draw.choice(sorted(path for path in files if path.name == name))
        at = self.draw.randrange(cut.stat().st_size)
        os.truncate(cut, at)
        self.record |= {"file": str(cut.relative_to(self.place)), "at": at}
        for name in CHAIN:
            for _ in range(MOST_REMEDIES):
                command = Command(STAGES[name].words, self.place)
                code = command.wait(HANG)
                command.end_group()
                self._note(name, code, command.output, **({"refused": command.output[-300:]} if code else {}))
                if code == 0:
                    break
                if not self._remedy(cut, command.output):
                    self.record["problems"].append(f"{name}: no remedy in: {command.output[-300:]}")
                    return
            else:
                self.record["problems"].append(f"{name}: the remedy changes nothing: {command.output[-300:]}")
                return
        # A file that no command of the chain reads, such as a kept checkpoint, stays as it was cut.
        name = self.record["file"]
        self.record["mended"] = contents(self.place).get(name) == self.reference.contents("recommend").get(name)
        self._compare("recommend", [name] if "checkpoints" in cut.parts or cut.name == "spec.yaml" else [])

    def _remedy(self, cut: Path, output: str) -> bool:
        """Do what a message says: delete the file that it names, or give the verb that it names again."""
        said = " ".join(output.split())
        deleted = [word.strip(";,:") for word in said.split(" ") if word.startswith((FOLDER, "data/"))]
        steps: list[tuple[str, Callable[[], object]]] = [
            ("delete it", lambda: _delete(cut)),
            ("delete the file", lambda: _delete(cut)),
            ("remove", lambda: [_delete(self.place / name) for name in deleted if name.endswith("DONE")]),
            (
                "delete",
                lambda: [_delete(self.place / name) for name in deleted if name.endswith("DONE") or "/data" in name],
            ),
            ("plan again", lambda: self._again("plan")),
            ("cptlaw plan", lambda: self._again("plan")),
            ("cptlaw train", lambda: self._again("train")),
            *((f"cptlaw {verb}", lambda verb=verb: self._again(verb)) for verb in CHAIN),
        ]
        done = False
        for words, act in steps:
            if words in said:
                act()
                done = True
        return done

    def _again(self, verb: str) -> None:
        command = Command((CLI, verb, *(WORDS if verb in ("plan", "train", "prepare") else (FOLDER,))), self.place)
        code = command.wait(HANG)
        command.end_group()
        self._note(verb, code, command.output)


def _is_cut(path: Path) -> bool:
    """Whether a cut is to a file that someone may read again; texts are the user's own."""
    return "texts" not in path.parts and not path.name.startswith(".") and path.name != "metrics.jsonl"


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
