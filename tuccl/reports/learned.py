"""`Learned`: what a job learned of its calls, as the executor wrote it (TUCCL_LEARN_FILE).

The form is described in docs/reference/executor.md. Times are medians of calls in the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from lookup_tables.collective import Collective
from lookup_tables.lookup import MAX_CHANNELS, MAX_THREADS
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, ScheduleConfig, Shape
from probes.inputs.messages import first_fault
from probes.inputs.regular_file import read_regular_file
from tuccl.errors import InputFileError

_VERSION = 2
_MOST_ARMS = 64
_Size = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Rank = Annotated[int, Field(ge=0, le=2**32 - 1)]
_Time = Annotated[float, Field(gt=0, le=1e15)]
_Text = Annotated[str, Field(max_length=300, pattern=r"^[ -~]*$")]


class ArmKind(StrEnum):
    """What calls of a size may run by."""

    SCHEDULE = "schedule"
    """A schedule of the table's, by the executor."""
    TABLE = "table"
    """The table's setting of NCCL, by the plugin."""
    NCCL = "nccl"
    """NCCL's own choice."""
    SETTING = "setting"
    """Another setting of NCCL."""


@dataclass(frozen=True, slots=True)
class LearnedArm:
    """A choice that was, or may have been, timed in the job."""

    kind: ArmKind
    setting: BuiltinConfig | None
    """Of the kind `setting`."""
    time_us: float | None
    """Median of its last trial; None: it was not timed."""
    refused: bool
    """Whether NCCL, or the executor, does not run it here."""
    schedule: ScheduleConfig | None = None
    """Of the kind `schedule`."""
    name: str = ""
    """The schedule's."""

    @property
    def text(self) -> str:
        """The choice in a few words."""
        if self.schedule is not None:
            own = self.schedule
            return f"{self.name} {own.protocol.value} ch{own.nchannels} th{own.nthreads}"
        if self.setting is None:
            is_table = self.kind is ArmKind.TABLE
            return "the table's setting" if is_table else "NCCL's own choice"
        setting = self.setting
        text = f"{setting.algorithm.value}/{setting.protocol.value}"
        text += f" on {setting.nchannels} channels" if setting.nchannels else ""
        return text + (f" in chunks of {setting.chunk_bytes} bytes" if setting.chunk_bytes else "")


@dataclass(frozen=True, slots=True)
class LearnedKey:
    """What was learned of one operation and size on one communicator."""

    operation: Collective
    size_bytes: int
    shape: Shape
    calls: int
    races: int
    """Races that have ended; 0: nothing was concluded yet."""
    choice: int
    """Place of the choice among `arms`."""
    arms: tuple[LearnedArm, ...]
    """The first one is what the table says."""

    @property
    def chosen(self) -> LearnedArm:
        """What calls ran by at the end."""
        return self.arms[self.choice]

    @property
    def nccl_us(self) -> float | None:
        """Time of NCCL's own choice; None: it was not timed."""
        return next((arm.time_us for arm in self.arms if arm.kind is ArmKind.NCCL), None)

    @property
    def gain(self) -> float | None:
        """NCCL's own time over that of the choice; None: one of them is not known."""
        if self.nccl_us is None or self.chosen.time_us is None:
            return None
        return self.nccl_us / self.chosen.time_us


@dataclass(frozen=True, slots=True)
class Learned:
    """`learned show`: what processes of a job learned."""

    written_at: str
    """When the last one wrote: ISO 8601, UTC."""
    hosts: tuple[str, ...]
    keys: tuple[LearnedKey, ...]
    """By shape, operation and size; of a call that several communicators learned, the one that
    called it most."""


@dataclass(frozen=True)
class _Arm:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    kind: Annotated[ArmKind, Field(alias="is")]
    refused: bool
    time_us: _Time | None
    algorithm: NcclAlgorithm | None = None
    protocol: NcclProtocol | None = None
    nchannels: Annotated[int, Field(ge=0, le=MAX_CHANNELS)] = 0
    chunk_bytes: Annotated[int, Field(ge=0, le=2**31)] = 0
    schedule: Annotated[str, Field(max_length=128, pattern=r"^[0-9A-Za-z]+$")] | None = None
    name: _Text = ""
    nthreads: Annotated[int, Field(ge=0, le=MAX_THREADS)] = 0
    buffer_bytes: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


@dataclass(frozen=True)
class _Key:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    operation: Collective
    bytes: _Size
    calls: _Count
    races: _Count
    choice: _Count
    arms: Annotated[tuple[_Arm, ...], Field(min_length=1, max_length=_MOST_ARMS)]


@dataclass(frozen=True)
class _Communicator:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    ranks: _Rank
    nodes: _Rank
    ranks_per_node: _Rank
    calls: _Count
    reports: _Count
    slower_us: Annotated[float, Field(ge=0)]
    elapsed_us: _Count
    keys: tuple[_Key, ...]


@dataclass(frozen=True)
class _File:
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    tuccl_learned: Literal[2]
    host: _Text
    process: _Count
    written_at: _Text
    communicators: tuple[_Communicator, ...]


def read_learned(paths: Sequence[Path]) -> Learned:
    """Read the files that a job's processes wrote.

    Raises:
        InputFileError: A file cannot be read, or is of another form or version.
    """
    files = [_read(path) for path in paths]
    best: dict[tuple[Shape, Collective, int], LearnedKey] = {}
    for path, file in zip(paths, files, strict=True):
        for key in _keys_of(file, path):
            name = (key.shape, key.operation, key.size_bytes)
            known = best.get(name)
            if known is None or (key.races > 0, key.calls) > (known.races > 0, known.calls):
                best[name] = key
    names = sorted(best, key=lambda name: (name[0], name[1].value, name[2]))
    hosts = sorted({file.host for file in files})
    written_at = max(file.written_at for file in files)
    return Learned(written_at, tuple(hosts), tuple(best[name] for name in names))


def _read(path: Path) -> _File:
    try:
        return TypeAdapter(_File).validate_json(read_regular_file(path))
    except OSError as error:
        raise InputFileError(
            f"cannot read {path}: {error.strerror}; name a file of TUCCL_LEARN_FILE"
        ) from error
    except ValidationError as error:
        raise InputFileError(
            f"{path} is not what a job learned in version {_VERSION} ({first_fault(error)}); name "
            "a file of TUCCL_LEARN_FILE"
        ) from error


def _keys_of(file: _File, path: Path) -> list[LearnedKey]:
    found = []
    for each in file.communicators:
        shape = Shape(each.ranks, each.nodes, each.ranks_per_node)
        if shape.fault:
            raise InputFileError(f"{path}: {shape.fault}; name a file of TUCCL_LEARN_FILE")
        for key in each.keys:
            arms = tuple(_arm(arm, path) for arm in key.arms)
            if key.choice >= len(arms):
                raise InputFileError(f"{path}: a choice that is no arm; the file is damaged")
            found.append(
                LearnedKey(key.operation, key.bytes, shape, key.calls, key.races, key.choice, arms)
            )
    return found


def _arm(arm: _Arm, path: Path) -> LearnedArm:
    setting = None
    if arm.kind is ArmKind.SETTING:
        if arm.algorithm is None or arm.protocol is None:
            raise InputFileError(f"{path}: a setting without its algorithm; the file is damaged")
        setting = BuiltinConfig(arm.algorithm, arm.protocol, arm.nchannels, arm.chunk_bytes)
    schedule = None
    if arm.kind is ArmKind.SCHEDULE:
        if arm.schedule is None or arm.protocol is None:
            raise InputFileError(f"{path}: a schedule without its name; the file is damaged")
        schedule = ScheduleConfig(
            arm.schedule, arm.protocol, arm.nchannels, arm.nthreads, arm.buffer_bytes
        )
    return LearnedArm(arm.kind, setting, arm.time_us, arm.refused, schedule, arm.name)
