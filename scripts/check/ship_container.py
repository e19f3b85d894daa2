"""Containers for check_ship_forms.py: a root of its own, mounts, a user without rights."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOGS = "/logs"
"""Where jobs write NCCL's log; the one folder that they can write."""
BUSYBOX = "/busybox"
"""Search path of the commands in an image of busybox."""
_APPLETS = ("cmp", "cp", "dirname", "mkdir", "mv", "rm", "sh", "sleep")
_LOADED = re.compile(r"TuCCL: (\S.*)/bundle-[0-9a-f]{8}\.tuccl \(CRC ([0-9a-f]{8})\): 1 entries")
_START = """\
root=$1; mounts=$2; shift 2
mount --bind "$root" "$root"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/shm"
chmod 1777 "$root/dev/shm"
: > "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
while IFS=$(printf '\\t') read -r source target mode; do
    if [ -d "$source" ]; then mkdir -p "$root$target"; fi
    mount --bind "$source" "$root$target"
    if [ "$mode" = ro ]; then mount -o remount,bind,ro "$root$target"; fi
done < "$mounts"
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Mount:
    """A file or folder of the node in a container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Outcome:
    """A job that has ended."""

    code: int
    complaints: str
    log: str

    @property
    def loads_plugin(self) -> bool:
        """Whether NCCL's log has a line of the plugin."""
        return "TuCCL:" in self.log

    def has_table(self, place: str, crc: str) -> bool:
        """Return whether the plugin loaded this table from this place, and nothing else."""
        found = [(match[1], match[2]) for match in _LOADED.finditer(self.log)]
        return found == [(place, crc)]


@dataclass(frozen=True)
class Container:
    """A root that no process can write, in mount namespaces of their own."""

    root: Path
    work: Path
    """Folder for logs and lists of mounts."""

    @property
    def variables(self) -> dict[str, str]:
        """Variables that each job has: the place of its log and of NCCL."""
        return {"NCCL_DEBUG_FILE": f"{LOGS}/log.%p", "LD_LIBRARY_PATH": "/lib/nccl"}

    def command(
        self, words: Sequence[str], mounts: Sequence[Mount] = (), user: int = 0
    ) -> list[str]:
        """Return a command line of the node that starts `words` in the container.

        A user is without capabilities, as is root.
        """
        logs = self.work / "logs"
        logs.mkdir(exist_ok=True)
        logs.chmod(0o777)
        listed = sorted([*mounts, Mount(logs, LOGS, writable=True)], key=lambda each: each.target)
        lines = [
            f"{each.source}\t{each.target}\t{'rw' if each.writable else 'ro'}\n" for each in listed
        ]
        number = len(list(self.work.glob("mounts.*")))
        path = self.work / f"mounts.{number}"
        path.write_text("".join(lines))
        confined = [
            "/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
            "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs",
        ]  # fmt: skip
        return [
            "/usr/bin/unshare", "--mount", "--propagation", "private",
            "/bin/sh", "-euc", _START, "sh", str(self.root), str(path), *confined, *words,
        ]  # fmt: skip

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> Outcome:
        """Start a command line of the node with these variables alone, and those of each job."""
        logs = self.work / "logs"
        for log in logs.glob("log.*"):
            log.unlink()
        given = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **self.variables, **variables}
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, check=False, timeout=120
        )
        text = "".join(log.read_text() for log in sorted(logs.glob("log.*")))
        return Outcome(done.returncode, done.stderr, text)


def add_busybox(root: Path) -> bool:
    """Link the commands of busybox into a root that has it; return whether it has."""
    if not (root / "bin" / "busybox").exists():
        return False
    (root / BUSYBOX.lstrip("/")).mkdir()
    for name in _APPLETS:
        (root / BUSYBOX.lstrip("/") / name).symlink_to("/bin/busybox")
    return True


def shell_line(words: Sequence[str]) -> str:
    """Return words as one line for a shell."""
    return " ".join(map(shlex.quote, words))


def is_root() -> bool:
    """Return whether this process may mount."""
    if os.geteuid() != 0:
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True, check=False,
    )  # fmt: skip
    return tried.returncode == 0
