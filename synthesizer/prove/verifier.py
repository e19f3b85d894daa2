"""The verifier: proves a schedule correct for every interleaving, or names its defects.

It does not depend on how schedules are built. Its checks are, in this order: structure,
connections, deadlock with finite FIFO slots (`execution_order`), races (`races`), uninitialised
reads and the exact post-condition: without races one run, in an order that respects every wait,
shows the contents of every chunk. A check is skipped if an earlier one that it relies on fails.
Checks that depend on the buffer layout run once for each layout that the schedule claims: in place,
out of place.

A vectorised proof (`is_plainly_right`) comes first: it takes seconds for millions of steps and
either succeeds or is inconclusive. It succeeds if structure and connections are sound, no message
takes more than one slot, waits have no cycle, threadblocks and dependences alone order all
conflicting accesses within each rank, and the result is exact. If it is inconclusive, the checks
above run step by step; they also follow the order that messages imply, and name defects.

Semantics of the steps are those of the MSCCL interpreter (microsoft/msccl
src/collectives/device/msccl_interpreter.h): `r` and `rcs` write the message to dst; `rrc` writes
src + message to dst; `rrs` sends src + message; `rrcs` does both; `re` adds src to dst; `cpy`
copies src to dst; a dependence waits until the named step of another threadblock has finished.

Slots: an NCCL connection has 8 (`NCCL_STEPS`). The MSCCL interpreter uses one per message with LL
and LL128 and four with Simple (`MSCCL_CHUNKSTEPS`), so with every protocol a connection holds two
messages, the default. The interpreter splits a message whose chunks do not fit in one slot, in the
worst case into single chunks; for such sizes, pass the chunks per slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, ChunkRef, Step, StepType
from synthesizer.ir.contents import Sum, initial_contents, postcondition
from synthesizer.ir.wiring import (
    READS_SRC,
    RECEIVING,
    SENDING,
    WRITES_DST,
    Layout,
    Wiring,
    layout,
    wire,
)
from synthesizer.prove.defects import Defect, DefectKind
from synthesizer.prove.execution_order import execution_order
from synthesizer.prove.races import find_races
from synthesizer.prove.step_table import step_table
from synthesizer.prove.structure import access_defects, algorithm_defects, connection_defects
from synthesizer.prove.table_structure import Places, is_sound
from synthesizer.prove.wave_proof import gives_result, ordered_within_ranks
from synthesizer.prove.waves import in_waves

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
    for rank, lay in enumerate(layouts):
        wanted = postcondition(
            algorithm.collective, algorithm.ranks, algorithm.chunks_per_loop, rank, algorithm.root
        )
        for chunk, right in enumerate(wanted):
            content = memory[rank].get(lay.output_base + chunk)
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


def is_plainly_right(
    algorithm: Algorithm, modes: Sequence[bool], slots: int, chunks_per_slot: int | None
) -> bool:
    """Return whether the simple conditions prove a schedule correct.

    `modes` are the buffer layouts to prove it for: in place (True), out of place (False). Slots and
    chunks per slot are as in `verify`.
    """
    try:
        table = step_table(algorithm)
    except OverflowError:
        return False
    if not is_sound(algorithm, table, modes):
        return False
    if chunks_per_slot is not None and (table.count > chunks_per_slot).any():
        return False
    waves = in_waves(table, slots)
    if waves is None:
        return False
    places = [Places(algorithm, in_place=mode) for mode in modes]
    return ordered_within_ranks(table, waves, places) and gives_result(
        algorithm, table, waves, places
    )


MAX_DEFECTS_PER_KIND = 10
"""Most defects of one kind in a verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: proved, or the defects (at most ten of each kind)."""

    proved: bool
    defects: tuple[Defect, ...]

    def describe(self) -> str:
        """Return `proved`, or one line per defect."""
        return "proved" if self.proved else "\n".join(d.describe() for d in self.defects)


def verify(algorithm: Algorithm, slots: int = 2, chunks_per_slot: int | None = None) -> Verdict:
    """Prove `algorithm` correct for every interleaving, or return its defects.

    Args:
        algorithm: The schedule.
        slots: FIFO slots of each connection. A proof holds for every larger number as well.
        chunks_per_slot: Chunks that fit in a slot, if larger messages take several slots; None if a
            slot takes a message of any size. A proof for 1 holds for every other value.

    Raises:
        ValueError: `slots` or `chunks_per_slot` is less than 1.
    """
    if slots < 1 or (chunks_per_slot is not None and chunks_per_slot < 1):
        msg = f"slots ({slots}) and chunks per slot ({chunks_per_slot}) must be at least 1"
        raise ValueError(msg)
    modes = [
        mode
        for mode, claimed in ((True, algorithm.in_place), (False, algorithm.out_of_place))
        if claimed
    ]
    if is_plainly_right(algorithm, modes, slots, chunks_per_slot):
        return Verdict(True, ())
    return step_by_step(algorithm, modes, slots, chunks_per_slot)


def step_by_step(
    algorithm: Algorithm, modes: Sequence[bool], slots: int, chunks_per_slot: int | None
) -> Verdict:
    """Verify without the vectorised proof; `modes` are the claimed buffer layouts."""
    defects = algorithm_defects(algorithm)
    if not defects:
        for mode in modes:
            defects.extend(_new(access_defects(algorithm, in_place=mode), defects))
        defects.extend(connection_defects(algorithm))
    if any(defect.kind is not DefectKind.INPUT_OVERWRITTEN for defect in defects):
        return _verdict(defects)
    wiring = wire(algorithm)
    order = execution_order(wiring, slots, chunks_per_slot)
    if isinstance(order, Defect):
        return _verdict([*defects, order])
    for mode in modes:
        found = _execution_defects(algorithm, wiring, order, in_place=mode)
        defects.extend(_new(found, defects))
    return _verdict(defects)


def _execution_defects(
    algorithm: Algorithm, wiring: Wiring, order: list[int], *, in_place: bool
) -> list[Defect]:
    layouts = [layout(algorithm, rank, in_place=in_place) for rank in range(algorithm.ranks)]
    races = find_races(wiring, order, layouts)
    if races:
        return races
    memory, uninitialised = execute(algorithm, wiring, order, layouts)
    found = list(uninitialised)
    for defect in result_defects(algorithm, memory, layouts):
        found.append(defect)
        if len(found) > len(uninitialised) + MAX_DEFECTS_PER_KIND:
            break
    return found


def _new(found: Iterable[Defect], known: list[Defect]) -> list[Defect]:
    """Return the defects that the first buffer layout did not show."""
    seen = set(known)
    return [defect for defect in found if defect not in seen]


def _verdict(defects: list[Defect]) -> Verdict:
    kept: list[Defect] = []
    count: dict[DefectKind, int] = {}
    for defect in defects:
        count[defect.kind] = count.get(defect.kind, 0) + 1
        if count[defect.kind] <= MAX_DEFECTS_PER_KIND:
            kept.append(defect)
    return Verdict(not defects, tuple(kept))


def verdict_as_dict(verdict: Verdict) -> dict[str, object]:
    """Return the verdict for JSON output."""
    return {
        "proved": verdict.proved,
        "defects": [
            {
                "kind": defect.kind.value,
                "rank": defect.rank,
                "threadblock": defect.threadblock,
                "step": defect.step,
                "message": defect.message,
            }
            for defect in verdict.defects
        ],
    }
