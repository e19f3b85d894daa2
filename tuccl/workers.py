"""Independent pieces of work, in this process or side by side in several.

Results come in the order of the work, whichever ends first, so what is made of them does not depend
on how many workers there are. Processes are spawned, not forked: a fork copies the locks of other
threads as they happen to be.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from typing import TypeVar

from tuccl.errors import WorkerError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    executor: Executor | None = None
    """None: this process."""
    count: int = 1
    """Pieces that are under way at a time."""

    def each(
        self,
        work: Callable[[_Item], _Result],
        items: Sequence[_Item],
        progress: Callable[[int], None] = lambda _: None,
        may_begin: Callable[[Sequence[_Result]], bool] = lambda _: True,
    ) -> list[_Result]:
        """What the work gives for the items, in their order.

        Args:
            work: A function of a module; it, items and results can be pickled.
            items: What to work on; they are begun in this order.
            progress: Told how many are done.
            may_begin: Asked before each item, with the results so far; the first no ends it, and
                items that were not begun are missing at the end of the results.

        Raises:
            WorkerError: A process ended before its work.
        """
        results: dict[int, _Result] = {}
        running: dict[Future[_Result], int] = {}
        begun = 0
        while True:
            progress(len(results))
            while begun < len(items) and len(running) < self.count:
                if not may_begin(list(results.values())):
                    items = items[:begun]
                    break
                running[self._begin(work, items[begun])] = begun
                begun += 1
            if not running:
                return [results[number] for number in range(begun)]
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            results |= {running.pop(future): _result(future) for future in ended}

    def _begin(self, work: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
        if self.executor is not None:
            return self.executor.submit(work, item)
        future: Future[_Result] = Future()
        future.set_result(work(item))
        return future


IN_PROCESS = Workers()


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


@contextmanager
def worker_processes(count: int) -> Iterator[Workers]:
    """That many processes, which end with the block; one: this process itself.

    An error or Ctrl-C in the block ends them at once, whatever they do; so does the end of this
    process.
    """
    if count == 1:
        yield IN_PROCESS
        return
    before = set(active_children())
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_end_with_parent)
    try:
        with _interrupts_held():
            pool.submit(os.getpid)
        yield Workers(pool, count)
    except BaseException:
        for process in set(active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """What starts here never sees Ctrl-C, which a terminal sends to all: this process ends them."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _end_with_parent() -> None:
    """A worker waits for work on a pipe that it holds open itself, so nobody else would tell it."""
    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def follow() -> None:
            wait_for_any([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def _result(future: Future[_Result]) -> _Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process was killed, most often because memory ran out; use --jobs 1"
        ) from error
