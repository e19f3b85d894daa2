"""Who wrote what: the single-writer rule of the language.

Every write gives a place a new version. A reference remembers the versions that it was made with,
and may be read as long as they stand. A second write to a place must come after the first by way
of data: what it writes, or adds to, was made from what the first one wrote. Without that nothing
but the order of the lines says which one wins.

Both rules hold for every way in which the schedule lets its caller lay out the buffers. In place an
input chunk and the output chunk that it lies on are one place, so writing the one overwrites the
other. A copy of a chunk onto itself, which only exists in place, writes nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress

from synthesizer.errors import ProgramError
from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.collectives import Collective
from synthesizer.ir.program import Chunk, Program, Statement

Versions = tuple[tuple[int, ...], ...]
"""Per way of laying out the buffers, per chunk: the statement that wrote it."""

_CALLER = -1
"""Stands for the caller, who fills the input buffers."""

_BUFFER_NAMES = {Buffer.INPUT: "input", Buffer.OUTPUT: "output", Buffer.SCRATCH: "scratch"}


def describe(chunk: Chunk) -> str:
    """A chunk as messages name it."""
    last = chunk.offset + chunk.count - 1
    which = f"chunk {chunk.offset}" if chunk.count == 1 else f"chunks {chunk.offset} to {last}"
    return f"{which} of {_BUFFER_NAMES[chunk.buffer]} of rank {chunk.rank}"


@dataclass
class _View:
    """One way of laying out the buffers."""

    in_place: bool
    writer: dict[Chunk, int] = field(default_factory=dict)

    def writer_of(self, program: Program, unit: Chunk) -> int | None:
        """The statement that wrote a single chunk, None where nobody did."""
        place = self.place(program, unit)
        found = self.writer.get(place)
        return _CALLER if found is None and self._is_input(program, place) else found

    def write(self, program: Program, units: Iterable[Chunk], statement: int) -> None:
        for unit in units:
            self.writer[self.place(program, unit)] = statement

    def place(self, program: Program, unit: Chunk) -> Chunk:
        """Where a single chunk lies."""
        return program.location(unit) if self.in_place else unit

    def places(self, program: Program, chunk: Chunk) -> list[Chunk]:
        """Where chunks lie."""
        return [self.place(program, unit) for unit in chunk.units()]

    def _is_input(self, program: Program, place: Chunk) -> bool:
        """Whether the caller fills a place."""
        if place.buffer is Buffer.INPUT or not self.in_place:
            return place.buffer is Buffer.INPUT
        if program.collective is Collective.ALL_GATHER:
            return place.buffer is Buffer.OUTPUT and place.offset // program.chunks == place.rank
        elsewhere = program.collective is Collective.BROADCAST and place.rank != program.root
        return place.buffer is Buffer.OUTPUT and not elsewhere


class Writers:
    """The versions of all places while a program is traced."""

    def __init__(self, program: Program) -> None:
        self._program = program
        claimed = ((False, program.out_of_place), (True, program.in_place))
        self._views = tuple(_View(in_place) for in_place, yes in claimed if yes)
        self._parents: list[frozenset[int]] = []

    def versions(self, chunk: Chunk) -> Versions:
        """Versions of chunks as they stand; an input chunk is always what the caller filled in.

        Raises:
            ProgramError: Nothing has been written there, or an input was overwritten in place.
        """
        if chunk.buffer is Buffer.INPUT:
            callers = ((_CALLER,) * chunk.count,) * len(self._views)
            self.require_current(chunk, callers)
            return callers
        found = []
        for view in self._views:
            writers = [view.writer_of(self._program, unit) for unit in chunk.units()]
            if None in writers:
                raise ProgramError(
                    f"{self._program.collective}: {describe(chunk.units()[writers.index(None)])}"
                    " holds nothing yet; copy or reduce into it first"
                )
            found.append(tuple(writer for writer in writers if writer is not None))
        return tuple(found)

    def require_current(self, chunk: Chunk, versions: Versions) -> None:
        """Checks that chunks still hold what they held when `versions` was taken.

        Raises:
            ProgramError: They were overwritten since.
        """
        for view, then in zip(self._views, versions, strict=True):
            for unit, version in zip(chunk.units(), then, strict=True):
                now = view.writer_of(self._program, unit)
                if now is not None and now != version:
                    remedy = "read it before, or keep a copy in scratch"
                    if view.in_place and self._views[0] is not view:
                        remedy += "; or say in_place=False: in place both are one buffer"
                    raise ProgramError(
                        f"{self._program.collective}: {describe(unit)} is read after"
                        f" {self._name(now)} overwrote it; {remedy}"
                    )

    def record(self, reads: Iterable[Versions]) -> Versions:
        """Takes the program's last statement into account; gives the versions it wrote.

        Raises:
            ProgramError: It writes where another one wrote that it does not follow from, or chunks
                are moved onto each other. Nothing has changed then.
        """
        index = len(self._parents)
        statement = self._program.statements[index]
        source, *_ = reads = tuple(reads)
        parents = {writer for versions in reads for view in versions for writer in view}
        parents.discard(_CALLER)
        writing = [
            not (view.in_place and self._program.is_self_copy(statement)) for view in self._views
        ]
        for view in compress(self._views, writing):
            self._require_apart(view, statement)
            self._require_order(view, statement, index, parents)
        self._parents.append(frozenset(parents))
        for view in compress(self._views, writing):
            view.write(self._program, statement.dst.units(), index)
        written = (index,) * statement.dst.count
        return tuple(written if writes else source[i] for i, writes in enumerate(writing))

    def share(self, one: Chunk, other: Chunk) -> bool:
        """Whether chunks have a place in common, in any way of laying out the buffers."""
        return any(
            not set(view.places(self._program, one)).isdisjoint(view.places(self._program, other))
            for view in self._views
        )

    def _require_apart(self, view: _View, statement: Statement) -> None:
        read = statement.operand if statement.remote else statement.src
        if read is None or read == statement.dst:
            return
        src = view.places(self._program, read)
        dst = view.places(self._program, statement.dst)
        if src != dst and not set(src).isdisjoint(dst):
            raise ProgramError(
                f"{self._program.collective}: {describe(read)} and {describe(statement.dst)}"
                " overlap; move them by way of other scratch chunks"
            )

    def _require_order(
        self, view: _View, statement: Statement, index: int, parents: set[int]
    ) -> None:
        for unit in statement.dst.units():
            before = view.writer_of(self._program, unit)
            if before is not None and before != _CALLER and not self._follows(parents, before):
                raise ProgramError(
                    f"{self._program.collective}: {self._name(before)} and {self._name(index)} both"
                    f" write {describe(unit)}, and nothing orders them; give the second a place of"
                    " its own, or make it from what the first wrote"
                )

    def _follows(self, parents: set[int], before: int) -> bool:
        """Whether something made from these statements is made from statement `before`."""
        seen = {parent for parent in parents if parent >= before}
        waiting = sorted(seen)
        while waiting and before not in seen:
            further = {p for p in self._parents[waiting.pop()] if p >= before} - seen
            seen |= further
            waiting += sorted(further)
        return before in seen

    def _name(self, index: int) -> str:
        statement = self._program.statements[index]
        if statement.operand is None:
            return f"the copy of {describe(statement.src)} to {describe(statement.dst)}"
        return f"the reduction of {describe(statement.src)} into {describe(statement.dst)}"
