"""Files that have a host watched: a systemd service with its timer, and Slurm's health check."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tuccl.errors import UsageError

_INTERVAL = "15min"


def service_file(directory: Path) -> str:
    """Return a systemd service that watches once.

    Raises:
        UsageError: A path cannot stand in a unit.
    """
    command = " ".join(map(_quoted, (*_tuccl(), "watch", str(directory))))
    return f"""\
# /etc/systemd/system/tuccl-watch.service
# Exit code 1, which fails the service: this host is not the one that the table was tuned for.
[Unit]
Description=Check whether this host is the one that the TuCCL table was tuned for
ConditionPathExists={_escaped(str(directory))}/tuccl.env

[Service]
Type=oneshot
ExecStart={command}
TimeoutStartSec=120
Nice=10
"""


def timer_file() -> str:
    """Return the systemd timer of the service."""
    return f"""\
# /etc/systemd/system/tuccl-watch.timer; systemctl enable --now tuccl-watch.timer
[Unit]
Description=Watch the TuCCL table's machine every {_INTERVAL}

[Timer]
OnBootSec=5min
OnUnitInactiveSec={_INTERVAL}
RandomizedDelaySec=2min

[Install]
WantedBy=timers.target
"""


def slurm_health_check(directory: Path) -> str:
    """Return a HealthCheckProgram for Slurm, which drains a node that changed.

    Slurm starts it with no search path, and ends it after 60 seconds.
    """
    command = shlex.join([*_tuccl(), "watch", str(directory), "--no-measure"])
    return f"""\
#!/bin/sh
# HealthCheckProgram of slurm.conf. It measures nothing, so that it disturbs no job. Where the node
# changed, it is drained with the first change as the reason; what cannot be checked is logged.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
said=$({command} 2>&1)
code=$?
[ "$code" = 0 ] && exit 0
reason=$(printf '%s\\n' "$said" | grep '^changed' | head -n 1 | cut -c 1-200)
if [ "$code" = 1 ] && [ -n "$reason" ]; then
    node=${{SLURMD_NODENAME:-$(hostname -s)}}
    scontrol update NodeName="$node" State=DRAIN Reason="tuccl watch: $reason"
fi
logger -t tuccl-watch -- "code $code: $said"
exit 0
"""


def _tuccl() -> tuple[str, ...]:
    """Return the command of this installation, whatever the search path."""
    return sys.executable, "-P", "-m", "tuccl"


def _quoted(word: str) -> str:
    """Return a word of ExecStart in quotes (systemd.service(5), command lines).

    Raises:
        UsageError: It cannot stand there.
    """
    if not word.isprintable():
        raise UsageError(f"{word!a} cannot stand in a unit of systemd; use a printable name")
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("%", "%%")
    return f'"{text}"'


def _escaped(path: str) -> str:
    return path.replace("%", "%%")
