"""Checks of libraries: which NCCL a job would load, whether it takes the plugin, and LD_PRELOAD.

The plugin is opened, and libraries are preloaded, in processes of their own, as the loader of a job
would do it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from lookup_tables.provenance import NcclVersion
from tuccl.errors import NcclLibraryError, OldNcclError
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, NcclLibrary, find_nccl
from tuccl.measuring.engines.nccl_variables import PLUGIN_VARIABLE
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.runtime.executor_library import PRELOAD_VARIABLE
from tuccl.shipping.doctor.elf import ElfLibrary, read_elf
from tuccl.shipping.doctor.findings import Finding, error, note, ok, warning
from tuccl.shipping.doctor.job_view import JobView

_ABI = re.compile(r"ncclTunerPlugin_v(\d+)")
_FIRST_RELEASES = {2: (2, 21), 3: (2, 22), 4: (2, 24), 5: (2, 28), 6: (2, 30), 7: (2, 32, 6)}
"""First release of NCCL that loads each version of the tuner ABI."""
_WITHOUT_PATHS = (2, 27, 3)
"""NCCL's release that takes no path in NCCL_TUNER_PLUGIN."""
_OPEN = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
_LIMIT_S = 20.0
_IGNORED = re.compile(r"cannot be preloaded \(([^)]*)\): ignored")
"""Line of glibc's loader on a library that it leaves out."""
_SHIP = "ship from a host with an older C library, or in the job's container"


def find_job_nccl(environment: Mapping[str, str]) -> tuple[NcclLibrary | None, list[Finding]]:
    """Return the NCCL that a job would load here, where that is clear, and findings on it."""
    try:
        found = find_nccl(None, environment)
    except OldNcclError as old:
        return None, [error("NCCL", str(old), "install NCCL 2.21.5 or newer for the job")]
    except NcclLibraryError as missing:
        mend = f"in the job's own environment: {LIBRARY_VARIABLE}=PATH tuccl doctor"
        return None, [note("NCCL", f"which NCCL the job loads is not known: {missing}", mend)]
    findings = [ok("NCCL", f"NCCL {found.version_text} in {found.path} ({found.source})")]
    if found.others:
        findings.append(note("NCCL", found.note))
    return found, findings


def check_version(job: JobView) -> Iterator[Finding]:
    """Compare the job's NCCL with the one that the table was measured with."""
    wanted = job.value("TUCCL_NCCL")
    if job.nccl is not None and wanted and job.nccl.version_text != wanted:
        yield warning(
            "NCCL",
            f"the table was measured with NCCL {wanted}, whose times and choices differ from "
            f"those of {job.nccl.version_text}",
            "tuccl retune, with the job's NCCL, and tuccl ship",
        )


def check_plugin(job: JobView) -> Iterator[Finding]:
    """Check that the job's NCCL would load the plugin."""
    named, place = job.value(PLUGIN_VARIABLE), job.place(PLUGIN_VARIABLE)
    mend = "source tuccl.env"
    if not named:
        yield error("plugin", f"{PLUGIN_VARIABLE} is not set: NCCL loads no plugin of TuCCL", mend)
        return
    if Path(named).name != PLUGIN_NAME:
        yield error(
            "plugin",
            f"{PLUGIN_VARIABLE}={named:.200} is set in {place}, which keeps TuCCL's plugin out",
            f"unset {PLUGIN_VARIABLE}, and source tuccl.env",
        )
        return
    path = _found(named, job.environment)
    if path is None:
        yield error("plugin", f"{named} is not there: NCCL goes on without it", "ship there again")
        return
    version = None if job.nccl is None else NcclVersion.of_code(job.nccl.version)
    if version == _WITHOUT_PATHS and "/" in named:
        yield error(
            "plugin",
            "NCCL 2.27.3 mangles a path in NCCL_TUNER_PLUGIN",
            f"export LD_LIBRARY_PATH={path.parent}:$LD_LIBRARY_PATH NCCL_TUNER_PLUGIN={path.name}",
        )
        return
    yield from _plugin_findings(path, version)


def _found(named: str, environment: Mapping[str, str]) -> Path | None:
    """Return the file that the loader opens for a name."""
    folders = environment.get("LD_LIBRARY_PATH", "").split(":")
    places = [Path(folder) / named for folder in folders if folder]
    if "/" in named:
        places = [Path(named)]
    return next((path for path in places if os.path.isfile(path)), None)  # noqa: PTH113 - errors


def _plugin_findings(path: Path, version: NcclVersion | None) -> Iterator[Finding]:
    try:
        library = read_elf(path)
    except OSError as failure:
        yield error("plugin", f"cannot read {path}: {failure.strerror}", f"chmod a+r {path}")
        return
    except ValueError as fault:
        yield error("plugin", f"{path} is {fault}", "ship there again")
        return
    if (misfit := _misfit(path, library)) is not None:
        yield misfit
        return
    abis = sorted(int(match[1]) for name in library.symbols if (match := _ABI.fullmatch(name)))
    usable = [abi for abi in abis if version is None or _takes(version, abi)]
    listed = ", ".join(f"v{abi}" for abi in abis) or "none"
    if not usable:
        yield error(
            "plugin",
            f"{path} has no tuner ABI that this NCCL loads (it has {listed})",
            "ship there again",
        )
        return
    if why := _cannot_open(path):
        yield error("plugin", f"{path} cannot be loaded: {why}", "ship there again")
        return
    taken = f"NCCL {version} loads it by ABI v{usable[-1]}" if version else f"tuner ABI {listed}"
    yield ok("plugin", f"{path}: {taken}")


def _takes(version: NcclVersion, abi: int) -> bool:
    first = _FIRST_RELEASES.get(abi)
    return first is not None and version >= first


def _misfit(path: Path, library: ElfLibrary) -> Finding | None:
    """Return why this host cannot load a library; None: nothing of its head speaks against it."""
    check = "C library"
    if library.machine and library.machine != platform.machine():
        text = f"{path} is for {library.machine}, this host is {platform.machine()}"
        return error(check, text, "ship from a host of the same kind")
    own = host_c_library()
    if (0, 0) < own < library.c_library:
        needed, present = (".".join(map(str, version)) for version in (library.c_library, own))
        return error(check, f"{path} needs glibc {needed}, this host has {present}", _SHIP)
    return None


def host_c_library() -> tuple[int, int]:
    """Return the version of this host's glibc; zeros for another C library."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    numbers = version.split(".")
    if name != "glibc" or len(numbers) < 2:
        return (0, 0)
    return int(numbers[0]), int(numbers[1])


def _cannot_open(path: Path) -> str:
    """Return why a library cannot be loaded; empty where it can."""
    done = _tried([sys.executable, "-I", "-c", _OPEN, str(path)], {})
    return "" if done is None or done.returncode == 0 else _last_line(done.stderr)


def check_c_library(job: JobView) -> Iterator[Finding]:
    """Check that this host's C library serves what was shipped."""
    own = host_c_library()
    path = job.bundle_path
    libraries = [] if path is None else [path.parent / PLUGIN_NAME, path.parent / EXECUTOR_NAME]
    needs = []
    for library in libraries:
        try:
            needs.append(read_elf(library).c_library)
        except (OSError, ValueError):
            continue
    if needs and (0, 0) < max(needs) <= own:
        needed, present = (".".join(map(str, version)) for version in (max(needs), own))
        yield ok("C library", f"glibc {present}, of which the libraries need {needed}")


def check_preload(job: JobView) -> Iterator[Finding]:
    """Check what LD_PRELOAD names, which the loader puts into every process of the job."""
    names = job.environment.get(PRELOAD_VARIABLE, "").replace(":", " ").split()
    yield from (finding for name in names for finding in _preload_findings(Path(name), job))
    loaded = [name for name in names if Path(name).name == EXECUTOR_NAME]
    schedules = job.bundle is not None and any(
        entry.schedule is not None for entry in job.bundle.entries
    )
    if schedules and not loaded:
        yield _left_out(job)
    elif loaded and not schedules and job.bundle is not None:
        yield note("executor", "the executor is preloaded, and the table has no schedules")


def _left_out(job: JobView) -> Finding:
    """Return why NCCL serves the calls of the table's schedules."""
    text = "the table has schedules, and the executor is not preloaded: NCCL serves their calls"
    library = None if job.bundle_path is None else job.bundle_path.parent / EXECUTOR_NAME
    if library is None or not os.path.isfile(library):  # noqa: PTH113 - errors
        return note("executor", text, "see tuccl.env for the reason")
    done = _preloaded(library, job)
    if done is None or done.returncode == 0:
        return note("executor", text, f"see tuccl.env for the reason; {library} could be loaded")
    return warning("executor", f"{text}; here it cannot be: {_last_line(done.stderr)}", _SHIP)


def _preloaded(path: Path, job: JobView) -> subprocess.CompletedProcess[str] | None:
    """Return how a shell ends that preloads a library."""
    others = {name: value for name, value in job.environment.items() if name != PRELOAD_VARIABLE}
    return _tried(["/bin/sh", "-c", ":"], {**others, PRELOAD_VARIABLE: str(path)})


def _preload_findings(path: Path, job: JobView) -> Iterator[Finding]:
    done = _preloaded(path, job)
    # The loader's own answer: it alone expands $LIB and $ORIGIN, and searches for plain names.
    ignored = None if done is None or done.returncode else _IGNORED.search(done.stderr)
    if ignored is not None:
        yield warning(
            PRELOAD_VARIABLE,
            f"{path} is not loaded ({ignored[1]}): the loader says so in every process, and goes "
            "on",
            f"take it out of {PRELOAD_VARIABLE}",
        )
        return
    if done is None or done.returncode == 0:
        if done is not None and path.name == EXECUTOR_NAME:
            yield ok("executor", f"{path} can be preloaded")
        return
    yield error(
        PRELOAD_VARIABLE,
        f"{path} ends every process that preloads it: {_last_line(done.stderr)}",
        f"take it out of {PRELOAD_VARIABLE}; {_SHIP}",
    )


def _tried(
    command: list[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str] | None:
    """Return how a process ended; None where it could not be started, or hung."""
    try:
        return subprocess.run(  # noqa: S603 - fixed words, and a path that a job would load
            command, env=dict(environment), capture_output=True, text=True, errors="replace",
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason was given"
