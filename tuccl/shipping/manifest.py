"""`tuccl-manifest.json`: what lies in a shipped directory, for tools and for the next ship.

The manifest is written last, and nothing depends on it while jobs run. It says what the table is
and which host it was measured on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lookup_tables.collective import Collective
from lookup_tables.table import Shape, SumOrder
from probes.inputs.regular_file import read_regular_file
from tuccl.reports.evidence import Evidence
from tuccl.reports.host_record import HostRecord
from tuccl.reports.step_gain import StepSummary
from tuccl.reports.table_parts import TablePart
from tuccl.search.trials.timing import Computation

MANIFEST_NAME = "tuccl-manifest.json"
MANIFEST_VERSION: Final = 3
PROFILE_LEFT_OUT: Final = (
    "Its times are with a process profile that is left out, as a job was slower with that; those "
    "of calls without it are not known."
)
"""Caveat of a table that `tuccl workload trim` took the process profile from."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, defer_build=True)


class ShippedFile(_Model):
    """A file of the table."""

    path: str
    """Path in the directory."""
    bytes: int
    sha256: str


class MachineSize(_Model):
    """The size of the tuned machine."""

    gpus: int
    """GPUs of all nodes."""
    nodes: int


class TunedSizes(_Model):
    """Keys of an operation on communicators of one shape, those left to NCCL among them."""

    operation: Collective
    shape: Shape
    sizes_bytes: list[int]


class ManifestDocument(_Model):
    """`tuccl-manifest.json`: the table in a shipped directory."""

    schema_version: Literal[3] = MANIFEST_VERSION
    tuccl: str
    """Release that shipped the table."""
    topology_name: str
    fingerprint: str
    """Fingerprint of the machine's topology."""
    machine: MachineSize | None
    """None where the run does not keep its machine."""
    gpu_models: list[str]
    """PCI `vendor:device` of the machine's GPUs; empty: unknown."""
    nccl: str | None
    """Version of NCCL that was measured; None: the table was not measured with NCCL."""
    times: Evidence
    """The weakest evidence behind any of the times."""
    tuned_from: str | None
    """When the first entry was tuned: ISO 8601, UTC; None: the table does not say."""
    tuned_to: str | None
    """When the last entry was tuned."""
    profile: dict[str, str]
    """The process profile: variables of the environment."""
    base: dict[str, str] | None = None
    """Variables of NCCL that every process had while it was measured, stock NCCL's too, and that
    jobs have by themselves; None: unknown."""
    shapes: list[Shape]
    """Communicators that have entries."""
    sums: list[SumOrder] = []
    """The order of sums that do not move (`init --invariant`); empty: sums may."""
    parts: list[TablePart]
    """Measured and modelled parts: one for each operation, shape and origin."""
    keys: list[TunedSizes] = []
    """All keys that were tuned, with and without an entry; empty: unknown."""
    step: StepSummary | None = None
    """The gain of a step of the workload that the table was tuned for; None: it was for none."""
    assumed: str = ""
    """A sentence on figures of the machine that a model computed with and nobody measured."""
    caveats: list[str]
    """Reasons not to rely on the table, and why the executor is not loaded."""
    bundle_crc: str
    executor: bool
    """Whether the executor is loaded by default."""
    forms: list[str]
    """Forms in which the table was shipped beside `tuccl.env`; later ships renew them."""
    place: str | None
    """Where jobs find the directory, as `--at` named it; None: where it was shipped to."""
    graphs: bool | None = None
    """Whether calls were timed in CUDA graphs; None: unknown."""
    in_place: bool | None = None
    """Whether calls were timed with one buffer for sending and receiving; None: unknown."""
    computations: tuple[Computation, ...] = ()
    """Computation beside calls while they were timed; empty: they were timed alone."""
    host: HostRecord | None = None
    """The host that the table was measured on; None: unknown."""
    files: list[ShippedFile]
    """All files of the table but the manifest."""

    @property
    def lost_profile(self) -> bool:
        """Whether `PROFILE_LEFT_OUT` holds."""
        return PROFILE_LEFT_OUT in self.caveats


class _VersionModel(BaseModel):
    schema_version: int


def manifest_text(manifest: ManifestDocument) -> str:
    """Return the file's text; the same manifest gives the same bytes."""
    return manifest.model_dump_json(indent=1) + "\n"


def listed_files(files: Mapping[str, bytes]) -> list[ShippedFile]:
    """Return the list of files with these contents by path, sorted."""
    return [
        ShippedFile(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
    ]


def read_manifest(directory: Path) -> ManifestDocument | None:
    """Return the manifest; None if it is missing, damaged or of another version."""
    try:
        return ManifestDocument.model_validate_json(read_regular_file(directory / MANIFEST_NAME))
    except (OSError, ValidationError):
        return None


def other_version(directory: Path) -> int:
    """Return the version of a manifest that this release does not read; 0: there is none."""
    try:
        data = read_regular_file(directory / MANIFEST_NAME)
        version = _VersionModel.model_validate_json(data).schema_version
    except (OSError, ValidationError):
        return 0
    return 0 if version == MANIFEST_VERSION else version
