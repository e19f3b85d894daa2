"""A stand-in for NCCL on hosts without GPUs: real collectives over TCP, in NumPy, on one host.

It exists so that leading, distributing, timing, checking and recovering run with real processes and
real data where there is no device. Its times say nothing about any GPU. Its parameters matter for
reasons of their own, which resemble NCCL's:

- ring takes many small steps, tree few of the whole size;
- LL and LL128 send without asking and carry flags (8 bytes for 4, 128 for 120), Simple asks for
  each piece of an eighth of `NCCL_BUFFSIZE` and sends nothing but data;
- each channel is a connection of its own, `NCCL_MIN_CTAS` of them at least.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import NamedTuple

import numpy as np

from lookup_tables.collective import Collective
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from tuccl.errors import EngineError
from tuccl.measuring.sockets.sockets_collectives import Array, Choice, Collectives
from tuccl.measuring.sockets.sockets_transport import Mesh
from tuccl.measuring.workers.engine import Call
from tuccl.search.trials.config import DEFAULT_ALGORITHM
from tuccl.search.trials.cost_table import CostTable

_BUFFER_BYTES = 4 << 20
_SLOTS = 8
_MOST_CHANNELS = 64
_DRAWN_ELEMENTS = 4093
_DATA_TYPES = ("float16", "float32", "float64", "int32")


class _Prepared(NamedTuple):
    """A call with its buffers."""

    run: Callable[[], None]
    elements: int
    """Number of elements that this rank contributes."""
    result: Array


class SocketsEngine:
    """One rank; see `Engine`."""

    def __init__(self) -> None:
        self._mesh = Mesh()
        self._slot_bytes = max(_number("NCCL_BUFFSIZE", _BUFFER_BYTES) // _SLOTS, 1)
        self._members = [Collectives(self._mesh, self._slot_bytes)]
        """This rank in each communicator, by its number."""
        self._least_channels = _number("NCCL_MIN_CTAS", 1)
        self._seen: set[Call] = set()

    def make_group_id(self) -> bytes:
        """See `Engine`."""
        return self._mesh.invite()

    def prepare(self, local_rank: int) -> None:
        """See `Engine`: it has no device."""

    def open(self, rank: int, ranks: int, local_rank: int, group_id: bytes) -> str:  # noqa: ARG002 - it has no device
        """See `Engine`."""
        self._mesh.join(rank, ranks, group_id)
        return f"stand-in over sockets, NumPy {np.__version__}"

    def split(self, colour: int, ranks: int, rank: int) -> None:
        """See `Engine`."""
        mesh = self._mesh.split(colour, ranks, rank)
        self._members.append(Collectives(mesh, self._slot_bytes))

    @property
    def nccl_version(self) -> int | None:
        """See `Engine`."""
        return None

    def time(self, call: Call, launches: int) -> list[float]:
        """See `Engine`; the data are zeros, since sums in place grow from call to call."""
        run = self._prepared(call, lambda elements: np.zeros(elements, call.data_type)).run
        if call not in self._seen:
            run()
            self._seen.add(call)
        times_us = []
        for _ in range(launches):
            self._mesh.meet()
            began = time.perf_counter()
            computation = _computing_until(began + call.calls * call.computation_us * 1e-6)
            for _ in range(call.calls):
                run()
            computation.join()
            times_us.append((time.perf_counter() - began) * 1e6 / call.calls)
        return times_us

    def check(self, call: Call) -> str:
        """See `Engine`; every element is compared, with small whole numbers that sum exactly."""

        def data_of(sender: int, elements: int) -> Array:
            return (np.arange(elements) % 7 + sender).astype(call.data_type)

        return self._differing(call, data_of)

    def check_order(self, call: Call, local_ranks: int, shift: int) -> str:  # noqa: ARG002 - NumPy's arrays are aligned
        """See `Engine`; of types that NumPy lacks nothing is said."""
        if call.data_type not in _DATA_TYPES:
            return ""

        def data_of(sender: int, elements: int) -> Array:
            drawn = np.random.default_rng(sender).normal(size=_DRAWN_ELEMENTS)
            return np.resize(drawn, elements).astype(call.data_type)

        return self._differing(call, data_of, local_ranks)

    def _differing(
        self, call: Call, data_of: Callable[[int, int], Array], local_ranks: int = 0
    ) -> str:
        """Run a call; return a finding on what differs, empty if nothing does.

        Args:
            call: The call.
            data_of: Data of a rank, so many elements.
            local_ranks: Ranks of a node, whose parts are added first; 0: any order gives the same.
        """
        mesh = self._members[call.communicator].mesh
        rank, ranks = mesh.rank, mesh.ranks
        run, elements, result = self._prepared(call, lambda count: data_of(rank, count))
        run()
        if call.operation is Collective.ALL_GATHER:
            expected = np.concatenate([data_of(sender, elements) for sender in range(ranks)])
        else:
            parts = [data_of(sender, elements) for sender in range(ranks)]
            nodes = [parts[at : at + local_ranks] for at in range(0, ranks, local_ranks or ranks)]
            expected = _added(list(map(_added, nodes)) if local_ranks else parts)
            if call.operation is Collective.REDUCE_SCATTER:
                part = elements // ranks
                expected = expected[rank * part : (rank + 1) * part]
        wrong = np.flatnonzero(result != expected)
        if not len(wrong):
            return ""
        first = wrong[0]
        return (
            f"{len(wrong)} of {len(expected)} elements are wrong, the first at {first}: "
            f"{result[first]} for {expected[first]}"
        )

    def ran_by(self, call: Call) -> str:  # noqa: ARG002 - nothing else is in this process
        """See `Engine`."""
        return "sockets"

    def cost_table(self, call: Call) -> CostTable | None:  # noqa: ARG002 - it has no model
        """See `Engine`."""
        return None

    def close(self) -> None:
        """See `Engine`."""
        for member in self._members:
            member.mesh.close()

    def _prepared(self, call: Call, fill: Callable[[int], Array]) -> _Prepared:
        """Return a call with its buffers.

        Args:
            call: What is to be run.
            fill: Makes so many elements of data of this rank.

        Raises:
            EngineError: It cannot be run.
        """
        choice = self._choice(call)
        member = self._members[call.communicator]
        ranks = member.mesh.ranks
        total = call.size_bytes // np.dtype(call.data_type).itemsize
        part = total // ranks
        if call.operation is Collective.ALL_REDUCE:
            return _all_reduce(member, fill(total), choice, in_place=call.in_place)
        if part == 0:
            raise EngineError(f"{call.size_bytes} bytes are less than an element per rank")
        if call.operation is Collective.ALL_GATHER:
            return _all_gather(member, fill(part), choice, in_place=call.in_place)
        return _reduce_scatter(member, fill(part * ranks), choice, in_place=call.in_place)

    def _choice(self, call: Call) -> Choice:
        """Return the configuration of a call.

        Raises:
            EngineError: The call cannot run.
        """
        if call.operation not in (
            Collective.ALL_REDUCE,
            Collective.ALL_GATHER,
            Collective.REDUCE_SCATTER,
        ):
            raise EngineError(f"the stand-in has no {call.operation}")
        if call.data_type not in _DATA_TYPES:
            raise EngineError(f"the stand-in has no {call.data_type}")
        if call.nchannels > _MOST_CHANNELS:
            raise EngineError(f"{call.nchannels} channels: the stand-in has {_MOST_CHANNELS}")
        small = call.size_bytes <= 32 << 10
        if call.algorithm == DEFAULT_ALGORITHM:
            protocol = NcclProtocol.LL if small else NcclProtocol.SIMPLE
            return Choice(NcclAlgorithm.RING, protocol, self._channels(1 if small else 2))
        trees = call.operation is Collective.ALL_REDUCE
        if call.algorithm not in ((NcclAlgorithm.RING, NcclAlgorithm.TREE)[: 1 + trees]):
            raise EngineError(f"the stand-in has no {call.algorithm} for {call.operation}")
        algorithm, protocol = NcclAlgorithm(call.algorithm), NcclProtocol(call.protocol)
        return Choice(algorithm, protocol, self._channels(call.nchannels or 2))

    def _channels(self, nchannels: int) -> int:
        return max(nchannels, self._least_channels)


def _added(parts: Sequence[Array]) -> Array:
    """Return a sum from left to right: 16-bit floats in 32 bits, rounded once."""
    total = parts[0].astype(np.float32) if parts[0].dtype == np.float16 else parts[0]
    for part in parts[1:]:
        total = total + part.astype(total.dtype)
    return total.astype(parts[0].dtype)


def _all_reduce(
    member: Collectives, brought: Array, choice: Choice, *, in_place: bool
) -> _Prepared:
    result = brought if in_place else np.empty_like(brought)
    tree = choice.algorithm is NcclAlgorithm.TREE
    reduce_all = member.tree if tree else member.ring

    def run() -> None:
        if not in_place:
            np.copyto(result, brought)
        reduce_all(result, choice)

    return _Prepared(run, len(brought), result)


def _all_gather(
    member: Collectives, brought: Array, choice: Choice, *, in_place: bool
) -> _Prepared:
    ranks, rank = member.mesh.ranks, member.mesh.rank
    result = np.empty(len(brought) * ranks, brought.dtype)
    parts = np.split(result, ranks)
    np.copyto(parts[rank], brought)

    def run() -> None:
        if not in_place:
            np.copyto(parts[rank], brought)
        member.gather(parts, choice)

    return _Prepared(run, len(brought), result)


def _reduce_scatter(
    member: Collectives, brought: Array, choice: Choice, *, in_place: bool
) -> _Prepared:
    ranks, rank = member.mesh.ranks, member.mesh.rank
    scratch = np.empty_like(brought)
    own = np.split(brought, ranks)[rank]
    result = own if in_place else np.empty_like(own)

    def run() -> None:
        np.copyto(scratch, brought)
        parts = np.split(scratch, ranks)
        member.scatter(parts, choice)
        np.copyto(result, parts[rank])

    return _Prepared(run, len(brought), result)


def _computing_until(end_s: float) -> Thread:
    """Return a thread that multiplies matrices until then, and has begun."""
    matrix = np.ones((64, 64), np.float32)

    def compute() -> None:
        while time.perf_counter() < end_s:
            np.matmul(matrix, matrix)

    thread = Thread(target=compute)
    thread.start()
    return thread


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else default
