"""Shipped directories with the host and the machine that a watch compares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lookup_tables.table import Entry, SeenPlacement, Table
from probes.nvidia.gpu_settings import GpuCondition, GpuSettings, GpuStates
from probes.topology.graph import Topology
from probes.topology.json_form import topology_to_json
from tests.tuccl.measuring.engines.nccl_stand_ins import StandIns
from tests.tuccl.shipping.bench.shipped_tables import all_gather_entry
from tuccl.reports.evidence import Evidence
from tuccl.reports.host_record import HostRecord, host_record
from tuccl.search.trials.timing import Computation
from tuccl.shipping.manifest import MachineSize
from tuccl.shipping.shipment import ShippedSource, ship_source
from tuccl.shipping.versions import Origin, utc_now

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
    table = Table("test", "test", (), own, {}, (), tuple(placements))
    size = machine_file = None
    if machine is not None:
        size = MachineSize(gpus=len(machine.gpus), nodes=machine.node_count)
        machine_file = topology_to_json(machine).encode()
    source = ShippedSource(
        table, Evidence.MEASURED, size, machine_file, stand_ins.plugin.read_bytes(), None, graphs,
        False, computations, record, [], None,
    )  # fmt: skip
    ship_source(source, Origin(utc_now(), None, None), directory)
    return directory


def recorded(machine: Topology, *gpus: GpuSettings, driver: str = "580.1") -> HostRecord:
    """A record of this machine."""
    return host_record(machine, states_of(*gpus, driver=driver))
