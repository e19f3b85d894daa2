"""The single-writer rule of the language: which statement wrote each chunk.

Every write gives a location a new version. A reference keeps the versions of its creation, and may
be read while they are current. A second write to a location must depend on the first by data: its
value, or the value that it adds to, derives from the first. Otherwise only the order of the lines
would decide which write is last.

Both rules hold for every buffer layout that the schedule allows: in place, out of place, or both.
In place an input chunk and the output chunk that it lies on are one location, so writing one
overwrites the other. A copy of a chunk onto itself, which exists only in place, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress

from synthesizer.ir.algorithm import Buffer
from synthesizer.ir.program import Chunk, Location, Program, Statement
from tuccl.errors import ProgramError

Versions = tuple[tuple[int, ...], ...]
"""Per buffer layout, per chunk: the statement that wrote it."""

_CALLER = -1
"""Version of input chunks, which the caller fills."""

_BUFFER_NAMES = {Buffer.INPUT: "input", Buffer.OUTPUT: "output", Buffer.SCRATCH: "scratch"}


def describe(chunk: Chunk) -> str:
    """Return a chunk's description for messages."""
    last = chunk.offset + chunk.count - 1
    which = f"chunk {chunk.offset}" if chunk.count == 1 else f"chunks {chunk.offset} to {last}"
    return f"{which} of {_BUFFER_NAMES[chunk.buffer]} of rank {chunk.rank}"


@dataclass
class _View:
    """The writers of all locations under one buffer layout."""

    in_place: bool
    writer: dict[Location, int] = field(default_factory=dict)

    def writer_of(self, program: Program, unit: Chunk) -> int | None:
        """Return the statement that wrote a single chunk, or None."""
        (place,) = self.places(program, unit)
        found = self.writer.get(place)
        return _CALLER if found is None and self._is_input(program, place) else found

    def places(self, program: Program, chunk: Chunk) -> list[Location]:
        """Return the locations of chunks."""
        rank, first = program.location(chunk, in_place=self.in_place)
        return [(rank, address) for address in range(first, first + chunk.count)]

    def _is_input(self, program: Program, place: Location) -> bool:
        rank, address = place
        if program.collective.from_root and rank != program.root:
            return False
        _, first = program.location(program.input(rank, 0), in_place=self.in_place)
        return first <= address < first + program.input_chunks


class Writers:
    """The versions of all locations while a program is traced."""

    def __init__(self, program: Program) -> None:
        self._program = program
        claimed = ((False, program.out_of_place), (True, program.in_place))
        self._views = tuple(_View(in_place) for in_place, yes in claimed if yes)
        self._parents: list[frozenset[int]] = []

    def versions(self, chunk: Chunk) -> Versions:
        """Return the current versions of chunks; input chunks always have the caller's.

        Raises:
            ProgramError: A chunk was never written, or an input was overwritten in place.
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
        """Check that `versions` are still the chunks' current versions.

        Raises:
            ProgramError: A chunk was overwritten since.
        """
        for view, then in zip(self._views, versions, strict=True):
            for unit, version in zip(chunk.units(), then, strict=True):
                now = view.writer_of(self._program, unit)
                if now is not None and now != version:
                    remedy = "read it earlier, or keep a copy in scratch"
                    if view.in_place and self._views[0] is not view:
                        remedy += "; or pass in_place=False: in place both are one buffer"
                    raise ProgramError(
                        f"{self._program.collective}: {describe(unit)} is read after"
                        f" {self._name(now)} overwrote it; {remedy}"
                    )

    def record(self, reads: Iterable[Versions]) -> Versions:
        """Record the program's last statement; return the versions that it wrote.

        Raises:
            ProgramError: It overwrites a statement that it does not depend on, or its source and
                destination overlap. Nothing has changed then.
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
            view.writer.update(dict.fromkeys(view.places(self._program, statement.dst), index))
        written = (index,) * statement.dst.count
        return tuple(written if writes else source[i] for i, writes in enumerate(writing))

    def share(self, left: Chunk, right: Chunk) -> bool:
        """Return whether chunks have a location in common under any allowed layout."""
        return any(
            not set(view.places(self._program, left)).isdisjoint(view.places(self._program, right))
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
        """Return whether one of the statements `parents` depends on statement `before`."""
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
