"""The file of a measurement log: its lines, each with a sum, and what of it is sound.

The last member of a line is the CRC-32 of what stands before it, begun with the sum of the line
before: a changed byte is found, and so is a line that is missing or stands elsewhere. What stands
before the first wrong line is kept: a process that was killed there would have left the same.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from probes.inputs.regular_file import read_regular_file
from tuccl.errors import NotAFileError, WorkspaceError
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.measurement_lines import FORMAT, VERSION, Contents, header_line

_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"\}')
_SUM_BYTES = len(b',"sum":"01234567"}')


class Sums:
    """The sum of the line before, with which the next one begins."""

    def __init__(self) -> None:
        """Before the first line."""
        self._before = 0

    def sealed(self, line: bytes) -> bytes:
        """A line, a JSON object without its newline, as it stands in the file."""
        self._before = zlib.crc32(line, self._before)
        return b'%b,"sum":"%08x"}\n' % (line[:-1], self._before)

    def opened(self, line: bytes) -> bytes:
        """A line of the file without its sum.

        Raises:
            ValueError: It has none, or a wrong one.
        """
        body = line.removesuffix(b"\n")
        match = _SUM.fullmatch(body[-_SUM_BYTES:])
        if match is None:
            raise ValueError("it has no sum")
        opened = body[:-_SUM_BYTES] + b"}"
        total = zlib.crc32(opened, self._before)
        if int(match[1], 16) != total:
            raise ValueError("its sum is wrong")
        self._before = total
        return opened


@dataclass(frozen=True, slots=True)
class Damage:
    """From where on a log cannot be used."""

    line: int
    """The first wrong one, from 1 on."""
    lines: int
    """How many are lost, the first included; 0: it could be told what stood there."""
    reason: str

    def sentence(self, path: Path, outcome: str) -> str:
        """Describe the damage in half a line; `outcome` says what became of the lines."""
        told = f"{path} is damaged in line {self.line} ({self.reason})"
        if not self.lines:
            return f"{told}, which could be restored"
        lines = "1 line" if self.lines == 1 else f"{self.lines} lines"
        return f"{told}: {lines} from there on {outcome}"


@dataclass(frozen=True, slots=True)
class Sound:
    """The sound part of a log."""

    contents: Contents
    whole: bytes
    """All its lines."""
    lines: Sums
    """Makes the next one."""
    damage: Damage | None
    found: bytes
    """The file as it was."""


def read_sound(path: Path, identity: str, into: Contents | None = None) -> Sound:
    """Read the sound part of a log; empty if there is no log.

    Args:
        path: The file.
        identity: Identity of the run that it must belong to.
        into: Takes the lines; a new `Contents` if left out.

    Raises:
        WorkspaceError: It cannot be read, is of another version, belongs to something else, or
            nothing says what it belongs to.
    """
    found = _bytes_of(path)
    *complete, cut = found.split(b"\n")
    rows = [row + b"\n" for row in complete]
    if not rows and not _first_line(identity).startswith(cut):
        raise WorkspaceError(f"{path} is not a measurement log; move it away")
    contents = Contents() if into is None else into
    if not rows:
        return Sound(contents, b"", Sums(), None, found)
    lines, header_damage = _opening(path, rows, identity)
    if header_damage is not None:
        rows[0] = _first_line(identity)
    kept, reason = 1, ""
    for row in rows[1:]:
        following = copy(lines)
        try:
            contents.take(following.opened(row))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            reason = str(error)
            break
        lines = following
        kept += 1
    damage = header_damage
    if reason:
        damage = Damage(kept + 1, len(rows) - kept + bool(cut), reason)
    elif _SUM.search(cut) and not _SUM.fullmatch(cut[-_SUM_BYTES:]):
        damage = Damage(kept + 1, 1, "its end is wrong")  # A cut line has no more than a whole one.
    return Sound(contents, b"".join(rows[:kept]), lines, damage, found)


def repair(path: Path, sound: Sound) -> Path:
    """Leave in a damaged log what is sound; where the file as it was is now.

    Raises:
        WorkspaceError: There is no room for it; the log is as it was.
    """
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    write_atomically(aside, sound.found)
    write_atomically(path, sound.whole)
    return aside


def _bytes_of(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except FileNotFoundError:
        return b""
    except NotAFileError as error:
        raise WorkspaceError(f"cannot read {path}: {error.strerror}; move it away") from error
    except OSError as error:
        raise WorkspaceError(f"cannot read {path}: {error.strerror}") from error


def _first_line(identity: str) -> bytes:
    return Sums().sealed(header_line(identity))


def _opening(path: Path, rows: Sequence[bytes], identity: str) -> tuple[Sums, Damage | None]:
    """Return what opens the lines after the first, and the damage of the first line."""
    first = rows[0]
    sums = Sums()
    try:
        header, reason = sums.opened(first), ""
    except ValueError as error:
        header, reason = first, str(error)
    summed = not reason or _SUM.search(first) is not None
    try:
        values = json.loads(header)
    except (ValueError, RecursionError) as error:
        values, reason = {}, reason or str(error)
    named = isinstance(values, dict) and values.get("format") == FORMAT
    version = values.get("version") if named else None
    if named and version != VERSION and (not reason or not summed):
        raise WorkspaceError(
            f"{path} has version {version}, this release reads {VERSION}; use another --workspace"
        )
    if named and not reason:
        _check_identity(path, values.get("identity"), identity)
        return sums, None
    return _restored(path, rows, identity, reason)


def _restored(path: Path, rows: Sequence[bytes], identity: str, reason: str) -> tuple[Sums, Damage]:
    """The first line follows from the identity, if the sum of the second one begins with its."""
    sums, again = Sums(), Sums()
    for lines in (sums, again):
        lines.sealed(header_line(identity))
    try:
        again.opened(rows[1] if len(rows) > 1 else b"")
    except ValueError as error:
        if FORMAT.encode() not in rows[0] and _SUM.search(rows[0]) is None:
            raise WorkspaceError(f"{path} is not a measurement log; move it away") from error
        raise WorkspaceError(
            f"{path} is damaged in line 1 ({reason}), which says what it belongs to; "
            "move it away to measure again"
        ) from error
    return sums, Damage(1, 0, reason)


def _check_identity(path: Path, found: object, identity: str) -> None:
    if found != identity:
        raise WorkspaceError(
            f"{path} belongs to another machine, space or backend; "
            "use another --workspace, or `tuccl retune`"
        )
