"""A root directory like a container's, in which a job of the stand-in of NCCL is started."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lookup_tables.collective import Collective
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import (
    BuiltinConfig,
    Entry,
    Key,
    NcclAlgorithm,
    NcclProtocol,
    Shape,
    StoredSchedule,
    Table,
)
from tests.runtime.builds import compile_native
from tests.tuccl.measuring.engines.nccl_stand_ins import NATIVE, StandIns
from tests.tuccl.tuned_tables import FOUR_GPUS, tuned
from tuccl.workspace.runs import Run

PLACE = "/opt/tuccl"
"""Where jobs in the root find the shipped directory."""
PROFILE = {"NCCL_BUFFSIZE": "1048576", "NCCL_NTHREADS": "256"}
_LOADED = re.compile(r"TuCCL: (\S.*)/bundle-[0-9a-f]{8}\.tuccl \(CRC ([0-9a-f]{8})\): 1 entries")
_NEEDED = re.compile(r"(/\S+) \(0x")


def run_of_one_rank(
    root: Path,
    profile: Mapping[str, str] | None = None,
    schedules: Sequence[StoredSchedule] = (),
) -> Run:
    """A run whose table has an entry for one rank."""
    ring = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 4)
    key = Key(Collective.ALL_REDUCE, 1024, 4095, Shape(1, 1, 1), "test")
    entry = Entry(key, 1024, ring, None, 1.0, 1.0, 2.0, 5, 0.0, "2026-01-02T03:04:05Z")
    settings = PROFILE if profile is None else profile
    table = Table("test", "test", (), (entry,), settings, tuple(schedules))
    root.mkdir()
    run = Run(root)
    run.table.write_bytes(table_to_parquet_bytes(table))
    run.report.write_text(tuned(FOUR_GPUS)[1].model_dump_json())
    return run


@dataclass(frozen=True)
class Started:
    """A job that has ended."""

    code: int
    complaints: str
    loaded: tuple[str, str] | None
    """Directory and sum of the table that NCCL's log says the plugin loaded."""


@dataclass(frozen=True)
class JobRoot:
    """A root directory with a shell, the job and NCCL, and nothing of the host's environment."""

    root: Path

    def run(
        self, command: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the root with these variables alone."""
        within = ["unshare", "--map-root-user", "--root", str(self.root), "--wd", "/"]
        return subprocess.run(
            [*within, *command],
            env=dict(variables or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            executable=shutil.which("unshare"),
        )

    def job(
        self, variables: Mapping[str, str] | None = None, script: str = "", shell: str = "/bin/sh"
    ) -> Started:
        """Start a job, after a script of its shell if one is given."""
        for log in self.root.glob("log.*"):
            log.unlink()
        given = {"NCCL_DEBUG_FILE": "/log.%p", "LD_LIBRARY_PATH": "/lib/nccl", **(variables or {})}
        command = [shell, "-euc", f"{script}\n/bin/job"] if script else ["/bin/job"]
        done = self.run(command, given)
        text = "".join(log.read_text() for log in self.root.glob("log.*"))
        found = _LOADED.search(text)
        loaded = None if found is None else (found[1], found[2])
        return Started(done.returncode, done.stderr, loaded)


def make_job_root(root: Path, stand_ins: StandIns, programs_too: Sequence[str] = ()) -> JobRoot:
    """A root with sh (dash), bash, and other programs where this host has them."""
    root.mkdir()
    job = compile_native(root / "job", [NATIVE / "start_communicator.c"], "-ldl")
    programs = {"bin/job": job, "bin/sh": Path("/bin/sh")}
    tools = ("bash", "dash", "readlink", "cp", "mv", "mkdir", "dirname", "cmp", "rm")
    for name in (*tools, *programs_too):
        if (path := shutil.which(name, path="/usr/bin:/bin")) is not None:
            programs[f"bin/{name}"] = Path(path)
    for name, program in programs.items():
        _put(root, name, program)
        for library in _NEEDED.findall(_listed(program)):
            _put(root, library.lstrip("/"), Path(library))
    _put(root, "lib/nccl/libnccl.so.2", stand_ins.nccl)
    for folder in ("dev/shm", "opt", "etc", "tmp"):
        (root / folder).mkdir(parents=True)
    made = JobRoot(root)
    tried = made.run(["/bin/sh", "-c", ":"])
    if tried.returncode != 0:
        pytest.skip(f"unshare cannot change the root here: {tried.stderr.strip()}")
    return made


def _listed(program: Path) -> str:
    return subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout


def _put(root: Path, name: str, source: Path) -> None:
    target = root / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def unloadable(folder: Path) -> Path:
    """A library that needs a C library which does not exist."""
    source = folder / "new.c"
    source.write_text('#include <stdlib.h>\nint new(void) { return atoi(getenv("x")); }\n')
    library = compile_native(folder / "new.so", [source], "-shared")
    data = library.read_bytes()
    assert b"GLIBC_2." in data
    library.write_bytes(data.replace(b"GLIBC_2.", b"GLIBC_9."))
    return library
