"""What the executor's program of a schedule says beside its steps: messages, and complete sums.

The run of the verifier (`synthesizer.prove`) shows that the schedule computes its operation, with
the connections that an executor has; an executor also has limits of its own, and a step may wait
for a nop. So every program of a bundle computes its operation. Races are the verifier's matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lookup_tables.collective import Collective
from lookup_tables.program_header import MOST_RANKS
from synthesizer.ir.algorithm import Algorithm, Buffer
from synthesizer.ir.contents import Sum
from synthesizer.programs.layout import (
    MOST_CHANNEL,
    MOST_CHUNKS,
    MOST_STEPS,
    MOST_THREADBLOCKS,
    NO_PEER,
    SLOTS,
)
from synthesizer.prove.defects import Defect
from synthesizer.prove.step_table import BUFFERS, Memory, StepTable, step_table
from synthesizer.prove.structure import channel_defects, operand_defects, program_defects
from synthesizer.prove.symbolic_run import Run, result_defects, run, unwritten_defects
from synthesizer.prove.waves import in_waves
from tuccl.errors import NoProgramError


class Message(NamedTuple):
    """A chunk sent from one rank to another."""

    sender: int
    receiver: int
    value: Sum


StepPlace = tuple[int, int, int]
"""Rank, threadblock, step."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The result of a symbolic run."""

    messages: Counter[Message]
    completing: frozenset[StepPlace]
    """Steps that complete sums of all ranks' contributions."""
    divisible: bool
    """Whether no such step also makes incomplete sums."""
    order: tuple[StepPlace, ...]
    """Steps in the order of the run."""


def run_on_symbols(algorithm: Algorithm) -> Flow:
    """Run a schedule and check that it computes its operation.

    Raises:
        NoProgramError: It does not, it deadlocks, or it exceeds an executor's limits.
    """
    _check_operation(algorithm)
    try:
        table = step_table(algorithm)
    except OverflowError as error:
        raise NoProgramError("a number needs more than 64 bits") from error
    _refuse(program_defects(algorithm, table, nops_report=True))
    _refuse(channel_defects(replace(algorithm, channels=MOST_CHANNEL + 1), table))
    _check_limits(algorithm, table)
    memory = Memory(algorithm, table, in_place=False)
    _refuse(operand_defects(algorithm, table, memory))
    waves = in_waves(table, SLOTS)
    if isinstance(waves, list):
        raise NoProgramError(waves[0].describe())
    done = run(algorithm, table, waves, memory)
    _refuse(unwritten_defects(table, done))
    _check_sums(algorithm, table, done)
    _refuse(result_defects(algorithm, memory, done))
    adding = np.flatnonzero(done.moved.adds)
    complete = (done.values.bits(done.data[adding]) == (1 << algorithm.ranks) - 1).all(axis=1)
    step = done.moved.step[adding]
    completing = np.unique(step[complete])
    places = (table.rank, table.block_id[table.block], table.position)
    return Flow(
        messages=_messages(table, done),
        completing=frozenset(map(table.place, completing.tolist())),
        divisible=not np.isin(step[~complete], completing).any(),
        order=tuple(zip(*(column[waves.order].tolist() for column in places), strict=True)),
    )


def part_chunks(algorithm: Algorithm) -> int:
    """Return the chunks of one rank's part, or of the whole buffer where it is not divided."""
    return algorithm.chunks_per_loop // algorithm.collective.parts(algorithm.ranks)


def _refuse(defects: Iterable[Defect]) -> None:
    for defect in defects:
        raise NoProgramError(defect.describe())


def _check_operation(algorithm: Algorithm) -> None:
    collective, ranks = algorithm.collective, algorithm.ranks
    if collective is Collective.CUSTOM:
        raise NoProgramError(f"{collective} is not an operation that the executor runs")
    if not algorithm.out_of_place:
        raise NoProgramError("it runs in place only, and a call may be either")
    if not 2 <= ranks <= MOST_RANKS:
        raise NoProgramError(f"{ranks} ranks, an executor serves 2 to {MOST_RANKS}")
    if collective.has_root and not 0 <= algorithm.root < ranks:
        raise NoProgramError(f"root {algorithm.root} of {collective} is none of {ranks} ranks")
    chunks = algorithm.chunks_per_loop
    if not 1 <= chunks <= MOST_CHUNKS or (collective.divides and chunks % ranks):
        raise NoProgramError(f"{chunks} chunks for {collective} on {ranks} ranks")


def _check_limits(algorithm: Algorithm, table: StepTable) -> None:
    blocks = int(np.diff(table.first_block).max())
    longest = int(np.diff(table.first).max(initial=0))
    if blocks > MOST_THREADBLOCKS or longest > MOST_STEPS:
        raise NoProgramError(
            f"a rank has {blocks} threadblocks or one of {longest} steps, an executor takes "
            f"{MOST_THREADBLOCKS} of {MOST_STEPS}"
        )
    scratch = max(gpu.scratch_chunks for gpu in algorithm.programs)
    for what, number, most in (
        ("a rank has {} scratch chunks", scratch, MOST_CHUNKS),
        ("a step moves {} chunks", int(table.count.max(initial=0)), MOST_STEPS),
    ):
        if number > most:
            raise NoProgramError(f"{what.format(number)}, at most {most} is allowed")
    home, channel = table.block_rank.tolist(), table.channel.tolist()
    outgoing = set(zip(home, table.send_peer.tolist(), channel, strict=True))
    incoming = set(zip(table.recv_peer.tolist(), home, channel, strict=True))
    for sender, receiver, number in sorted(outgoing ^ incoming):
        if NO_PEER not in {sender, receiver}:
            raise NoProgramError(
                f"connection {sender}->{receiver} channel {number} has no threadblock at one end"
            )
    for step in np.flatnonzero(
        table.depends & (table.awaited_block == table.block_id[table.block])
    ):
        raise NoProgramError(f"{table.name(int(step))} waits for its own threadblock")


def _check_sums(algorithm: Algorithm, table: StepTable, done: Run) -> None:
    """Check what steps add, and that the output keeps chunks in places of their length.

    The last chunk of a part may be shorter than the others.
    """
    moved, values = done.moved, done.values
    allowed = algorithm.collective.reduces
    for unit in np.flatnonzero(moved.adds & (values.wrong[done.data] | (not allowed))).tolist():
        name = table.name(int(moved.step[unit]))
        if not allowed:
            raise NoProgramError(f"{name} adds, but {algorithm.collective} does not")
        raise NoProgramError(f"{name} makes {values.describe(int(done.data[unit]))}")
    part = part_chunks(algorithm)
    kept = moved.writes & (table.dst_buffer[moved.step] == BUFFERS.index(Buffer.OUTPUT))
    place = table.dst_offset[moved.step] + moved.place
    chunk = values.chunk[done.data]
    for unit in np.flatnonzero(kept & (place % part != chunk % part)).tolist():
        raise NoProgramError(
            f"{table.name(int(moved.step[unit]))} keeps chunk {chunk[unit]} in the place of chunk "
            f"{place[unit]}"
        )


def _messages(table: StepTable, done: Run) -> Counter[Message]:
    sent = np.flatnonzero(table.sends[done.moved.step])
    step = done.moved.step[sent]
    ends = (table.rank[step].tolist(), table.send_peer[table.block[step]].tolist())
    return Counter(map(Message, *ends, done.values.sums(done.data[sent])))
