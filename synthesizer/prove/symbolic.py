"""Symbolic execution: the exact contents of every chunk at the end.

The steps run once in an order that respects every wait. A schedule without races has the same
contents after every such order, so one run is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synthesizer.ir.algorithm import Algorithm, ChunkRef, Step, StepType
from synthesizer.ir.collectives import Collective, Sum, initial_contents, postcondition
from synthesizer.ir.layout import Layout
from synthesizer.ir.wiring import READS_SRC, RECEIVING, SENDING, WRITES_DST, Wiring
from synthesizer.prove.defects import Defect, DefectKind

Content = Sum | str | None
"""Contents of a chunk: a sum that may become correct, the reason why it cannot, or None."""

_UNDEFINED = "data that nothing has written"


def execute(
    algorithm: Algorithm, wiring: Wiring, order: Sequence[int], layouts: Sequence[Layout]
) -> tuple[list[dict[int, Content]], list[Defect]]:
    """Return the contents per rank and address after all steps, and reads of unwritten chunks."""
    memory = [_initial_memory(algorithm, rank, layouts[rank]) for rank in range(algorithm.ranks)]
    messages: dict[int, list[Content]] = {}
    defects: list[Defect] = []
    for node in order:
        step = wiring.steps[node]
        if step.type is StepType.NOP:
            continue
        rank = wiring.blocks[wiring.block_of[node]][0]
        cells, layout = memory[rank], layouts[rank]
        data = messages.pop(wiring.source[node]) if step.type in RECEIVING else None
        if step.type in READS_SRC:
            local = _read(cells, layout, step.src, step.count)
            if any(content is None for content in local):
                defects.append(_uninitialised(wiring, node, step, local))
                local = [_UNDEFINED if content is None else content for content in local]
            data = (
                local if data is None else [_add(*pair) for pair in zip(data, local, strict=True)]
            )
        if step.type is StepType.REDUCE and data is not None:
            target = _read(cells, layout, step.dst, step.count)
            if any(content is None for content in target):
                defects.append(_uninitialised(wiring, node, step, target, reads_dst=True))
            data = [_add(*pair) for pair in zip(target, data, strict=True)]
        if data is None:
            continue
        if step.type in WRITES_DST:
            base = layout.address(step.dst)
            cells.update(zip(range(base, base + step.count), data, strict=True))
        if step.type in SENDING:
            messages[node] = data
    return memory, defects


def result_defects(
    algorithm: Algorithm, memory: Sequence[dict[int, Content]], layouts: Sequence[Layout]
) -> Iterator[Defect]:
    """Yield the result chunks whose contents differ from the post-condition."""
    if algorithm.collective is Collective.CUSTOM:
        yield Defect(
            DefectKind.NO_POSTCONDITION,
            None,
            None,
            None,
            "the operation is custom: nothing says what its result should be, "
            "only structure, deadlocks, races and uninitialised reads were checked",
        )
        return
    for rank, layout in enumerate(layouts):
        wanted = postcondition(
            algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
        )
        for chunk, right in enumerate(wanted):
            content = memory[rank].get(layout.output_base + chunk)
            if content != right:
                yield Defect(
                    DefectKind.WRONG_RESULT,
                    rank,
                    None,
                    None,
                    f"result chunk {chunk} holds {_tell(content)}, must hold {_tell(right)}",
                )


def _initial_memory(algorithm: Algorithm, rank: int, layout: Layout) -> dict[int, Content]:
    if algorithm.collective is Collective.CUSTOM:
        return {chunk: Sum(chunk, 1 << rank) for chunk in range(layout.input_chunks)}
    contents = initial_contents(
        algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
    )
    return {layout.input_base + chunk: content for chunk, content in enumerate(contents)}


def _read(cells: dict[int, Content], layout: Layout, ref: ChunkRef, count: int) -> list[Content]:
    base = layout.address(ref)
    return [cells.get(address) for address in range(base, base + count)]


def _add(left: Content, right: Content) -> Content:
    """Return the sum of two contents; a wrong sum stays wrong, since nothing is subtracted."""
    if isinstance(left, str) or left is None:
        return left or _UNDEFINED
    if isinstance(right, str) or right is None:
        return right or _UNDEFINED
    if left.chunk != right.chunk:
        return f"a sum of input chunks {left.chunk} and {right.chunk}"
    twice = left.ranks & right.ranks
    if twice:
        return (
            f"chunk {left.chunk} of rank {_ranks(twice)} more than once: "
            f"{_tell(left)} plus {_tell(right)}"
        )
    return Sum(left.chunk, left.ranks | right.ranks)


def _uninitialised(
    wiring: Wiring, node: int, step: Step, contents: Sequence[Content], *, reads_dst: bool = False
) -> Defect:
    ref = step.dst if reads_dst else step.src
    chunk = ref.offset + next(i for i, content in enumerate(contents) if content is None)
    return Defect(
        DefectKind.UNINITIALISED,
        *wiring.place(node),
        f"{step.type} reads {ref.buffer}[{chunk}], which holds nothing at that time",
    )


def _tell(content: Content) -> str:
    if content is None:
        return "nothing"
    if isinstance(content, str):
        return content
    return f"chunk {content.chunk} of rank {_ranks(content.ranks)}"


def _ranks(mask: int) -> str:
    """Return the ranks of a bit set with runs shortened: 0-3,7."""
    runs: list[str] = []
    rank = 0
    while mask >> rank:
        if not mask >> rank & 1:
            rank += 1
            continue
        start = rank
        while mask >> rank & 1:
            rank += 1
        runs.append(str(start) if rank == start + 1 else f"{start}-{rank - 1}")
    return ",".join(runs)
