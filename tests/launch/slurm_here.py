"""A real Slurm on this machine alone: a controller and some nodes on loopback, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
START_SECONDS = 30.0


def _missing() -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [program for program in PROGRAMS if shutil.which(program, path=path) is None]


NEEDS_SLURM = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or bool(_missing()),
        reason="needs root and Slurm: run `make system` as root, then the tests as root",
    ),
]

CONFIGURATION = """\
ClusterName=stash
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
CommunicationParameters=NoInAddrAny
SrunPortRange={ports}
{nodes}
PartitionName=here Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A cluster that runs."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """With this, Slurm's own commands reach it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}


@contextlib.contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Slurm]:
    """Munge, a controller and some nodes, each a process of ours."""
    folder.chmod(0o755)
    ports = _free_ports(nodes + 1)
    _write_configuration(folder, nodes, ports)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    slurm = Slurm(folder)
    with contextlib.ExitStack() as running:

        def start(*command: str) -> None:
            log = running.enter_context((folder / f"{Path(command[0]).name}.out").open("ab"))
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slurm.environment},
                start_new_session=True,
            )
            running.callback(_end, process)

        munge = {"socket": "socket", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        files = [f"--{option}={folder}/munge.{name}" for option, name in munge.items()]
        start("/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", *files)
        _wait_for(lambda: (folder / "munge.socket").exists(), folder)
        start("/usr/sbin/slurmctld", "-D", "-i")
        for node in range(nodes):
            start("/usr/sbin/slurmd", "-D", "-N", f"n{node}")
        _wait_for(lambda: _idle(slurm) == nodes, folder)
        yield slurm


def _write_configuration(folder: Path, nodes: int, ports: list[int]) -> None:
    for name in ("state", *(f"spool-n{node}" for node in range(nodes))):
        (folder / name).mkdir()
    cores = os.cpu_count() or 1
    lines = [
        f"NodeName=n{node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 "
        f"Port={ports[node + 1]} CPUs={cores} State=UNKNOWN"
        for node in range(nodes)
    ]
    text = CONFIGURATION.format(
        host=socket.gethostname(),
        controller=ports[0],
        folder=folder,
        ports="40000-45000",
        nodes="\n".join(lines),
    )
    (folder / "slurm.conf").write_text(text)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _idle(slurm: Slurm) -> int:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%N %T"],
        env={**os.environ, **slurm.environment},
        capture_output=True,
        text=True,
    )
    return sum(line.endswith(" idle") for line in done.stdout.splitlines())


def _wait_for(is_so: object, folder: Path) -> None:
    assert callable(is_so)
    end = time.monotonic() + START_SECONDS
    while not is_so():
        if time.monotonic() > end:
            logs = [path.read_text(errors="replace")[-1500:] for path in folder.glob("*.log")]
            pytest.fail("Slurm did not start:\n" + "\n".join(logs))
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
