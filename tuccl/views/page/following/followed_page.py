"""`FollowedPage`: the page of a run as it is now, made again only where the run has gone on.

The run may be measuring on this host, so the page is made seldom: not before some seconds have
passed, and many times what making it took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tuccl.errors import UsageError, WorkspaceError
from tuccl.views.page.figures.places import read_place
from tuccl.views.page.figures.run_so_far import read_so_far
from tuccl.views.page.figures.sketch_figures import read_sketches
from tuccl.views.page.following.so_far_page import Dates, so_far_page
from tuccl.views.page.page import Scripts, following_script
from tuccl.views.page.report import page_of_table
from tuccl.workspace.runs import Run, Workspace

LEAST_S = 5.0
"""Least seconds between two pages."""
_TIMES_ITS_COST = 20.0
"""Least time between two pages, in times of making one."""


@dataclass(frozen=True, slots=True)
class Served:
    """A page, and the tag that tells it from others."""

    tag: str
    content: bytes


class FollowedPage:
    """Makes the page when it is asked for."""

    def __init__(
        self, place: Path, name: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the first page.

        Args:
            place: A workspace.
            name: Name of a run; None: the run that was worked on last, whichever that is by then.
            clock: Seconds of a clock that only moves on.

        Raises:
            UsageError: The workspace has no such run.
            WorkspaceError: The run has a damaged file.
        """
        self._place = place
        self._name = name
        self._clock = clock
        self._scripts = Scripts(following=following_script())
        self._making = threading.Lock()
        self._state = ""
        self._next_s = -1.0
        self._served = self.now()

    def now(self) -> Served:
        """Return the page of the run as it is, or was a few seconds ago.

        Raises:
            UsageError: The run is gone.
            WorkspaceError: The run has a damaged file.
        """
        with self._making:
            began_s = self._clock()
            run = run_to_follow(self._place, self._name)
            state = _state_of(run)
            if state != self._state and began_s >= self._next_s:
                content = self._page_of(run).encode()
                self._served = Served(f'"{sha256(content).hexdigest()[:32]}"', content)
                self._state = state
                took_s = self._clock() - began_s
                self._next_s = began_s + max(LEAST_S, _TIMES_ITS_COST * took_s)
            return self._served

    def _page_of(self, run: Run) -> str:
        record = run.record()
        made_at = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if record is not None and record.complete:
            found = read_place(self._place, run.root.name)
            return page_of_table(found, made_at, self._scripts)[1]
        log = run.measurements
        measured_at = None
        if log.exists():
            measured_at = datetime.fromtimestamp(log.stat().st_mtime, tz=UTC)
        dates = Dates(made_at, measured_at)
        return so_far_page(read_so_far(run, self._place), read_sketches(run), dates, self._scripts)


def run_to_follow(place: Path, name: str | None) -> Run:
    """Return the named run of a workspace, or the one that was worked on last.

    Raises:
        UsageError: The workspace has no such run.
    """
    runs = {run.root.name: run for run in Workspace(place).runs() if _changed_ns(run)}
    if name is not None:
        if name not in runs:
            listed = ", ".join(sorted(runs)) or "none"
            raise UsageError(f"workspace {place} has no run {name!a:.40}; its runs: {listed}")
        return runs[name]
    if not runs:
        raise UsageError(f"workspace {place} has no run to follow; start `tuccl init` there first")
    return max(runs.values(), key=_changed_ns)


def _changed_ns(run: Run) -> int:
    """Return when the run was worked on last; 0: it has nothing yet."""
    return max(_times_ns(run), default=0)


def _times_ns(run: Run) -> list[int]:
    files = (run.root / "run.json", run.topology, run.measurements)
    return [path.stat().st_mtime_ns for path in files if path.exists()]


def _state_of(run: Run) -> str:
    """Return a text that changes when the run has gone on."""
    try:
        size = run.measurements.stat().st_size
    except FileNotFoundError:
        size = 0
    except OSError as error:
        raise WorkspaceError(f"cannot read {run.measurements}: {error.strerror}") from error
    return f"{run.root.name} {size} {_times_ns(run)}"
