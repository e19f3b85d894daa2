"""A small record of a shipped machine."""

from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion, Provenance
from lookup_tables.table import Shape
from probes.files.read import read_topology, shipped_machines
from probes.topology.graph import Topology
from tuccl.measuring.records.record import Record, make_record
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Recorded

FAST = Config("ring", "LL", 2, 256, 4 << 20, 32)
SLOW = Config("ring", "Simple", 8, 256, 4 << 20, 32)
HUNG = Config("pat", "Simple", 1)
WHOLE = Shape(4, 1, 4)
SIZES = (1 << 10, 4 << 20, 128 << 20)


def machine(name: str = "h200-4gpu") -> Topology:
    return read_topology(shipped_machines()[name])


def rows(operation: Collective = Collective.ALL_REDUCE, shape: Shape = WHOLE) -> list[Recorded]:
    found = []
    for size, calls in zip(SIZES, (20, 5, 2), strict=True):
        task = Task(operation, size, shape)
        for config, samples in ((STOCK, (10.0, 10.5)), (FAST, (8.0, 8.5, 8.25)), (SLOW, (20.0,))):
            seconds = sum(samples) * 1e-6 * calls
            found.append(Recorded(task, config, samples, unasked_s=seconds))
        hung = Recorded(task, HUNG, failed="hung for 5 s", failed_check=True, unasked_s=7.5)
        found.append(hung)
    return found


def small_record(topology: Topology | None = None) -> Record:
    topology = machine() if topology is None else topology
    shape = communicator_shape(topology)
    made = Provenance("nccl", NcclVersion(2, 28, 9), "0.1.0", details="NCCL 2.28.9, driver 570.1")
    return make_record(topology, shape, made, Timing(), rows(shape=shape))
