"""Collectives as people write them: operations, for whoever synthesizes."""

from __future__ import annotations

from synthesizer.ir.collectives import Collective
from tuccl.errors import UsageError


def parse_collective(name: str) -> Collective:
    """A collective by its nccl-tests name; `AllGather` and `all-gather` are understood too.

    Raises:
        UsageError: for anything else.
    """
    wanted = name.lower().replace("_", "").replace("-", "")
    known = [collective for collective in Collective if collective is not Collective.CUSTOM]
    for collective in known:
        if collective.value.replace("_", "") == wanted:
            return collective
    raise UsageError(f"operation {name!a:.60} is unknown: use one of {', '.join(known)}")
