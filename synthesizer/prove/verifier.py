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
messages, the default. The interpreter splits a message whose chunks do not fit in one slot, in the
worst case into single chunks; for such sizes, pass the chunks per slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from synthesizer.ir.algorithm import Algorithm
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.races import find_races, unordered_ranks
from synthesizer.prove.step_table import Memory, StepTable, step_table
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
