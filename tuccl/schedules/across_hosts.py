"""How a schedule would run across hosts: in how many rounds on the network, or why it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from synthesizer.ir.algorithm import Algorithm
from synthesizer.programs.cutting import cut
from synthesizer.programs.data_flow import chunks_moved
from synthesizer.programs.proof import prove
from tuccl.errors import NoProgramError
from tuccl.quantities import count_of

MOST_AT_ONCE = 8192
"""Most chunks that the steps of a schedule move which is cut beside other work: seconds."""


@dataclass(frozen=True, slots=True)
class AcrossHosts:
    """A schedule's form in stages inside nodes and rounds on the network, proved."""

    node_sizes: tuple[int, ...]
    messages: tuple[int, ...] = ()
    """Messages of each round."""
    stages: int = 0
    """Stages in which a node has something to do."""
    scratch_chunks: int = 0
    """Most scratch chunks of a rank."""
    why_not: str | None = None

    def as_text(self) -> str:
        """Return one line."""
        where = f"across hosts, {_named(self.node_sizes)}"
        if self.why_not is not None:
            return f"{where}: cannot be cut into rounds: {self.why_not}"
        rounds = count_of(len(self.messages), "round")
        stages = count_of(self.stages, "stage")
        messages = count_of(sum(self.messages), "message")
        return f"{where}: {rounds} on the network with {messages}, {stages} inside nodes"

    def as_dict(self) -> dict[str, Any]:
        """Return the document of `--json`."""
        return {
            "node_sizes": list(self.node_sizes),
            "rounds": None if self.why_not else len(self.messages),
            "messages": list(self.messages),
            "stages": None if self.why_not else self.stages,
            "scratch_chunks": None if self.why_not else self.scratch_chunks,
            "why_not": self.why_not,
        }


def across_hosts(algorithm: Algorithm, node_sizes: Sequence[int]) -> AcrossHosts:
    """Cut a schedule into stages and rounds, and prove the result."""
    sizes = tuple(node_sizes)
    try:
        phased = cut(algorithm, sizes)
        prove(phased)
    except NoProgramError as error:
        return AcrossHosts(sizes, why_not=str(error))
    return AcrossHosts(
        node_sizes=sizes,
        messages=tuple(map(len, phased.messages)),
        stages=sum(1 for stage in phased.stages if stage),
        scratch_chunks=max(phased.scratch_chunks),
    )


def on_nodes(algorithm: Algorithm, node_of_rank: Sequence[int]) -> AcrossHosts | None:
    """Cut a schedule for the nodes of its ranks; None on one node.

    Schedules of many steps are left to `tuccl verify`, since they take up to a minute.
    """
    runs = [(node, len(list(ranks))) for node, ranks in groupby(node_of_rank)]
    sizes = tuple(size for _, size in runs)
    if len(set(node_of_rank)) == 1:
        return None
    if len({node for node, _ in runs}) < len(runs):
        return AcrossHosts(sizes, why_not="the ranks of a node do not follow one another")
    if chunks_moved(algorithm) > MOST_AT_ONCE:
        named = "+".join(map(str, sizes))
        return AcrossHosts(sizes, why_not=f"not tried, `tuccl verify --nodes {named}` takes longer")
    return across_hosts(algorithm, sizes)


def _named(node_sizes: Sequence[int]) -> str:
    if len(set(node_sizes)) == 1:
        return f"{len(node_sizes)} nodes of {count_of(node_sizes[0], 'rank')}"
    return f"nodes of {' + '.join(map(str, node_sizes))} ranks"
