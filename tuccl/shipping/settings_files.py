"""Forms of KEY=VALUE lines: for containers and services, for NCCL's own file, for enroot.

No reader of them runs a shell, so they name the place of the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tuccl.errors import UsageError
from tuccl.shipping.job_settings import PRELOAD_VARIABLE, JobSettings

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
    variables = settings.variables("nccl-conf")
    comments = [
        f"{settings.title}.",
        f"NCCL reads this file where NCCL_CONF_FILE names it, {settings.place}/{NCCL_CONF_NAME};",
        "or append it to ~/.nccl.conf or /etc/nccl.conf. What the environment sets comes first.",
    ]
    if variables.pop(PRELOAD_VARIABLE, None) is not None:
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
