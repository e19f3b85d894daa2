"""Events of one process in a profiler's trace: work on GPUs, and the host's calls that govern it.

Units: microseconds, on the trace's clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto


class HostRole(Enum):
    """Effect of a call of the CUDA or HIP API on the order of work."""

    LAUNCH = auto()
    """It launches work on a stream."""
    COPY = auto()
    """It launches a copy and returns when that has ended."""
    ASYNC_COPY = auto()
    """It launches a copy, and may return before: memory that is not pinned has it wait."""
    RECORD = auto()
    """It records an event on a stream."""
    STREAM_WAIT = auto()
    """It has a stream wait for an event."""
    WAIT_FOR_EVENT = auto()
    """The host waits for an event."""
    WAIT_FOR_STREAM = auto()
    """The host waits for all work of a stream."""
    WAIT_FOR_ALL = auto()
    """The host waits for all work of a GPU."""
    FREE = auto()
    """It frees memory, for which the host may wait for all work of a GPU."""


_ROLES = (
    ("DeviceSynchronize", HostRole.WAIT_FOR_ALL),
    ("CtxSynchronize", HostRole.WAIT_FOR_ALL),
    ("StreamSynchronize", HostRole.WAIT_FOR_STREAM),
    ("EventSynchronize", HostRole.WAIT_FOR_EVENT),
    ("EventRecord", HostRole.RECORD),
    ("StreamWaitEvent", HostRole.STREAM_WAIT),
    ("FreeAsync", None),
    ("Free", HostRole.FREE),
    ("Launch", HostRole.LAUNCH),
    ("Memset", HostRole.LAUNCH),
    ("INVALID", HostRole.LAUNCH),
)
"""Parts of names, alike in CUDA's runtime, its driver and HIP; `INVALID` is a call that is newer
than the profiler."""

WAITS = frozenset(
    {HostRole.WAIT_FOR_EVENT, HostRole.WAIT_FOR_STREAM, HostRole.WAIT_FOR_ALL, HostRole.FREE}
)
"""Roles of calls that launch nothing and may wait."""


def role_of(name: str) -> HostRole | None:
    """Return the role of a call by its name; None: it does not change the order of work."""
    if "Memcpy" in name:
        return HostRole.ASYNC_COPY if "Async" in name else HostRole.COPY
    return next((role for part, role in _ROLES if part in name), None)


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call of the CUDA or HIP API."""

    begun_us: float
    ended_us: float
    thread: Hashable
    role: HostRole
    correlation: int | None
    """Number that the work which it launches has, too."""


@dataclass(frozen=True, slots=True)
class GpuWork:
    """A kernel or a copy."""

    begun_us: float
    ended_us: float
    stream: Hashable
    """Stream and device."""
    correlation: int | None
    kind: int | None = None
    """Number of the kind of collective call whose kernel this is; None: computation or a copy."""
    blocks: int = 0
    """Its thread blocks; 0: unknown."""
    is_copy: bool = False
    """Whether it is a copy, or sets memory, which takes no multiprocessor."""
