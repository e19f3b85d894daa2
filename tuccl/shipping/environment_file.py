"""`tuccl.env`: the file that a job sources to use a table, with comments for readers.

The file exists twice: as `tuccl.env`, which the next `tuccl ship` replaces, and under the checksum
of its table, which is never replaced by another table's. A job has one table if its job script
sources `tuccl.env` once, or if each rank sources the second, which TUCCL_ENV names.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from lookup_tables.table import Table
from probes.inputs.messages import printable
from tuccl.reports.job_gains import Obstacle
from tuccl.reports.table_parts import measured_nccl
from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME
from tuccl.runtime.calling_library import CALLING_LIBRARY_NAME
from tuccl.shipping.locating import (
    BESIDE_BASH_SOURCE,
    bundle_name,
    finding_lines,
    trying_lines,
    warning_line,
)


def bound_name(crc: int) -> str:
    """Return the name of the environment file that is a table's for good."""
    return f"tuccl-{crc:08x}.env"


@dataclass(frozen=True, slots=True)
class ShippedExecutor:
    """The executor in a shipped directory."""

    library: Path | None
    """Library beside the plugin; None: there is none to ship, or no schedule that it could run."""
    obstacle: Obstacle | None
    """Reason for not preloading it; None: it is preloaded."""


def environment_file(
    table: Table,
    directory: Path,
    crc: int,
    note: str = "",
    executor: ShippedExecutor | None = None,
    place: Path | None = None,
    *,
    lost_profile: bool = False,
    base: Mapping[str, str] | None = None,
) -> str:
    """Return the text of `tuccl.env`: shell exports with comments, `note` among them.

    Args:
        table: Table that is shipped.
        directory: Directory of the files.
        crc: Checksum of the bundle.
        note: Reason not to rely on the table.
        executor: The executor; None: no schedule won.
        place: Where jobs find the directory; None: at `directory`.
        lost_profile: Whether the process profile of the table's times is left out.
        base: Variables that jobs are to have by themselves, as stock NCCL had.
    """
    found = place or directory
    quoted = shlex.quote(str(found))
    lines = [
        f"# TuCCL table for {printable(table.topology_name)} (topology {table.fingerprint}).",
        "# Source it once, in the job script, before the launcher starts the ranks and hands them",
        "# their environment (srun does, mpirun -x NAME does), so that all ranks have one table:",
        f"#     . {quoted}/tuccl.env",
        "# Ranks that source it each may get two tables where another is shipped meanwhile, and",
        "# nothing tells them: let such ranks source what TUCCL_ENV names, which stays as it is:",
        f"#     . {quoted}/{bound_name(crc)}",
        "# To go back to stock NCCL: leave it out, or set NCCL_TUNER_PLUGIN=none.",
        *([f"# {note}"] if note else []),
        *_base_lines(base or {}),
        "",
        "# Where these files lie: in TUCCL_DIR if that is set, else beside this file, which bash",
        "# tells, else where they were shipped to.",
        *BESIDE_BASH_SOURCE,
        *finding_lines(crc, [found, directory]),
        "",
        'if [ -z "$tuccl_files" ]; then',
        f"    {warning_line(crc, found)}",
        "else",
        *(f"    {line}" if line else "" for line in _exports(table, crc, executor, lost_profile)),
        "fi",
        "unset tuccl_files",
        "",
        "# NCCL_ALGO and NCCL_PROTO overrule any tuner: a job that sets them goes without the",
        "# table.",
        "",
    ]
    return "\n".join(lines)


def _base_lines(base: Mapping[str, str]) -> list[str]:
    """Return comments on the variables that jobs are to have by themselves."""
    if not base:
        return []
    return [
        "# It was measured with these variables, stock NCCL too; `tuccl doctor` says where a job",
        "# differs:",
        *(f"#     {printable(name)}={printable(value)}" for name, value in base.items()),
    ]


def _exports(
    table: Table, crc: int, executor: ShippedExecutor | None, lost_profile: bool
) -> list[str]:
    """Return commands that export plugin, table, executor and process profile."""
    of_process = table.process_profile(executor=True)
    by_executor = {name: v for name, v in table.profile.items() if name not in of_process}
    profile = "The process profile, which NCCL reads once: the table's times are with it."
    if lost_profile:
        profile = "No process profile: that of the table's times is left out."
    elif not table.profile:
        profile = "No process profile: the table's times are with NCCL's own settings."
    return [
        "# The plugin. NCCL 2.27.3 takes no path here: use the bare name with LD_LIBRARY_PATH.",
        f'export NCCL_TUNER_PLUGIN="$tuccl_files/{PLUGIN_NAME}"',
        "",
        "# The table, and its checksum: a rank that finds anything else in that file fails at",
        "# start, since ranks that decide differently would hang in the first collective.",
        f'export TUCCL_BUNDLE="$tuccl_files/{bundle_name(crc)}"',
        f"export TUCCL_BUNDLE_CRC={crc:08x}",
        f'export TUCCL_ENV="$tuccl_files/{bound_name(crc)}"',
        "# The NCCL that was measured, if one was: where a job runs another, the plugin says so.",
        f"export TUCCL_NCCL={measured_nccl(table)}",
        *(_executor_lines(executor) if executor is not None else []),
        "",
        f"# {profile}",
        "# What another table's profile has set in this shell is taken back first.",
        'for tuccl_name in ${TUCCL_PROFILE:-}; do unset "$tuccl_name"; done',
        "unset tuccl_name",
        f"export TUCCL_PROFILE={shlex.quote(' '.join(table.profile))}",
        *_setting_lines(of_process),
        *_communicator_lines(by_executor, executor),
    ]


def _setting_lines(variables: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _communicator_lines(
    by_executor: Mapping[str, str], executor: ShippedExecutor | None
) -> list[str]:
    """Return lines for what communicators can have by themselves."""
    if not by_executor or executor is None or executor.library is None:
        return _setting_lines(by_executor)
    return [
        "# The executor sets these on communicators of the shapes that were measured, and on no",
        "# others; without it all of the process have them. Export one to give it to all.",
        f'case " ${{LD_PRELOAD:-}} " in *"/{EXECUTOR_NAME} "*) ;; *)',
        *(f"    {line}" for line in _setting_lines(by_executor)),
        "    ;;",
        "esac",
    ]


def _executor_lines(executor: ShippedExecutor) -> list[str]:
    """Return lines that preload the executor, or comments why not and what to do about it."""
    if executor.obstacle is None:
        return [
            "",
            "# The executor, which runs the schedules of the table, in whatever this shell starts",
            "# from here on. Without it NCCL serves their calls, with the best of its own",
            "# algorithms where it has several (for alltoall it has one).",
            *trying_lines(_PRELOADING),
            "# Programs that open NCCL themselves go past what is preloaded. vLLM and SGLang open",
            "# the library that they are told; this one has the executor before NCCL:",
            *(f"#     export {name}={_CALLING_LIBRARY}" for name in _OPENED),
        ]
    lines = [
        "",
        "# The executor is not loaded; NCCL serves the calls of the table's schedules, by the best",
        "# of its own algorithms. Why, and what to do:",
        *(f"#   {line}" for line in wrap(executor.obstacle.sentence, 86)),
    ]
    if executor.library is None:
        return lines
    return [
        *lines,
        "# To try the schedules as they are, take the marks off these lines:",
        *(f"# {line}" for line in trying_lines(_PRELOADING)),
    ]


_CALLING_LIBRARY = f"${{TUCCL_BUNDLE%/*}}/{CALLING_LIBRARY_NAME}"
_OPENED = ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH")
"""Variables of programs that open the library of NCCL that they name."""
_PRELOADING = (
    'case " ${LD_PRELOAD:-} " in *" $tuccl_executor "*) ;; *)',
    '    export LD_PRELOAD="$tuccl_executor${LD_PRELOAD:+ $LD_PRELOAD}" ;;',
    "esac",
)
"""Commands that put the executor before what is preloaded already, once."""
