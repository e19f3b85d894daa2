"""Shipped directories with the host and the machine that a watch compares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from lookup_tables.table import Entry, SeenPlacement
from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry, ship_entries
from tuccl.reports.evidence import Evidence
from tuccl.reports.host_record import HostRecord, host_record
from tuccl.reports.tuning_result import read_table_file
from tuccl.search.trials.timing import Computation
from tuccl.shipping.manifest import MANIFEST_NAME, MachineSize, Shipment, manifest_text

GPU = GpuSettings("GPU-0", 700, (1980, 3201), (1980, 3201), True, 0)
WELL = GpuCondition((), False, False, 0)


def states_of(*gpus: GpuSettings, driver: str = "580.1") -> GpuStates:
    """The states of GPUs that are well."""
    return GpuStates(driver, gpus, (WELL,) * len(gpus))


def watched_table(
    directory: Path,
    stand_ins: StandIns,
    *entries: Entry,
    machine: Topology | None = None,
    record: HostRecord | None = None,
    graphs: bool = True,
    placements: Sequence[SeenPlacement] = (),
    computations: tuple[Computation, ...] = (),
) -> Path:
    """A shipped directory with its manifest, of one entry if none is given."""
    own = entries or (all_gather_entry(8),)
    ship_entries(directory, stand_ins, *own, placements=placements)
    (bundle,) = directory.glob("bundle-*.tuccl")
    if machine is not None:
        (directory / "machine.json").write_text(topology_to_json(machine))
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    size = None
    if machine is not None:
        size = MachineSize(gpus=len(machine.gpus), nodes=machine.node_count)
    said = Shipment(
        size, Evidence.MEASURED, (), False, (), None, graphs, False, computations, record
    )
    crc = int(bundle.stem.removeprefix("bundle-"), 16)
    text = manifest_text(read_table_file(directory / "table.parquet"), crc, files, said)
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() in text
    (directory / MANIFEST_NAME).write_text(text)
    return directory


def recorded(machine: Topology, *gpus: GpuSettings, driver: str = "580.1") -> HostRecord:
    """A record of this machine."""
    return host_record(machine, states_of(*gpus, driver=driver))
