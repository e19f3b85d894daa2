"""The worker on a host, `python -m probes.cluster.worker`.

Requests come on standard input, replies go to standard output. The worker ends when its standard
input closes, whatever ended the leader, and kills the processes that it started. Only replies reach
the leader, because file descriptor 1 is redirected to standard error before anything else runs.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO, NoReturn

from probes.cluster.messages import (
    Bye,
    Failed,
    Request,
    reply_to_line,
    request_from_line,
)
from probes.cluster.station import Station, kill_children
from tuccl.errors import MessageError


def main() -> NoReturn:
    """Answer requests until standard input closes."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as replies:
        os.dup2(2, 1)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(0))
        try:
            _serve(replies)
        finally:
            kill_children()
            # Tasks may still run in threads; their results are not needed.
            os._exit(0)


def _serve(replies: BinaryIO) -> None:
    """Pass requests to a thread, so that the end of standard input is noticed at once."""
    requests: queue.SimpleQueue[tuple[int, Request]] = queue.SimpleQueue()
    threading.Thread(target=_work, args=(requests, replies), daemon=True).start()
    for line in sys.stdin.buffer:
        try:
            number, request = request_from_line(line)
        except MessageError as error:
            # No request has number 0: the leader cannot use this worker.
            replies.write(reply_to_line(0, Failed(reason=str(error))))
            return
        if isinstance(request, Bye):
            return
        requests.put((number, request))


def _work(requests: queue.SimpleQueue[tuple[int, Request]], replies: BinaryIO) -> None:
    station = Station()
    while True:
        number, request = requests.get()
        line = reply_to_line(number, station.perform(request))
        with suppress(BrokenPipeError):
            while line:
                line = line[replies.write(line) :]


if __name__ == "__main__":
    main()
