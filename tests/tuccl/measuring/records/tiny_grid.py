"""A grid small enough that the best configuration of each key is known, with a little noise."""

import random

from lookup_tables.collective import Collective
from lookup_tables.provenance import NcclVersion, Provenance
from tests.tuccl.measuring.records.small_record import machine
from tuccl.measuring.records.record import Record, make_record
from tuccl.models.figures import communicator_shape
from tuccl.search.trials.config import STOCK, Config, Task
from tuccl.search.trials.timing import Timing
from tuccl.workspace.measurement_lines import Recorded

SIZES = (4096, 65536)
OPERATIONS = (Collective.ALL_GATHER, Collective.ALL_REDUCE)
CHANNELS = (1, 2, 4, 8)
BEST = {(operation, size): (("LL", 2) if size == 4096 else ("Simple", 8))
        for operation in OPERATIONS for size in SIZES}  # fmt: skip
STOCK_US = 20.0
PROVENANCE = Provenance("nccl", NcclVersion(2, 29, 1), "0.1.0", details="NCCL 2.29.1")


def time_us(operation: Collective, size: int, protocol: str, nchannels: int) -> float:
    """Half of stock at the best, and 30 % more for each step away from it."""
    best_protocol, best_channels = BEST[operation, size]
    steps = abs(CHANNELS.index(nchannels) - CHANNELS.index(best_channels))
    return STOCK_US / 2 * 1.3 ** (steps + (protocol != best_protocol))


def tiny_rows() -> list[Recorded]:
    rng = random.Random(5)
    shape = communicator_shape(machine())
    found = []
    for operation in OPERATIONS:
        for size in SIZES:
            times = {STOCK: STOCK_US}
            for protocol in ("LL", "Simple"):
                for nchannels in CHANNELS:
                    config = Config("ring", protocol, nchannels)
                    times[config] = time_us(operation, size, protocol, nchannels)
            for config, base in times.items():
                samples = tuple(base * rng.uniform(0.99, 1.01) for _ in range(5))
                task = Task(operation, size, shape)
                found.append(Recorded(task, config, samples, unasked_s=sum(samples) * 2e-5))
    return found


def tiny_grid() -> Record:
    topology = machine()
    shape = communicator_shape(topology)
    return make_record(topology, shape, PROVENANCE, Timing(), tiny_rows())
