"""The built-in settings of a table as the CSV of NCCL's example tuner, which RCCL's reads, too.

A row has operation, smallest and largest size, algorithm, protocol, channels, nodes, ranks, number
of operations in the pipe, and whether buffers are registered. -1 matches any value, and of channels
leaves the number to NCCL. The first row that matches a call counts. Readers take lines of up to 255
characters.

Format: NCCL 2.27 to 2.30, `ext-tuner/example`, later `plugins/tuner/example`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from lookup_tables.table import Entry, Table
from tuccl.errors import UsageError
from tuccl.quantities import count_of
from tuccl.reports.choice_text import profile_text
from tuccl.shipping.exports.export_form import Exported, ExportForm, ExportSource
from tuccl.workspace.atomic_file import absolute

MARK = "# TuCCL: built-in settings of a table, for NCCL's example tuner"
"""First line of each file."""
_COLUMNS = (
    "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,"
    "regBuff"
)
_CHANNELS = (
    "# The example's plugin.c gives one channel to calls without a row, or with -1 channels:",
    "# change its *nChannels = 1 to 0, as RCCL has it, and NCCL chooses their number.",
)
_ANY = -1
_LONGEST_COMMENT = 200


def tuner_csv(source: ExportSource, target: Path) -> Exported:
    """Return the rows of a table, in its order.

    Entries have no row if no built-in setting won, if no reader knows their operation, or if the
    columns do not distinguish their shape from another.

    Raises:
        UsageError: The table has no row.
    """
    table = source.table
    rows: list[str] = []
    left_out: dict[str, int] = {}
    shapes: dict[tuple[int, int], int] = {}
    for entry in table.entries:
        if reason := _obstacle(entry, shapes):
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            rows.append(_row(entry))
    comments = [
        MARK,
        f"# machine {table.topology_name} {table.fingerprint}"[:_LONGEST_COMMENT],
        *_profile_comments(table),
        *_CHANNELS,
        _COLUMNS,
    ]
    text = "".join(f"{_printable(line)}\n" for line in [*comments, *rows])
    notes = tuple(_notes(table, rows, left_out))
    if not rows:
        reasons = "; ".join(notes) or "it has no entries"
        raise UsageError(f"{source.name}: the table has no row for tuner-csv: {reasons}")
    said = (
        f"{len(rows)} of {len(table.entries)} entries; a job reads it with: "
        f"NCCL_TUNER_CONFIG_FILE={shlex.quote(str(absolute(target)))}"
    )
    return Exported(text, len(rows), (said,), notes)


def _obstacle(entry: Entry, shapes: dict[tuple[int, int], int]) -> str:
    """Return why an entry has no row; empty: it has one."""
    if not entry.key.operation.asks_tuner:  # Readers take it for allreduce.
        return f"{entry.key.operation} is unknown to the tuner"
    if entry.builtin is None:
        return "a schedule won, and no built-in setting is faster than NCCL's own choice"
    if entry.builtin.chunk_bytes:
        return "it has a size of chunks, which no column has"
    shape = entry.key.shape
    if shapes.setdefault((shape.ranks, shape.nodes), shape.ranks_per_node) != shape.ranks_per_node:
        return "another shape has as many ranks on as many nodes"
    return ""


def _row(entry: Entry) -> str:
    key, builtin = entry.key, entry.builtin
    if builtin is None:
        raise ValueError(f"{key} has no built-in setting")
    cells = (
        key.operation.short_name,
        key.min_bytes,
        key.max_bytes,
        builtin.algorithm.value,
        builtin.protocol.value.lower(),
        builtin.nchannels or _ANY,
        key.shape.nodes,
        key.shape.ranks,
        _ANY,
        _ANY,
    )
    return ",".join(map(str, cells))


def _profile_comments(table: Table) -> list[str]:
    if not table.profile:
        return []
    variables = [f"#   {name}={value}" for name, value in table.profile.items()]
    return ["# needs in the environment of every process:", *variables]


def _notes(table: Table, rows: list[str], left_out: dict[str, int]) -> Iterator[str]:
    placed = len(table.all_entries) - len(table.entries)
    if placed:
        left_out |= {
            "it is for some communicators of its shape, which no column distinguishes": placed
        }
    for reason, count in left_out.items():
        yield f"{count_of(count, 'entry', 'entries')} without a row: {reason}"
    slower = sum(
        entry.schedule is not None and entry.builtin is not None for entry in table.entries
    )
    if slower:
        yield (
            f"{count_of(slower, 'entry', 'entries')} won by a schedule, which the CSV cannot say: "
            "the row has the best built-in setting, which is slower"
        )
    if table.profile:
        yield (
            "the CSV has no process profile, and the settings were found under it: set "
            f"{profile_text(table.profile)} for every process"
        )
    if rows:
        yield (
            "the tuner of NCCL's sources gives one channel to calls without a row, and to rows "
            "without a number of channels: change `*nChannels = 1` to 0 in its plugin.c, as RCCL's "
            "has it"
        )
        yield (
            "the CSV names no machine and no NCCL, and ranks that read different files hang: give "
            "all ranks one file, and jobs elsewhere none"
        )


def _printable(line: str) -> str:
    """Return a line in ASCII, whose length is that of its bytes, without a line's end in it."""
    plain = line.encode("ascii", "backslashreplace").decode()
    return " ".join(plain.split("\n"))[:_LONGEST_COMMENT]


FORM = ExportForm("nccl_tuner.conf", MARK, tuner_csv)
