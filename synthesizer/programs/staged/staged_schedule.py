"""`StagedSchedule`: a schedule across hosts as stages inside nodes and rounds on the network.

Stage 0 runs inside every node, then come round 1 and stage 1, round 2 and stage 2, and so on, in
this order on all ranks. A stage copies and adds up chunks of the ranks of a node; a round sends
chunks from nodes to others, all at once, as a group of ncclSend and ncclRecv does. Nodes may have
different numbers of ranks, and ranks different work.

Both are lists of statements (`synthesizer.ir.program`) over the buffers of all ranks: the
caller's input and output, and scratch memory that keeps its chunks from stage to stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Program, Statement

Statements = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class StagedSchedule:
    """A schedule in stages and rounds, right in place and out of place."""

    collective: Collective
    node_sizes: tuple[int, ...]
    """Ranks of each node, which follow one another."""
    chunks: int
    """Chunks of a rank's part, or of the whole buffer where it is not divided by ranks."""
    root: int
    scratch_chunks: tuple[int, ...]
    """Scratch chunks of each rank."""
    stages: tuple[Statements, ...]
    """Statements of all nodes, one more than rounds."""
    rounds: tuple[Statements, ...]
    """Copies between ranks of different nodes."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(self.node_sizes)

    @property
    def in_place(self) -> bool:
        """Whether calls may be in place; NCCL's alltoall is never."""
        return self.collective is not Collective.ALLTOALL

    def node_of_rank(self) -> tuple[int, ...]:
        """Return the node of each rank."""
        return tuple(node for node, size in enumerate(self.node_sizes) for _ in range(size))

    def first_ranks(self) -> tuple[int, ...]:
        """Return the first rank of each node."""
        return tuple(accumulate(self.node_sizes[:-1], initial=0))

    def in_order(self) -> Iterator[tuple[bool, Statements]]:
        """Return stages and rounds in the order of their execution, and whether it is a round."""
        yield False, self.stages[0]
        for sent, stage in zip(self.rounds, self.stages[1:], strict=True):
            yield True, sent
            yield False, stage

    def program(self, statements: Statements) -> Program:
        """Return statements as a program of all ranks, whose scratch chunks outlive it."""
        program = Program(
            self.collective,
            self.ranks,
            self.chunks,
            self.root,
            in_place=self.in_place,
            keeps_scratch=True,
            statements=list(statements),
        )
        for rank, count in enumerate(self.scratch_chunks):
            program.scratch(rank, count)
        return program
