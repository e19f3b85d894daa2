"""Bindings of the simulator's loops in C (`simulate.h`), which the package build compiles."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthesizer.ir.schedule_graph import ScheduleGraph
from tuccl.errors import HostError

LIBRARY_NAME = "libtuccl-simulate.so"

_DONE, _DEADLOCK = 0, 1


class Sharing(StrEnum):
    """How the messages on a port share it."""

    IN_TURN = "in_turn"
    """One after the other, in the order of their arrival."""
    FAIR = "fair"
    """All at once, with max-min fair rates."""


class Deadlock(NamedTuple):
    """Steps that never start."""

    unfinished: int
    """Their number, over all tiles."""
    stuck: int
    """The first of these steps: tile * steps + step."""


class _Schedule(ctypes.Structure):
    """`struct tuccl_schedule` of simulate.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "ports", "blocks", "connections")),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("chunks", "alpha_us", "hop_begin", "hop_port", "hop_us_per_byte"),
                *("waiting_begin", "waiting", "block_begin"),
                *("connection_begin", "sends", "receives"),
            )
        ),
    )


class _Costs(ctypes.Structure):
    """`struct tuccl_costs` of simulate.h."""

    _fields_ = (
        ("handover_us", ctypes.c_double),
        ("wire_bytes_per_chunk", ctypes.c_double),
        ("copy_us_per_chunk", ctypes.c_double),
    )


class _Simulated(ctypes.Structure):
    """`struct tuccl_simulated` of simulate.h."""

    _fields_ = (
        ("makespan_us", ctypes.c_double),
        ("unfinished", ctypes.c_int64),
        ("stuck", ctypes.c_int64),
    )


class _Trace(ctypes.Structure):
    """`struct tuccl_trace` of simulate.h."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("begin_us", "end_us", "hop_begin_us", "hop_end_us")
    )


class NativeTrace(NamedTuple):
    """When steps ran and messages occupied ports, numbered over all tiles."""

    makespan_us: float
    """End of the last step."""
    begin_us: NDArray[np.float64]
    """By step: when it could begin; a message may wait for its port after that."""
    end_us: NDArray[np.float64]
    hop_begin_us: NDArray[np.float64]
    """By hop, in the order of the steps."""
    hop_end_us: NDArray[np.float64]


class NativeSchedule:
    """A schedule graph in the arrays of simulate.h, for many simulations."""

    def __init__(self, graph: ScheduleGraph) -> None:
        self._arrays = _arrays(graph)
        self._schedule = _Schedule(
            steps=len(graph.names),
            ports=graph.port_count,
            blocks=len(graph.blocks),
            connections=len(graph.connections),
            **{name: array.ctypes.data for name, array in self._arrays.items()},
        )

    def simulate_us(
        self,
        tiles: int,
        fifo_slots: int,
        sharing: Sharing,
        *,
        handover_us: float,
        wire_bytes_per_chunk: float,
        copy_us_per_chunk: float,
    ) -> float | Deadlock:
        """Return the time in microseconds until the last step is done, or the deadlock.

        Raises:
            HostError: The package runs from a source tree without a build.
            MemoryError: No memory for about a hundred bytes per step of every tile.
        """
        costs = _Costs(handover_us, wire_bytes_per_chunk, copy_us_per_chunk)
        simulated = _Simulated()
        library = _library()
        simulate = (
            library.tuccl_simulate_fair
            if sharing is Sharing.FAIR
            else library.tuccl_simulate_in_turn
        )
        outcome = simulate(
            ctypes.byref(self._schedule),
            tiles,
            fifo_slots,
            ctypes.byref(costs),
            ctypes.byref(simulated),
        )
        return self._end(tiles, outcome, simulated)

    def trace_in_turn(
        self,
        tiles: int,
        fifo_slots: int,
        *,
        handover_us: float,
        wire_bytes_per_chunk: float,
        copy_us_per_chunk: float,
    ) -> NativeTrace | Deadlock:
        """Simulate messages in turn; return when each step ran, or the deadlock.

        Raises:
            HostError: As `simulate_us`.
            MemoryError: As `simulate_us`.
        """
        steps = tiles * self._schedule.steps
        hops = tiles * int(self._arrays["hop_begin"][-1])
        arrays = [np.zeros(count) for count in (steps, steps, hops, hops)]
        simulated = _Simulated()
        outcome = _library().tuccl_trace_in_turn(
            ctypes.byref(self._schedule),
            tiles,
            fifo_slots,
            ctypes.byref(_Costs(handover_us, wire_bytes_per_chunk, copy_us_per_chunk)),
            ctypes.byref(simulated),
            ctypes.byref(_Trace(*(array.ctypes.data for array in arrays))),
        )
        ended = self._end(tiles, outcome, simulated)
        return ended if isinstance(ended, Deadlock) else NativeTrace(ended, *arrays)

    def _end(self, tiles: int, outcome: int, simulated: _Simulated) -> float | Deadlock:
        if outcome == _DONE:
            return float(simulated.makespan_us)
        if outcome == _DEADLOCK:
            return Deadlock(simulated.unfinished, simulated.stuck)
        raise MemoryError(f"no memory to simulate {tiles * self._schedule.steps} steps")


def _arrays(graph: ScheduleGraph) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
    waiting: list[list[int]] = [[] for _ in graph.names]
    for awaited, waiter in graph.depends:
        waiting[awaited].append(waiter)
    hops = list(chain.from_iterable(graph.hops))
    return {
        "chunks": np.array(graph.chunks, np.float64),
        "alpha_us": np.array(graph.alpha_us, np.float64),
        "hop_begin": _begins(map(len, graph.hops)),
        "hop_port": _integers(hop.port for hop in hops),
        "hop_us_per_byte": np.array([hop.us_per_byte for hop in hops], np.float64),
        "waiting_begin": _begins(map(len, waiting)),
        "waiting": _integers(chain.from_iterable(waiting)),
        "block_begin": _begins(map(len, graph.blocks)),
        "connection_begin": _begins(len(sends) for sends, _ in graph.connections),
        "sends": _integers(chain.from_iterable(sends for sends, _ in graph.connections)),
        "receives": _integers(chain.from_iterable(receives for _, receives in graph.connections)),
    }


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64)


def _begins(lengths: Iterable[int]) -> NDArray[np.int64]:
    """Return the start of each list in their concatenation, then its end."""
    return np.concatenate(([0], np.cumsum(_integers(lengths)))).astype(np.int64)


@cache
def _library() -> ctypes.CDLL:
    # An editable install leaves the sources where they are and compiles into site-packages.
    installed = (Path(entry) / "synthesizer" / "native" for entry in sys.path)
    for folder in (*map(Path, __path__), *installed):
        if (folder / LIBRARY_NAME).is_file():
            library = ctypes.CDLL(str(folder / LIBRARY_NAME))
            arguments = (
                *(ctypes.POINTER(_Schedule), ctypes.c_int64, ctypes.c_int64),
                *(ctypes.POINTER(_Costs), ctypes.POINTER(_Simulated)),
            )
            for simulate in (library.tuccl_simulate_in_turn, library.tuccl_simulate_fair):
                simulate.argtypes = arguments
                simulate.restype = ctypes.c_int
            library.tuccl_trace_in_turn.argtypes = (*arguments, ctypes.POINTER(_Trace))
            library.tuccl_trace_in_turn.restype = ctypes.c_int
            return library
    raise HostError(
        f"{Path(__file__).parent} has no {LIBRARY_NAME}; `pip install .` compiles it, which needs "
        "a C compiler"
    )
