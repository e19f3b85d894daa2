"""Fusion of receives and sends into one instruction (MSCCLang section 4.3).

A receive and the send that forwards its chunks fuse to rcs, rrcs or rrs. A fused step needs its two
connections in one threadblock, and a connection has one threadblock on each side, so receiving and
sending connections of a rank are paired first, those with the most fusions before others.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from synthesizer.ir.algorithm import StepType
from synthesizer.lower.instructions import Connection, InstructionDag


def fusable(dag: InstructionDag) -> dict[int, int]:
    """Return the fused send of each receive.

    The send must read exactly what the receive wrote and wait for nothing else. The previous send
    on its connection must precede the receive in the program, or lie no deeper in the DAG than the
    send itself: otherwise it would delay the receive.
    """
    candidates = _candidates(dag)
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
