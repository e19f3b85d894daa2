"""Checks of the table: the bundle, its sum, files beside it, and who may read and write them."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from lookup_tables.bundles.bundle import Bundle
from lookup_tables.provenance import NcclVersion
from tuccl.quantities import count_of
from tuccl.reports.kept_sums import kept_sums_lines
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.shipping.doctor.findings import Finding, error, note, ok, warning
from tuccl.shipping.doctor.job_view import JobView
from tuccl.shipping.shipped_view import ShippedView
from tuccl.shipping.sourcing import ENVIRONMENT_NAME

STRICT = "strict"
"""Value of TUCCL_INVARIANT with which sums that would move are errors."""
TWO = 2
"""Ranks whose sums have one order alone."""
_SUM = re.compile(r"[0-9a-fA-F]{8}")
_CLOCKS_APART_S = 5.0
_FIRST_WITH_CHUNKS = NcclVersion(2, 30, 0)
"""First release of NCCL that asks its tuner for the size of chunks."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_table(job: JobView) -> Iterator[Finding]:
    """Check the bundle that a job would read, and its sum."""
    if job.bundle is None:
        mend = "ship there again"
        if job.bundle_path is None:
            mend = "source the tuccl.env of a shipped directory, or name one: tuccl doctor DIR"
        yield error("table", job.problem, mend)
        return
    crc, demanded = f"{job.bundle.crc:08x}", job.value("TUCCL_BUNDLE_CRC")
    entries = count_of(len(job.bundle.all_entries), "entry", "entries")
    if not demanded:
        yield warning(
            "table",
            f"no sum is demanded of {job.bundle_path}: ranks of several hosts may have others",
            f"export TUCCL_BUNDLE_CRC={crc}",
        )
    elif not _SUM.fullmatch(demanded) or int(demanded, 16) != job.bundle.crc:
        yield error(
            "table",
            f"{job.bundle_path} has the sum {crc}, and TUCCL_BUNDLE_CRC={demanded:.20} is demanded "
            f"by {job.place('TUCCL_BUNDLE_CRC')}: ranks do not start",
            "source tuccl.env again, or ship there again",
        )
    else:
        schedules = sum(entry.schedule is not None for entry in job.bundle.entries)
        with_executor = f" ({schedules} with schedules, which run only with the executor)"
        won = with_executor if schedules else ""
        yield ok("table", f"{job.bundle_path}, {entries} for {job.bundle.topology_name}{won}")
    yield from _sums(job, job.bundle)
    yield from _chunks(job, job.bundle)
    if job.value("TUCCL_CONTROL"):
        yield error(
            "table",
            f"TUCCL_CONTROL is set in {job.place('TUCCL_CONTROL')}, which is for tuccl's own "
            "measuring: the table is not looked at",
            "unset TUCCL_CONTROL",
        )


def _sums(job: JobView, bundle: Bundle) -> Iterator[Finding]:
    """Check that what keeps sums from moving is there."""
    said = job.value("TUCCL_INVARIANT")
    if said and said != STRICT:
        yield warning(
            "sums",
            f"TUCCL_INVARIANT={said:.20} is set in {job.place('TUCCL_INVARIANT')} and means "
            "nothing",
            f"export TUCCL_INVARIANT={STRICT}, or unset it",
        )
    if said == STRICT and not bundle.sums:
        yield warning(
            "sums",
            f"TUCCL_INVARIANT={STRICT} is set, and the sums of this table may move",
            "tune with tuccl init --invariant",
        )
    by_executor = any(
        own.shape.ranks > TWO
        and any(
            entry.builtin is None
            for entry in bundle.entries
            if (entry.key.shape, entry.key.operation) == (own.shape, own.operation)
        )
        for own in bundle.sums
    )
    if by_executor and not job.loads_executor:
        lacks = "is not preloaded" if job.is_served is None else "does not get the calls"
        yield warning(
            "sums",
            f"sums do not move by the executor, which {lacks}: they are NCCL's",
            "see tuccl.env for the reason",
        )
        return
    yield from (ok("sums", line) for line in kept_sums_lines(bundle.sums))


def _chunks(job: JobView, bundle: Bundle) -> Iterator[Finding]:
    """Check that NCCL asks about the size of chunks, if entries have one."""
    settings = [each.builtin for each in bundle.all_entries if each.builtin is not None]
    count, nccl = sum(setting.chunk_bytes > 0 for setting in settings), job.nccl
    if count and nccl is not None and NcclVersion.of_code(nccl.version) < _FIRST_WITH_CHUNKS:
        yield warning(
            "table",
            f"{count_of(count, 'entry has', 'entries have')} a size of chunks, which NCCL "
            f"{nccl.version_text} does not ask about: their calls are left to it",
            "use NCCL 2.30 or later, or run tuccl retune with this one",
        )


def check_directory(view: ShippedView) -> Iterator[Finding]:
    """Check that the files of a shipped directory fit together."""
    for problem in view.problems:
        yield warning("directory", problem, f"tuccl ship {view.directory}")
    if not view.problems:
        yield ok("directory", f"the files of {view.directory} are as they were shipped")


def check_clock(view: ShippedView) -> Iterator[Finding]:
    """Check that a shipped directory does not come from the future by this host's clock."""
    written = view.directory / ENVIRONMENT_NAME
    ahead_s = written.stat().st_mtime - time.time()
    if ahead_s >= _CLOCKS_APART_S:
        yield warning(
            "clock",
            f"{written} is {ahead_s:.0f} s ahead of this host's clock: times in histories and logs "
            "mislead",
            "set the clock, here or where the file lies, as by chronyc makestep",
        )


def check_permissions(job: JobView) -> Iterator[Finding]:
    """Check who may read the files of the job's table, and who may replace them."""
    path = job.bundle_path
    if path is None or not os.path.exists(path):  # noqa: PTH110 - false where nobody may look
        return
    folder = path.parent
    files = [path, *(folder / name for name in (PLUGIN_NAME, EXECUTOR_NAME))]
    found = [file for file in (folder, *files) if file.exists()]
    yield from (_unreadable(file) for file in found if not os.access(file, _needed(file)))
    private = [file.name or str(file) for file in found if not _open_to_all(file)]
    if private:
        yield note(
            "permissions",
            f"jobs of other users cannot read {', '.join(private)} in {folder}",
            f"chmod -R a+rX {folder}",
        )
    closed = [str(parent) for parent in folder.resolve().parents if not _open_to_all(parent)]
    if closed:
        yield note(
            "permissions",
            f"jobs of other users cannot enter {closed[0]}, below which {folder} lies",
            f"chmod a+x {closed[0]}, or ship to another place",
        )
    shared = [file.name or str(file) for file in found if file.stat().st_mode & _OTHERS_WRITE]
    if shared:
        yield warning(
            "permissions",
            f"other users may replace {', '.join(shared)} in {folder}, which jobs load",
            f"chmod -R go-w {folder}",
        )
    if not private and not closed and not shared:
        yield ok("permissions", f"all users may read {folder}, and its owner alone writes there")


def _needed(path: Path) -> int:
    return os.R_OK | os.X_OK if path.is_dir() else os.R_OK


def _unreadable(path: Path) -> Finding:
    return error("permissions", f"{path} cannot be read by this user", f"chmod a+rX {path}")


def _open_to_all(path: Path) -> bool:
    wanted = stat.S_IXOTH if path.is_dir() else stat.S_IROTH
    return bool(path.stat().st_mode & wanted)
