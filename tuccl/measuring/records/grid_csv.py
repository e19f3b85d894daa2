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

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.provenance import Provenance
from lookup_tables.table import NcclAlgorithm, NcclProtocol
from probes.topology.graph import Topology
from tuccl.errors import InputFileError
from tuccl.measuring.records.record import Record, make_record
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.config import DEFAULT_ALGORITHM, Config, Task
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Recorded

if TYPE_CHECKING:
    import pandas as pd

CUT_SHORT = "cut short: over 4 times slower than NCCL's own choice"
_CUT_FACTOR = 4.0
_OPERATIONS = {operation.short_name: operation for operation in COLLECTIVES}
_COUNTS = ("nchannels", "nthreads", "buffsize", "min_nchannels")
_CONFIG = ("algorithm", "protocol", *_COUNTS)
_MOST_NAMED = 8
_MOST = 2**53
_Point = tuple[Collective, int, Config, tuple[float, ...]]
"""Operation, size, configuration and times."""


def read_grid_csv(path: Path, topology: Topology) -> Record:
    """Return the record of a grid and of the stock times beside it.

    Raises:
        InputFileError: a file cannot be read, lacks a column, or has bad lines; each bad line is
            named by its number.
    """
    timing = Timing(data_type="unknown")  # A grid does not name it.
    shape = communicator_shape(topology)
    points = _points(path, _CONFIG)
    stock = _stock_beside(path)
    if stock.exists():
        points += _points(stock, ())
    defaults = {
        (operation, size_bytes, config.profile): median(times_us)
        for operation, size_bytes, config, times_us in points
        if config.is_default and times_us
    }
    rows = []
    for operation, size_bytes, config, times_us in points:
        default_us = defaults.get((operation, size_bytes, config.profile), 0.0)
        taken_us = sum(times_us) or _CUT_FACTOR * default_us
        rows.append(
            Recorded(
                Task(operation, size_bytes, shape),
                config,
                times_us,
                failed="" if times_us else CUT_SHORT,
                failed_check=not times_us,
                unasked_s=taken_us * 1e-6 * timing.calls(size_bytes),
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


class _Lines:
    """The lines of a file as columns of text, and the first fault of each."""

    def __init__(self, path: Path, config_columns: Sequence[str]) -> None:
        """Read the file.

        Raises:
            InputFileError: It cannot be read, lacks a column, or has no measurement.
        """
        import pandas as pd  # noqa: PLC0415 - slow

        lines = pd.Series(_text(path).splitlines(), dtype="str")
        header = lines.iloc[0].split(",") if len(lines) else []
        _check_header(path, header, config_columns)
        body = lines[1:][lines[1:] != ""]
        if body.empty:
            raise InputFileError(f"{path}: no measurement in it; name another file")
        body.index += 1
        cells = body.str.split(",", expand=True)
        self.faults = pd.Series("", index=body.index)
        counts = cells.notna().sum(axis=1)
        self.fault(
            counts > len(header), counts.map(lambda n: f"{n} values for {len(header)} columns")
        )
        cells = cells.reindex(columns=range(len(header))).set_axis(header, axis=1)
        fixed = [name for name in header if not name.startswith("t")]
        short = cells[fixed].isna().any(axis=1)
        self.fault(short, counts.map(lambda n: f"it ends after {n} values"))
        self.cells = cells.fillna("").astype("str")

    def fault(self, wrong: pd.Series[bool], texts: pd.Series[str] | str) -> None:
        """Note a fault of lines that have none yet."""
        self.faults = self.faults.mask(wrong & (self.faults == ""), texts)

    def numbers(self, name: str, needed: pd.Series[bool], least: float) -> pd.Series[float]:
        """Return a column as finite numbers of at least, or of more than 0 for times."""
        import pandas as pd  # noqa: PLC0415 - slow

        found = pd.to_numeric(self.cells[name], errors="coerce").astype("float64")
        right = (found > 0.0) & (found < math.inf)
        if least >= 0.0:
            right = (found >= least) & (found < _MOST) & (found % 1 == 0)
        self.fault(needed & ~right, self.quoted(name).map(lambda text: f"{name} {text}: no number"))
        return found

    def quoted(self, name: str) -> pd.Series[str]:
        """Return a column for messages."""
        return self.cells[name].map(lambda text: f"{text!a:.40}")


def _points(path: Path, config_columns: Sequence[str]) -> list[_Point]:
    """Return all points of a file, or raise one error that names every bad line."""
    lines = _Lines(path, config_columns)
    cells = lines.cells
    every = cells["op"].notna()
    sizes = lines.numbers("bytes", every, 1)
    counts = {name: lines.numbers(name, every, 0) for name in config_columns if name in _COUNTS}
    names = [name for name in cells if str(name).startswith("t")]
    given = (cells[names] != "").iloc[:, ::-1].cummax(axis=1).iloc[:, ::-1]
    times = {name: lines.numbers(str(name), given[name], -1) for name in names}
    operations = cells["op"].str.replace("_", "").map(_OPERATIONS)
    lines.fault(operations.isna(), lines.quoted("op").map(lambda text: f"op {text} is unknown"))
    if config_columns:
        is_default = cells["algorithm"] == DEFAULT_ALGORITHM
        both = (cells["protocol"] != "") | (counts["nchannels"] != 0)
        lines.fault(is_default & both, "algorithm default has neither protocol nor channels")
        for name, known in (("algorithm", NcclAlgorithm), ("protocol", NcclProtocol)):
            wrong = ~is_default & ~cells[name].isin([each.value for each in known])
            lines.fault(wrong, lines.quoted(name).map(lambda text, name=name: f"no {name} {text}"))
    else:
        is_default = every
    lines.fault(is_default & ~given.any(axis=1), "NCCL's own choice has no time")
    point = cells.assign(op=operations, bytes=sizes, **counts)[["op", "bytes", *config_columns]]
    point = point[lines.faults == ""]
    firsts = point.index.to_series().groupby([point[name] for name in point]).transform("first")
    again = firsts[point.duplicated()].map(lambda number: f"the same point as line {number}")
    faults = lines.faults.mask(lines.faults.index.isin(again.index), again)
    bad = faults[faults != ""]
    if len(bad):
        raise InputFileError(f"{path}: {_bad_lines(bad)}; correct the file")
    taken = zip(*(times[name].where(given[name]) for name in names), strict=True)
    samples = [tuple(us for us in row if not math.isnan(us)) for row in taken]
    words: Any = [cells[name] for name in config_columns if name not in _COUNTS]
    whole: Any = [counts[name].astype("int64") for name in config_columns if name in _COUNTS]
    configs = (
        zip(*words, *whole, strict=True)
        if config_columns
        else [(DEFAULT_ALGORITHM,)] * len(samples)
    )
    return [
        (Collective.named(operation), int(size_bytes), Config(*config), times_us)
        for operation, size_bytes, config, times_us in zip(
            operations, sizes, configs, samples, strict=True
        )
    ]


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


def _bad_lines(bad: pd.Series[str]) -> str:
    numbers = [str(number) for number in bad.index]
    text = f"line {numbers[0]}: {bad.iloc[0]}"
    others = numbers[1:]
    if others:
        more = len(others) - _MOST_NAMED
        text += f"; bad too: {', '.join(others[:_MOST_NAMED])}"
        text += f" and {more} more" if more > 0 else ""
    return text
