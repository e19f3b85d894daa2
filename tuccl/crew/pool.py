"""Independent pieces of work, in this process or side by side in several.

Results come in the order of the work, whichever ends first, so what is made of them does not depend
on how many workers there are. Processes are spawned, not forked: a fork copies the locks of other
threads as they happen to be.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from typing import TypeVar

from tuccl.crew.cores import own_cores
from tuccl.crew.interrupts import interrupts_held
from tuccl.errors import HostError

_Result = TypeVar("_Result")
_LEAST_RANKS_OF_PROCESSES = 16


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    executor: Executor | None = None
    """This process if None."""
    count: int = 1
    """Pieces that are under way at a time."""

    def each(
        self,
        pieces: Sequence[Callable[[], _Result]],
        progress: Callable[[int], None] = lambda _: None,
        may_begin: Callable[[int, Sequence[_Result]], bool] = lambda _begun, _done: True,
    ) -> list[_Result]:
        """Run the pieces of work and return their results, in their order.

        Args:
            pieces: Begun in this order; they and their results can be pickled.
            progress: Called with the number of pieces done.
            may_begin: Asked before each piece with how many are begun, and the results so far;
                after the first no none is begun, and the results end there.

        Raises:
            HostError: A process ended before its work.
        """
        results: dict[int, _Result] = {}
        running: dict[Future[_Result], int] = {}
        begun = 0
        while True:
            progress(len(results))
            while begun < len(pieces) and len(running) < self.count:
                if not may_begin(begun, list(results.values())):
                    pieces = pieces[:begun]
                    break
                running[self._begin(pieces[begun])] = begun
                begun += 1
            if not running:
                return [results[number] for number in range(begun)]
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            with _deaths_told():
                results |= {running.pop(future): future.result() for future in ended}

    def _begin(self, piece: Callable[[], _Result]) -> Future[_Result]:
        if self.executor is not None:
            # A process may start here. It never sees Ctrl-C or SIGTERM, which are sent to all of a
            # group: this process ends it.
            with interrupts_held(), _deaths_told():
                return self.executor.submit(piece)
        future: Future[_Result] = Future()
        future.set_result(piece())
        return future


IN_PROCESS = Workers()


def workers_for(ranks: int) -> int:
    """How many pay for a machine: small ones are solved before a process has started."""
    return len(own_cores()) if ranks >= _LEAST_RANKS_OF_PROCESSES else 1


@contextmanager
def worker_processes(count: int) -> Iterator[Workers]:
    """That many processes, which end with the block; one: this process itself.

    An error, Ctrl-C or SIGTERM in the block ends them at once, whatever they do; so does the end of
    this process.
    """
    if count == 1:
        yield IN_PROCESS
        return
    before = set(active_children())
    # Its semaphores have names in /dev/shm, which stay there if it is half made.
    with interrupts_held():
        pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_end_with_parent)
    try:
        yield Workers(pool, count)
    except BaseException:
        for process in set(active_children()) - before:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A worker waits for work on a pipe that it holds open itself, so nothing else would end it."""
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def follow() -> None:
            wait_for_any([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _deaths_told() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise HostError(
            "a worker process was killed, most often because memory ran out; use --jobs 1, or "
            "`taskset -c 0 tuccl init` if the command has no --jobs"
        ) from error
