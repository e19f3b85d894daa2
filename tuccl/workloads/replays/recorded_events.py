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
    """It launches a copy, and may return after that."""
    RECORD = auto()
    """It records an event on a stream."""
    STREAM_WAIT = auto()
    """It has a stream wait for an event."""
    WAIT = auto()
    """The host waits for an event or a stream."""
    WAIT_FOR_ALL = auto()
    """The host waits for all work of the GPU."""


_ROLES = (
    ("DeviceSynchronize", HostRole.WAIT_FOR_ALL),
    ("CtxSynchronize", HostRole.WAIT_FOR_ALL),
    ("Synchronize", HostRole.WAIT),
    ("EventRecord", HostRole.RECORD),
    ("StreamWaitEvent", HostRole.STREAM_WAIT),
    ("Memcpy", HostRole.COPY),
    ("Launch", HostRole.LAUNCH),
    ("Memset", HostRole.LAUNCH),
    ("INVALID", HostRole.LAUNCH),
)
"""Parts of names, alike in CUDA's runtime, its driver and HIP; `INVALID` is a call that is newer
than the profiler."""


def role_of(name: str) -> HostRole | None:
    """Return the role of a call by its name; None: it does not change the order of work."""
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
    correlation: int | None
    kind: int | None = None
    """Number of the kind of collective call whose kernel this is; None: computation or a copy."""
