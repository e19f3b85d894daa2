"""`ExecutorLibrary`: libtuccl-executor.so in this process, with a choice for the next calls.

The library must be preloaded, as in a job, so that it replaces NCCL's functions. A choice is an
entry's record of a bundle, with a schedule of the process's own bundle.
`tuccl/runtime/executor/choose.h` declares the same functions for C++.
"""

from __future__ import annotations

import ctypes
import os
from base64 import b64decode
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lookup_tables.bundles.bundle import load_bundle
from lookup_tables.bundles.bundle_writer import entry_record
from lookup_tables.table import ScheduleConfig
from tuccl.errors import EngineError, TableError
from tuccl.runtime import EXECUTOR_NAME

PRELOAD_VARIABLE = "LD_PRELOAD"
BUNDLE_VARIABLE = "TUCCL_BUNDLE"
PACKED_BUNDLE_VARIABLE = "TUCCL_PACKED_BUNDLE"
"""A bundle in base64, for workers on hosts without its file."""


def without_executor(preloaded: str) -> str:
    """Return the value of LD_PRELOAD without the executor."""
    paths = preloaded.replace(":", " ").split()
    return " ".join(path for path in paths if Path(path).name != EXECUTOR_NAME)


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of calls in a range of sizes, of the schedule's operation."""

    min_bytes: int
    max_bytes: int
    """Largest size, inclusive, as nccl-tests counts."""
    config: ScheduleConfig


class ExecutorLibrary:
    """The executor that was preloaded into this process."""

    def __init__(self, *, chooses: bool = True) -> None:
        """Find the library.

        Args:
            chooses: Whether this process makes choices. Communicators that start from now on are
                then prepared for any, with more memory than those of a job.

        Raises:
            EngineError: It was not preloaded.
        """
        library = ctypes.CDLL(None)
        try:
            self._choose = library.tuccl_executor_choose
            self._calls = library.tuccl_executor_calls
        except AttributeError as error:
            raise EngineError(
                "libtuccl-executor.so is not in this process: name it in LD_PRELOAD"
            ) from error
        self._choose.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        self._choose.restype = ctypes.c_char_p
        self._calls.argtypes = ()
        self._calls.restype = ctypes.c_uint64
        if chooses:
            self.choose(None)

    def record(self, choice: Choice) -> bytes:
        """Encode a choice for the executor.

        Raises:
            EngineError: The process has no bundle with this schedule.
        """
        if choice.config.schedule not in self._positions:
            raise EngineError(
                f"{BUNDLE_VARIABLE} has no schedule {choice.config.schedule}: name a bundle with it"
            )
        sizes = choice.min_bytes, choice.max_bytes
        return entry_record(sizes, None, choice.config, self._positions)

    def choose(self, choice: Choice | None) -> None:
        """Run calls in the choice's range by it, all others by NCCL; None: by the process's table.

        Raises:
            EngineError: The executor refused the choice, or lacks its schedule.
        """
        record = None if choice is None else self.record(choice)
        wrong = self._choose(record, len(record or b""))
        if wrong is not None:
            raise EngineError(f"the executor refused {choice}: {wrong.decode(errors='replace')}")

    @property
    def calls(self) -> int:
        """Number of calls that the executor has run in this process."""
        return int(self._calls())

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Index of each schedule in the executor's bundle, by content hash."""
        path = os.environ.get(BUNDLE_VARIABLE, "")
        if not path:
            return {}
        try:
            bundle = load_bundle(Path(path))
        except (OSError, TableError) as error:
            raise EngineError(f"{BUNDLE_VARIABLE}: {error}") from error
        return {stored.content_hash: index for index, stored in enumerate(bundle.schedules)}


def unpack_bundle() -> None:
    """Let TUCCL_BUNDLE name the packed bundle, if there is one, as a file in memory.

    The executor reads the file with each communicator, so it stays open in this process.
    """
    packed = os.environ.pop(PACKED_BUNDLE_VARIABLE, "")
    if packed:
        file = os.memfd_create("tuccl-bundle")
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(b64decode(packed))
        os.environ[BUNDLE_VARIABLE] = f"/proc/self/fd/{file}"


def is_preloaded() -> bool:
    """Return whether the executor is in this process."""
    return hasattr(ctypes.CDLL(None), "tuccl_executor_calls")
