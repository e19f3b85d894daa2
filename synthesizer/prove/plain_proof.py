"""A proof on columns of numbers for schedules that are right in a simple way, small or large.

Yes means proved, by the same argument as in `synthesizer.prove.verifier`; no means only that the
simple way does not show it. A schedule is plainly right when its structure and connections are in
order, no message takes more than one slot, its waits have no cycle, threadblocks and dependences
alone order all conflicting accesses within each rank, and its result is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from synthesizer.ir.algorithm import Algorithm
from synthesizer.prove.step_table import step_table
from synthesizer.prove.table_structure import Places, is_sound
from synthesizer.prove.wave_races import ordered_within_ranks
from synthesizer.prove.wave_symbolic import gives_result
from synthesizer.prove.waves import in_waves


def is_plainly_right(
    algorithm: Algorithm, modes: Sequence[bool], slots: int, chunks_per_slot: int | None
) -> bool:
    """Whether a schedule is proved right the simple way.

    Args:
        algorithm: The schedule.
        modes: Ways to lay out the buffers to prove it for: in place (True), out of place.
        slots: Of each connection, as in `synthesizer.prove.verifier.verify`.
        chunks_per_slot: As there.
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
