"""Grids of NCCL measurements as CSV, read as a record.

    op,bytes,algorithm,protocol,nchannels,nthreads,buffsize,min_nchannels,t1,t2,t3,t4,t5
    allreduce,4096,ring,LL,2,512,4194304,32,8.7,8.6,8.6,8.8,8.7

`op` is the name without underscores, `bytes` counts as nccl-tests does, the next six columns are a
configuration (algorithm `default`: NCCL's own choice under that environment; 0: not set), the
others are launch means in us. A line with fewer means was cut short because the point was over four
times slower than NCCL's own choice; a line without means counts as failed, at the least possible
cost: one launch of four times the default's time under the same environment. Beside `NAME.csv`,
`NAME_default.csv` (op, bytes, times) holds the times of NCCL with no variables set.

The CSV does not name the machine: the caller gives the topology, or a file `X_topo.xml` beside the
CSV does, where `NAME` begins with `X`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lookup_tables.provenance import Provenance
from lookup_tables.table import NcclAlgorithm, NcclProtocol, Operation
from probes.topology.graph import Topology
from tuccl.errors import InputFileError
from tuccl.measuring.records.record import Record, Row, make_record
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.config import DEFAULT_ALGORITHM, Config, Task
from tuccl.search.trials.timing import Timing

CUT_SHORT = "cut short: over 4 times slower than NCCL's own choice"
_CUT_FACTOR = 4.0
_OPERATIONS = {operation.value.replace("_", ""): operation for operation in Operation}
_CONFIG_COLUMNS = ("algorithm", "protocol", "nchannels", "nthreads", "buffsize", "min_nchannels")
_MOST_NAMED = 8
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Time = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")
    op: str
    bytes: Annotated[int, Field(ge=1, lt=2**53)]
    algorithm: str = DEFAULT_ALGORITHM
    protocol: str = ""
    nchannels: _Count = 0
    nthreads: _Count = 0
    buffsize: _Count = 0
    min_nchannels: _Count = 0
    times: tuple[_Time, ...]

    @property
    def config(self) -> Config:
        return Config(
            self.algorithm,
            self.protocol,
            self.nchannels,
            self.nthreads,
            self.buffsize,
            self.min_nchannels,
        )


@dataclass(frozen=True, slots=True)
class _Point:
    line: int
    operation: Operation
    size_bytes: int
    config: Config
    times_us: tuple[float, ...]


def read_grid_csv(path: Path, topology: Topology) -> Record:
    """Return the record of a grid and of the stock times beside it.

    Raises:
        InputFileError: a file cannot be read, lacks a column, or has bad lines; each bad line is
            named by its number.
    """
    timing = Timing(data_type="unknown")  # A grid does not name it.
    shape = communicator_shape(topology)
    points = list(_points(path, _CONFIG_COLUMNS))
    stock = _stock_beside(path)
    if stock.exists():
        points += _points(stock, ())
    defaults = {
        (point.operation, point.size_bytes, point.config.profile): median(point.times_us)
        for point in points
        if point.config.is_default and point.times_us
    }
    rows = []
    for point in points:
        key = (point.operation, point.size_bytes, point.config.profile)
        calls = timing.calls(point.size_bytes)
        taken_us = sum(point.times_us) or _CUT_FACTOR * defaults.get(key, 0.0)
        rows.append(
            Row(
                task=Task(point.operation, point.size_bytes, shape),
                config=point.config,
                samples_us=point.times_us,
                seconds=taken_us * 1e-6 * calls,
                failed="" if point.times_us else CUT_SHORT,
            )
        )
    provenance = Provenance("nccl", details=path.stem)
    try:
        return make_record(topology, shape, provenance, timing, rows)
    except ValueError as error:
        raise InputFileError(f"{path}: {error}; correct the line") from error


def is_grid(path: Path) -> bool:
    """Return whether a file is a grid, by its name; all other records are Parquet."""
    return path.suffix.lower() == ".csv"


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that make up a record: for a grid also its stock times and topology."""
    if not is_grid(path):
        return (path,)
    try:
        return (path, _stock_beside(path), topology_beside(path))
    except InputFileError:
        return (path, _stock_beside(path))


def _stock_beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}_default.csv")


def topology_beside(path: Path) -> Path:
    """Return the topology file of a grid.

    Raises:
        InputFileError: the grid has none.
    """
    words = path.stem.split("_")
    for length in range(len(words), 0, -1):
        candidate = path.with_name("_".join([*words[:length], "topo"]) + ".xml")
        if candidate.is_file():
            return candidate
    raise InputFileError(
        f"{path} does not say which machine it is of, and no {words[0]}_topo.xml lies beside it; "
        "name the machine with --topology"
    )


def _points(path: Path, config_columns: Sequence[str]) -> Iterator[_Point]:
    """Yield all points of a file, or raise one error that names every bad line."""
    lines = _lines(path)
    _, header = next(lines, (0, []))
    _check_header(path, header, config_columns)
    bad: list[tuple[int, str]] = []
    seen: dict[tuple[Operation, int, Config], int] = {}
    for number, cells in lines:
        if not cells:
            continue
        try:
            point = _point(number, header, cells)
        except ValueError as error:
            bad.append((number, _reason(error)))
            continue
        key = (point.operation, point.size_bytes, point.config)
        if key in seen:
            bad.append((number, f"the same point as line {seen[key]}"))
        seen.setdefault(key, number)
        yield point
    if bad:
        raise InputFileError(f"{path}: {_bad_lines(bad)}; correct the file")
    if not seen:
        raise InputFileError(f"{path}: no measurement in it; name another file")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line with its number."""
    reader = csv.reader(io.StringIO(_text(path)))
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputFileError(f"{path}: line {reader.line_num}: {error}; correct it") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputFileError(
            f"cannot read {path}: {error.strerror}; name a record or a grid as CSV"
        ) from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path} is not UTF-8 text; name a grid as CSV") from error


def _check_header(path: Path, header: Sequence[str], config_columns: Sequence[str]) -> None:
    fixed = ("op", "bytes", *config_columns)
    for name in (*fixed, "t1"):
        if name not in header:
            raise InputFileError(
                f"{path}: column {name} is missing; the first line must name {','.join(fixed)} and "
                "t1, t2, ..."
            )
    expected = [*fixed, *(f"t{number}" for number in range(1, len(header) - len(fixed) + 1))]
    for place, name in enumerate(header):
        if name not in expected or name in header[:place]:
            why = "is there twice" if name in expected else "is unknown"
            raise InputFileError(f"{path}: column {name!a:.40} {why}; remove it")


def _point(number: int, header: Sequence[str], cells: Sequence[str]) -> _Point:
    if len(cells) > len(header):
        raise ValueError(f"{len(cells)} values for {len(header)} columns")
    values: Mapping[str, str] = dict(zip(header, cells, strict=False))
    fixed = {name: text for name, text in values.items() if not name.startswith("t")}
    if len(fixed) < sum(not name.startswith("t") for name in header):
        raise ValueError(f"it ends after {len(cells)} values")
    times = [values[name] for name in header if name.startswith("t") and name in values]
    while times and not times[-1]:
        times.pop()
    line = _Line.model_validate({**fixed, "times": times})
    operation = _OPERATIONS.get(line.op.replace("_", ""))
    if operation is None:
        raise ValueError(f"op {line.op!a:.40} is unknown")
    config = line.config
    if config.is_default:
        if config.protocol or config.nchannels:
            raise ValueError("algorithm default has neither protocol nor channels")
        if not times:
            raise ValueError("NCCL's own choice has no time")
    else:
        NcclAlgorithm(config.algorithm)
        NcclProtocol(config.protocol)
    return _Point(number, operation, line.bytes, config, line.times)


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    name, *number = first["loc"]
    place = f"t{int(number[0]) + 1}" if number else str(name)
    return f"{place} {first.get('input')!a:.40}: {first['msg']}"


def _bad_lines(bad: Sequence[tuple[int, str]]) -> str:
    number, reason = bad[0]
    text = f"line {number}: {reason}"
    others = [str(line) for line, _ in bad[1:]]
    if others:
        named = ", ".join(others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        text += f"; bad too: {named}{more}"
    return text
