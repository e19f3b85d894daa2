"""Short texts for the choice that a job runs: `ring LL128 ch16`, a schedule, NCCL's own choice."""

from __future__ import annotations

from collections.abc import Mapping

from lookup_tables.bundles.bundle import Bundle, BundleEntry
from lookup_tables.table import Entry, Table
from tuccl.quantities import format_size
from tuccl.reports.keys import Runner

OWN_CHOICE = "NCCL's own choice"
UNDER_PROFILE = "NCCL under the profile"


def runs_text(runner: Runner, entry: Entry | BundleEntry | None, table: Table | Bundle) -> str:
    """Return what a job runs: `ring LL128 ch16`, a schedule with parameters, or NCCL."""
    if runner is Runner.EXECUTOR and entry is not None:
        return describe_schedule(entry, table)
    if runner is Runner.PLUGIN and entry is not None:
        return describe_builtin(entry)
    return OWN_CHOICE if runner is Runner.NCCL else UNDER_PROFILE


def untuned_text(profile: Mapping[str, str]) -> str:
    """Return what a call gets that the table is not for.

    Args:
        profile: What its communicator has of the table's process profile.
    """
    if not profile:
        return "NCCL chooses, as without the table"
    return (
        f"NCCL chooses under the process profile {profile_text(profile)}, which was not measured "
        "here"
    )


def describe_schedule(entry: Entry | BundleEntry, table: Table | Bundle) -> str:
    """The schedule's name without the operation, its parameters, and its root if it has one."""
    if entry.schedule is None:
        return "-"
    names = {schedule.content_hash: schedule.name for schedule in table.schedules}
    config = entry.schedule
    name = names[config.schedule].removeprefix(f"{entry.key.operation.value}_")
    root = ", root 0 only" if entry.key.operation.has_root else ""
    return (
        f"{name} {config.protocol.value} ch{config.nchannels} "
        f"th{config.nthreads} buf{format_size(config.buffer_bytes)}{root}"
    )


def describe_builtin(entry: Entry | BundleEntry) -> str:
    """The built-in, as `ring Simple ch16 chunk128K`, without what NCCL sets itself."""
    config = entry.builtin
    if config is None:
        return "-"
    channels = f" ch{config.nchannels}" if config.nchannels else ""
    chunks = f" chunk{format_size(config.chunk_bytes)}" if config.chunk_bytes else ""
    return f"{config.algorithm.value} {config.protocol.value}{channels}{chunks}"


def profile_text(profile: Mapping[str, str]) -> str:
    """The profile's variables, as `NCCL_MIN_CTAS=32`."""
    return " ".join(f"{name}={value}" for name, value in profile.items()) or "none"
