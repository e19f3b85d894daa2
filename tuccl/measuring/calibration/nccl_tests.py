"""Parser of nccl-tests output: sizes, times, and the properties of the run.

Every release since 2.0 prints `size count type [redop] [root] time algbw busbw #wrong [the same in
place]`, with columns that vary by operation, so the parser follows the header. Rows damaged by
other output are left out and counted: in a sound row size over time is algbw. Times are those out
of place.

Formats: nccl-tests 2.0 to 2.19 (`src/common.cu`), and the JSON of `-J` (`src/util.cu`, 2.17.3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from pydantic import BaseModel, ValidationError

from lookup_tables.collective import COLLECTIVES, Collective
from probes.inputs.messages import first_fault
from probes.inputs.prefixes import bare_line
from tuccl.errors import InputFileError

_THREADS = re.compile(r"nThread\s+(\d+)\s+nGpus\s+(\d+)\s+.*?(?:graph:\s*(\d+))?\s*(?:unalign.*)?$")
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_RANK = re.compile(r"\bRank\s+(\d+)\b(?:\s+Group\s+(\d+))?.*\bPid\s+\d+(?:\s+on\s+(\S+)\s+device)?")
_NVLS = re.compile(r"Algo NVLS")
_MEASURED = ("time", "algbw", "busbw")
_KEYS = frozenset({"size", "count", "type", "redop", "root"})
_ROUNDING = 0.02
_LAST_DIGIT_GB_PER_S = 0.011
_MOST_DIGITS = 9
"""Most digits of a rank or a number of GPUs."""
_MOST_SIZE_DIGITS = 20
"""Of a size_t of 64 bits."""
_BROADEST_BYTES = 1 << 20
"""Smallest size whose busbw and algbw have enough digits to derive the number of ranks."""


@dataclass(frozen=True, slots=True)
class NcclTestsRun:
    """Contents of a file of nccl-tests output."""

    operation: Collective | None
    """Operation by the program's name; None: not in the output."""
    ranks: int | None
    """Listed ranks of a communicator; None: none are listed."""
    launches: int
    """GPUs of one process, launched in turn; 0 when CUDA graphs launched them."""
    times_us: tuple[tuple[int, float], ...]
    """Size in bytes and median time, ascending by size."""
    factor: float | None
    """busbw over algbw, from which the ranks follow; None: no size is large enough."""
    left_out: int
    """Number of rows damaged by other output."""
    ran_nvls: bool = False
    """Whether the output says that NCCL ran NVLS."""


@dataclass(frozen=True, slots=True)
class _Row:
    size_bytes: int
    time_us: float
    algbw: float
    busbw: float

    @property
    def is_sound(self) -> bool:
        """Whether size over time is algbw; nothing is asked of a row of no bytes."""
        if self.size_bytes <= 0:
            return True
        if not (0.0 < self.time_us < math.inf):
            return False
        counted = self.size_bytes / (1e3 * self.time_us)
        is_near = abs(counted - self.algbw) <= _LAST_DIGIT_GB_PER_S + _ROUNDING * counted
        return is_near and math.isfinite(self.busbw)


def parse_nccl_tests(text: str, source: str) -> NcclTestsRun:
    """Parse an output of nccl-tests, whose runs are all of one operation on the same ranks.

    Args:
        text: The output, including other output of the job.
        source: Its name, for messages.

    Raises:
        InputFileError: There is no header, a column is missing, no row is whole, or the
            rows are of different operations or numbers of ranks.
    """
    bare = b"".join(map(bare_line, text.encode(errors="replace").splitlines(keepends=True)))
    plain = bare.decode(errors="replace")
    if plain.lstrip().startswith("{"):
        return _parse_json(plain, source)
    lines = [line.rstrip() for line in plain.splitlines()]
    rows, left_out = _rows(lines, source)
    return NcclTestsRun(
        operation=_operation(lines, source),
        ranks=_ranks(lines, source),
        launches=_launches(lines, source),
        times_us=_medians(rows),
        factor=_factor(rows, source),
        left_out=left_out,
        ran_nvls=_NVLS.search(text) is not None,
    )


class _Times(BaseModel):
    time: float
    alg_bw: float
    bus_bw: float


class _Result(BaseModel):
    size: int
    out_of_place: _Times


class _Device(BaseModel):
    rank: int
    group: int = 0
    hostname: str = ""


class _Config(BaseModel):
    nthreads: int
    ngpus: int
    graph: int = 0


class _Document(BaseModel):
    """What `-J` writes, as far as it is read."""

    args: list[str]
    config: _Config
    devices: list[_Device]
    results: list[_Result]


def _parse_json(text: str, source: str) -> NcclTestsRun:
    try:
        found = _Document.model_validate_json(text)
    except ValidationError as error:
        raise InputFileError(
            f"{source}: no JSON of nccl-tests: {first_fault(error)}; name what -J wrote, or the "
            "printed table"
        ) from error
    rows = [
        _Row(each.size, each.out_of_place.time, each.out_of_place.alg_bw, each.out_of_place.bus_bw)
        for each in found.results
    ]
    sound = [row for row in rows if row.is_sound]
    measured = [row for row in sound if row.size_bytes > 0]
    if not measured:
        raise InputFileError(f"{source}: no row of a measured size in it; run it again")
    ranks = _Ranks(source)
    for device in found.devices:
        ranks.add(device.rank, device.group, device.hostname)
    launches = found.config.nthreads * found.config.ngpus
    return NcclTestsRun(
        operation=_operation(found.args[:1], source),
        ranks=ranks.count() if found.devices else None,
        launches=0 if found.config.graph else launches,
        times_us=_medians(measured),
        factor=_factor(measured, source),
        left_out=len(rows) - len(sound),
    )


def _medians(rows: Iterable[_Row]) -> tuple[tuple[int, float], ...]:
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.size_bytes, []).append(row.time_us)
    return tuple((size, median(times)) for size, times in sorted(by_size.items()))


def _rows(lines: Iterable[str], source: str) -> tuple[list[_Row], int]:
    columns: list[str] | None = None
    rows: list[_Row] = []
    numbered = left_out = 0
    for line in lines:
        cells = line.replace("#wrong", "wrong").lstrip("# ").split()
        if all(name in cells for name in _MEASURED):
            columns = _keys(cells, source)
        elif cells and cells[0].isdigit() and len(cells) > len(_MEASURED) and "." in line:
            numbered += 1
            row = None if columns is None else _row(cells, columns)
            if row is None:
                left_out += 1
            elif row.size_bytes > 0:
                rows.append(row)
    if columns is None:
        what = "rows but no header" if numbered else "no table of nccl-tests"
        raise InputFileError(
            f"{source}: {what} (`size count type ... time algbw busbw`); name the whole output"
        )
    if not rows:
        raise InputFileError(f"{source}: no row of a measured size in it; run it again")
    return rows, left_out


def _keys(cells: list[str], source: str) -> list[str]:
    """Return the columns before the first time."""
    keys = cells[: cells.index("time")]
    for name in ("size", "count", "type"):
        if name not in keys:
            raise InputFileError(
                f"{source}: the header has no column {name!r}; name the output as it was printed"
            )
    return [name for name in keys if name in _KEYS]


def _row(cells: list[str], keys: list[str]) -> _Row | None:
    """Parse a row by the header's columns; return None for a damaged row."""
    rest = cells[3:]
    # alltoall leaves redop empty.
    if "redop" in keys and rest and rest[0].isalpha():
        rest = rest[1:]
    if "root" in keys and rest and rest[0].lstrip("-").isdigit():
        rest = rest[1:]
    if len(cells[0]) > _MOST_SIZE_DIGITS:
        return None
    try:
        size_bytes = int(cells[0])
        time_us, algbw, busbw = (float(cell) for cell in rest[:3])
    except ValueError:
        return None
    row = _Row(size_bytes, time_us, algbw, busbw)
    return row if row.is_sound else None


def _operation(lines: Iterable[str], source: str) -> Collective | None:
    programs = {match for line in lines for match in _PROGRAM.findall(line)}
    if len(programs) > 1:
        raise InputFileError(
            f"{source}: output of {' and '.join(sorted(programs))} in one file; split it"
        )
    name = next(iter(programs), None)
    if name is not None and name not in COLLECTIVES:
        raise InputFileError(
            f"{source}: {name} is not an operation that NCCL tunes; name another output"
        )
    return None if name is None else Collective.named(name)


def _ranks(lines: Iterable[str], source: str) -> int | None:
    """Return the number of ranks of a communicator, listed before each table."""
    counts: set[int] = set()
    ranks = _Ranks(source)
    for place, line in enumerate(lines, 1):
        found = _RANK.search(line)
        if found:
            where = f"{source} line {place}: rank or group"
            ranks.add(_number(found[1], where), _number(found[2] or "0", where), found[3] or "")
        elif "algbw" in line and ranks.of_group:
            counts.add(ranks.count())
            ranks = _Ranks(source)
    if len(counts) > 1:
        raise InputFileError(
            f"{source}: runs on {min(counts)} and on {max(counts)} ranks in one file; split it"
        )
    return next(iter(counts), None)


@dataclass(slots=True)
class _Ranks:
    """The ranks of a run; NCCL_TESTS_SPLIT divides them into groups that run side by side."""

    source: str
    of_group: dict[int, set[int]] = field(default_factory=dict)
    hosts: dict[int, set[str]] = field(default_factory=dict)

    def add(self, rank: int, group: int, host: str) -> None:
        """Add a rank."""
        self.of_group.setdefault(group, set()).add(rank)
        self.hosts.setdefault(group, set()).add(host)

    def count(self) -> int:
        """Return the ranks of each group.

        Raises:
            InputFileError: Groups differ in that, or share the network between hosts.
        """
        counts = sorted({len(ranks) for ranks in self.of_group.values()})
        if len(self.of_group) > 1 and (len(counts) > 1 or max(map(len, self.hosts.values())) > 1):
            what = (
                f"are of {counts[0]} to {counts[-1]} ranks"
                if len(counts) > 1
                else "share their hosts"
            )
            raise InputFileError(
                f"{self.source}: its {len(self.of_group)} groups (NCCL_TESTS_SPLIT) {what}; "
                "measure one communicator alone"
            )
        return counts[0]


def _launches(lines: Iterable[str], source: str) -> int:
    for place, line in enumerate(lines, 1):
        found = _THREADS.search(line)
        if found:
            where = f"{source} line {place}: nThread, nGpus or graph"
            threads, gpus, graphs = (_number(digits or "0", where) for digits in found.groups())
            # Threads of one process launch in turn too: the driver lets in one at a time.
            return 0 if graphs else threads * gpus
    return 1


def _number(digits: str, where: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise InputFileError(
            f"{where} {digits[:_MOST_DIGITS]}... has {len(digits):,} digits; name the output as "
            "it was printed"
        )
    return int(digits)


def _factor(rows: Iterable[_Row], source: str) -> float | None:
    factors = [
        row.busbw / row.algbw
        for row in rows
        if row.size_bytes >= _BROADEST_BYTES and row.algbw >= 1.0
    ]
    if not factors:
        return None
    if max(factors) > 1.05 * min(factors):
        raise InputFileError(
            f"{source}: busbw is {min(factors):.2f} to {max(factors):.2f} times algbw, so the runs "
            "are on different numbers of ranks; split it"
        )
    return median(factors)
