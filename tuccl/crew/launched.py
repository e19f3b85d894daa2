"""Hosts behind a launcher: a process on each, started by a command such as `ssh {host} COMMAND`.

Requests go to the command's standard input, answers come from its standard output, and the last
line of its standard error says why it ended.
"""

from __future__ import annotations

import re
import resource
import shlex
import sys
from collections.abc import Sequence

from tuccl.crew.asking import Member
from tuccl.crew.connection import Connection
from tuccl.crew.places import Places, places_of_hosts
from tuccl.crew.worker_process import WorkerProcess, end_processes
from tuccl.errors import MachineError

DEFAULT_LAUNCHER = "ssh -o BatchMode=yes {host}"
_HOST_NAME = re.compile(r"[\w.:%@+~][\w.:%@+~-]*")
"""Names that a launcher cannot take for an option, and a shell takes as one word."""
_FILES_PER_HOST = 3
_OTHER_FILES = 100
_GOODBYE_S = 3.0
"""Time for a process to end by itself."""
_EXIT_S = 1.0
"""Time between the end of a process's connection and its own."""
_HOST = ("-P", "-m", "tuccl.crew.worker", "host")


def launch_command(launcher: str, host: str, python: str = "") -> list[str]:
    """Return the command that starts a process of the crew on a host.

    Args:
        launcher: Command with `{host}` for the host's name and `{command}` for the process's
            command, which is appended if `{command}` is missing.
        host: Name of the host.
        python: Path of Python on that host; empty for the path of this Python.

    Raises:
        MachineError: There is no `{host}`, quotes are unbalanced, or the host's name is invalid.
    """
    if not _HOST_NAME.fullmatch(host):
        raise MachineError(
            f"host {host!a:.60} cannot be given to a launcher: use letters, digits and .:%@+~_-, "
            "no dash in front"
        )
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise MachineError(f"--launcher {launcher!a:.80}: {error}; balance its quotes") from error
    if not any("{host}" in word for word in words):
        raise MachineError(
            f"--launcher {launcher!a:.80} does not say where the host's name goes: write {{host}}"
        )
    process = [python or sys.executable, *_HOST]
    if not any("{command}" in word for word in words):
        words += process
    command: list[str] = []
    for word in words:
        if word == "{command}":
            command += process
        else:
            filled = word.replace("{command}", shlex.join(process))
            command.append(filled.replace("{host}", host))
    return command


class LaunchedPlaces(Places):
    """The places of hosts, on each of which a process starts when this is created."""

    def __init__(
        self, names: Sequence[str], launcher: str, python: str = "", slots: Sequence[int] = ()
    ) -> None:
        """Start the processes.

        Args:
            names: Names of the hosts.
            launcher: As for `launch_command`.
            python: Likewise.
            slots: Number of places on each host; one if left out.

        Raises:
            MachineError: The launcher or a host's name cannot be used.
        """
        commands = [launch_command(launcher, name, python) for name in names]
        _raise_file_limit(len(names))
        counts = slots or [1] * len(names)
        places, served_by = places_of_hosts(list(zip(names, counts, strict=True)))
        super().__init__(places, served_by=served_by)
        self._processes: list[WorkerProcess] = []
        try:
            for number, name in enumerate(names):
                self._hosts[number] = self._launched(name, commands[number])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all workers, then the processes; those that do not end by themselves are killed."""
        super().close()
        for host in self._hosts.values():
            host.lose("it was dismissed")
        end_processes(self._processes, _GOODBYE_S)
        self._processes.clear()

    def _launched(self, name: str, command: Sequence[str]) -> Member:
        try:
            process = WorkerProcess(command, None, talks=True)
        except OSError as error:
            why = f"the launcher cannot be started: {command[0]}: {error.strerror}"
            return Member(name, None, lost=why)
        self._processes.append(process)

        def how_ended() -> str:
            how = process.ended(_EXIT_S)
            if not how:
                return f"it closed the connection: {process.last_words()}"
            return f"the launcher {'was' if how.startswith('killed') else 'ended with'} {how}"

        connection = Connection.behind_launcher(*process.pipes)
        return Member(name, connection, how_ended, process.last_words)


def _raise_file_limit(hosts: int) -> None:
    """Raise the limit of open files to a few for every host; the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = hosts * _FILES_PER_HOST + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MachineError(
            f"{hosts:,} hosts take {needed} open files and this process may open {hard}: raise "
            "that with ulimit -n, or start one task per host with srun or mpirun"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
