"""Verdicts of the guard: which choices it compared in jobs, over time, and what ran from then on.

The executor writes them (docs/reference/executor.md, "The log of verdicts"), a file for each
process. A job may have ended at any time, so a last line without its end is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lookup_tables.collective import Collective
from lookup_tables.table import Shape
from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file, regular_status
from tuccl.errors import InputFileError, UsageError
from tuccl.reports.json_form import member

VERSION = 1
_NAME = re.compile(r"tuccl-verdicts-[\w-]{0,64}-\d{1,10}-[0-9a-f]{8}(\.old)?\.jsonl")
_MOST_FILES = 4096
_MOST_FILE_BYTES = 16 << 20
"""Of one file; the executor writes 4 MiB."""
_MOST_VERDICTS = 200_000
_MOST_LINE_BYTES = 8192
_MOST_MS = 4_102_444_800_000
"""The year 2100."""


class VerdictKind(StrEnum):
    """What a trial came to."""

    STAYS = "stays"
    LEFT_OUT = "left_out"
    TAKEN_BACK = "taken_back"
    LEARNED = "learned"
    NO_TIMES = "no_times"
    APART = "apart"

    @property
    def words(self) -> str:
        """The kind for people."""
        return {
            VerdictKind.LEFT_OUT: "left to NCCL",
            VerdictKind.TAKEN_BACK: "the table's again",
            VerdictKind.APART: "ranks apart",
        }.get(self, self.value.replace("_", " "))


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


_Count = Annotated[int, Field(ge=0, le=1 << 32)]


class _Choice(_Model):
    name: Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[ -~]+$")]
    us: Annotated[float, Field(gt=0, le=1e12)] | None


class _Line(_Model):
    """A line of the log."""

    version: int
    time_ms: Annotated[int, Field(ge=0, le=_MOST_MS)]
    host: Annotated[str, Field(max_length=64, pattern=r"^[\w-]*$")]
    process: _Count
    communicator: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    ranks: Annotated[int, Field(ge=1, le=1 << 20)]
    nodes: Annotated[int, Field(ge=1, le=1 << 20)]
    ranks_per_node: Annotated[int, Field(ge=0, le=1 << 20)]
    table: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
    call: Annotated[int, Field(ge=0, le=1 << 64)]
    operation: Annotated[Collective, Field(strict=False)]
    bytes: Annotated[int, Field(ge=0, le=1 << 62)]
    verdict: Annotated[VerdictKind, Field(strict=False)]
    ran: _Count
    runs: _Count
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _is_consistent(self) -> _Line:
        if max(self.ran, self.runs) >= len(self.choices):
            raise ValueError("ran and runs are no places among the choices")
        if self.shape.fault:
            raise ValueError(self.shape.fault)
        return self

    @property
    def shape(self) -> Shape:
        """Shape of the communicator."""
        return Shape(self.ranks, self.nodes, self.ranks_per_node)


@dataclass(frozen=True, slots=True)
class ComparedChoice:
    """A choice of a trial."""

    name: str
    """`table`, `nccl`, or a setting of NCCL."""
    median_us: float | None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a trial on one communicator."""

    time_ms: int
    """Milliseconds since 1970."""
    host: str
    process: int
    communicator: str
    table: str
    """Sum of the table's bundle, as `doctor` has it."""
    call: int
    """Of the communicator, as the guard counts."""
    verdict: VerdictKind
    ran: str
    """The choice that ran before."""
    runs: str
    """The choice that runs from then on."""
    choices: tuple[ComparedChoice, ...]

    @property
    def is_change(self) -> bool:
        """Whether another choice runs from then on."""
        return self.ran != self.runs

    def median_us(self, name: str) -> float | None:
        """Return the median of a choice; None: not known."""
        return next((each.median_us for each in self.choices if each.name == name), None)


@dataclass(frozen=True, slots=True)
class JudgedKey:
    """The verdicts on calls of one operation, size and shape of communicator."""

    operation: Collective
    size_bytes: int
    shape: Shape
    verdicts: tuple[Verdict, ...]
    """By time."""

    @member
    def runs(self) -> dict[str, int]:
        """Communicators by the choice that ran at last, the most frequent first."""
        last = {each.communicator: each.runs for each in self.verdicts}
        names = list(last.values())
        return dict(sorted(((name, names.count(name)) for name in set(names)), key=_by_count))

    @member
    def changes(self) -> int:
        """Verdicts from which on another choice ran."""
        return sum(each.is_change for each in self.verdicts)

    def last_median_us(self, name: str) -> float | None:
        """Return the latest median of a choice; None: there is none."""
        found = (each.median_us(name) for each in reversed(self.verdicts))
        return next((median_us for median_us in found if median_us is not None), None)


@dataclass(frozen=True, slots=True)
class VerdictHistory:
    """What the guard found in jobs."""

    files: tuple[Path, ...]
    keys: tuple[JudgedKey, ...]

    @property
    def verdicts(self) -> int:
        """How many there are."""
        return sum(len(key.verdicts) for key in self.keys)


def read_verdicts(place: Path) -> VerdictHistory:
    """Return the verdicts of a file, or of all logs in a folder.

    Raises:
        UsageError: There is no such file, or no log in the folder.
        InputFileError: A log is damaged, of another version or too large.
    """
    files = _files(place)
    found: dict[tuple[Collective, int, Shape], list[Verdict]] = {}
    count = 0
    for path in files:
        for line in _lines(path):
            count += 1
            if count > _MOST_VERDICTS:
                raise InputFileError(
                    f"{place}: more than {_MOST_VERDICTS:,} verdicts; name one file of them"
                )
            key = line.operation, line.bytes, line.shape
            found.setdefault(key, []).append(_verdict(line))
    by_time = attrgetter("time_ms", "communicator", "call")
    keys = tuple(
        JudgedKey(*key, tuple(sorted(found[key], key=by_time)))
        for key in sorted(found, key=lambda key: (key[2], list(Collective).index(key[0]), key[1]))
    )
    return VerdictHistory(files, keys)


def time_text(time_ms: int) -> str:
    """Return a time as `2026-01-02 03:04:05 UTC`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def runs_words(key: JudgedKey) -> str:
    """Return what runs at last: `nccl`, or `nccl on 3 communicators, table on 1`."""
    if len(key.runs) == 1:
        return next(iter(key.runs))
    return ", ".join(f"{name} on {count}" for name, count in key.runs.items())


def last_changes(found: VerdictHistory, most: int) -> list[tuple[JudgedKey, Verdict]]:
    """Return the last verdicts from which on another choice ran, the latest first."""
    changes = [(key, each) for key in found.keys for each in key.verdicts if each.is_change]
    return sorted(changes, key=lambda pair: -pair[1].time_ms)[:most]


def period(found: VerdictHistory) -> dict[str, str]:
    """Return the times of the first and last verdict."""
    times = [each.time_ms for key in found.keys for each in key.verdicts]
    return {"first": time_text(min(times)), "last": time_text(max(times))} if times else {}


def _by_count(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _files(place: Path) -> tuple[Path, ...]:
    try:
        if not place.is_dir():
            regular_status(place)
            return (place,)
        files = tuple(sorted(path for path in place.iterdir() if _NAME.fullmatch(path.name)))
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from error
    if not files:
        raise UsageError(
            f"{place} has no log of verdicts (tuccl-verdicts-*.jsonl): name the folder that the "
            "job had as TUCCL_GUARD_LOG"
        )
    if len(files) > _MOST_FILES:
        raise UsageError(f"{place} has more than {_MOST_FILES:,} logs of verdicts: name one file")
    return files


def _lines(path: Path) -> Iterator[_Line]:
    try:
        if regular_status(path).st_size > _MOST_FILE_BYTES:
            raise InputFileError(f"{path}: more than 16 MiB, and a log of verdicts has 4")
        data = read_regular_file(path)
    except OSError as error:
        raise InputFileError(f"cannot read {path}: {error.strerror}") from error
    *whole, _ = data[: _MOST_FILE_BYTES + 1].split(b"\n")
    if data and not whole:
        raise InputFileError(f"{path}: no log of verdicts of the guard")
    for number, text in enumerate(whole, 1):
        yield _line(text, f"{path}:{number}")


def _line(text: bytes, place: str) -> _Line:
    try:
        content = json.loads(text) if len(text) <= _MOST_LINE_BYTES else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or "version" not in content:
        raise InputFileError(f"{place}: no verdict of the guard: the line is damaged")
    if content["version"] != VERSION or isinstance(content["version"], bool):
        raise InputFileError(
            f"{place}: version {content['version']!r:.20} of verdicts, and this release reads "
            f"{VERSION}: use the release of TuCCL that the job ran with"
        )
    try:
        return _Line.model_validate_json(text)
    except ValidationError as error:
        raise InputFileError(f"{place}: {first_fault(error, 'the line')}") from error


def _verdict(line: _Line) -> Verdict:
    return Verdict(
        line.time_ms,
        line.host,
        line.process,
        line.communicator,
        line.table,
        line.call,
        line.verdict,
        line.choices[line.ran].name,
        line.choices[line.runs].name,
        tuple(ComparedChoice(each.name, each.us) for each in line.choices),
    )
