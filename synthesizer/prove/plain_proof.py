"""A vectorised proof for schedules that meet simple sufficient conditions.

Success is a proof, by the same argument as in `synthesizer.prove.verifier`; failure only
means that the conditions do not hold. They are: structure and connections are sound, no message
takes more than one slot, waits have no cycle, threadblocks and dependences alone order all
conflicting accesses within each rank, and the result is exact.
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
