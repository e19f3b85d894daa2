"""`tuccl ship`: everything a job needs in one directory.

bundle.tuccl               the table as the plugin maps it
libnccl-tuner-tuccl.so     the plugin
tuccl.env                  what a job sources, with comments
table.parquet              the same table for people and pandas
schedules/                 the schedules that won, as MSCCL XML
"""

from __future__ import annotations

import shlex
from pathlib import Path

from lookup_tables.bundle import bundle_crc
from lookup_tables.table import Table
from tuccl.atomic_file import write_atomically
from tuccl.errors import UsageError, WorkspaceError
from tuccl.pipeline import read_table
from tuccl.runtime import PLUGIN_NAME, plugin_path
from tuccl.workspace import Workspace

BUNDLE_NAME = "bundle.tuccl"


def ship(workspace: Workspace, directory: Path) -> list[Path]:
    """Write the directory; each file is replaced atomically, `tuccl.env` last.

    Raises:
        UsageError: for a directory whose name has control characters.
        WorkspaceError: when there is no finished table or the directory cannot be written.
        PluginMissingError: when this installation has no plugin.
    """
    plugin = plugin_path()
    table = read_table(workspace)
    try:
        bundle = workspace.bundle.read_bytes()
        plugin_bytes = plugin.read_bytes()
        table_bytes = workspace.table.read_bytes()
    except OSError as error:
        raise WorkspaceError(f"cannot read {error.filename}: {error.strerror}") from error
    target = directory.resolve()
    if not str(target).isprintable():
        raise UsageError(
            f"the directory {str(target)!r} cannot stand in a shell file; use a printable name"
        )
    files: dict[Path, bytes | str] = {
        target / BUNDLE_NAME: bundle,
        target / PLUGIN_NAME: plugin_bytes,
        target / "table.parquet": table_bytes,
    }
    for schedule in table.schedules:
        files[target / "schedules" / f"{schedule.content_hash}.xml"] = schedule.msccl_xml
    files[target / "tuccl.env"] = environment_file(table, target, bundle_crc(bundle))
    for path, content in files.items():
        write_atomically(path, content)
    return list(files)


def environment_file(table: Table, directory: Path, crc: int) -> str:
    """`tuccl.env`: shell exports with comments."""
    place = shlex.quote(str(directory))
    lines = [
        f"# TuCCL table for {table.topology_name} (topology {table.fingerprint}).",
        "# Source this in the job script on every rank, before the first communicator:",
        f"#     . {directory}/tuccl.env",
        "# To go back to stock NCCL: leave it out, or set NCCL_TUNER_PLUGIN=none.",
        "",
        "# Where these files lie; set TUCCL_DIR before sourcing if they were moved.",
        f'if [ -z "${{TUCCL_DIR:-}}" ]; then TUCCL_DIR={place}; fi',
        "",
        "# The plugin. NCCL 2.27.3 takes no path here: use the bare name with LD_LIBRARY_PATH.",
        f'export NCCL_TUNER_PLUGIN="$TUCCL_DIR/{PLUGIN_NAME}"',
        "",
        "# The table, and its checksum: a rank that finds another table fails at start, since",
        "# ranks that decide differently would hang in the first collective.",
        f'export TUCCL_BUNDLE="$TUCCL_DIR/{BUNDLE_NAME}"',
        f"export TUCCL_BUNDLE_CRC={crc:08x}",
        "",
    ]
    if table.profile:
        lines.append("# The process profile: NCCL reads these once per process, and the table was")
        lines.append("# measured under them.")
        lines += [f"export {name}={shlex.quote(value)}" for name, value in table.profile.items()]
    else:
        lines.append("# No process profile: the table was measured under NCCL's own settings.")
    lines += [
        "",
        "# NCCL_ALGO and NCCL_PROTO overrule any tuner: a job that sets them goes without the",
        "# table.",
        "",
    ]
    return "\n".join(lines)
