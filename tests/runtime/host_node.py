"""The interpreter compiled for host threads, and calls of it on numpy buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookup_tables.collective import Collective
from tests.runtime.builds import EXECUTOR, LOADER

INTERPRETER = [
    *LOADER,
    *(EXECUTOR / name for name in ("moves_launch.cc", "program_moves.cc", "program_plan.cc")),
]
"""Sources of the interpreter that are no kernels."""
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
"""In the order of ncclDataType_t; bfloat16, the tenth, numpy does not have."""
BFLOAT16 = 9
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
LL, SIMPLE = 0, 2
GUARD = 3
"""Guard elements around a result; this number puts results at odd addresses."""
ALIGNED_GUARD = 16
"""Guard elements that put results of every type at multiples of 16 bytes."""
FILLER = 77

Array = NDArray[np.generic]


class RawCall(ctypes.Structure):
    """struct tuccl_call."""

    _fields_ = (
        ("send", ctypes.c_void_p),
        ("receive", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("operation", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("reduction", ctypes.c_uint8),
        ("root", ctypes.c_uint8),
        ("pattern", ctypes.c_uint8),
        ("protocol", ctypes.c_uint8),
        ("nchannels", ctypes.c_uint16),
        ("nthreads", ctypes.c_uint16),
        ("program", ctypes.c_uint32),
        ("buffer_bytes", ctypes.c_uint64),
        ("stride_bytes", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Call:
    """A call on all ranks of a node."""

    operation: Collective
    count: int
    protocol: int = LL
    type: int = TYPES.index("int32")
    reduction: int = 0
    root: int = 0
    instances: int = 1
    threads: int = 1
    """Host threads of a threadblock; one thread stands for a warp."""
    buffer_bytes: int = 1 << 18
    times: int = 1
    guard: int = GUARD

    def raw(self) -> RawCall:
        codes = (self.operation.code, self.type, self.reduction, self.root)
        cut = (self.protocol, self.instances, 32 * self.threads, 0, self.buffer_bytes)
        return RawCall(None, None, self.count, *codes, 0, *cut)


class HostNode:
    """Ranks of one node, as threads; their state persists from call to call."""

    def __init__(self, library: ctypes.CDLL, ranks: int, base: int = 0) -> None:
        self.library = library
        library.host_node_create.restype = ctypes.c_void_p
        library.host_node_run.restype = ctypes.c_char_p
        library.host_node_base.restype = ctypes.c_uint64
        library.host_node_plan.restype = ctypes.c_bool
        self.ranks = ranks
        self.node = ctypes.c_void_p(library.host_node_create(ranks, ctypes.c_uint64(base)))

    def close(self) -> None:
        self.library.host_node_destroy(self.node)

    def abort(self) -> None:
        self.library.host_node_abort(self.node)

    def set_base(self, base: int) -> None:
        """Advance the sequence numbers; they never decrease."""
        self.library.host_node_set_base(self.node, ctypes.c_uint64(base))

    def rearrange(self, *, rearranges: bool) -> None:
        """Set whether programs are rearranged into moves where possible, which is the default."""
        self.library.host_node_rearrange(self.node, ctypes.c_bool(rearranges))

    def base(self, rank: int) -> int:
        return int(self.library.host_node_base(self.node, rank))

    def plan(self, program: bytes, call: Call) -> tuple[int, int, int] | None:
        """Return tiles, bytes of a tile and bytes of a slot; None when the call cannot run."""
        figures = (ctypes.c_uint64 * 3)()
        size = ctypes.c_size_t(len(program))
        fits = self.library.host_node_plan(program, size, ctypes.byref(call.raw()), figures)
        return (figures[0], figures[1], figures[2]) if fits else None

    def run_raw(
        self,
        program: bytes,
        call: Call,
        sends: Sequence[Array | None],
        receives: Sequence[Array | None],
        ranks: range | None = None,
    ) -> None:
        """Run a call on buffers."""
        ranks = ranks or range(self.ranks)
        pointers = ctypes.c_void_p * self.ranks

        def addresses(buffers: Sequence[Array | None]) -> ctypes.Array[ctypes.c_void_p]:
            return pointers(*[None if b is None else b.ctypes.data for b in buffers])

        said = self.library.host_node_run(
            self.node,
            program,
            ctypes.c_size_t(len(program)),
            ctypes.byref(call.raw()),
            addresses(sends),
            addresses(receives),
            ranks.start,
            ranks.stop,
            call.times,
        )
        assert said is None, said

    def run(
        self, program: bytes, call: Call, inputs: Sequence[Array], *, in_place: bool = False
    ) -> list[Array]:
        """Run a call, and check that nothing around its results was written."""
        buffers = [
            _lay_out(call, rank, self.ranks, inputs[rank], in_place=in_place)
            for rank in range(self.ranks)
        ]
        sends = [buffer.send for buffer in buffers]
        self.run_raw(program, call, sends, [buffer.receive for buffer in buffers])
        for rank, buffer in enumerate(buffers):
            assert (buffer.around[: call.guard] == FILLER).all()
            assert (buffer.around[-call.guard :] == FILLER).all()
            if not in_place and buffer.send is not None:
                np.testing.assert_array_equal(buffer.send, inputs[rank])
        return [
            np.empty(0, inputs[0].dtype) if buffer.receive is None else buffer.receive
            for buffer in buffers
        ]


@dataclass(frozen=True)
class _Buffers:
    send: Array | None
    receive: Array | None
    around: Array


def _lay_out(call: Call, rank: int, ranks: int, content: Array, *, in_place: bool) -> _Buffers:
    operation, count = call.operation, call.count
    larger = count * operation.parts(ranks)
    around = np.full(larger + 2 * call.guard, FILLER, content.dtype)
    whole = around[call.guard : call.guard + larger]
    part = whole[rank * count : (rank + 1) * count]
    if operation.has_root and rank != call.root:
        # NCCL lets the others pass a null pointer for the buffer that only the root has.
        result = whole[:count] if operation.output_is_part else whole
        sent, received = (None, result) if operation.from_root else (content.copy(), None)
        return _Buffers(sent, received, around)
    if not in_place:
        result = whole[:count] if operation.output_is_part else whole
        return _Buffers(content.copy(), result, around)
    if operation.input_is_part:
        part[...] = content
        return _Buffers(part, whole, around)
    whole[...] = content
    return _Buffers(whole, part if operation.output_is_part else whole, around)


def expected(call: Call, inputs: Sequence[Array]) -> list[Array]:
    """Return each rank's result by NCCL's definition."""
    operation, ranks = call.operation, len(inputs)

    def result(rank: int) -> Array:
        given = [np.split(array, ranks)[rank] if operation.splits else array for array in inputs]
        if operation.to_root and rank != call.root:
            return given[0][:0]
        if operation.joins:
            return np.concatenate(given)
        if operation.reduces:
            return _reduced(REDUCTIONS[call.reduction], np.stack(given))
        return given[call.root]

    return [result(rank) for rank in range(ranks)]


def _reduced(name: str, stack: Array) -> Array:
    function = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(name, np.add)
    total = function.reduce(stack, axis=0, dtype=stack.dtype)
    result: Array = (total / len(stack)).astype(stack.dtype) if name == "avg" else total
    return result


def make_inputs(call: Call, ranks: int, seed: int) -> list[Array]:
    """Return whole numbers so small that every type represents every result exactly."""
    rng = np.random.default_rng(seed)
    size = call.count * (ranks if call.operation.splits else 1)
    low, high, factor = (1, 3, 1) if REDUCTIONS[call.reduction] == "prod" else (0, 5, 1)
    if REDUCTIONS[call.reduction] == "avg":
        factor, high = ranks, 3
    return [(rng.integers(low, high, size) * factor).astype(TYPES[call.type]) for _ in range(ranks)]
