"""A real Slurm on this machine: two pretended nodes with two pretended GPUs each, in a folder of its own, without root's Slurm."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo", "sacct")
PROGRAMS = ("munged", "slurmctld", "slurmd", *CLIENTS)

CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
# By process group: nothing here leaves its own, and without cgroups that is as near as it gets to a cluster. linuxproc goes
# by parents and loses what survives its parent, such as a Snakemake whose batch shell died of the SIGTERM (docs/log.md).
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# More CPUs than the machine has: trainings of a test need little, and wait for each other otherwise.
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=100000
MpiDefault=none
# As on clusters without a database: sacct is there and answers nothing.
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
# Ended jobs are remembered for as long as a test may ask for them.
MinJobAge=7200
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
GresTypes=gpu
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=16 RealMemory=2000000 Gres=gpu:2
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=n[1-2] MaxTime=INFINITE State=UP
"""

#: Seconds after which something that should happen counts as not happening. Nothing waits longer than it must.
PATIENCE = float(os.environ.get("RESPATH_TEST_PATIENCE", "300"))

#: Devices that every machine has, so that Slurm hands out CUDA_VISIBLE_DEVICES.
GPUS = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"


def missing_programs() -> list[str]:
    """Programs of Slurm and munge that are not installed (Debian packages slurm-wlm and munge)."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def _free_ports() -> list[int]:
    """Three ports of the loopback, the last two next to each other (nodes have a range)."""
    for first in range(20000 + os.getpid() % 20000, 60000, 3):
        sockets = []
        try:
            for port in range(first, first + 3):
                sockets.append(socket.create_server(("127.0.0.1", port)))
            return [first, first + 1, first + 2]
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no free ports")


class Slurm:
    """The daemons, and what tests ask them. ``environment`` makes sbatch and its like talk to this Slurm."""

    def __init__(self):
        # Not pytest's folder: the path of a socket may have a hundred letters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="respath-slurm-"))
        # munged wants its socket to be within everybody's reach.
        self.folder.chmod(0o755)
        self.environment = {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")]),
        }
        self._daemons: list[subprocess.Popen] = []

    def start(self) -> None:
        """Start all daemons and wait until both nodes take jobs."""
        for name in ("state", "spool/n1", "spool/n2", "log", "bin"):
            (self.folder / name).mkdir(parents=True)
        self._wrap_clients()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        content = CONFIGURATION.format(folder=self.folder, ports=_free_ports(), user=_user_name())
        (self.folder / "slurm.conf").write_text(content)
        (self.folder / "gres.conf").write_text(GPUS)
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid"}
        files |= {"log-file": "log/munged.log", "seed-file": "munged.seed"}
        self._daemon(
            "munged", "--foreground", *(f"--{key}={self.folder / name}" for key, name in files.items())
        )
        self.until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"])
        self.until(
            lambda: self.ask("sinfo", "--noheader", "--format=%T", check=False).split() == ["idle"],
            "idle nodes",
        )

    def _wrap_clients(self) -> None:
        """Clients that know this Slurm by themselves, as those of a cluster do.

        The jobstep plugin removes SLURM_CONF, with all of Slurm's variables, before it calls srun in a job.
        """
        for name in CLIENTS:
            wrapper = self.folder / "bin" / name
            wrapper.write_text(
                f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which(name)} "$@"\n'
            )
            wrapper.chmod(0o755)

    def _daemon(self, *command: str) -> None:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        program = shutil.which(command[0], path=path)
        with (self.folder / "log" / f"{command[0]}-{len(self._daemons)}.out").open("w") as out:
            self._daemons.append(
                subprocess.Popen(
                    [program, *command[1:]], stdout=out, stderr=out, env={**os.environ, **self.environment}
                )
            )

    def stop(self) -> None:
        """End the jobs and what is left of them, then the daemons that ``start`` started, and remove the folder."""
        try:
            for job in self.jobs():
                self.ask("scancel", job, check=False)
            self.until(lambda: not self.jobs(), "the last job's end", seconds=60)
        finally:
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for daemon in reversed(self._daemons):
                daemon.terminate()
            for daemon in self._daemons:
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *command: str, check: bool = True) -> str:
        """Output of a Slurm command."""
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **self.environment}, timeout=PATIENCE
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self, comment: str = "") -> dict[str, str]:
        """State by id of the jobs that have not ended and whose comment (rule and wildcards) has this text in it."""
        rows = self.ask("squeue", "--noheader", "--format=%i|%T|%k", check=False).splitlines()
        cells = [row.split("|", 2) for row in rows]
        return {number: state for number, state, text in cells if comment in text}

    def processes(self) -> dict[int, str]:
        """Command by id of the processes that jobs left or still have: the daemons' are none, as no job's number is in their environment."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_text(errors="replace")
                if str(self.folder) in variables and "SLURM_JOB_ID=" in variables:
                    command = (folder / "cmdline").read_text(errors="replace")
                    found[int(folder.name)] = command.replace("\0", " ")
            except OSError:  # Ended, or another user's.
                continue
        return found

    def until_nothing_is_left(self) -> None:
        """Wait for the last process of all jobs; longer than Slurm waits between SIGTERM and SIGKILL (``KillWait``, 30 s)."""
        self.until(lambda: not self.processes(), "the end of the jobs' last process", seconds=60)

    def states(self) -> dict[str, str]:
        """State by id of all jobs, ended ones too."""
        rows = self.ask("squeue", "--noheader", "--states=all", "--format=%i|%T").splitlines()
        return dict(row.split("|") for row in rows)

    def describe(self, job: str) -> dict[str, str]:
        """What ``scontrol show job`` says."""
        words = self.ask("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def until(self, condition, what: str, seconds: float = PATIENCE) -> None:
        """Wait for a condition; fails with the daemons' logs when it is not met in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            ended = [daemon.args[0] for daemon in self._daemons if daemon.poll() is not None]
            assert not ended, f"{ended} ended\n{self.said()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.said()}"
            time.sleep(0.05)

    def said(self) -> str:
        """The ends of the daemons' logs, the jobs and their processes."""
        parts = []
        for path in sorted((self.folder / "log").iterdir()):
            parts.append(f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        parts.append(self.ask("squeue", "--states=all", check=False))
        parts += [f"{process} {command[:200]}" for process, command in self.processes().items()]
        return "\n".join(parts)


def _user_name() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
