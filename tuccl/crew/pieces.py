"""Pieces of work that host processes do: `HostExecutor`, in the form of `concurrent.futures`."""

from __future__ import annotations

import pickle
import queue
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tuccl.crew.asking import Lost
from tuccl.crew.messages import Done, Failed, Request
from tuccl.crew.places import Places
from tuccl.errors import HostError

_LONGEST_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Piece(Request):
    """Call a function; answered by what it returns or raises."""

    duty: ClassVar[str] = "piece"
    call: str
    """Pickled, in base 64."""


class PieceOfWork:
    """See `Duty`."""

    def __init__(self, _: Mapping[str, str]) -> None:
        """Need nothing."""

    def perform(self, request: Piece) -> Done:
        """See `Duty`."""
        try:
            found = True, pickle.loads(b64decode(request.call))()  # noqa: S301 - of the leader, who knows the key
        except Exception as error:  # noqa: BLE001 - it is the leader's
            found = False, error
        return Done(b64encode(pickle.dumps(found)).decode())

    def close(self) -> None:
        """See `Duty`."""


class HostExecutor(Executor):
    """Lets the host processes of places do work, one piece at a time each."""

    def __init__(self, places: Places, hosts: Sequence[int]) -> None:
        """Use host processes.

        Args:
            places: All places.
            hosts: Those whose processes do the work.
        """
        self._places = places
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for host in hosts:
            self._free.put(host)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`."""
        future: Future[Any] = Future()
        call = b64encode(pickle.dumps(partial(fn, *args, **kwargs))).decode()
        # A thread that nobody waits for when this process is to end.
        threading.Thread(target=self._let_do, args=(Piece(call), future), daemon=True).start()
        return future

    def _let_do(self, piece: Piece, future: Future[Any]) -> None:
        host = self._free.get()
        try:
            answer = self._places.ask({host: piece}, _LONGEST_S)[host]
        finally:
            self._free.put(host)
        if isinstance(answer, Lost | Failed):
            future.set_exception(HostError(f"a process that did work is lost: {answer.reason}"))
            return
        succeeded, result = pickle.loads(b64decode(answer.text))  # noqa: S301 - of a peer with the key
        if succeeded:
            future.set_result(result)
        else:
            future.set_exception(result)
