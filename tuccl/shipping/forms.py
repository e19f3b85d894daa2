"""Forms in which a table is shipped beside `tuccl.env`, for the tools that start jobs."""

from __future__ import annotations

from enum import StrEnum

from tuccl.errors import UsageError
from tuccl.shipping.job_settings import JobSettings
from tuccl.shipping.kubernetes_files import KUBERNETES_PATHS, kubernetes_files
from tuccl.shipping.settings_files import (
    ENROOT_MOUNTS_NAME,
    ENROOT_VARIABLES_NAME,
    NCCL_CONF_NAME,
    VARIABLES_NAME,
    enroot_mounts,
    enroot_variables,
    nccl_conf,
    variables_file,
)
from tuccl.shipping.slurm_prolog import TASK_PROLOG_NAME, task_prolog


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


FORM_PATHS = frozenset(
    {
        VARIABLES_NAME,
        NCCL_CONF_NAME,
        TASK_PROLOG_NAME,
        ENROOT_VARIABLES_NAME,
        ENROOT_MOUNTS_NAME,
        *KUBERNETES_PATHS,
    }
)
"""Files of all forms, by path in the shipped directory."""
EXECUTABLE = frozenset({TASK_PROLOG_NAME})
"""Files that are started as programs."""
FORM_FOLDERS = frozenset(path.split("/")[0] for path in FORM_PATHS if "/" in path)


def form_files(form: Form, settings: JobSettings) -> dict[str, str]:
    """Return the files of a form by path in the shipped directory.

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
