"""Errors between an engine, its worker and the leader.

EngineError              a rank cannot perform a request
└── EngineBrokenError    ... nor any further request
ConnectionLostError      the peer has closed the connection
MessageError             the peer is not part of this run, or runs another release
GroupLostError           a rank died, hangs, or disagrees with the others
"""

from __future__ import annotations

from tuccl.errors import TucclError


class EngineError(TucclError):
    """Raised when a rank cannot perform a request; the text is half a sentence that says why.

    When every rank refuses a call, the group goes on with the next call. An engine whose
    communicator can no longer be used raises `EngineBrokenError`.
    """


class EngineBrokenError(EngineError):
    """Raised when a rank cannot perform any request before its worker is restarted."""


class ConnectionLostError(TucclError):
    """Raised when the peer has closed the connection."""


class MessageError(TucclError):
    """Raised when the peer is not part of this run, or runs another release."""


class GroupLostError(TucclError):
    """Raised when a rank died, hangs, or disagrees with the others: all must be restarted."""

    def __init__(self, reason: str, *, from_outside: bool = False) -> None:
        super().__init__(reason)
        self.from_outside = from_outside
        """Whether a worker was killed from outside (by a user, by the kernel short of memory)."""
