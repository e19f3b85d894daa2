"""`Baseline`: the choices of a tuner's CSV file, which searches try first and `bench` compares.

NCCL's example tuner and RCCL's built-in one read the file. Its rows have operation, smallest and
largest size, algorithm, protocol, channels, nodes and ranks, and may have the number of operations
in the pipe and whether buffers are registered; -1 matches any value, and of channels leaves their
number to NCCL. The first row that matches a call decides, unless NCCL rules its algorithm and
protocol out: then it is the next one that matches. Sizes are those that NCCL hands to a tuner,
which are those of nccl-tests.

Those readers take an unknown algorithm for ring or skip its row, and shift cells over an empty one.
This one refuses what they would read otherwise than it is meant.

Format: NCCL 2.27 and later, `plugins/tuner/example/plugin.c` (first `ext-tuner/example`); RCCL of
ROCm 7.13, `src/plugin/tuner/csv_tuner.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.lookup import MAX_CHANNELS, bounds_channels
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError
from tuccl.search.trials.config import Config, Task
from tuccl.search.trials.space import AXES, Family, Space, ascending, nearest_to_own

_FEWEST_CELLS, _MOST_CELLS = 8, 10
_MOST_BYTES = 2**64 - 1
"""`size_t` of the readers."""
_MOST_COUNT = 2**31 - 1
"""`int` of the readers."""
_ANY = -1
_HEADINGS = ("collective", "collective_type", "colltype", "coll_type")
_OPERATIONS = {each.short_name: each for each in COLLECTIVES if each.asks_tuner}
_ALGORITHMS = {each.value: each for each in NcclAlgorithm}
_PROTOCOLS = {each.value.lower(): each for each in NcclProtocol}
_OF_PARTS = frozenset(
    {NcclAlgorithm.RING, NcclAlgorithm.COLLNET_DIRECT, NcclAlgorithm.NVLS, NcclAlgorithm.PAT}
)
ALGORITHMS_OF = {
    Collective.BROADCAST: frozenset({NcclAlgorithm.RING}),
    Collective.REDUCE: frozenset({NcclAlgorithm.RING}),
    Collective.ALL_GATHER: _OF_PARTS,
    Collective.REDUCE_SCATTER: _OF_PARTS,
    Collective.ALL_REDUCE: frozenset(NcclAlgorithm) - {NcclAlgorithm.PAT},
}
"""Algorithms that NCCL has for an operation from 2.23 on (`src/graph/tuning.cc`)."""
_Named = TypeVar("_Named")


@dataclass(frozen=True, slots=True)
class TunerRow:
    """A row of a tuner's file."""

    line: int
    """Its number in the file, from 1; 0: a tuner's library was asked."""
    operation: Collective
    min_bytes: int
    max_bytes: int
    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    nchannels: int
    """At most as many as NCCL opens; 0: NCCL's own count."""
    nodes: int | None
    """None matches any value, in the next ones, too."""
    ranks: int | None
    pipelined: int | None
    """Operations that a call pipelines; a call that is timed has one."""
    registered: bool | None
    """Whether the call's buffers are registered."""

    def matches(self, task: Task) -> bool:
        """Whether it is for the calls of a key, their buffers registered or not."""
        return (
            self.operation is task.operation
            and self.min_bytes <= task.called_bytes <= self.max_bytes
            and self.nodes in {None, task.shape.nodes}
            and self.ranks in {None, task.shape.ranks}
            and self.pipelined in {None, 1}
        )

    def setting(self, task: Task) -> BuiltinConfig:
        """Return its choice for a key, as a table has it."""
        bounded = bounds_channels(self.algorithm, task.shape.nodes)
        return BuiltinConfig(self.algorithm, self.protocol, self.nchannels if bounded else 0)

    def in_family(self, family: Family) -> Config | None:
        """Return its choice in a family of its algorithm and protocol; None: it is not there.

        Threads, buffers and the like are NCCL's own, or the nearest to it.
        """
        # NCCL bounds no count for such a family, so that none is asked for.
        nchannels = 0 if family.nchannels == (0,) else self.nchannels
        if nchannels not in family.nchannels:
            return None
        others = (
            nearest_to_own(name, axis) for name, axis in zip(AXES[1:], family.axes[1:], strict=True)
        )
        return family.config((nchannels, *others))


@dataclass(frozen=True, slots=True)
class Choice:
    """A row that decides the calls of a key."""

    row: TunerRow
    config: Config | None
    """None: the space has its algorithm and protocol, but not with so many channels."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The rows of a tuner's file."""

    name: str
    """Name of the file."""
    rows: tuple[TunerRow, ...]

    def rows_of(self, task: Task) -> tuple[TunerRow, ...]:
        """Return the rows that match calls of a key, in the order of the file."""
        return tuple(row for row in self.rows if row.matches(task))

    def decisive(self, task: Task, *, registered: bool) -> TunerRow | None:
        """Return the row that decides calls of a key, their buffers registered or not.

        What NCCL rules out on the machine is not known here, but what it never has is.
        """
        has = ALGORITHMS_OF.get(task.operation, frozenset())
        rows = (row for row in self.rows_of(task) if row.registered in {None, registered})
        return next((row for row in rows if row.algorithm in has), None)

    def choices(self, task: Task, space: Space) -> tuple[Choice, ...]:
        """Return what decides the calls of a key where NCCL allows what a space has.

        There are two if the file has different rows for buffers that are registered and those that
        are not.
        """
        families = {(family.algorithm, family.protocol): family for family in space.families}
        found: dict[TunerRow, Choice] = {}
        for is_registered in (False, True):
            for row in self.rows_of(task):
                family = families.get((row.algorithm.value, row.protocol.value))
                if family is not None and row.registered in {None, is_registered}:
                    config = row.in_family(family)
                    found[row] = Choice(row, config if config in space else None)
                    break
        return tuple(found.values())

    def configs(self, task: Task, space: Space) -> tuple[Config, ...]:
        """Return the configurations of `choices`."""
        chosen = (choice.config for choice in self.choices(task, space))
        return tuple(dict.fromkeys(config for config in chosen if config is not None))

    def admitted(self, task: Task, space: Space, most_channels: int | None) -> Space:
        """Return the space of a key with the numbers of channels that rows of it ask for.

        Args:
            task: The key.
            space: Its space.
            most_channels: Bound of the channels, with which none are left to NCCL; None: no bound.
        """
        counts: dict[tuple[str, str], set[int]] = {}
        for row in self.rows_of(task):
            bounded = most_channels is not None and not 0 < row.nchannels <= most_channels
            if not bounded:
                counts.setdefault((row.algorithm.value, row.protocol.value), set()).add(
                    row.nchannels
                )
        return replace(
            space,
            families=tuple(
                _with_channels(family, counts.get((family.algorithm, family.protocol), set()))
                for family in space.families
            ),
        )


def _with_channels(family: Family, counts: set[int]) -> Family:
    if family.nchannels == (0,) or not counts:
        return family
    return replace(family, nchannels=ascending("nchannels", {*family.nchannels, *counts}))


def read_baseline(path: Path) -> Baseline:
    """Return the rows of a tuner's file.

    Raises:
        InputFileError: The file cannot be read or has no row, or a line is none; it is named by its
            number.
    """
    try:
        text = read_regular_file(path).decode(errors="replace")
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; name a tuner's CSV") from error
    return parse_baseline(text, str(path))


def parse_baseline(text: str, source: str) -> Baseline:
    """Return the rows of a tuner's file from its text.

    Args:
        text: The text.
        source: The file, for messages.

    Raises:
        InputFileError: As `read_baseline`.
    """
    rows = tuple(_rows(text, source))
    if not rows:
        raise InputFileError(
            f"{source} has no row: a tuner's row is operation,minbytes,maxbytes,algorithm,protocol,"
            "channels,nNodes,nRanks"
        )
    return Baseline(Path(source).name, rows)


def _rows(text: str, source: str) -> Iterator[TunerRow]:
    is_first = True
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#"):
            continue
        cells = [cell.strip(" \t") for cell in stripped.split(",")]
        if is_first and cells[0].lower() in _HEADINGS and not cells[-1].lstrip("-").isdigit():
            _require_tuners_headings(cells, source)
        else:
            try:
                yield _row(cells, number)
            except ValueError as error:
                raise InputFileError(f"{source}, line {number}: {error}") from error
        is_first = False


def _require_tuners_headings(cells: list[str], source: str) -> None:
    """Refuse what the scripts of the example tuner make such a file from."""
    if "size_bytes" in map(str.lower, cells):
        raise InputFileError(
            f"{source} has measured times, from which NCCL's optimize_config.py makes a tuner's "
            f"CSV: run `optimize_config.py -o nccl_tuner.conf` on it, and name nccl_tuner.conf"
        )


def _row(cells: list[str], number: int) -> TunerRow:
    """Return the row of these cells.

    Raises:
        ValueError: They are none.
    """
    if not _FEWEST_CELLS <= len(cells) <= _MOST_CELLS:
        raise ValueError(
            f"{len(cells)} cells, a row has {_FEWEST_CELLS} to {_MOST_CELLS}: operation,minbytes,"
            "maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]"
        )
    if "" in cells:
        raise ValueError(
            f"cell {cells.index('') + 1} is empty, so that a tuner takes the next one for it: "
            "write -1 where any value matches"
        )
    operation, least, most, algorithm, protocol, channels, nodes, ranks, *optional = cells
    pipelined, registered = [*optional, *(["-1"] * (2 - len(optional)))]
    row = TunerRow(
        number,
        _named(operation, _OPERATIONS, "operation"),
        _number(least, "minbytes", 0, _MOST_BYTES),
        # A reader's strtoull takes -1 for the largest number, too.
        _MOST_BYTES if most == "-1" else _number(most, "maxbytes", 0, _MOST_BYTES),
        _named(algorithm, _ALGORITHMS, "algorithm"),
        _named(protocol, _PROTOCOLS, "protocol"),
        min(MAX_CHANNELS, max(0, _number(channels, "channels", _ANY, _MOST_COUNT))),
        _matched(nodes, "nNodes", _MOST_COUNT),
        _matched(ranks, "nRanks", _MOST_COUNT),
        _matched(pipelined, "numPipeOps", _MOST_COUNT),
        None if (value := _matched(registered, "regBuff", 1)) is None else bool(value),
    )
    if row.min_bytes > row.max_bytes:
        raise ValueError(f"minbytes {least} is above maxbytes {most}, so that no call matches")
    return row


def _named(text: str, known: dict[str, _Named], what: str) -> _Named:
    found = known.get(text)
    if found is None:
        meant = f": write {text.lower()}" if text.lower() in known else ""
        raise ValueError(
            f"{what} {text!a:.40} is unknown to tuners{meant or ': use ' + ', '.join(known)}"
        )
    return found


def _matched(text: str, what: str, most: int) -> int | None:
    value = _number(text, what, _ANY, most)
    return None if value == _ANY else value


def _number(text: str, what: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None
    if value is None or not least <= value <= most:
        raise ValueError(f"{what} {text!a:.40} is not a whole number from {least} to {most}")
    return value
