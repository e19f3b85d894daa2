"""Forms in which a table is shipped beside `tuccl.env`, for the tools that start jobs.

Readers of KEY=VALUE forms (containers, services, NCCL's own file, enroot) run no shell, so these
forms name the place of the directory. Slurm's TaskProlog prints lines `export NAME=value`; Slurm
takes a value up to the end of the line and starts the script without a search path. Its exit code
is always 0, so that no missing file keeps a task from starting.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from tuccl.errors import UsageError
from tuccl.runtime import PLUGIN_NAME
from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.kubernetes_files import KUBERNETES_PATHS, kubernetes_files
from tuccl.shipping.locating import (
    BESIDE_SCRIPT,
    bundle_name,
    finding_lines,
    trying_lines,
    warning_line,
)

VARIABLES_NAME = "tuccl.envfile"
NCCL_CONF_NAME = "nccl.conf"
ENROOT_VARIABLES_NAME = "enroot/50-tuccl.env"
ENROOT_MOUNTS_NAME = "enroot/50-tuccl.fstab"
_PUT_IN = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def variables_file(settings: JobSettings) -> str:
    """Return KEY=VALUE lines for `docker --env-file`, systemd and `mpirun -x`."""
    variables = settings.variables("env")
    names = " ".join(f"-x {name}" for name in variables)
    comments = [
        f"{settings.title}.",
        f"docker run --env-file {settings.place}/{VARIABLES_NAME} ...",
        f"EnvironmentFile=-{settings.place}/{VARIABLES_NAME}    (systemd)",
        f"set -a; . {settings.place}/{VARIABLES_NAME}; set +a; mpirun {names} ...",
    ]
    return _text(comments, variables)


def nccl_conf(settings: JobSettings) -> str:
    """Return lines for NCCL_CONF_FILE; NCCL puts each into the environment if it is not there."""
    variables = replace(settings, loads_executor=False).variables("nccl-conf")
    comments = [
        f"{settings.title}.",
        f"NCCL reads this file where NCCL_CONF_FILE names it, {settings.place}/{NCCL_CONF_NAME};",
        "or append it to ~/.nccl.conf or /etc/nccl.conf. What the environment sets comes first.",
    ]
    if settings.loads_executor:
        comments += [
            "The executor cannot be loaded from here: LD_PRELOAD is read before a process starts.",
            "Without it NCCL serves the calls of schedules, with the best of its own algorithms.",
        ]
    return _text(comments, variables)


def enroot_variables(settings: JobSettings) -> str:
    """Return a file for enroot's environ.d."""
    comments = [
        f"{settings.title}.",
        "Copy this file to /etc/enroot/environ.d, and 50-tuccl.fstab, which mounts the directory,",
        "to /etc/enroot/mounts.d; for one user to the same folders of ~/.config/enroot.",
        "To go back to stock NCCL: enroot start -e NCCL_TUNER_PLUGIN=none ...",
    ]
    return _text(comments, settings.variables("enroot"))


def enroot_mounts(settings: JobSettings) -> str:
    """Return a file for enroot's mounts.d; a directory that is missing is passed over.

    Raises:
        UsageError: enroot would put a variable into the name of the directory.
    """
    settings.variables("enroot")  # The place takes no characters that are special in fstab.
    source = str(settings.shipped_to)
    if _PUT_IN.search(source):
        raise UsageError(
            f"{source!a:.120} has a ${{NAME}}, in whose place enroot puts a variable; ship to a "
            "directory without"
        )
    source = source.replace("\\", "\\134").replace(" ", "\\040")
    return (
        f"# {settings.title}: see 50-tuccl.env.\n"
        f"{source} {settings.place} none x-create=dir,bind,ro,nosuid,nodev,nofail,"
        "silent\n"
    )


def _text(comments: Iterable[str], variables: Mapping[str, str]) -> str:
    lines = [f"# {comment}" for comment in comments]
    lines += [f"{name}={value}" for name, value in variables.items()]
    return "\n".join(lines) + "\n"


OPENED_NAME = "dlopen/libnccl.so.2"
"""In a folder of its own, since its name is NCCL's."""
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
    lines += _given_unless_set(settings.process_profile)
    lines.append(f"give TUCCL_PROFILE {shlex.quote(' '.join(settings.profile))}")
    if settings.loads_executor:
        preload = 'give LD_PRELOAD "$tuccl_executor${LD_PRELOAD:+ $LD_PRELOAD}"'
        of_process = settings.process_profile
        by_executor = {n: v for n, v in settings.profile.items() if n not in of_process}
        lines += trying_lines([preload], _given_unless_set(by_executor))
    return lines


def _given_unless_set(variables: Mapping[str, str]) -> list[str]:
    return [
        f'[ -n "${{{name}+set}}" ] || give {name} {shlex.quote(value)}'
        for name, value in variables.items()
    ]


class Form(StrEnum):
    """A form of a shipped table."""

    ENV = "env"
    """KEY=VALUE lines, for docker, systemd and mpirun."""
    NCCL_CONF = "nccl-conf"
    """Lines of NCCL_CONF_FILE."""
    SLURM = "slurm"
    """A TaskProlog."""
    ENROOT = "enroot"
    """Files of environ.d and mounts.d."""
    KUBERNETES = "kubernetes"
    """A ConfigMap, a DaemonSet, a pod patch, and a kustomization."""
    DLOPEN = "dlopen"
    """A library that stands for NCCL by its name, for programs that open it themselves."""


PATHS_OF: Mapping[Form, tuple[str, ...]] = {
    Form.ENV: (VARIABLES_NAME,),
    Form.NCCL_CONF: (NCCL_CONF_NAME,),
    Form.SLURM: (TASK_PROLOG_NAME,),
    Form.ENROOT: (ENROOT_VARIABLES_NAME, ENROOT_MOUNTS_NAME),
    Form.KUBERNETES: KUBERNETES_PATHS,
    Form.DLOPEN: (OPENED_NAME,),
}
"""Files of a form, by path in the shipped directory."""
FORM_PATHS = frozenset(path for paths in PATHS_OF.values() for path in paths)
EXECUTABLE = frozenset({TASK_PROLOG_NAME})
"""Files that are started as programs."""
FORM_FOLDERS = frozenset(path.split("/")[0] for path in FORM_PATHS if "/" in path)


def form_files(form: Form, settings: JobSettings) -> dict[str, str]:
    """Return the text files of a form by path in the shipped directory.

    Raises:
        UsageError: The place cannot stand in this form.
    """
    match form:
        case Form.ENV:
            return {VARIABLES_NAME: variables_file(settings)}
        case Form.NCCL_CONF:
            return {NCCL_CONF_NAME: nccl_conf(settings)}
        case Form.SLURM:
            return {TASK_PROLOG_NAME: task_prolog(settings)}
        case Form.ENROOT:
            return {
                ENROOT_VARIABLES_NAME: enroot_variables(settings),
                ENROOT_MOUNTS_NAME: enroot_mounts(settings),
            }
        case Form.KUBERNETES:
            return kubernetes_files(settings)
        case Form.DLOPEN:
            return {}


def parse_forms(text: str) -> tuple[Form, ...]:
    """Return the forms in a list `env,slurm`, each once.

    Raises:
        UsageError: A form is unknown, or none is named.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [form.value for form in Form]
    for name in names:
        if name not in known:
            raise UsageError(f"--to {name!a:.60} is unknown: use one of {', '.join(known)}")
    if not names:
        raise UsageError(f"--to names no form: use one of {', '.join(known)}")
    return tuple(Form(name) for name in dict.fromkeys(names))
