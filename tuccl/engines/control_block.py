"""`ControlBlock`: tells the tuner plugin in this process what to force upon NCCL's next calls.

The block is a small file that this process and the plugin both map (TUCCL_CONTROL names it), so a
new configuration takes no new communicator. It is a file in memory: no kill leaves anything behind.
The plugin writes back whether NCCL loaded it at all,
which calls NCCL asked about, and whether the wanted entry could be had: NCCL marks what cannot run,
and that is never forced. `tuccl/runtime/control_layout.h` is the same page for C.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass

from lookup_tables.table import NcclAlgorithm, NcclProtocol

CONTROL_VARIABLE = "TUCCL_CONTROL"
NO_WISH = 0xFF
_MAGIC = b"TUCCLCTL"
_VERSION = 1
_COSTS = 21
_ALGORITHMS = list(NcclAlgorithm)
_PROTOCOLS = list(NcclProtocol)


class _Layout(ctypes.LittleEndianStructure):
    """struct tuccl_control_block."""

    _fields_ = (
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("block_bytes", ctypes.c_uint32),
        ("wish", ctypes.c_uint64),
        ("loaded_abi", ctypes.c_uint32),
        ("loaded_pid", ctypes.c_uint32),
        ("communicators", ctypes.c_uint64),
        ("asked", ctypes.c_uint64),
        ("forced", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("sequence", ctypes.c_uint32),
        ("function", ctypes.c_int32),
        ("bytes", ctypes.c_uint64),
        ("nchannels", ctypes.c_int32),
        ("algorithms", ctypes.c_int32),
        ("protocols", ctypes.c_int32),
        ("cost", ctypes.c_float * _COSTS),
    )


@dataclass(frozen=True, slots=True)
class Counters:
    """Calls since the block was made."""

    asked: int
    """That NCCL asked its tuner about."""
    forced: int
    """Of those with a wish, the ones where it was written into NCCL's table."""
    refused: int
    """Of those with a wish, the ones where NCCL had marked it as not to be had."""


@dataclass(frozen=True, slots=True)
class Question:
    """What NCCL asked last, before the plugin changed anything."""

    function: int
    """ncclFunc_t."""
    size_bytes: int
    nchannels: int
    """NCCL's count at that time; 0 in most releases, which count later."""
    model_us: dict[tuple[NcclAlgorithm, NcclProtocol], float]
    """NCCL's own estimate for everything that can run; empty for tuner ABI v2."""


def wish_word(algorithm: str, protocol: str, nchannels: int) -> int:
    """A configuration as the block holds it.

    Raises:
        ValueError: NCCL has no such algorithm or protocol.
    """
    code = _ALGORITHMS.index(NcclAlgorithm(algorithm))
    return code | _PROTOCOLS.index(NcclProtocol(protocol)) << 8 | nchannels << 16


class ControlBlock:
    """The block of this process."""

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self._descriptor = os.memfd_create("tuccl-control", flags)
        self.path = f"/proc/self/fd/{self._descriptor}"
        """For TUCCL_CONTROL: of use in this process alone, until the block is closed."""
        os.truncate(self._descriptor, mmap.PAGESIZE)
        # A mapping of a file that shrinks ends its process.
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._memory = mmap.mmap(self._descriptor, mmap.PAGESIZE)
        self._layout: _Layout | None = _Layout.from_buffer(self._memory)
        self._block.version = _VERSION
        self._block.block_bytes = ctypes.sizeof(_Layout)
        self._block.wish = NO_WISH
        self._block.magic = _MAGIC

    @property
    def _block(self) -> _Layout:
        if self._layout is None:
            raise ValueError("the control block is closed")
        return self._layout

    def set_wish(self, word: int) -> None:
        """From the next call on; `NO_WISH` leaves NCCL alone."""
        self._block.wish = word

    def loaded_abi(self) -> int:
        """Version of the tuner ABI through which NCCL loaded the plugin here; 0 if it did not."""
        block = self._block
        return int(block.loaded_abi) if block.loaded_pid == os.getpid() else 0

    def counters(self) -> Counters:
        """The counts so far."""
        block = self._block
        return Counters(int(block.asked), int(block.forced), int(block.refused))

    def last_question(self) -> Question | None:
        """What NCCL asked last; None before its first call. For when no call is under way."""
        block = self._block
        if block.sequence == 0 or block.sequence % 2:
            return None
        columns = int(block.protocols)
        model_us = {
            (algorithm, protocol): float(block.cost[row * columns + column])
            for row, algorithm in enumerate(_ALGORITHMS[: int(block.algorithms)])
            for column, protocol in enumerate(_PROTOCOLS[:columns])
            if block.cost[row * columns + column] >= 0
        }
        return Question(int(block.function), int(block.bytes), int(block.nchannels), model_us)

    def close(self) -> None:
        """Remove file and mapping; a communicator that still has the block keeps its own."""
        if self._layout is not None:
            self._layout = None
            self._memory.close()
            os.close(self._descriptor)
