"""`tuccl ship`: everything a job needs in one directory.

    bundle-CRC.tuccl           the table as the plugin maps it, named by its checksum
    libnccl-tuner-tuccl.so     the plugin
    libtuccl-executor.so       the executor, where schedules won and this installation has it
    tuccl.env                  what a job sources, with comments
    table.parquet              the same table for people and pandas
    schedules/                 the schedules that won, as MSCCL XML

A directory that jobs are using can be shipped to again: a new table is a new bundle file, and
`tuccl.env`, replaced last, is what points at it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundle_layout import bundle_crc
from lookup_tables.bundle_writer import bundle_bytes
from lookup_tables.store import table_to_parquet_bytes
from lookup_tables.table import Table
from tuccl.atomic_file import absolute, write_atomically
from tuccl.errors import UsageError
from tuccl.finished_run import read_table
from tuccl.measuring.nccl_library import version_in
from tuccl.report import read_report
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME, PluginMissingError, executor_path, plugin_path
from tuccl.workspace import Run

_CAVEATS = {
    "simulated": "Computed by a model, not measured: try it against stock NCCL before relying on "
    "it.",
    "sockets": "Timed on a stand-in for NCCL: what it chooses means nothing for a job.",
}
"""By backend, whose name stands in the versions that made a table."""


def bundle_name(crc: int) -> str:
    """File name of a bundle."""
    return f"bundle-{crc:08x}.tuccl"


@dataclass(frozen=True, slots=True)
class Shipped:
    """What `ship` wrote."""

    files: tuple[Path, ...]
    """`tuccl.env` last."""
    caveat: str
    """What speaks against relying on the table; empty: nothing."""


def ship(run: Run, directory: Path) -> Shipped:
    """Write the directory; each file is replaced atomically, `tuccl.env` last.

    Raises:
        UsageError: for a file, or a directory whose name has control characters.
        WorkspaceError: when the run has no table or the directory cannot be written.
        PluginMissingError: when this installation has no plugin.
    """
    target = absolute(directory)
    if not str(target).isprintable():
        raise UsageError(
            f"the directory {str(target)!r} cannot stand in a shell file; use a printable name"
        )
    if target.exists() and not target.is_dir():
        raise UsageError(f"{directory} is a file: name a directory to ship to")
    plugin = plugin_path().read_bytes()
    table = read_table(run)
    bundle = bundle_bytes(table)
    crc = bundle_crc(bundle)
    executor = executor_of(table)
    files: dict[Path, bytes | str] = {
        target / bundle_name(crc): bundle,
        target / PLUGIN_NAME: plugin,
        target / "table.parquet": table_to_parquet_bytes(table),
    }
    if executor is not None:
        files[target / EXECUTOR_NAME] = executor.read_bytes()
    for schedule in table.schedules:
        files[target / "schedules" / f"{schedule.content_hash}.xml"] = schedule.msccl_xml
    note = caveat(table, read_report(run).backend)
    files[target / "tuccl.env"] = environment_file(
        table, target, crc, note, has_executor=executor is not None
    )
    for path, content in files.items():
        write_atomically(path, content)
    return Shipped(tuple(files), note)


def caveat(table: Table, backend: str) -> str:
    """What speaks against relying on a table; empty where it was measured with NCCL.

    Args:
        table: Its entries say what measured them, also where that was replayed later.
        backend: Of its run, which counts where there is no entry.
    """
    origins = (backend, *(entry.versions for entry in table.entries))
    found = [text for name, text in _CAVEATS.items() if any(name in origin for origin in origins)]
    return found[0] if found else ""


def executor_of(table: Table) -> Path | None:
    """The executor, where the table has schedules for it and this installation has one."""
    if not any(entry.schedule for entry in table.entries):
        return None
    try:
        return executor_path()
    except PluginMissingError:
        return None


def environment_file(
    table: Table, directory: Path, crc: int, note: str = "", *, has_executor: bool = False
) -> str:
    """`tuccl.env`: shell exports with comments, `note` among them.

    Args:
        table: That is shipped.
        directory: To which.
        crc: Of the bundle.
        note: What speaks against relying on the table.
        has_executor: Whether the executor lies there too; it is preloaded unless there is a note,
            and offered in a comment then.
    """
    place = shlex.quote(str(directory))
    nccl = next(filter(None, (version_in(entry.versions) for entry in table.entries)), "")
    exports = [f"export {name}={shlex.quote(value)}" for name, value in table.profile.items()]
    profile = (
        "The process profile, which NCCL reads once per process: the table was measured with it."
    )
    if not exports:
        profile = "No process profile: the table was measured with NCCL's own settings."
    lines = [
        f"# TuCCL table for {table.topology_name} (topology {table.fingerprint}).",
        "# Source this in the job script on every rank, before the first communicator:",
        f"#     . {place}/tuccl.env",
        "# To go back to stock NCCL: leave it out, or set NCCL_TUNER_PLUGIN=none.",
        *([f"# {note}"] if note else []),
        "",
        "# Where these files lie; if they were moved, set TUCCL_DIR to the new place first.",
        f"tuccl_files={place}",
        'if [ -n "${TUCCL_DIR:-}" ]; then tuccl_files=$TUCCL_DIR; fi',
        "",
        "# The plugin. NCCL 2.27.3 takes no path here: use the bare name with LD_LIBRARY_PATH.",
        f'export NCCL_TUNER_PLUGIN="$tuccl_files/{PLUGIN_NAME}"',
        "",
        "# The table, and its checksum: a rank that finds another table fails at start, since",
        "# ranks that decide differently would hang in the first collective.",
        f'export TUCCL_BUNDLE="$tuccl_files/{bundle_name(crc)}"',
        f"export TUCCL_BUNDLE_CRC={crc:08x}",
        "# The NCCL that it was measured with: where a job runs another, the plugin says so.",
        f"export TUCCL_NCCL={nccl}",
        *(_preloading("# " if note else "") if has_executor else []),
        "unset tuccl_files",
        "",
        f"# {profile}",
        "# What another table's profile has set in this shell is taken back first.",
        'for tuccl_name in ${TUCCL_PROFILE:-}; do unset "$tuccl_name"; done; unset tuccl_name',
        f"export TUCCL_PROFILE={shlex.quote(' '.join(table.profile))}",
        *exports,
        "",
        "# NCCL_ALGO and NCCL_PROTO overrule any tuner: a job that sets them goes without the",
        "# table.",
        "",
    ]
    return "\n".join(lines)


def _preloading(mark: str) -> list[str]:
    """Lines for the executor, each command behind `mark`."""
    name = "tuccl_executor"
    return [
        "",
        "# The executor, which runs the schedules of the table, in whatever this shell starts from",
        "# here on. Without it NCCL serves their calls, with the best of its own algorithms where",
        "# it has several (for alltoall it has one).",
        f'{mark}{name}="$tuccl_files/{EXECUTOR_NAME}"',
        f'{mark}case " ${{LD_PRELOAD:-}} " in *" ${name} "*) ;; *)',
        f'{mark}    export LD_PRELOAD="${name}${{LD_PRELOAD:+ $LD_PRELOAD}}" ;;',
        f"{mark}esac",
        f"{mark}unset {name}",
    ]
