"""`Provenance`: the backend and versions behind the times of an entry, a log or a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

SIMULATED = "simulated"
SOCKETS = "sockets"
_BACKEND = re.compile(r"[A-Za-z0-9_.,:-]+")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class NcclVersion(NamedTuple):
    """A release of NCCL."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        """`2.28.9`."""
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def of_code(cls, code: int) -> NcclVersion:
        """Return the version of a code: 22809 is 2.28.9."""
        return cls(code // 10000, code // 100 % 100, code % 100)

    @classmethod
    def parse(cls, text: str) -> NcclVersion:
        """Parse a version such as `2.28.9`.

        Raises:
            ValueError: The text is not a version.
        """
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!a:.60} is not a version of NCCL like 2.28.9")
        return cls(*map(int, found.groups()))


@dataclass(frozen=True, slots=True)
class Provenance:
    """The backend and versions that measured or computed times.

    Raises:
        ValueError: The backend's name is invalid.
    """

    backend: str
    """`nccl`, `executor`, `nccl,executor`, `simulated`, `sockets`, or MODULE:CLASS of an engine."""
    nccl_version: NcclVersion | None = None
    """Version of NCCL; None: no NCCL ran, or it is unknown."""
    tuccl_version: str | None = None
    """Release of TuCCL; None: unknown, or TuCCL did not measure."""
    machine: str | None = None
    """Name of the topology; None in a log and a record, which have the topology themselves."""
    replayed: bool = False
    """Whether the times come from a record of that backend."""
    details: str = ""
    """Driver, CUDA and GPU as the workers report them, or the model's state; for display."""

    def __post_init__(self) -> None:
        """Refuse an invalid name of a backend."""
        if not _BACKEND.fullmatch(self.backend):
            raise ValueError(f"{self.backend!a:.60} is not the name of a backend")

    @property
    def is_modelled(self) -> bool:
        """Whether a model computed the times."""
        return self.backend == SIMULATED

    @property
    def is_stand_in(self) -> bool:
        """Whether the times are of a stand-in for NCCL."""
        return self.backend == SOCKETS

    @property
    def is_measured(self) -> bool:
        """Whether the times are of a real NCCL or executor."""
        return not self.is_modelled and not self.is_stand_in

    def describe(self) -> str:
        """Return one line for display."""
        release = f"tuccl {self.tuccl_version} {self.backend}" if self.tuccl_version else ""
        text = ", ".join(filter(None, [release, self.details])) or self.backend
        return f"replay of {self.backend}: {text}" if self.replayed else text


def provenance_to_json(provenance: Provenance) -> dict[str, Any]:
    """Return a JSON object, with NCCL's version as `2.28.9`."""
    version = provenance.nccl_version
    return {**asdict(provenance), "nccl_version": None if version is None else str(version)}


def provenance_from_json(values: Mapping[str, Any]) -> Provenance:
    """Return the provenance of a JSON object.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: The object is no provenance.
    """
    version = values["nccl_version"]
    found = Provenance(
        **{**values, "nccl_version": None if version is None else NcclVersion.parse(version)}
    )
    names = (found.tuccl_version, found.machine)
    if not all(name is None or isinstance(name, str) for name in names):
        raise TypeError("a release or a machine that is not a text")
    if type(found.replayed) is not bool or not isinstance(found.details, str):
        raise TypeError("a provenance whose members are of other types")
    return found
