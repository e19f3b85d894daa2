"""A process of the crew answers its leader: `serve`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from tuccl.crew.connection import Connection
from tuccl.crew.duties import Duties
from tuccl.crew.messages import Bye, Done, Request, from_bytes, to_bytes
from tuccl.errors import ConnectionLostError, MessageError

LEADER_GONE = 1
"""Exit code of a process whose leader is gone."""


def serve(
    connection: Connection,
    duties: Duties,
    when_lost: Callable[[Exception], None] = lambda _: None,
    before_end: Callable[[], None] = lambda: None,
) -> int:
    """Perform the leader's requests in order until `Bye`; return the exit code that it has.

    A thread receives them, so that a lost leader is noticed while a request is performed.

    Args:
        connection: Connection to the leader.
        duties: Performs the requests; closed at the end.
        when_lost: Called by the thread, at once, with the reason.
        before_end: Called before the duties are closed.
    """
    arrived: queue.SimpleQueue[tuple[int, Request] | None] = queue.SimpleQueue()

    def receive() -> None:
        while True:
            try:
                envelope = from_bytes(connection.receive())
                bye = envelope.kind == Bye.__name__
                request = envelope.content(Bye) if bye else duties.request_from(envelope)
            except (ConnectionLostError, MessageError) as error:
                when_lost(error)
                arrived.put(None)
                return
            arrived.put((envelope.number, request))
            if bye:
                return

    threading.Thread(target=receive, daemon=True).start()
    try:
        while (found := arrived.get()) is not None:
            number, request = found
            if isinstance(request, Bye):
                before_end()
                duties.close()
                connection.send(to_bytes(number, Done()))
                return request.exit_code
            connection.send(to_bytes(number, duties.perform(request)))
    except ConnectionLostError:
        pass
    finally:
        duties.close()
    return LEADER_GONE
