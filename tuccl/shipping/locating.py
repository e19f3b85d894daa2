"""Shell lines by which a shipped script finds its directory, which may have been moved.

The lines are for any POSIX shell with `set -eu`: none of them fails, and none is left half done.
They leave the directory in `tuccl_files`, empty where plugin or bundle are missing, so that a job
whose files are gone starts without the table and not at all with half of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tuccl.runtime import EXECUTOR_NAME, PLUGIN_NAME


def bundle_name(crc: int) -> str:
    """Return the file name of a bundle."""
    return f"bundle-{crc:08x}.tuccl"


BESIDE_BASH_SOURCE = (
    "tuccl_beside=",
    'if [ -n "${BASH_VERSION:-}" ] && [ -n "${BASH_SOURCE:-}" ]; then',
    "    case $BASH_SOURCE in */*) tuccl_beside=${BASH_SOURCE%/*}/ ;; *) tuccl_beside=./ ;; esac",
    '    tuccl_beside=$(CDPATH="" command cd -- "$tuccl_beside" 2>/dev/null && pwd) ||',
    "        tuccl_beside=",
    "fi",
)
"""Lines that put the folder of a sourced file into `tuccl_beside`; only bash tells which it is."""
BESIDE_SCRIPT = (
    'tuccl_beside=$(PATH=/usr/bin:/bin readlink -f -- "$0" 2>/dev/null) || tuccl_beside=$0',
    "tuccl_beside=${tuccl_beside%/*}",
)
"""Lines that put the folder of the script that runs into `tuccl_beside`."""


def finding_lines(crc: int, places: Sequence[Path]) -> list[str]:
    """Return lines that set `tuccl_files`: TUCCL_DIR, `tuccl_beside`, or one of `places`.

    Args:
        crc: Checksum of the bundle.
        places: Where the directory was shipped to, and where jobs find it.
    """
    listed = " ".join(shlex.quote(str(place)) for place in dict.fromkeys(places))
    return [
        "tuccl_files=${TUCCL_DIR:-}",
        f'for tuccl_place in "$tuccl_beside" {listed}; do',
        f'    if [ -z "$tuccl_files" ] && [ -r "$tuccl_place/{bundle_name(crc)}" ] &&',
        f'        [ -r "$tuccl_place/{PLUGIN_NAME}" ]; then tuccl_files=$tuccl_place; fi',
        "done",
        "unset tuccl_place tuccl_beside",
    ]


def warning_line(crc: int, place: Path) -> str:
    """Return a line that says on standard error that the files are not there."""
    text = (
        f"tuccl: {place} has no {PLUGIN_NAME} and {bundle_name(crc)} to be read; NCCL stays as it "
        "is: ship there again, or set TUCCL_DIR to where they lie"
    )
    return f"printf '%s\\n' {shlex.quote(text)} >&2"


_CANNOT_PRELOAD = (
    '"tuccl: $tuccl_executor cannot be preloaded here, as ldd reports; NCCL runs without it"'
)


def trying_lines(then: Sequence[str], otherwise: Sequence[str] = ()) -> list[str]:
    """Return lines that do `then` if the executor at `$tuccl_executor` can be preloaded here.

    A library that needs a newer C library ends every process that preloads it, so it is tried.
    """
    return [
        f'tuccl_executor="$tuccl_files/{EXECUTOR_NAME}"',
        'if LD_PRELOAD="$tuccl_executor" /bin/sh -c : 2>/dev/null; then',
        *(f"    {line}" for line in then),
        "else",
        f"    printf '%s\\n' {_CANNOT_PRELOAD} >&2",
        *(f"    {line}" for line in otherwise),
        "fi",
        "unset tuccl_executor",
    ]
