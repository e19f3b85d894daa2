"""A measurement log that begins with the measurements of another run: `carry_measurements`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuccl.search.trials.config import Task
from tuccl.workspace.atomic_file import write_atomically
from tuccl.workspace.measurement_file import Sums, read_sound
from tuccl.workspace.measurement_lines import Contents, header_line, standing_alone


class _Chosen(Contents):
    """A log that keeps the lines about some tasks."""

    def __init__(self, wanted: Callable[[Task], bool]) -> None:
        super().__init__()
        self._wanted = wanted
        self.lines: list[bytes] = []

    def take(self, line: bytes) -> None:
        """See `Contents`."""
        super().take(line)
        found = standing_alone(line, self.restart_s)
        if found is not None and self._wanted(found[0]):
            self.lines.append(found[1])


def carry_measurements(
    source: Path, identity: str, to: Path, own: str, wanted: Callable[[Task], bool]
) -> int:
    """Begin a log with the measurements of another one, unless it has begun already.

    What measured them is not taken over: the run says what measures its own.

    Args:
        source: The other log, which may be missing.
        identity: Identity of its run.
        to: The log.
        own: Identity of its run.
        wanted: Whether the measurements of a task are taken.

    Returns:
        How many were taken.

    Raises:
        WorkspaceError: A log cannot be read or written, or belongs to something else.
    """
    if to.exists():
        return 0
    chosen = _Chosen(wanted)
    read_sound(source, identity, chosen)
    if chosen.lines:
        sums = Sums()
        lines = [sums.sealed(line) for line in (header_line(own), *chosen.lines)]
        write_atomically(to, b"".join(lines))
    return len(chosen.lines)
