"""Lowering: a program of copies and reductions becomes threadblocks of MSCCL-IR steps.

The passes follow MSCCLang section 4: instruction DAG, fusion, one global order, threadblocks by
(send peer, receive peer, channel), and the fewest dependences between threadblocks that order every
hazard. Dependences that happens-before already implies (a threadblock's own order, a message,
another dependence) are left out. A step has at most one dependence, so nops precede a step that
waits for several steps.

A receive and the send that forwards its chunks fuse to rcs, rrcs or rrs (section 4.3). A fused step
needs its two connections in one threadblock, and a connection has one threadblock on each side, so
receiving and sending connections of a rank are paired first, those with the most fusions before
others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from synthesizer.ir.algorithm import Algorithm, Protocol, StepType
from synthesizer.ir.contents import Sum
from synthesizer.ir.msccl_limits import MAX_CHANNELS, MAX_COUNT, MAX_STEPS
from synthesizer.ir.program import Chunk, Program, Statement
from synthesizer.lower.emission import emit_programs, threadblocks
from synthesizer.lower.instructions import Connection, InstructionDag, instruction_dag, order_steps
from tuccl.errors import ProgramError


def fusable(dag: InstructionDag, *, forks: bool = True) -> dict[int, int]:
    """Return the fused send of each receive; without `forks` of those that one send passes on.

    The send must read exactly what the receive wrote and wait for nothing else. The previous send
    on its connection must precede the receive in the program, or lie no deeper in the DAG than the
    send itself: otherwise it would delay the receive.
    """
    candidates = {
        receive: sends for receive, sends in _candidates(dag).items() if forks or len(sends) == 1
    }
    paired = _pair_connections(dag, candidates)
    fused: dict[int, int] = {}
    for receive, sends in candidates.items():
        source = dag.instructions[receive].connection
        for send in sends:
            if source and paired.get(source) == dag.instructions[send].connection:
                fused[receive] = send
                break
    return fused


def _candidates(dag: InstructionDag) -> dict[int, tuple[int, ...]]:
    sends: dict[Connection, list[int]] = defaultdict(list)
    for index, instruction in dag.instructions.items():
        if instruction.type is StepType.SEND and instruction.connection:
            sends[instruction.connection].append(index)
    previous = {
        later: earlier
        for queue in sends.values()
        for earlier, later in zip([-1, *queue], queue, strict=False)
    }
    depth = _depths(dag)
    found: dict[int, tuple[int, ...]] = {}
    for index, instruction in dag.instructions.items():
        if not instruction.type.receives:
            continue
        matching = tuple(
            send
            for send in sorted(dag.readers.get(index, ()))
            if dag.instructions[send].type is StepType.SEND
            and dag.instructions[send].src == instruction.dst
            and dag.instructions[send].preds == {index}
            and dag.instructions[send].channel == instruction.channel
            and (previous[send] < index or depth[previous[send]] <= depth[send])
        )
        if matching:
            found[index] = matching
    return found


def _depths(dag: InstructionDag) -> dict[int, int]:
    """Return the longest path to each instruction over hazards and messages."""
    depth: dict[int, int] = {}
    for index, instruction in dag.instructions.items():
        before = [depth[pred] for pred in instruction.preds]
        if instruction.type.receives:
            before.append(depth[index - 1])
        depth[index] = 1 + max(before, default=0)
    return depth


def _pair_connections(
    dag: InstructionDag, candidates: dict[int, tuple[int, ...]]
) -> dict[Connection, Connection]:
    """Return the sending connection that shares each receiving connection's threadblock.

    A pair pays if at most one message (the first or last of a ring) or a tenth stays unfused: two
    threadblocks run unfused messages in parallel, one threadblock runs them in turn.
    """
    weight: Counter[tuple[Connection, Connection]] = Counter()
    length: Counter[Connection] = Counter()
    for index, instruction in dag.instructions.items():
        if instruction.connection and instruction.type is StepType.SEND:
            length[instruction.connection] += 1
        for send in candidates.get(index, ()):
            onward = dag.instructions[send].connection
            if instruction.connection and onward:
                weight[instruction.connection, onward] += 1
    paired: dict[Connection, Connection] = {}
    taken: set[Connection] = set()
    for (source, onward), count in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        longer = max(length[source], length[onward])
        pays = longer - count <= max(1, longer // 10)
        if pays and source not in paired and onward not in taken:
            paired[source] = onward
            taken.add(onward)
    return paired


def lower(program: Program, name: str, *, fuse_forks: bool = True) -> Algorithm:
    """Lower a program to a schedule that runs with one or more FIFO slots per connection.

    Without `fuse_forks` a receive that several sends pass on is fused with none of them, so that
    none waits for another.

    If a threadblock exceeds the runtime's step limit, the number of channels is doubled until none
    does, and chunks are spread over them. A step with more chunks than the runtime allows is split.

    Raises:
        ProgramError: The statements cannot be ordered, or exceed the runtime's limits.
    """
    program = replace(program, statements=_short_statements(program.statements))
    factor = 1
    base = 1 + max((statement.channel for statement in program.statements), default=0)
    while base * factor <= MAX_CHANNELS:
        spread = _spread(program, factor)
        algorithm = _lower_once(spread, name, fuse_forks=fuse_forks)
        longest = max(len(tb.steps) for gpu in algorithm.programs for tb in gpu.threadblocks)
        if longest <= MAX_STEPS:
            return algorithm
        factor *= 2
    raise ProgramError(
        f"{name}: a threadblock needs more than {MAX_STEPS} steps even on {MAX_CHANNELS} channels;"
        " use fewer chunks"
    )


def _short_statements(statements: list[Statement]) -> list[Statement]:
    """Split statements over more chunks than a step may have."""
    return [
        Statement(
            _slice(statement.src, first),
            _slice(statement.dst, first),
            _slice(statement.operand, first) if statement.operand else None,
            statement.channel,
        )
        for statement in statements
        for first in range(0, statement.src.count, MAX_COUNT)
    ]


def _slice(chunk: Chunk, first: int) -> Chunk:
    count = min(MAX_COUNT, chunk.count - first)
    return replace(chunk, offset=chunk.offset + first, count=count)


def _lower_once(program: Program, name: str, *, fuse_forks: bool) -> Algorithm:
    dag = instruction_dag(program)
    order = order_steps(dag, fusable(dag, forks=fuse_forks))
    programs = emit_programs(program, dag, order, threadblocks(dag, order))
    return Algorithm(
        name=name,
        collective=program.collective,
        protocol=Protocol.SIMPLE,
        channels=1 + max(tb.channel for gpu in programs for tb in gpu.threadblocks),
        chunks_per_loop=program.chunks_per_loop,
        in_place=program.in_place,
        out_of_place=program.out_of_place,
        programs=programs,
        root=program.root,
        results=_results(program),
    )


def _results(program: Program) -> tuple[tuple[Sum | None, ...], ...]:
    """Return the stated results of all ranks; nothing if there are none."""
    rows: list[dict[int, Sum]] = [{} for _ in range(program.ranks)]
    for (rank, chunk), total in program.expected.items():
        rows[rank][chunk] = total
    if not program.expected:
        return ()
    return tuple(tuple(map(row.get, range(1 + max(row, default=-1)))) for row in rows)


def _spread(program: Program, factor: int) -> Program:
    """Return the program with each channel split into `factor` channels by chunk."""
    if factor == 1:
        return program
    statements = [
        replace(statement, channel=statement.channel * factor + statement.dst.offset % factor)
        for statement in program.statements
    ]
    return replace(program, statements=statements)
