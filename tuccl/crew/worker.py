"""A process of the crew, `python -m tuccl.crew.worker`: it answers the requests of its leader.

A worker reads a line of JSON from standard input (`WorkerOrder`) and connects to the leader. With
the argument `host` it was started by a launcher such as ssh, and talks over standard input and
output. It ends at once when the connection closes or its parent dies, and kills what it started:
a thread watches the connection, the kernel the parent. All else that it prints goes to standard
error, whose last line says why it died.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from typing import NoReturn

from tuccl.crew.connection import Connection, Greeting, connect, greet_over_pipe
from tuccl.crew.cores import bind_to_named_share
from tuccl.crew.duties import Duties
from tuccl.crew.messages import from_bytes
from tuccl.crew.serving import LEADER_GONE, serve
from tuccl.crew.worker_process import WorkerOrder, kill_children
from tuccl.errors import TucclError

_PR_SET_PDEATHSIG = 1
_CLOSING_S = 5.0
"""Time for the duties to be closed after the leader has left."""


def main() -> NoReturn:
    """Answer requests until the leader dismisses the process or is gone."""
    code = 1
    try:
        connection = _pipes() if sys.argv[1:] == ["host"] else _connection()
        code = serve(connection, Duties(dict(os.environ)), _end_without_leader, _end_soon)
    except TucclError as error:
        sys.stderr.write(f"{error}\n")
    except Exception:  # noqa: BLE001 - the process ends: its last line is shown to the user
        traceback.print_exc()
    _end(code)


def _connection() -> Connection:
    """Return the connection of a worker, which ends with its parent."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.dup2(2, 1)
    bind_to_named_share()
    order = from_bytes(sys.stdin.buffer.readline()).content(WorkerOrder)
    greeting = Greeting("worker", order.number)
    return connect(order.addresses, bytes.fromhex(order.key), greeting)


def _pipes() -> Connection:
    """Return the connection of a host process, which ends with its standard input."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _end(0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    connection = Connection(os.fdopen(0, "rb", buffering=0), answers)
    greet_over_pipe(connection)
    return connection


def _end(code: int) -> NoReturn:
    sys.stderr.flush()
    kill_children()
    # Libraries may hold threads that never end.
    os._exit(code)


def _end_without_leader(error: Exception) -> None:
    sys.stderr.write(f"the leader is gone: {error}\n")
    _end(LEADER_GONE)


def _end_soon() -> None:
    """End in some seconds: what hangs while it is closed must not outlive the run."""
    end = threading.Timer(_CLOSING_S, lambda: _end(1))
    end.daemon = True
    end.start()


if __name__ == "__main__":
    main()
