"""Time of a call across hosts, from the times of its phases for one slice.

The executor enqueues phases step by step (`tuccl/runtime/executor/program_runner.cc`): at each
step, of the slices that have a phase then, the oldest goes first. Kernels and sums follow one
another on the call's stream. Phases on the network have a stream for each lane, so that those of
several slices run at once beside the kernels of others, and share the network. What runs beside a
round of a slice is among the kernels. A slice of a uniform
schedule starts when an earlier one has left its window of scratch memory; slices of stages and
rounds share no memory. A call in one piece runs phase by phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synthesizer.programs.layout import PhaseKind
from synthesizer.programs.phases import PhasedSchedule

MOST_WINDOWS = 16
"""Windows of scratch memory of a call (`tuccl/runtime/executor/uniform_plan.h`)."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Time of one phase of a slice."""

    time_us: float
    """Time on the stream where it runs, while no other slice uses the network."""
    network_us: float = 0.0
    """Time for which the network carries nothing else."""
    beside_us: float = 0.0
    """Of a round: time of the kernel that runs beside it."""


def pipelined_us(phased: PhasedSchedule, times: Sequence[PhaseTime], slices: int) -> float:
    """Return the time of a call.

    Args:
        phased: The schedule.
        times: Time of each phase, alike for all slices.
        slices: Number of slices.
    """
    if slices == 1:
        return sum(max(time.time_us, time.beside_us) for time in times)
    on_network = [phase.kind in {PhaseKind.RAIL, PhaseKind.ROUND} for phase in phased.phases]
    before = [
        number + (phased.lanes - 1) * sum(on_network[:number]) for number in range(len(times))
    ]
    windows = slices
    if phased.is_uniform:
        windows = min(len(times) + (phased.lanes - 1) * sum(on_network), MOST_WINDOWS, slices)
    lanes = min(slices, phased.lanes)
    kernels_free_us = network_free_us = 0.0
    lane_free_us = [0.0] * lanes
    ends_us, beside_us = [0.0] * slices, [0.0] * slices
    for step in range(slices + before[-1]):
        for number in reversed(range(len(times))):
            piece = step - before[number]
            if not 0 <= piece < slices:
                continue
            start_us = ends_us[piece]
            if number == 0 and piece >= windows:
                start_us = ends_us[piece - windows]
            if on_network[number]:
                start_us = max(start_us, lane_free_us[piece % lanes])
                network_free_us = max(start_us, network_free_us) + times[number].network_us
                end_us = max(start_us + times[number].time_us, network_free_us)
                lane_free_us[piece % lanes] = end_us
                if times[number].beside_us:
                    kernels_free_us = max(ends_us[piece], kernels_free_us) + times[number].beside_us
                    beside_us[piece] = kernels_free_us
            else:
                start_us = max(start_us, beside_us[piece], kernels_free_us)
                end_us = kernels_free_us = start_us + times[number].time_us
            ends_us[piece] = end_us
    return max(ends_us)
