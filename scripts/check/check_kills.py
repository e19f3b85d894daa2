"""Kill or stop a random process of `tuccl init` at a random time, and see what comes of the run.

    check_kills.py [--launchers plain,ssh,mpirun,torchrun,srun,ray] [--trials 20] [--seed 1]
                   [--ray head:6379]

`init` tunes one key of two ranks on this host (ssh and Ray: on two hosts that are this one), over
the `sockets` engine; every fourth trial over the simulated one, whose tables must be equal to the
last digit. A trial starts it by a launcher, sends SIGKILL or SIGSTOP to one of its processes after
a random part of the time that a run takes, half of that if it has ended by then, and looks at the
end:

- it comes within --limit seconds, with an exit code of the guide and one line at most. A leader
  that is stopped is continued after 10 s: nobody else can know that it will not go on.
- no process is left 15 s later
- the same command, started again, keeps what was measured and makes the whole table.

For `ray`, --ray names a cluster of two nodes with a GPU each, all of this host, whose environment
has TUCCL_CHECK_KILLS=ray. Launchers that are not installed are left out.

Exit code 0: all of it holds in all trials; 1: not so, and folders of trials that failed stay; 2: a
run that nobody disturbs fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from probes.topology.json_form import topology_to_json  # noqa: E402
from tests.sketches.machines import cluster  # noqa: E402
from tuccl.errors import ExitCode  # noqa: E402

MARK = "TUCCL_CHECK_KILLS"
INIT = ("init", "--topology", "box.json", "--operations", "all_reduce", "--min-size", "1M",
        "--max-size", "1M", "--shapes", "whole", "--json", "--workspace", "workspace")  # fmt: skip
ENGINES: Mapping[str, tuple[str, ...]] = {
    "sockets": ("--backend", "sockets", "--budget", "2s"),
    "simulated": (),
}
EVERY_SIMULATED = 4
LEADER = "the leader"
STOP_SHARE = 1 / 3
CONTINUED_AFTER_S = 10.0
LEFT_AFTER_S = 15.0
ENDS_AFTER_S = 5.0
LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "ssh": (),
    "ray": (),
    "mpirun": ("mpirun", "--oversubscribe", "--allow-run-as-root", "-np", "2"),
    "torchrun": ("torchrun", "--no-python", "--nnodes", "1", "--nproc-per-node", "2",
                 "--master-port", "0"),
    "srun": ("srun", "--ntasks", "2", "--overcommit", "--kill-on-bad-exit"),
}  # fmt: skip
CODES = {
    "plain": {0, 3},
    "ssh": {0, 3},
    "ray": {0, 3},
    # mpirun and srun have the code of a rank that failed, torchrun says 1 for all of them.
    "mpirun": {0, 3, 128 + signal.SIGKILL, 128 + signal.SIGTERM},
    "torchrun": {0, 1},
    "srun": {0, 3, 128 + signal.SIGKILL, 128 + signal.SIGTERM},
}
"""Exit codes by launcher, beside that of a leader that was killed."""


@dataclass(frozen=True)
class Trial:
    """What befalls a run."""

    launcher: str
    number: int
    engine: str
    signal: signal.Signals
    after: float
    """Part of the time that a run takes."""
    victim: float
    """Which process, from 0 to 1 in their order."""

    def describe(self) -> str:
        """The trial in a few words."""
        return f"{self.launcher} {self.number} {self.engine} {self.signal.name} at {self.after:.2f}"


def trials_of(launcher: str, count: int, seed: int) -> list[Trial]:
    """The trials of a launcher."""
    draw = random.Random(f"{launcher} {seed}")  # noqa: S311 - reproducible, not secret
    return [
        Trial(
            launcher,
            number,
            "simulated" if number % EVERY_SIMULATED == EVERY_SIMULATED - 1 else "sockets",
            signal.SIGSTOP if draw.random() < STOP_SHARE else signal.SIGKILL,
            draw.uniform(0.0, 0.95),
            draw.random(),
        )
        for number in range(count)
    ]


@dataclass(frozen=True)
class Command:
    """`tuccl init` by a launcher, in a folder."""

    words: tuple[str, ...]
    folder: Path
    hosts: int

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, with files for what it says."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "box.json").write_text(
            topology_to_json(cluster(self.hosts, 2 // self.hosts, 1))
        )
        with (
            (self.folder / "output").open("wb") as output,
            (self.folder / "errors").open("wb") as errors,
        ):
            return subprocess.Popen(
                self.words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                env={**os.environ, MARK: str(self.folder), "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )  # fmt: skip

    @property
    def errors(self) -> str:
        """What it said."""
        return (self.folder / "errors").read_text(errors="replace")

    @property
    def said(self) -> list[str]:
        """Its own lines on why it ended."""
        return [line for line in self.errors.splitlines() if line.startswith("tuccl: ")]

    @property
    def keys(self) -> list[dict[str, object]]:
        """The keys of its table."""
        keys: list[dict[str, object]] = json.loads((self.folder / "output").read_text())["keys"]
        return keys

    @property
    def log(self) -> bytes:
        """What was measured, in whole lines."""
        found = list(self.folder.glob("workspace/runs/*/measurements.jsonl"))
        content = found[0].read_bytes() if found else b""
        return content[: content.rfind(b"\n") + 1]


def command_of(launcher: str, engine: str, folder: Path, ray: str) -> Command:
    """The command of a launcher."""
    tuccl = (sys.executable, "-P", "-m", "tuccl")
    options = {
        "ssh": ("--hosts", "node1,node2", "--launcher", "env HOST={host}"),
        "ray": ("--ray", ray),
    }.get(launcher, ())
    words = (*LAUNCHERS[launcher], *tuccl, *INIT, *ENGINES[engine], *options)
    return Command(words, folder, 2 if options else 1)


def processes_of(command: Command, of_cluster: bool) -> list[psutil.Process]:
    """Python processes of a run, in the order of their start: the leader first, but no launcher."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline() or [""]
            is_actor = of_cluster and words[0].startswith("ray::RayHost")
            is_python = len(words) > 1 and words[0] == sys.executable and words[1] == "-P"
            mark = process.environ().get(MARK) if is_actor or is_python else None
            if mark == str(command.folder) or (of_cluster and mark == "ray"):
                found.append(process)
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def role_of(process: psutil.Process) -> str:
    """What a process is in its run."""
    words, environment = process.cmdline(), process.environ()
    if words[1:4] == ["-P", "-m", "tuccl"]:
        names = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
        rank = next((environment[name] for name in names if name in environment), "0")
        return LEADER if rank == "0" else f"rank {rank}"
    if words[0].startswith("ray::"):
        return "an actor"
    return "a host process" if words[-1] == "host" else "a worker"


def run_trial(trial: Trial, command: Command, after_s: float, limit_s: float) -> list[str] | None:
    """Run a trial; return what is wrong, or None if the run had ended before."""
    of_cluster = trial.launcher == "ray"
    job = command.start()
    codes, wrong = set(CODES[trial.launcher]), []
    try:
        victim = hit(trial, command, job, after_s)
        if not victim:
            return None
        if victim == LEADER and trial.signal is signal.SIGKILL:
            codes |= {-trial.signal, 1}
        began = time.monotonic()
        try:
            code = job.wait(limit_s)
        except subprocess.TimeoutExpired:
            return [f"{victim}: it has not ended within {limit_s:g} s"]
        took_s, said = time.monotonic() - began, command.said
        print(f"{trial.describe()}: {victim}: {code} after {took_s:.1f} s: {said}", flush=True)
        if len(said) > 1 or (code == ExitCode.ENVIRONMENT and not said):
            wrong.append(f"{victim}: not one line but {len(said)}: {said}")
        if code not in codes:
            wrong.append(f"{victim}: exit code {code}")
        if "tuccl/" in command.errors and "Traceback" in command.errors:
            wrong.append(f"{victim}: a traceback")
        deadline = time.monotonic() + LEFT_AFTER_S
        while left := processes_of(command, of_cluster):
            if time.monotonic() > deadline:
                wrong.append(f"{victim}: left are {', '.join(map(role_of, left))}")
                break
            time.sleep(0.2)
        return wrong
    finally:
        for process in processes_of(command, of_cluster):
            with suppress(psutil.Error):
                process.kill()
        for number in (signal.SIGTERM, signal.SIGKILL):  # srun gives its allocation back.
            if job.poll() is None:
                os.killpg(job.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    job.wait(ENDS_AFTER_S)


def hit(trial: Trial, command: Command, job: subprocess.Popen[bytes], after_s: float) -> str:
    """Send the signal; return which process it went to, nothing if the run has ended."""
    time.sleep(after_s)
    while job.poll() is None:
        processes = processes_of(command, trial.launcher == "ray")
        with suppress(psutil.Error, IndexError):
            chosen = processes[int(trial.victim * len(processes))]
            victim = role_of(chosen)
            chosen.send_signal(trial.signal)
            if victim == LEADER and trial.signal is signal.SIGSTOP:
                time.sleep(CONTINUED_AFTER_S)
                chosen.send_signal(signal.SIGCONT)
            return victim
    return ""


def continued(command: Command, expected: Sequence[Mapping[str, object]], limit_s: float,
              *, exactly: bool) -> Iterator[str]:  # fmt: skip
    """Start a command again; yield what is wrong with its table."""
    before = command.log
    code = command.start().wait(limit_s)
    if code:
        yield f"started again: exit code {code}: {command.said}"
    elif not command.log.startswith(before):
        yield "started again: measurements are lost"
    elif exactly and command.keys != expected:
        yield "started again: another table"
    elif [key["size_bytes"] for key in command.keys] != [key["size_bytes"] for key in expected]:
        yield "started again: keys are missing"


def main() -> int:
    """Run all trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launchers", default=",".join(LAUNCHERS))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--ray", default="")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills."))
    failures = 0
    for launcher in arguments.launchers.split(","):
        missing = LAUNCHERS[launcher][:1] if LAUNCHERS[launcher] else ()
        if any(shutil.which(name) is None for name in missing) or (
            launcher == "ray" and not arguments.ray
        ):
            print(f"{launcher}: left out, for it is not here")
            continue
        expected, takes_s = {}, {}
        for engine in ENGINES:
            command = command_of(launcher, engine, folder / f"{launcher}-{engine}", arguments.ray)
            began = time.monotonic()
            if command.start().wait(arguments.limit) != 0:
                print(f"{launcher}: a run that nobody disturbs fails: {command.errors}")
                return 2
            expected[engine], takes_s[engine] = command.keys, time.monotonic() - began
        print(f"{launcher}: a run takes {takes_s['sockets']:.1f} s", flush=True)
        for trial in trials_of(launcher, arguments.trials, arguments.seed):
            own = folder / f"{launcher}-{trial.number}"
            command = command_of(launcher, trial.engine, own, arguments.ray)
            after_s = trial.after * takes_s[trial.engine]
            while (found := run_trial(trial, command, after_s, arguments.limit)) is None:
                shutil.rmtree(own)
                after_s /= 2
            wrong = list(found)
            shutil.copy(own / "errors", own / "errors-first")
            wrong += continued(command, expected[trial.engine], arguments.limit,
                               exactly=trial.engine == "simulated")  # fmt: skip
            for what in wrong:
                print(f"{trial.describe()}: WRONG: {what}: {own}", flush=True)
            failures += bool(wrong)
            if not wrong:
                shutil.rmtree(own)
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
