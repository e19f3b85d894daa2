"""Run jobs that start, split and destroy communicators beside a full or hostile /dev/shm.

The executor's host side runs over stand-ins of NCCL and CUDA whose ranks are threads of several
processes (tests/runtime/executor/shm_job.cc), with address and undefined behaviour sanitizers, and
each attempt has its own /dev/shm. It is full, or other processes, of another user or of the job's
user, change every file in it or fill and empty it repeatedly.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attack_findings import Findings

from tests.runtime.builds import CC, CXX, SANITIZERS
from tests.runtime.shm_job import compile_shm_job, link_shm_job

MOST_S = 120.0
"""Time limit of an attempt; its ranks end after 20 s without progress."""
_JOB_USER = 65533
_ROOM = "size=4m,mode=1777"
_NO_STICKY_BIT = "size=4m,mode=0777"
_TINY = "size=64k,mode=1777,nr_inodes=20"
_COUNTED = {
    "served": "communicators served",
    "nccl": "left to NCCL",
    "failed": "starts that failed",
}


@dataclass(frozen=True)
class Kind:
    """A kind of attempt."""

    name: str
    mount_options: str
    """Mount options of its /dev/shm."""
    draw: Callable[[random.Random], dict[str, int]]
    """Draws the options of shm_job other than the job's size."""
    takes_root: bool = False


KINDS = (
    Kind("a full /dev/shm", _TINY, lambda rng: {"free_pages": rng.randrange(5)}),
    Kind("no free inodes", _TINY, lambda rng: {"free_inodes": rng.randrange(4)}),
    Kind("other user", _ROOM, lambda rng: _strangers(rng) | {"must_serve": 1}, takes_root=True),
    Kind(
        "other user, no sticky bit",
        _NO_STICKY_BIT,
        lambda rng: _strangers(rng) | {"leaves_own": 1},
        takes_root=True,
    ),
    Kind(
        "other user who fills it",
        _TINY,
        lambda rng: {"fillers": rng.randrange(1, 3), "user": _user(rng)},
        takes_root=True,
    ),
    Kind(
        "rolls on the network beside a full /dev/shm and other users",
        _TINY,
        lambda rng: {"across_hosts": 1, "free_pages": 0, "must_serve": 1, **_strangers(rng)},
        takes_root=True,
    ),
    Kind(
        "same user",
        _ROOM,
        lambda rng: {
            "twins": rng.randrange(1, 4),
            "user": _user(rng),
            "may_fail": 1,
            "leaves_own": 1,
        },
    ),
)


def attack(
    seconds: float,
    seed: int,
    folder: Path,
    first: int = 0,
    kinds: tuple[Kind, ...] = KINDS,
    job: Path | None = None,
) -> dict[str, int]:
    """Disturb jobs, whose timing is free; outcomes are how communicators were served.

    Without a compiled job the attack compiles one.
    """
    reason = obstacle()
    if reason:
        print(f"attack: shm is skipped: {reason}", file=sys.stderr)
        return {"attempts": 0, "failures": 0, "skipped": 1}
    end = time.monotonic() + seconds
    findings = Findings("shm", seed, folder)
    tried = [kind for kind in kinds if os.geteuid() == 0 or not kind.takes_root]
    for kind in kinds:
        if kind not in tried:
            print(f"attack: shm: {kind.name} is skipped: it takes root", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tuccl-attack-") as place:
        if job is None:
            objects = compile_shm_job(Path(place), SANITIZERS["memory"])
            job = link_shm_job(Path(place), objects, SANITIZERS["memory"])
        for number, rng in findings.attempts(end - time.monotonic(), first):
            kind = tried[number % len(tried)]
            findings.counts[f"attempts with {kind.name}"] += 1
            _attempt(number, command_of(job, kind, rng), kind, findings)
    return dict(findings.counts)


def obstacle() -> str:
    """Why this attack cannot run on this machine; empty if it can."""
    missing = [name for name in ("unshare", CXX, CC) if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]} here"
    command = [*_own_shm(_ROOM), "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this user cannot mount a /dev/shm of its own: {tried.stderr.strip()}"
    return ""


def command_of(job: Path, kind: Kind, rng: random.Random) -> list[str]:
    """The command of an attempt."""
    processes, threads = rng.choice(((2, 1), (2, 2), (3, 1), (4, 1), (2, 3), (1, 3)))
    options = {
        "seed": rng.randrange(1 << 20),
        "jobs": rng.randrange(1, 3),
        "processes": processes,
        "threads": threads,
        "lives": rng.randrange(1, 5),
        "rounds": rng.randrange(1, 9),
        **kind.draw(rng),
    }
    return [
        *_own_shm(kind.mount_options),
        "env",
        f"LD_LIBRARY_PATH={job.parent}",
        str(job),
        *(f"{name}={value}" for name, value in options.items()),
    ]


def _strangers(rng: random.Random) -> dict[str, int]:
    return {"strangers": rng.randrange(1, 4), "user": _user(rng)}


def _user(rng: random.Random) -> int:
    """User of the disturbing processes: under root, root or another user; else the caller."""
    return rng.choice((0, _JOB_USER)) if os.geteuid() == 0 else 0


def _own_shm(mount_options: str) -> list[str]:
    """The prefix of a command that runs with its own /dev/shm."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount -t tmpfs -o {mount_options} tmpfs /dev/shm && exec "$@"'
    return ["unshare", "--mount", *user, "sh", "-c", script, "sh"]


def _attempt(number: int, command: list[str], kind: Kind, findings: Findings) -> None:
    output = findings.folder / "output.txt"
    with output.open("w") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, check=False, timeout=MOST_S
            ).returncode
            ended = "" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = f"took more than {MOST_S:g} s"
    said = output.read_text(errors="replace")
    for name, count in re.findall(r"\b(served|nccl|failed)=(\d+)", said):
        findings.counts[_COUNTED[name]] += int(count)
    if ended:
        told = re.findall(r"^failure: (.*)$", said, re.MULTILINE)
        output.write_text(f"{' '.join(command)}\n{said}")
        findings.failed(number, f"{kind.name}, {ended}: {'; '.join(told)}", output)
    output.unlink()
