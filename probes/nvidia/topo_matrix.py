"""`parse_topo_matrix`: the table of `nvidia-smi topo -m`, also from a terminal.

The table has a row and a column for each GPU and NIC, then affinities, a legend, and the names of
numbered NICs. Tabs, spaces, terminal colours, prompts and wrapped lines are accepted, and words
that lost the space between them where one division is possible; a table that is cut or contradicts
itself is refused, because a part of it would look like a smaller machine.
Words: legend of driver 535; drivers before 384 say `SOC` for SYS.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from probes.inputs.messages import without_escapes
from tuccl.errors import MachineError

COMMAND = "`nvidia-smi topo -m`"

_GPU = re.compile(r"GPU\d{1,4}")
_CELL = re.compile(r"X|NV(\d{1,3})|PIX|PXB|PHB|NODE|SYS|SOC")
_NIC_NAME = re.compile(r"\s*(NIC\d{1,4}):\s+(\S+)\s*")
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*,?")
_KNOWN = (
    r"(?:GPU\d{1,4}|NIC\d{1,4}|mlx\d{1,2}_(?:bond_?)?\d{1,3}|NV\d{1,3}|X|PIX|PXB|PHB|NODE|SYS|SOC"
    r"|CPU|NUMA|Affinity|GPU|ID)"
)
_STUCK = re.compile(rf"((?:{_KNOWN})*)(\d[\d,-]*)?((?:N/A)*)")
_MAX_NVLINKS = 64
_MAX_DEVICES = 128


class Connection(StrEnum):
    """Connection of two devices, from near to far."""

    NVLINK = "NV"
    PIX = "PIX"
    """At most one PCIe bridge or switch."""
    PXB = "PXB"
    """PCIe bridges or switches."""
    PHB = "PHB"
    """A host bridge."""
    NODE = "NODE"
    """Host bridges of one NUMA node."""
    SYS = "SYS"
    """The link between NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A field of the table."""

    connection: Connection
    nvlinks: int = 0
    """Number of NVLinks; 0 for other connections."""

    def __str__(self) -> str:
        return f"NV{self.nvlinks}" if self.nvlinks else self.connection.value


@dataclass(frozen=True, slots=True)
class TopoMatrix:
    """The table; symmetric and complete."""

    source: str
    gpus: tuple[str, ...]
    """Names in the table (`GPU0`), by number."""
    nics: tuple[str, ...]
    """Names in the table (`NIC0`, `mlx5_0`), in its order."""
    cells: Mapping[tuple[str, str], Cell]
    """Fields by row and column, without the diagonal."""
    nic_names: Mapping[str, str]
    """The system's names of the NICs that the table numbers."""
    affinity: Mapping[str, str]
    """CPUs and NUMA nodes of each GPU as printed (`0-23 0`), where the table has them."""
    notes: tuple[str, ...] = ()

    def nic_name(self, nic: str) -> str:
        """The system's name of a NIC of the table."""
        return self.nic_names.get(nic, nic)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    line: int


def parse_topo_matrix(text: str, source: str) -> TopoMatrix:
    """Parse the table in a text that may have prompts and other lines around it.

    Raises:
        MachineError: there is no table, or it is cut, has unknown words or contradictions.
    """
    lines = _lines(text)
    start = next((n for n, line in enumerate(lines) if _is_header(_words(line))), None)
    if start is None:
        raise MachineError(f"{source}: no table of {COMMAND} in it; give its whole output")
    words, end = _table(lines, start)
    columns = _columns(words, source, start + 1)
    rows = _rows(words, columns, source)
    cells = {
        (row, column): cell
        for row, (found, _) in rows.items()
        for column, cell in found.items()
        if row != column
    }
    _check_symmetry(cells, columns, source)
    notes = []
    gpus = sorted((c for c in columns if _GPU.fullmatch(c)), key=lambda name: int(name[3:]))
    affinity = {gpu: printed for gpu in gpus if (printed := _affinity(rows[gpu][1]))}
    last = list(rows)[-1]
    if end == len(lines) and not text.endswith("\n") and last in gpus:
        affinity.pop(last, None)
        notes.append(
            f"The text ends in the row of {last}: its affinity may be cut, so is not used."
        )
    names = (_NIC_NAME.fullmatch(line) for line in lines[end:])
    legend = {found[1]: found[2] for found in names if found is not None}
    nics = [column for column in columns if column not in gpus]
    strange = [nic for nic in legend if nic not in nics]
    if strange:
        raise MachineError(
            f"{source}: the NIC legend names {', '.join(strange[:4])}, but the table has no "
            f"such column; give the output of {COMMAND} as it was printed"
        )
    unnamed = [nic for nic in nics if re.fullmatch(r"NIC\d+", nic) and nic not in legend]
    if unnamed:
        notes.append(f"The NIC legend has no name for {', '.join(unnamed[:4])}: it may be cut.")
    return TopoMatrix(
        source=source,
        gpus=tuple(gpus),
        nics=tuple(nics),
        cells=cells,
        nic_names={nic: legend[nic] for nic in nics if nic in legend},
        affinity=affinity,
        notes=tuple(notes),
    )


def is_topo_matrix(text: str) -> bool:
    """Whether the text contains the header of such a table."""
    return any(_is_header(_words(line)) for line in _lines(text))


def _lines(text: str) -> list[str]:
    """Split into lines, without colours; unprintable characters become question marks."""
    plain = without_escapes(text).splitlines()
    return [re.sub(r"[^\t -~]", "?", line) for line in plain]


def _words(line: str) -> list[str]:
    """Return the words of a line, divided where the space between them is lost."""
    return [word for stuck in line.split() for word in _divided(stuck)]


def _divided(stuck: str) -> list[str]:
    """Return the known words that a word consists of; the word itself if that is not clear."""
    found = _STUCK.fullmatch(stuck)
    if found is None:
        return [stuck]
    words, cpus = re.findall(_KNOWN, found[1]), found[2] or ""
    if cpus and words and words[-1].startswith("NV"):
        digits = words.pop()[2:] + cpus
        ways = [
            (f"NV{digits[:end]}", digits[end:])
            for end in (1, 2)
            if 1 <= int(digits[:end]) <= _MAX_NVLINKS and _is_ascending(digits[end:])
        ]
        if len(ways) != 1:
            return [stuck]
        words.append(ways[0][0])
        cpus = ways[0][1]
    return [*words, *([cpus] if cpus else []), *(["N/A"] * found[3].count("N/A"))]


def _is_ascending(cpus: str) -> bool:
    """Whether a text is a list of CPUs in their order, as the driver prints them."""
    if not _CPU_LIST.fullmatch(cpus) or re.search(r"(?<!\d)0\d", cpus):
        return False
    numbers = [int(number) for number in re.findall(r"\d+", cpus)]
    return all(a < b for a, b in itertools.pairwise(numbers))


def _is_header(words: list[str]) -> bool:
    """Whether the line is the header: it has device names only, a row has one and a connection."""
    if not words or not _GPU.fullmatch(words[0]):
        return False
    following = words[1] if len(words) > 1 else "CPU"
    return following == "CPU" or _GPU.fullmatch(following) is not None


def _table(lines: list[str], start: int) -> tuple[list[_Word], int]:
    """Return the words of header and rows, and the index of the empty line or legend after them."""
    words: list[_Word] = []
    for number, line in enumerate(lines[start:], start=start):
        line_words = _words(line)
        if not line_words or line_words[0].startswith("Legend"):
            return words, number
        words += [_Word(word, number + 1) for word in line_words]
    return words, len(lines)


def _columns(words: list[_Word], source: str, line: int) -> list[str]:
    """Return the names before `CPU Affinity`, or before the first row if there is no affinity."""
    columns: list[str] = []
    for word, following in zip(words, [*words[1:], None], strict=True):
        starts_row = following is not None and _CELL.fullmatch(following.text) is not None
        if word.text == "CPU" or starts_row:
            break
        columns.append(word.text)
    if not 0 < len(set(columns)) == len(columns) <= _MAX_DEVICES:
        raise MachineError(
            f"{source}:{line}: {len(columns)} columns, {len(set(columns))} names; give the output "
            f"of {COMMAND} as it was printed"
        )
    return columns


_Row = tuple[dict[str, Cell], list[str]]
"""Cells by column, without the diagonal, and the words after them."""


def _rows(words: list[_Word], columns: list[str], source: str) -> dict[str, _Row]:
    header = {*columns, "CPU"}
    starts = [
        index
        for index, (word, following) in enumerate(itertools.pairwise(words))
        if word.text in header and word.text != "CPU" and following.text not in header
    ]
    rows: dict[str, _Row] = {}
    for start, end in itertools.pairwise([*starts, len(words)]):
        row, row_words = words[start], words[start + 1 : end]
        if row.text in rows:
            raise MachineError(f"{source}:{row.line}: a second row {row.text}")
        rows[row.text] = _row(row, row_words, columns, source)
    missing = [column for column in columns if column not in rows]
    if missing:
        line = words[-1].line
        raise MachineError(
            f"{source}:{line}: the table is cut: no row for {', '.join(missing[:4])}; give the "
            f"whole output of {COMMAND}"
        )
    return rows


def _row(row: _Word, words: list[_Word], columns: list[str], source: str) -> _Row:
    cells: dict[str, Cell] = {}
    for index, column in enumerate(columns):
        where = f"row {row.text}, column {column}"
        if index >= len(words):
            raise MachineError(
                f"{source}:{row.line}: the table is cut: nothing at {where}; give the whole output "
                f"of {COMMAND}"
            )
        word = words[index]
        match = _CELL.fullmatch(word.text)
        if match is None or (word.text == "X") != (column == row.text):
            raise MachineError(
                f"{source}:{word.line}: {word.text!a:.20} at {where}; expected "
                f"{'X' if column == row.text else 'NV#, PIX, PXB, PHB, NODE or SYS'}"
            )
        if word.text == "X":
            continue
        count = int(match[1]) if match[1] else 0
        if word.text.startswith("NV") and not 1 <= count <= _MAX_NVLINKS:
            raise MachineError(f"{source}:{word.line}: {count} NVLinks at {where}")
        kind = "NV" if count else word.text.replace("SOC", "SYS")
        cells[column] = Cell(Connection(kind), count)
    rest = words[len(columns) :]
    if rest and _CELL.fullmatch(rest[0].text):
        raise MachineError(
            f"{source}:{rest[0].line}: row {row.text} has more fields than the {len(columns)} "
            f"columns of the head; give the output of {COMMAND} as it was printed"
        )
    return cells, [word.text for word in rest]


def _check_symmetry(cells: Mapping[tuple[str, str], Cell], columns: list[str], source: str) -> None:
    for index, a in enumerate(columns):
        for b in columns[:index]:
            if cells[a, b] != cells[b, a]:
                raise MachineError(
                    f"{source}: {b} to {a} is {cells[b, a]}, {a} to {b} is {cells[a, b]}; the "
                    f"table is damaged, give the output of {COMMAND} as it was printed"
                )


def _affinity(words: list[str]) -> str:
    """Return CPUs, then NUMA nodes, without `N/A`."""
    return " ".join(word for word in words[:2] if _CPU_LIST.fullmatch(word))
