"""`ControlBlock`: requests overrides of NCCL's choice from the tuner plugin in this process.

This process and the plugin both map the block, a file in memory that TUCCL_CONTROL names, so a new
configuration takes no new communicator and a killed process leaves nothing behind. The plugin
reports through which ABI NCCL loaded it, which calls NCCL asked about, and whether it forced the
override or refused it: it never forces an entry that NCCL marks as unable to run.
`tuccl/runtime/control_layout.h` declares the same layout for C.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass

from lookup_tables.bundle_layout import chunk_code
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.search.trials.cost_table import CostTable

CONTROL_VARIABLE = "TUCCL_CONTROL"
NO_OVERRIDE = 0xFF
_MAGIC = b"TUCCLCTL"
_VERSION = 2
_COSTS = 21
_MOST_CODE = 0xFF
_ALGORITHMS = list(NcclAlgorithm)
_PROTOCOLS = list(NcclProtocol)


class _Layout(ctypes.LittleEndianStructure):
    """struct tuccl_control_block."""

    _fields_ = (
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("block_bytes", ctypes.c_uint32),
        ("override", ctypes.c_uint64),
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
        ("chunks_asked", ctypes.c_uint64),
        ("chunks_changed", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class Counters:
    """Numbers of calls since the block was created."""

    asked: int
    """Calls that NCCL asked its tuner about."""
    forced: int
    """Calls whose override was written into NCCL's table."""
    refused: int
    """Calls whose override NCCL had marked as unable to run."""
    chunks_asked: int = 0
    """Parts of calls whose chunk size NCCL asked about."""
    chunks_changed: int = 0
    """Those among them that are cut into other chunks than NCCL's own."""


@dataclass(frozen=True, slots=True)
class Question:
    """NCCL's last question to the tuner, before the plugin changed anything."""

    function: int
    """ncclFunc_t."""
    size_bytes: int
    nchannels: int
    """NCCL's count at that time; 0 in most releases, which count later."""
    table: CostTable | None
    """NCCL's own estimate for each entry that can run; None for tuner ABI v2."""


def override_word(algorithm: str, protocol: str, nchannels: int, chunk_bytes: int = 0) -> int:
    """Encode a configuration as the block's override word.

    Raises:
        ValueError: NCCL has no such algorithm or protocol, or the word has no room for a number.
    """
    if not 0 <= nchannels <= _MOST_CODE:
        raise ValueError(f"{nchannels} channels")
    code = _ALGORITHMS.index(NcclAlgorithm(algorithm))
    chunks = chunk_code(chunk_bytes) << 24
    return code | _PROTOCOLS.index(NcclProtocol(protocol)) << 8 | nchannels << 16 | chunks


class ControlBlock:
    """The block of this process."""

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self._descriptor = os.memfd_create("tuccl-control", flags)
        self.path = f"/proc/self/fd/{self._descriptor}"
        """The value for TUCCL_CONTROL; valid in this process alone, until the block is closed."""
        os.truncate(self._descriptor, mmap.PAGESIZE)
        # A mapping of a file that shrinks ends its process.
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._memory = mmap.mmap(self._descriptor, mmap.PAGESIZE)
        self._layout: _Layout | None = _Layout.from_buffer(self._memory)
        self._block.version = _VERSION
        self._block.block_bytes = ctypes.sizeof(_Layout)
        self._block.override = NO_OVERRIDE
        self._block.magic = _MAGIC

    @property
    def _block(self) -> _Layout:
        if self._layout is None:
            raise ValueError("the control block is closed")
        return self._layout

    def request_override(self, word: int) -> None:
        """Request an override for all following calls; `NO_OVERRIDE` leaves NCCL alone."""
        self._block.override = word

    def loaded_abi(self) -> int:
        """Return the tuner ABI through which NCCL loaded the plugin in this process, or 0."""
        block = self._block
        return int(block.loaded_abi) if block.loaded_pid == os.getpid() else 0

    def counters(self) -> Counters:
        """Return the counts so far."""
        block = self._block
        calls = int(block.asked), int(block.forced), int(block.refused)
        return Counters(*calls, int(block.chunks_asked), int(block.chunks_changed))

    def last_question(self) -> Question | None:
        """Return NCCL's last question, None before the first; no call may be in progress."""
        block = self._block
        if block.sequence == 0 or block.sequence % 2:
            return None
        columns = int(block.protocols)
        costs = tuple(
            (algorithm, protocol, float(block.cost[row * columns + column]))
            for row, algorithm in enumerate(_ALGORITHMS[: int(block.algorithms)])
            for column, protocol in enumerate(_PROTOCOLS[:columns])
            if block.cost[row * columns + column] >= 0
        )
        table = CostTable(costs) if block.algorithms else None
        return Question(int(block.function), int(block.bytes), int(block.nchannels), table)

    def close(self) -> None:
        """Remove file and mapping; a communicator that still has the block keeps its own."""
        if self._layout is not None:
            self._layout = None
            self._memory.close()
            os.close(self._descriptor)
