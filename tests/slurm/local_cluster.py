#!/usr/bin/env python3
"""A two-node Slurm on one machine, for testing batch scripts.

  eval "$(tests/slurm/local_cluster.py up)"      start it, and point this shell at it
  sinfo; sbatch slurm/one-run.sbatch
  tests/slurm/local_cluster.py fail 127.0.0.2    a node fails with its jobs; `up` restores it
  tests/slurm/local_cluster.py down              cancel all jobs and stop it

All its files are in one folder. It starts its own daemons, munged included, and stops them by their pid files; another
Slurm on this machine is not touched. It does not need root; without root it runs jobs of its user only. The nodes are
named by addresses of this machine (127.0.0.1, 127.0.0.2), so that each resolves the other. The GPUs are names only:
Slurm allocates them, nothing computes on them.

Without `up --accounting`, sacct fails. With it, a MariaDB and a slurmdbd of the cluster's own record every job. Its
user is registered in the account `main`, limits and qualities of service hold (sacctmgr sets them), and a job of the
partition `urgent` preempts those of `main`, which are queued again.
"""

import argparse
import os
import pwd
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

APT = "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
APT_ACCOUNTING = "apt-get install --no-install-recommends slurmdbd mariadb-server-core mariadb-client-core"
NEEDED = {
    APT: ("munged", "slurmctld", "slurmd", "sinfo"),
    APT_ACCOUNTING: ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr"),
}
CONF = """\
# Made by tests/slurm/local_cluster.py, and removed by it. Nodes and the partition follow at the end.
ClusterName=local
SlurmUser={user}
SlurmdUser={user}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
# A requeued job waits until its old credential has expired: 5 s, not two minutes.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
SlurmdPidFile={folder}/pid/slurmd-%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=5,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
# A node that is silent for a minute is down.
SlurmdTimeout=60
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=3600
{accounting}
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
"""
NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/socket
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE"""
SLURMDBD = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
PidFile={folder}/pid/slurmdbd
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
"""


def missing(accounting: bool) -> str:
    """The programs that are not installed, and how to install them; empty: none."""
    for packages in (APT, APT_ACCOUNTING) if accounting else (APT,):
        if absent := [program for program in NEEDED[packages] if not _program(program)]:
            return f"{', '.join(absent)}: not installed; {packages}"
    return ""


def up(folder: Path, nodes: int, cpus: int, gpus: int, accounting: bool) -> int:
    """Start every daemon that is not running; the options apply to a new cluster only."""
    is_new = not any(_pid(folder, daemon) for daemon in _daemons(folder))
    if lack := missing(is_new and accounting):
        print(lack, file=sys.stderr)
        return 3
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, nodes, cpus, gpus, accounting)
    for daemon, command in _daemons(folder).items():
        if _pid(folder, daemon) is None:
            if error := _start(folder, command):
                print(f"{' '.join(command)}: {error}", file=sys.stderr)
                return 1
            _until(lambda daemon=daemon: _pid(folder, daemon) is not None, 30)
        if daemon == "slurmdbd" and is_new and (error := _register(folder)):
            print(f"{error}; see {folder / 'log'}", file=sys.stderr)
            return 1
    if not _until(lambda: all(state in ("idle", "mixed", "allocated") for state in _states(folder).values()), 30):
        print(f"nodes not ready after 30 s: {_states(folder)}; see {folder / 'log'}", file=sys.stderr)
        return 1
    print(f"export SLURM_CONF={shlex.quote(str(folder / 'slurm.conf'))}")
    return 0


def down(folder: Path) -> int:
    """Cancel all jobs, stop the daemons, remove the folder."""
    daemons = _daemons(folder)
    if _pid(folder, "slurmctld") and (jobs := _ask(folder, "squeue", "--noheader", "--format=%A").split()):
        _ask(folder, "scancel", *sorted(set(jobs)))
        _until(lambda: not _ask(folder, "squeue", "--noheader"), 15)
    for daemon in reversed(daemons):
        _end([_pid(folder, daemon)])
    _end(_steps(folder), signal.SIGKILL)
    if daemons:
        shutil.rmtree(folder)
    return 0


def fail(folder: Path, node: str) -> int:
    """Kill a node and its jobs, and mark it as down in the controller."""
    daemon = f"slurmd-{node}"
    if daemon not in _daemons(folder):
        nodes = [name.removeprefix("slurmd-") for name in _daemons(folder) if name.startswith("slurmd-")]
        print(f"{node}: no node of {folder}; allowed: {', '.join(nodes)}", file=sys.stderr)
        return 2
    _end([_pid(folder, daemon)], signal.SIGKILL)
    _end(_steps(folder, node), signal.SIGKILL)
    _ask(folder, "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=failed")
    return 0


def _write(folder: Path, nodes: int, cpus: int, gpus: int, accounting: bool) -> None:
    # Readable, so that others may submit too.
    folder.mkdir(mode=0o755, parents=True)
    for part in ("state", "spool", "pid", "log", "gpu"):
        (folder / part).mkdir()
    (folder / "munge").mkdir(mode=0o711)
    (folder / "munge" / "key").touch(mode=0o600)
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(128))
    names = [f"127.0.0.{number + 1}" for number in range(nodes)]
    *ports, database_port = _free_ports(nodes + 2)
    host, user = socket.gethostname().split(".")[0], pwd.getpwuid(os.getuid()).pw_name
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 // nodes
    storage = ACCOUNTING.format(folder=folder, port=database_port) if accounting else NO_ACCOUNTING
    text = CONF.format(folder=folder, user=user, host=host, port=ports[0], accounting=storage)
    for name, port in zip(names, ports[1:]):
        (folder / "spool" / name).mkdir()
        text += f"NodeName={name} NodeHostname={host} NodeAddr={name} Port={port} "
        text += f"CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus}\n"
    text += f"PartitionName=main Nodes={','.join(names)} Default=YES MaxTime=INFINITE State=UP\n"
    if accounting:
        text += f"PartitionName=urgent Nodes={','.join(names)} PriorityTier=2 MaxTime=INFINITE State=UP\n"
        (folder / "slurmdbd.conf").touch(mode=0o600)
        (folder / "slurmdbd.conf").write_text(SLURMDBD.format(folder=folder, user=user, port=database_port))
    for number in range(gpus):
        # Slurm requires a device file for each GPU.
        (folder / "gpu" / str(number)).symlink_to("/dev/null")
    if gpus:
        (folder / "gres.conf").write_text(f"NodeName={','.join(names)} Name=gpu File={folder}/gpu/[0-{gpus - 1}]\n")
    (folder / "slurm.conf").write_text(text)


def _start(folder: Path, command: list[str]) -> str:
    """Start a daemon; returns its error, or an empty string."""
    words: dict[str, Any] = {"env": _environment(folder), "stdin": subprocess.DEVNULL}
    if not command[0].endswith("mariadbd"):
        started = subprocess.run(command, capture_output=True, text=True, **words)
        return started.stderr.strip() or "failed" if started.returncode else ""
    data = folder / "mariadb" / "data"
    if not data.exists():
        install = [_program("mariadb-install-db") or "", "--skip-test-db", "--skip-name-resolve", *command[1:]]
        # The user of the cluster is the database's root, by the socket, without a password.
        install += ["--auth-root-authentication-method=socket"]
        made = subprocess.run(install, capture_output=True, text=True, **words)
        if made.returncode:
            return made.stderr.strip() or made.stdout.strip()
    with open(folder / "log" / "mariadbd.log", "a") as log:
        # It does not fork by itself.
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **words)
    return ""


def _register(folder: Path) -> str:
    """Register cluster, account and user in a new database; returns an error, or an empty string."""

    def add(*words: str) -> str:
        command = ["sacctmgr", "--immediate", "--quiet", "add", *words]
        done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True)
        return f"{' '.join(command)}: {done.stderr.strip()}" if done.returncode else ""

    # A new slurmdbd makes its tables first, and refuses connections meanwhile.
    if not _until(lambda: not add("cluster", "local"), 60):
        return "sacctmgr: no answer of slurmdbd within 60 s"
    user = pwd.getpwuid(os.getuid()).pw_name
    return add("account", "main") or add("user", user, "account=main", "defaultaccount=main")


def _daemons(folder: Path) -> dict[str, list[str]]:
    """The command of each daemon by the name of its pid file, in the order in which they start."""
    conf, munge = folder / "slurm.conf", folder / "munge"
    if not conf.exists():
        return {}
    # Forced, since munged rejects the permissions of a private folder.
    words = ["munged", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key", f"--seed-file={munge}/seed"]
    commands = {"munged": [*words, f"--pid-file={folder}/pid/munged", f"--log-file={folder}/log/munged.log"]}
    if (folder / "slurmdbd.conf").exists():
        commands["mariadbd"] = [
            *("mariadbd", "--no-defaults", f"--user={pwd.getpwuid(os.getuid()).pw_name}", "--skip-networking"),
            *(f"--datadir={folder}/mariadb/data", f"--socket={folder}/mariadb/socket"),
            *(f"--pid-file={folder}/pid/mariadbd", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"),
        ]
        commands["slurmdbd"] = ["slurmdbd"]
    commands["slurmctld"] = ["slurmctld", "-f", str(conf)]
    for node in sorted(path.name for path in (folder / "spool").iterdir()):
        commands[f"slurmd-{node}"] = ["slurmd", "-f", str(conf), "-N", node]
    return {name: [_program(command[0]) or command[0], *command[1:]] for name, command in commands.items()}


def _pid(folder: Path, daemon: str) -> int | None:
    """Process id of a running daemon; a pid file may be older than the last boot."""
    try:
        pid = int((folder / "pid" / daemon).read_text())
        # Of slurmdbd only the environment has the folder.
        process = Path(f"/proc/{pid}")
        return pid if any(f"{folder}/" in (process / of).read_text() for of in ("cmdline", "environ")) else None
    except (OSError, ValueError):
        return None


def _steps(folder: Path, node: str = "") -> list[int]:
    """Process ids of the running job steps of the cluster or a node, and of their children, children last."""
    # The open log of their slurmd identifies them.
    logs = f"{folder}/log/slurmd-{node}" + (".log" if node else "")
    steps: list[int] = []
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append(int(process.name))
            if (process / "exe").readlink().name.startswith("slurmstepd") and any(
                str(file.readlink()).startswith(logs) for file in (process / "fd").iterdir()
            ):
                steps.append(int(process.name))
        except OSError:
            continue
    for pid in steps:
        steps += [child for child in children.get(pid, []) if child not in steps]
    return steps


def _end(pids: Sequence[int | None], number: int = signal.SIGTERM) -> None:
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    _until(lambda: not any(map(runs, pids)), 15)


def runs(pid: int | None) -> bool:
    """Whether there is a process of that id, which is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _states(folder: Path) -> dict[str, str]:
    lines = _ask(folder, "sinfo", "--Node", "--noheader", "--partition=main", "--format=%N %T").splitlines()
    return dict(line.split() for line in lines) or {"all": "unknown"}


def _ask(folder: Path, *command: str) -> str:
    return subprocess.run(command, env=_environment(folder), capture_output=True, text=True).stdout


def _environment(folder: Path) -> dict[str, str]:
    # slurmdbd has no key for the socket of its database.
    database = {"MYSQL_UNIX_PORT": str(folder / "mariadb" / "socket")}
    return {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), **database}


def _program(name: str) -> str | None:
    # The daemons are in folders of root's PATH.
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("up", "down", "fail"))
    parser.add_argument("node", nargs="?", help="of fail: the node")
    default = Path(tempfile.gettempdir()) / f"cptlaw-cluster-{os.getuid()}"
    parser.add_argument("--folder", type=Path, default=default, help="folder of all its files (%(default)s)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of a new cluster (%(default)s)")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of each node, in name only (%(default)s)")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of each node, names only (%(default)s)")
    text = "sacct, accounts, limits, and preemption, in a new cluster; needs MariaDB"
    parser.add_argument("--accounting", action="store_true", help=text)
    given = parser.parse_args()
    if (given.node is not None) != (given.verb == "fail"):
        parser.error("fail takes one node; up and down none")
    folder = given.folder.absolute()
    if folder.exists() and not _is_ours(folder):
        parser.error(f"--folder {folder}: not made by this script and this user; choose a folder that does not exist")
    if given.verb == "up":
        return up(folder, given.nodes, given.cpus, given.gpus, given.accounting)
    return fail(folder, given.node) if given.verb == "fail" else down(folder)


def _is_ours(folder: Path) -> bool:
    conf, mark = folder / "slurm.conf", CONF.splitlines()[0]
    return conf.is_file() and conf.stat().st_uid == os.getuid() and conf.read_text().startswith(mark)


if __name__ == "__main__":
    sys.exit(main())
