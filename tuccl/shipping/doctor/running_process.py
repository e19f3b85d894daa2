"""A running process: what it has loaded of NCCL and TuCCL, and which calls the executor gets.

A caller reaches NCCL in one of two ways. A library that is linked to `libnccl.so.2`, as PyTorch's
and CuPy's are, calls what the loader binds, so a preloaded executor serves it. A program that opens
NCCL itself, as JAX and vLLM do, calls what the handle has, and needs a library that stands for
NCCL. Which of them a process has shows in the files that it has mapped (proc(5)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import NcclLibraryError, UsageError
from tuccl.measuring.engines.nccl_library import LIBRARY_NAME, NcclLibrary, read_version
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME
from tuccl.shipping.doctor.elf import needed_by
from tuccl.shipping.doctor.findings import Finding, Severity, error, note, ok, warning
from tuccl.shipping.doctor.job_view import JobView
from tuccl.shipping.doctor.library_checks import check_plugin

_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ \S+\s+(/.*?)( \(deleted\))?$", re.MULTILINE)
_NCCL = re.compile(r"libnccl\.so(\.\d+)*")
_LIBRARY = re.compile(r".*\.so(\.\d+)*")


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A running process of this host."""

    number: int
    environment: Mapping[str, str]
    """What it was started with; it may have changed that since."""
    libraries: tuple[Path, ...]
    """Libraries that it has mapped, in the order of their addresses."""
    replaced: frozenset[Path]
    """Those of them whose files have been removed or replaced since."""

    linked: tuple[Path, ...]
    """Those that are linked to NCCL."""
    nccls: tuple[Path, ...]
    """The NCCLs among them."""
    standing: tuple[Path, ...]
    """Those that stand for NCCL, for programs that open it themselves."""

    @property
    def is_served(self) -> bool:
        """Whether the executor gets its calls to NCCL, or would if it made some."""
        reaches = bool(self.linked or self.standing or not self.nccls)
        return self.named(EXECUTOR_NAME) is not None and reaches

    def named(self, name: str) -> Path | None:
        """Return the library of that file name; None: it has none."""
        return next((path for path in self.libraries if path.name == name), None)


def read_process(number: int) -> RunningProcess:
    """Return a running process of this host.

    Raises:
        UsageError: There is none, it is another user's, or it has other files than this process.
    """
    folder = Path("/proc") / str(number)
    try:
        root = os.readlink(folder / "ns" / "mnt")  # noqa: PTH115 - not a path
        variables = (folder / "environ").read_bytes()
        maps = os.fsdecode((folder / "maps").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"process {number} does not exist on this host") from None
    except PermissionError:
        raise UsageError(
            f"process {number} belongs to another user: run `tuccl doctor` as that user, or as root"
        ) from None
    if not maps:
        raise UsageError(f"process {number} has ended, or is the kernel's")
    if root != os.readlink("/proc/self/ns/mnt"):  # noqa: PTH115 - not a path
        raise UsageError(
            f"process {number} is in a container: run `tuccl doctor --process` there, with the "
            "number that it has there"
        )
    pairs = (pair.split("=", 1) for pair in os.fsdecode(variables).split("\0") if "=" in pair)
    mapped = {
        Path(path): bool(deleted)
        for path, deleted in _MAPPED.findall(maps)
        if _LIBRARY.fullmatch(Path(path).name)
    }
    replaced = frozenset(path for path, deleted in mapped.items() if deleted)
    need_nccl = [path for path in mapped if path not in replaced and _needs_nccl(path)]
    named_so = [path for path in mapped if _NCCL.fullmatch(path.name)]
    standing = [p for p in need_nccl if p in named_so or p.name == CALLING_LIBRARY_NAME]
    return RunningProcess(
        number,
        dict(pairs),
        tuple(mapped),
        replaced,
        linked=tuple(path for path in need_nccl if path not in standing),
        nccls=tuple(path for path in named_so if path not in standing),
        standing=tuple(standing),
    )


def _needs_nccl(path: Path) -> bool:
    try:
        return any(_NCCL.fullmatch(Path(name).name) for name in needed_by(path))
    except (OSError, ValueError):
        return False


def find_loaded_nccl(process: RunningProcess) -> tuple[NcclLibrary | None, list[Finding]]:
    """Return the NCCL that a process has loaded, if it has one, and findings on it."""
    nccls = process.nccls
    if not nccls:
        text = "it has loaded no NCCL: it has not come to that yet, or NCCL is built into a library"
        return None, [note("NCCL", text)]
    findings = []
    if len(nccls) > 1:
        listed = " and ".join(map(str, nccls))
        findings.append(note("NCCL", f"it has {len(nccls)} NCCLs, {listed}: the first is judged"))
    if nccls[0] in process.replaced:
        text = f"{nccls[0]} has been replaced since the process loaded it"
        return None, [*findings, note("NCCL", text)]
    try:
        found = NcclLibrary(nccls[0], read_version(nccls[0]), "loaded by the process")
    except NcclLibraryError as failure:
        return None, [*findings, note("NCCL", f"its version is not known: {failure}")]
    text = f"NCCL {found.version_text} in {found.path} ({found.source})"
    return found, [ok("NCCL", text), *findings]


def check_loaded_plugin(process: RunningProcess, job: JobView) -> Iterator[Finding]:
    """Check that a process has loaded the plugin, and if it has not, what keeps it out."""
    path = process.named(PLUGIN_NAME)
    if path is not None:
        yield _loaded("plugin", path, process)
        return
    obstacles = [each for each in check_plugin(job) if each.severity is Severity.ERROR]
    yield from obstacles
    if not obstacles:
        yield error(
            "plugin",
            "it has not loaded the plugin, which NCCL loads with the first communicator",
            "if it has communicators, start the job with NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,TUNING, and see the lines with TUNER/Plugin",
        )


def check_ways(process: RunningProcess, schedules: int) -> Iterator[Finding]:
    """Check which of a process's calls the executor gets.

    Args:
        process: The process.
        schedules: Number of the table's entries that the executor runs.
    """
    executor = process.named(EXECUTOR_NAME)
    if executor is None:
        if schedules:
            text = f"it has not loaded the executor: NCCL serves the calls of {schedules} schedules"
            yield warning("executor", text, "source tuccl.env before the process starts")
        return
    yield _loaded("executor", executor, process)
    if process.linked:
        names = ", ".join(path.name for path in process.linked)
        yield ok("calls", f"those of {names} pass through the executor: linked to {LIBRARY_NAME}")
    for path in process.standing:
        yield ok("calls", f"those through handles of {path} pass through the executor")
    if not process.is_served:
        yield warning(
            "calls",
            f"no library of the process is linked to {LIBRARY_NAME}: it has opened NCCL itself, "
            "and its calls go past the executor",
            f"give the program {executor.with_name(CALLING_LIBRARY_NAME)} as its NCCL, as vLLM "
            "takes it by VLLM_NCCL_SO_PATH, or preload what `tuccl ship --to dlopen` writes",
        )


def _loaded(check: str, path: Path, process: RunningProcess) -> Finding:
    if path in process.replaced:
        text = f"{path} is loaded as it was, and has been shipped again since"
        return note(check, text, "start the job again, to have the newer one")
    return ok(check, f"{path} is loaded")
