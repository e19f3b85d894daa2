"""The verifier: proves a schedule correct for every interleaving, or names its defects.

It does not depend on how schedules are built. Its checks are, in this order: structure,
connections, deadlock with finite FIFO slots (`execution_order`), races (`races`), uninitialised
reads and the exact post-condition (`symbolic`). A check is skipped if an earlier one that it relies
on fails. Checks that depend on the buffer layout run once for each layout that the schedule claims:
in place, out of place.

A vectorised proof (`is_plainly_right`) comes first: it takes seconds for millions of steps and
either succeeds or is inconclusive. It succeeds if structure and connections are sound, no message
takes more than one slot, waits have no cycle, threadblocks and dependences alone order all
conflicting accesses within each rank, and the result is exact. If it is inconclusive, the checks
above run step by step; they also follow the order that messages imply, and name defects.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synthesizer.ir.algorithm import Algorithm
from synthesizer.ir.layout import layout
from synthesizer.ir.wiring import Wiring, wire
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.execution_order import execution_order
from synthesizer.prove.races import find_races
from synthesizer.prove.step_table import step_table
from synthesizer.prove.structure import access_defects, algorithm_defects, connection_defects
from synthesizer.prove.symbolic import execute, result_defects
from synthesizer.prove.table_structure import Places, is_sound
from synthesizer.prove.wave_races import ordered_within_ranks
from synthesizer.prove.wave_symbolic import gives_result
from synthesizer.prove.waves import in_waves


def is_plainly_right(
    algorithm: Algorithm, modes: Sequence[bool], slots: int, chunks_per_slot: int | None
) -> bool:
    """Return whether the simple conditions prove a schedule correct.

    Args:
        algorithm: The schedule.
        modes: Buffer layouts to prove it for: in place (True), out of place (False).
        slots: Slots of each connection, as in `synthesizer.prove.verifier.verify`.
        chunks_per_slot: As in `synthesizer.prove.verifier.verify`.
    """
    try:
        table = step_table(algorithm)
    except OverflowError:
        return False
    if not is_sound(algorithm, table, modes):
        return False
    if chunks_per_slot is not None and (table.count > chunks_per_slot).any():
        return False
    waves = in_waves(table, slots)
    if waves is None:
        return False
    places = [Places(algorithm, in_place=mode) for mode in modes]
    return ordered_within_ranks(table, waves, places) and gives_result(
        algorithm, table, waves, places
    )


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


def verify(algorithm: Algorithm, slots: int = 2, chunks_per_slot: int | None = None) -> Verdict:
    """Prove `algorithm` correct for every interleaving, or return its defects.

    Args:
        algorithm: The schedule.
        slots: FIFO slots of each connection. A proof holds for every larger number as well.
        chunks_per_slot: Chunks that fit in a slot, if larger messages take several slots; None if a
            slot takes a message of any size. A proof for 1 holds for every other value.

    Raises:
        ValueError: `slots` or `chunks_per_slot` is less than 1.
    """
    if slots < 1 or (chunks_per_slot is not None and chunks_per_slot < 1):
        msg = f"slots ({slots}) and chunks per slot ({chunks_per_slot}) must be at least 1"
        raise ValueError(msg)
    modes = [
        mode
        for mode, claimed in ((True, algorithm.in_place), (False, algorithm.out_of_place))
        if claimed
    ]
    if is_plainly_right(algorithm, modes, slots, chunks_per_slot):
        return Verdict(True, ())
    return step_by_step(algorithm, modes, slots, chunks_per_slot)


def step_by_step(
    algorithm: Algorithm, modes: Sequence[bool], slots: int, chunks_per_slot: int | None
) -> Verdict:
    """Verify without the vectorised proof; `modes` are the claimed buffer layouts."""
    defects = algorithm_defects(algorithm)
    if not defects:
        for mode in modes:
            defects.extend(_new(access_defects(algorithm, in_place=mode), defects))
        defects.extend(connection_defects(algorithm))
    if any(defect.kind is not DefectKind.INPUT_OVERWRITTEN for defect in defects):
        return _verdict(defects)
    wiring = wire(algorithm)
    order = execution_order(wiring, slots, chunks_per_slot)
    if isinstance(order, Defect):
        return _verdict([*defects, order])
    for mode in modes:
        found = _execution_defects(algorithm, wiring, order, in_place=mode)
        defects.extend(_new(found, defects))
    return _verdict(defects)


def _execution_defects(
    algorithm: Algorithm, wiring: Wiring, order: list[int], *, in_place: bool
) -> list[Defect]:
    layouts = [layout(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)]
    races = find_races(wiring, order, layouts)
    if races:
        return races
    memory, uninitialised = execute(algorithm, wiring, order, layouts)
    found = list(uninitialised)
    for defect in result_defects(algorithm, memory, layouts):
        found.append(defect)
        if len(found) > len(uninitialised) + MAX_DEFECTS_PER_KIND:
            break
    return found


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


def verdict_as_dict(verdict: Verdict) -> dict[str, object]:
    """Return the verdict for JSON output."""
    return {
        "proved": verdict.proved,
        "defects": [
            {
                "kind": defect.kind.value,
                "rank": defect.rank,
                "threadblock": defect.threadblock,
                "step": defect.step,
                "message": defect.message,
            }
            for defect in verdict.defects
        ],
    }
