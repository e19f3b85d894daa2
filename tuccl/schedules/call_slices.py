"""Sizes of slices into which the executor may divide a call across hosts.

The executor runs slices one behind the other, so that the network carries one while kernels work on
another, and spreads them over the lanes of a rail. Its scratch memory has a window for each slice
that is under way, which limits the size of slices. `tuccl/runtime/executor/uniform_plan.cc` divides
calls, `staging_need.h` limits the memory.
"""

from __future__ import annotations

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Buffer
from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phases import MOST_SCRATCH_BYTES, MOST_SLICES, CallPhase, PhasedSchedule
from tuccl.models.across_hosts.phase_pipeline import MOST_WINDOWS
from tuccl.search.trials.presets import KIB, UNSLICED

LANES = (2, 4, 8)
"""Lanes that are tried, beside one."""
LEFT_OVER_BYTES = 512
"""Most scratch memory behind the windows: elements that are left over, in one grain."""
_LEAST_BYTES = 64 * KIB
_FOR_EACH_LANE = (1, 2, 4)
"""Slices for each lane that are tried."""
_OF_ROUNDS = (4, 16)
"""Slices of a schedule in stages and rounds that are tried."""
_LEAST_OF_ROUNDS_BYTES = 256 * KIB
"""Least slice of one, whose messages are several and wait for the network each."""


def slice_sizes(phased: PhasedSchedule, size_bytes: int) -> tuple[int, ...]:
    """Return the sizes of slices to try for calls of a size, ascending, as powers of two.

    No two of them divide a call alike. Where the scratch memory does not hold such slices, the
    largest that it holds are taken; none where it holds no slice, or lanes would have none.
    """
    counts = [phased.lanes * times for times in _FOR_EACH_LANE]
    if not can_be_sliced(phased) or size_bytes <= 2 * _LEAST_BYTES:
        counts = [phased.lanes] if phased.lanes == 1 else []
    found = {_size_of(count, size_bytes) for count in counts}
    fitting = {size for size in found if _fits(phased, size, size_bytes)}
    while counts and not fitting and counts[-1] < MOST_SLICES and can_be_sliced(phased):
        counts = [2 * counts[-1]]
        size = _size_of(counts[0], size_bytes)
        fitting = {size} if _fits(phased, size, size_bytes) else set()
    return tuple(sorted(fitting))


def staged_slice_sizes(size_bytes: int, lanes: int = 1) -> tuple[int, ...]:
    """Return the sizes of slices to try for a schedule in stages and rounds, ascending.

    Several lanes have at least a slice each.
    """
    counts = (1, *_OF_ROUNDS) if lanes == 1 else tuple(lanes * times for times in _FOR_EACH_LANE)
    taken = (n for n in counts if n == 1 or n * _LEAST_OF_ROUNDS_BYTES <= size_bytes)
    return tuple(sorted({_size_of(count, size_bytes) for count in taken}))


def slices_of_call(phased: PhasedSchedule, size_bytes: int, slice_bytes: int) -> int:
    """Return the number of slices of a call with this size of slices."""
    return min(MOST_SLICES, -(-size_bytes // slice_bytes)) if can_be_sliced(phased) else 1


def can_be_sliced(phased: PhasedSchedule) -> bool:
    """Whether slices of the caller's buffers are in one piece wherever they have to be."""
    if phased.collective is Collective.ALL_REDUCE:
        return True
    return all(
        (phase.source.buffer is not Buffer.INPUT or _reads_slices(phase))
        and (phase.target.buffer is not Buffer.OUTPUT or _writes_slices(phase))
        for phase in phased.calls
    )


def _size_of(count: int, size_bytes: int) -> int:
    """The least power of two of which so many slices hold a call."""
    if count == 1:
        return UNSLICED
    return max(_LEAST_BYTES, 1 << (-(-size_bytes // count) - 1).bit_length())


def _fits(phased: PhasedSchedule, slice_bytes: int, size_bytes: int) -> bool:
    slices = -(-size_bytes // slice_bytes)
    return (
        phased.lanes <= slices <= MOST_SLICES
        and _scratch_bytes(phased, slice_bytes, size_bytes) <= MOST_SCRATCH_BYTES
    )


def _scratch_bytes(phased: PhasedSchedule, slice_bytes: int, size_bytes: int) -> int:
    """Bytes of scratch memory that a call takes."""
    chunks = phased.larger_chunks
    window = min(slice_bytes, size_bytes) * max(phased.scratch_chunks) // chunks
    rails = sum(phase.kind is PhaseKind.RAIL for phase in phased.calls)
    windows = min(len(phased.phases) + rails * (phased.lanes - 1), MOST_WINDOWS)
    return window * min(windows, -(-size_bytes // slice_bytes)) + LEFT_OVER_BYTES


def _reads_slices(phase: CallPhase) -> bool:
    is_local = phase.kind is PhaseKind.LOCAL
    return phase.chunks == 1 and (
        phase.collective.input_is_part or (phase.collective.output_is_part and is_local)
    )


def _writes_slices(phase: CallPhase) -> bool:
    is_local = phase.kind is PhaseKind.LOCAL
    return phase.chunks == 1 and (
        phase.collective.output_is_part
        or phase.kind is PhaseKind.SUM
        or (phase.collective.input_is_part and is_local)
    )
