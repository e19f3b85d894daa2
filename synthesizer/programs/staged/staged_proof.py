"""The proof that a staged schedule computes its operation, by the same verifier as any schedule.

The schedule is written out as one algorithm: each stage lowered, each round as a send and a receive
for each pair of ranks, and every step of a stage or round after all steps of its rank in the one
before, as calls follow one another on a stream. The verifier then proves the result, the absence of
races and that finite connections suffice.

Calls of different ranks cannot wait for each other in a circle: all ranks take stages and rounds in
one order, a rank's stage waits for the same stage of its node alone, a round for the same round of
other ranks alone, and a group of sends and receives goes on in all of its parts at once. So the
ranks that are farthest behind can always go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from synthesizer.ir.algorithm import (
    Algorithm,
    Buffer,
    ChunkRef,
    GpuProgram,
    Protocol,
    Step,
    StepRef,
    StepType,
    Threadblock,
)
from synthesizer.ir.collectives import input_chunks, output_chunks
from synthesizer.ir.msccl_limits import MAX_CHANNELS
from synthesizer.ir.program import Chunk
from synthesizer.lower.lowering import lower
from synthesizer.programs.staged.staged_form import check_staged_form
from synthesizer.programs.staged.staged_schedule import StagedSchedule, Statements
from synthesizer.prove.verifier import verify
from tuccl.errors import NoProgramError, ProgramError

_NOWHERE = ChunkRef(Buffer.INPUT, 0)
_Key = tuple[int, int, int]
"""Send peer, receive peer and channel of a threadblock."""


def prove_staged(staged: StagedSchedule) -> Algorithm:
    """Prove that a staged schedule computes its operation.

    Returns:
        The schedule written out as an algorithm.

    Raises:
        NoProgramError: It breaks a rule of the form.
        NoProgramError: It does not; the message says where.
        NoProgramError: A stage exceeds the limits of schedules.
    """
    check_staged_form(staged)
    written_out = written_as_one(staged)
    verdict = verify(written_out, slots=1)
    if not verdict.proved:
        raise NoProgramError(verdict.defects[0].describe())
    return written_out


def stage_algorithm(staged: StagedSchedule, number: int) -> Algorithm | None:
    """Return the steps of a stage on all nodes; None where there are none.

    Raises:
        NoProgramError: The stage exceeds the limits of schedules.
    """
    statements = staged.stages[number]
    if not statements:
        return None
    try:
        return lower(staged.program(statements), f"stage {number}")
    except ProgramError as error:
        raise NoProgramError(f"its {error}") from error


def written_as_one(staged: StagedSchedule) -> Algorithm:
    """Return all stages and rounds as one algorithm.

    Raises:
        NoProgramError: As in `stage_algorithm`, or the stages need too many channels together.
    """
    ranks = [_Rank() for _ in range(staged.ranks)]
    for number in range(len(staged.stages)):
        if number:
            _add_round(ranks, staged.rounds[number - 1])
        stage = stage_algorithm(staged, number)
        if stage is not None:
            _add_stage(ranks, stage)
    buffers = staged.program(())
    sizes = (staged.collective, staged.ranks, buffers.chunks_per_loop)
    programs = tuple(
        GpuProgram(
            number,
            input_chunks(*sizes, number, staged.root),
            output_chunks(*sizes, number, staged.root),
            staged.scratch_chunks[number],
            rank.threadblocks(),
        )
        for number, rank in enumerate(ranks)
    )
    channels = 1 + max(block.channel for gpu in programs for block in gpu.threadblocks)
    return Algorithm(
        name=f"{staged.collective} in {len(staged.rounds)} rounds",
        collective=staged.collective,
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunks_per_loop=buffers.chunks_per_loop,
        in_place=staged.in_place,
        out_of_place=True,
        programs=programs,
        root=staged.root,
    )


@dataclass(slots=True)
class _Rank:
    """The threadblocks of a rank, by their connections."""

    steps: dict[_Key, list[Step]] = field(default_factory=dict)
    before: list[StepRef] = field(default_factory=list)
    """The last steps of the stage or round before."""

    def number(self, key: _Key) -> int:
        """Return the number of a threadblock, which begins here if it is new."""
        self.steps.setdefault(key, [])
        return list(self.steps).index(key)

    def fits(self, key: _Key) -> bool:
        """Return whether no other threadblock has one of these connections."""
        send, receive, channel = key
        return not any(
            held != key
            and held[2] == channel
            and ((send >= 0 and held[0] == send) or (receive >= 0 and held[1] == receive))
            for held in self.steps
        )

    def wait(self, key: _Key) -> int:
        """Let the next step of a threadblock wait for all before; return that step's number."""
        number, steps = self.number(key), self.steps[key]
        steps += [
            Step(StepType.NOP, _NOWHERE, _NOWHERE, depends=place)
            for place in self.before
            if place.threadblock != number
        ]
        return len(steps)

    def end(self, keys: Iterable[_Key]) -> None:
        """End a stage or round that had steps in these threadblocks."""
        last = [StepRef(self.number(key), len(self.steps[key]) - 1) for key in keys]
        self.before = last or self.before

    def threadblocks(self) -> tuple[Threadblock, ...]:
        """Return all threadblocks."""
        return tuple(
            Threadblock(number, *key, tuple(steps))
            for number, (key, steps) in enumerate(self.steps.items())
        )


def _add_round(ranks: Sequence[_Rank], sent: Statements) -> None:
    used: list[dict[_Key, None]] = [{} for _ in ranks]
    for statement in sent:
        src, dst = statement.src, statement.dst
        ends = (
            (src.rank, (dst.rank, -1, 0), StepType.SEND, src),
            (dst.rank, (-1, src.rank, 0), StepType.RECV, dst),
        )
        for rank, key, kind, place in ends:
            if key not in used[rank]:
                ranks[rank].wait(key)
                used[rank][key] = None
            operands = (_ref(place if kind is StepType.RECV else src), _ref(dst))
            ranks[rank].steps[key].append(Step(kind, *operands, src.count))
    for own, keys in zip(ranks, used, strict=True):
        own.end(keys)


def _ref(chunk: Chunk) -> ChunkRef:
    return ChunkRef(chunk.buffer, chunk.offset)


def _add_stage(ranks: Sequence[_Rank], stage: Algorithm) -> None:
    base = _first_channel(ranks, stage)
    for rank, gpu in zip(ranks, stage.programs, strict=True):
        keys = [_key(block, base) for block in gpu.threadblocks]
        numbers = [rank.number(key) for key in keys]
        firsts = [rank.wait(key) for key in keys]
        for key, block in zip(keys, gpu.threadblocks, strict=True):
            rank.steps[key] += [_moved(step, numbers, firsts) for step in block.steps]
        rank.end(keys)


def _key(block: Threadblock, base: int) -> _Key:
    return block.send_peer, block.recv_peer, block.channel + base


def _first_channel(ranks: Sequence[_Rank], stage: Algorithm) -> int:
    """Return the number that channels of a stage begin with, so that connections fit together."""
    for base in range(MAX_CHANNELS - stage.channels + 1):
        if all(
            rank.fits(_key(block, base))
            for rank, gpu in zip(ranks, stage.programs, strict=True)
            for block in gpu.threadblocks
        ):
            return base
    raise NoProgramError(f"its stages need more than {MAX_CHANNELS} channels together")


def _moved(step: Step, numbers: Sequence[int], firsts: Sequence[int]) -> Step:
    if step.depends is None:
        return step
    block, at = step.depends.threadblock, step.depends.step
    return replace(step, depends=StepRef(numbers[block], firsts[block] + at))
