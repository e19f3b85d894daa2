"""The time of a call beside computation, by the multiprocessors that both share.

A thread block of a collective keeps its multiprocessor as long as the call lasts, and the
computation has the others meanwhile. The call itself is taken to be as fast as alone: what both
share of memory and caches is left out.

Units: microseconds.
"""

from __future__ import annotations

from tuccl.models.figures import Generation

MULTIPROCESSORS = {
    Generation.VOLTA: 80,
    Generation.AMPERE: 108,
    Generation.HOPPER: 132,
    Generation.BLACKWELL: 148,
}
"""Multiprocessors of V100, A100, H100 SXM and B200, by NVIDIA's architecture white papers."""


def time_beside_us(
    alone_us: float, blocks: int, computation_us: float, multiprocessors: int
) -> float:
    """Return the time until a call and the computation beside it have both ended.

    Args:
        alone_us: Time of the call alone.
        blocks: Thread blocks of the call.
        computation_us: Time of the computation alone.
        multiprocessors: Multiprocessors of the GPU.
    """
    taken = min(1.0, blocks / multiprocessors)
    if computation_us <= alone_us * (1.0 - taken):
        return alone_us
    return computation_us + alone_us * taken
