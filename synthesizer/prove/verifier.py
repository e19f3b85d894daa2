"""The verifier: proves a schedule correct for every interleaving, or names its defects.

It does not depend on how schedules are built. Its checks are, in this order: structure
(`structure`), connections and deadlock with finite FIFO slots (`waves`), races (`races`),
uninitialised reads and the exact post-condition (`symbolic_run`): without races one run, in an
order that respects every wait, shows the contents of every chunk. A check is skipped if an earlier
one that it relies on fails. Checks that depend on the buffer layout run once for each layout that
the schedule claims: in place, out of place. All work on columns of numbers, seconds for millions
of steps; only races through messages are followed step by step.

Semantics of the steps are those of the MSCCL interpreter (microsoft/msccl
src/collectives/device/msccl_interpreter.h): `r` and `rcs` write the message to dst; `rrc` writes
src + message to dst; `rrs` sends src + message; `rrcs` does both; `re` adds src to dst; `cpy`
copies src to dst; a dependence waits until the named step of another threadblock has finished.

Slots: an NCCL connection has 8 (`NCCL_STEPS`). The MSCCL interpreter uses one per message with LL
and LL128 and four with Simple (`MSCCL_CHUNKSTEPS`), so with every protocol a connection holds two
messages, the default. The interpreter sends a message whose chunks do not fit in such a place in
parts, at worst single chunks. `deadlock_in_parts` has what that does; it is apart from the proof,
as TuCCL's executor has no such limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np

from synthesizer.ir.algorithm import Algorithm, Protocol
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.races import find_races, unordered_ranks
from synthesizer.prove.step_table import Memory, StepTable, in_parts, step_table
from synthesizer.prove.structure import (
    channel_defects,
    header_defects,
    operand_defects,
    program_defects,
)
from synthesizer.prove.symbolic_run import result_defects, run, unwritten_defects
from synthesizer.prove.waves import Waves, connect, in_waves

SLOTS = 2
"""Messages that a connection holds with every protocol (see above)."""
MSCCL_SLOTS = MappingProxyType(
    {
        Protocol.SIMPLE: (SLOTS, 2 << 20),
        Protocol.LL: (8, 32 << 10),
        Protocol.LL128: (8, 576_000),
    }
)
"""Parts of messages that a connection of the MSCCL interpreter holds, and the bytes of data of each
with NCCL's default buffers: half of 4 MiB; without flags an eighth of 512 KiB, 4,915,200 bytes."""
MAX_DEFECTS_PER_KIND = 10
"""Most defects of one kind in a verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: proved, or the defects (at most ten of each kind)."""

    proved: bool
    defects: tuple[Defect, ...]

    def describe(self) -> str:
        """Return `proved`, or one line per defect."""
        return "proved" if self.proved else "\n".join(d.describe() for d in self.defects)


def verify(algorithm: Algorithm, slots: int = SLOTS) -> Verdict:
    """Prove `algorithm` correct for every interleaving, or return its defects.

    Args:
        algorithm: The schedule.
        slots: FIFO slots of each connection. A proof holds for every larger number as well.

    Raises:
        ValueError: `slots` is less than 1.
    """
    if slots < 1:
        raise ValueError(f"slots ({slots}) must be at least 1")
    modes = [
        mode
        for mode, claimed in ((True, algorithm.in_place), (False, algorithm.out_of_place))
        if claimed
    ]
    return _verdict(_defects(algorithm, modes, slots))


def deadlock_in_parts(algorithm: Algorithm) -> Defect | None:
    """Return the deadlock of a proved schedule if the MSCCL interpreter sends messages in parts.

    It does so if the largest call that the schedule is for has chunks too large for its buffers.
    """
    slots, slot_bytes = MSCCL_SLOTS[algorithm.protocol]
    chunk_bytes = -(-algorithm.max_bytes // algorithm.chunks_per_loop) or slot_bytes
    table = step_table(algorithm)
    parts = -(-np.maximum(table.count, 1) // max(1, slot_bytes // chunk_bytes))
    if parts.max(initial=1) == 1:
        return None
    waves = in_waves(in_parts(table, parts), slots)
    return waves[0] if isinstance(waves, list) else None


def _defects(algorithm: Algorithm, modes: Sequence[bool], slots: int) -> list[Defect]:
    try:
        table = step_table(algorithm)
    except OverflowError:
        return [Defect(DefectKind.STRUCTURE, None, None, None, "a number needs more than 64 bits")]
    found = [*header_defects(algorithm)] or [
        *program_defects(algorithm, table),
        *channel_defects(algorithm, table),
    ]
    if found:
        return found
    memories = [Memory(algorithm, table, in_place=mode) for mode in modes]
    for memory in memories:
        found += _new(operand_defects(algorithm, table, memory), found)
    if any(defect.kind is not DefectKind.INPUT_OVERWRITTEN for defect in found):
        connections = connect(table)
        return [*found, *connections] if isinstance(connections, list) else found
    waves = in_waves(table, slots)
    if isinstance(waves, list):
        return [*found, *waves]
    suspects = unordered_ranks(table, waves, memories)
    for memory in memories:
        races = list(find_races(table, waves, memory, suspects))
        found += _new(races or _wrong_contents(algorithm, table, waves, memory), found)
    return found


def _wrong_contents(
    algorithm: Algorithm, table: StepTable, waves: Waves, memory: Memory
) -> Iterator[Defect]:
    done = run(algorithm, table, waves, memory)
    yield from unwritten_defects(table, done)
    yield from islice(result_defects(algorithm, memory, done), MAX_DEFECTS_PER_KIND + 1)


def _new(found: Iterable[Defect], known: list[Defect]) -> list[Defect]:
    """Return the defects that the first buffer layout did not show."""
    seen = set(known)
    return [defect for defect in found if defect not in seen]


def _verdict(defects: list[Defect]) -> Verdict:
    kept: list[Defect] = []
    count: dict[DefectKind, int] = {}
    for defect in defects:
        count[defect.kind] = count.get(defect.kind, 0) + 1
        if count[defect.kind] <= MAX_DEFECTS_PER_KIND:
            kept.append(defect)
    return Verdict(not defects, tuple(kept))
