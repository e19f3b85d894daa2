"""A TaskProlog for Slurm: a script whose lines `export NAME=value` set a task's environment.

Slurm takes a value as it stands up to the end of the line, and starts the script without a search
path. The exit code is 0 whatever happens, so that no missing file keeps a task from starting.
"""

from __future__ import annotations

import shlex

from tuccl.runtime import PLUGIN_NAME
from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.locating import (
    BESIDE_SCRIPT,
    bundle_name,
    finding_lines,
    trying_lines,
    warning_line,
)

TASK_PROLOG_NAME = "slurm-task-prolog.sh"


def task_prolog(settings: JobSettings) -> str:
    """Return the script; it finds the directory by its own path."""
    lines = [
        "#!/bin/sh",
        f"# {settings.title}.",
        "# TaskProlog of slurm.conf, or srun --task-prolog. A job that names a tuner plugin, as in",
        "# NCCL_TUNER_PLUGIN=none, or a table of its own, keeps them; so it does with what it sets",
        "# of the process profile.",
        *BESIDE_SCRIPT,
        *finding_lines(settings.crc, [settings.place, settings.shipped_to]),
        "",
        'give() { printf \'export %s=%s\\n\' "$1" "$2"; }',
        'if [ -n "${NCCL_TUNER_PLUGIN:-}${TUCCL_BUNDLE:-}" ]; then',
        "    :",
        'elif [ -z "$tuccl_files" ]; then',
        f"    {warning_line(settings.crc, settings.place)}",
        "else",
        *(f"    {line}" for line in _given(settings)),
        "fi",
        "exit 0",
        "",
    ]
    return "\n".join(lines)


def _given(settings: JobSettings) -> list[str]:
    lines = [
        f'give NCCL_TUNER_PLUGIN "$tuccl_files/{PLUGIN_NAME}"',
        f'give TUCCL_BUNDLE "$tuccl_files/{bundle_name(settings.crc)}"',
        f"give TUCCL_BUNDLE_CRC {settings.crc:08x}",
    ]
    if settings.nccl:
        lines.append(f"give TUCCL_NCCL {shlex.quote(settings.nccl)}")
    for name, value in settings.profile.items():
        lines.append(f'[ -n "${{{name}+set}}" ] || give {name} {shlex.quote(value)}')
    lines.append(f"give TUCCL_PROFILE {shlex.quote(' '.join(settings.profile))}")
    if settings.loads_executor:
        preload = 'give LD_PRELOAD "$tuccl_executor${LD_PRELOAD:+ $LD_PRELOAD}"'
        lines += trying_lines([preload])
    return lines
