"""`ShownTable` and `History`: the table in a shipped directory, and those that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lookup_tables.table import Shape, SumOrder
from tuccl.errors import UnusableBundleError
from tuccl.reports.entries import EntryFigures, entries_of
from tuccl.reports.evidence import Evidence, evidence_of
from tuccl.reports.keys import frame_of
from tuccl.reports.step_gain import StepSummary
from tuccl.reports.table_parts import TablePart, measured_nccl, parts_of, tuning_times
from tuccl.runtime import EXECUTOR_NAME
from tuccl.shipping.manifest import MachineSize
from tuccl.shipping.shipped_directory import sourced_crc
from tuccl.shipping.shipped_view import ShippedView, view_shipped
from tuccl.shipping.versions import Version, versions_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """`show`: the table in a shipped directory."""

    directory: Path
    topology: str
    fingerprint: str
    machine: MachineSize | None
    """None: the manifest does not say."""
    gpu_models: Sequence[str]
    """PCI `vendor:device` of the machine's GPUs; empty: unknown."""
    tuccl: str | None
    """Release that shipped the table; None: there is no manifest."""
    nccl: str | None
    """Version of NCCL that was measured; None: none was, or it is unknown."""
    times: Evidence | None
    """The weakest evidence behind any of the times; None: unknown."""
    assumed: str
    """A sentence on figures of the machine that a model computed with and nobody measured; empty:
    there are none, or the manifest does not say."""
    tuned_from: str | None
    """When the first entry was tuned: ISO 8601, UTC."""
    tuned_to: str | None
    bundle_crc: str
    profile: Mapping[str, str]
    step: StepSummary | None
    """The gain of a step of the workload that was tuned; None: none was, or the manifest does not
    say."""
    shapes: tuple[Shape, ...]
    parts: tuple[TablePart, ...]
    """Measured and modelled parts; empty if the Parquet file does not say."""
    entries: tuple[EntryFigures, ...]
    files: tuple[str, ...]
    """Files of the manifest, by path in the directory."""
    problems: tuple[str, ...]
    """Contradictions in the directory, one sentence each."""
    sums: tuple[SumOrder, ...]
    """Orders of sums, if they do not move; empty: they may."""
    profile_left_out: bool
    """Whether the process profile of its times is left out."""

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each entry; see `frame_of`."""
        return frame_of(
            self.entries,
            min_bytes=[entry.min_bytes for entry in self.entries],
            max_bytes=[entry.max_bytes for entry in self.entries],
        )


def shown_table(view: ShippedView) -> ShownTable:
    """Return what a shipped directory holds."""
    bundle, table, manifest = view.bundle, view.table, view.manifest
    tuned = (None, None) if table is None else tuning_times(table) or (None, None)
    parts = () if table is None else parts_of(table)
    known = table is not None and bool(parts) and all(part.times is not None for part in parts)
    evidence = evidence_of(table, "") if table is not None else Evidence.MEASURED
    if table is None and manifest is not None:
        evidence = manifest.times
    executor = (view.directory / EXECUTOR_NAME).is_file()
    entries = tuple(entries_of(bundle if table is None else table, evidence, has_executor=executor))
    return ShownTable(
        directory=view.directory,
        topology=bundle.topology_name,
        fingerprint=bundle.fingerprint,
        machine=None if manifest is None else manifest.machine,
        gpu_models=bundle.gpu_models,
        tuccl=None if manifest is None else manifest.tuccl,
        nccl=None if table is None else measured_nccl(table) or None,
        times=evidence_of(table, "") if table is not None and known else None,
        assumed="" if manifest is None else manifest.assumed,
        tuned_from=tuned[0],
        tuned_to=tuned[1],
        bundle_crc=f"{bundle.crc:08x}",
        profile=dict(bundle.profile),
        step=None if manifest is None else manifest.step,
        shapes=tuple(sorted({entry.shape for entry in entries})),
        parts=parts,
        entries=entries,
        files=() if manifest is None else tuple(file.path for file in manifest.files),
        problems=view.problems,
        sums=bundle.sums,
        profile_left_out=manifest is not None and manifest.lost_profile,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """A table that a shipped directory keeps."""

    version: int
    """Number, counted from 1 in the order of the ships."""
    bundle_crc: str
    current: bool
    """Whether jobs load it."""
    shipped_at: str
    """ISO 8601, UTC."""
    run: str | None
    """Directory of the run that was shipped; None: unknown."""
    tuccl: str
    """Release that shipped the table."""
    topology: str
    fingerprint: str
    machine: MachineSize | None
    nccl: str | None
    """Version of NCCL that was measured; None: none was."""
    times: Evidence
    """The weakest evidence behind any of the times."""
    tuned_from: str | None
    tuned_to: str | None
    gain: float | None
    """Speedup of a job over stock NCCL when it was shipped: geometric mean over the keys of its
    run; None: unknown."""
    profile: Mapping[str, str]
    shapes: Sequence[Shape]
    parts: Sequence[TablePart]
    """Measured and modelled parts."""
    executor: bool
    """Whether the executor is loaded by default."""
    folder: Path
    problems: tuple[str, ...]
    """How its files differ from its manifest, one sentence each."""


@dataclass(frozen=True, slots=True)
class History:
    """`history`: the tables that a shipped directory keeps."""

    directory: Path
    bundle_crc: str
    """Sum of the table that jobs load."""
    versions: tuple[KeptVersion, ...]
    """The oldest first; without the current table if it is not kept yet."""
    problems: tuple[str, ...]
    """Why jobs cannot load the current table, a sentence; empty: they can."""


def history_of(directory: Path) -> History:
    """Return the tables that a shipped directory keeps.

    Raises:
        UsageError: It is none of `tuccl ship`.
    """
    problems: tuple[str, ...] = ()
    try:
        view_shipped(directory)
    except UnusableBundleError as error:
        problems = (str(error),)  # Versions have bundles of their own, to roll back to.
    crc = sourced_crc(directory)
    kept = tuple(_kept(each, is_current=each.crc == crc) for each in versions_of(directory))
    return History(directory, crc, kept, problems)


def _kept(version: Version, *, is_current: bool) -> KeptVersion:
    manifest = version.manifest
    return KeptVersion(
        version=version.number,
        bundle_crc=version.crc,
        current=is_current,
        shipped_at=version.origin.shipped_at,
        run=version.origin.run,
        tuccl=manifest.tuccl,
        topology=manifest.topology_name,
        fingerprint=manifest.fingerprint,
        machine=manifest.machine,
        nccl=manifest.nccl,
        times=manifest.times,
        tuned_from=manifest.tuned_from,
        tuned_to=manifest.tuned_to,
        gain=version.origin.gain,
        profile=manifest.profile,
        shapes=manifest.shapes,
        parts=manifest.parts,
        executor=manifest.executor,
        folder=version.folder,
        problems=version.problems(),
    )
