"""Compare the model of schedules across hosts with the times of docs/lab/across-hosts.md.

The machine: two faked nodes of two H200 each, TCP over loopback. Latency and bandwidth of that
network are not in any topology. They are given here as measured there: an empty round along a rail
takes 25 us, and the largest calls carried 16 GB/s each way. For each key stock NCCL is timed by the
model, and all configurations of all plans, of which the fastest counts.

    python scripts/bench/bench_phased_model.py
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.table import Operation  # noqa: E402
from probes.files.read import read_topology  # noqa: E402
from probes.files.shipped import shipped_machines  # noqa: E402
from probes.topology.graph import Topology  # noqa: E402
from probes.topology.replicate import Network, replicate  # noqa: E402
from sketches.candidates import whole_machine  # noqa: E402
from tuccl.measuring.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.models.grid_figures import grid_figures  # noqa: E402
from tuccl.schedules.executor_schedules import modelled_space  # noqa: E402
from tuccl.schedules.phased_candidates import phased_candidates  # noqa: E402
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
LOOPBACK = Network(latency_us=3.85, bandwidth_gb_per_s=16.0)
ALL_GATHER, ALL_REDUCE = Operation.ALL_GATHER, Operation.ALL_REDUCE
REDUCE_SCATTER = Operation.REDUCE_SCATTER


@dataclass(frozen=True)
class Measured:
    """A key that a schedule serves."""

    operation: Operation
    size_bytes: int
    stock_us: float
    table_us: float


MEASURED = (
    Measured(ALL_GATHER, 4 * MIB, 698, 322),
    Measured(ALL_GATHER, 16 * MIB, 2156, 667),
    Measured(ALL_GATHER, 64 * MIB, 7780, 2228),
    Measured(ALL_REDUCE, 1 * MIB, 449, 197),
    Measured(ALL_REDUCE, 4 * MIB, 1261, 467),
    Measured(ALL_REDUCE, 16 * MIB, 3804, 1219),
    Measured(ALL_REDUCE, 64 * MIB, 18044, 3879),
    Measured(REDUCE_SCATTER, 4 * MIB, 646, 320),
    Measured(REDUCE_SCATTER, 16 * MIB, 1994, 731),
    Measured(REDUCE_SCATTER, 64 * MIB, 7198, 2030),
)
"""The rows of docs/lab/across-hosts.md that a schedule serves."""


@dataclass(frozen=True)
class Compared:
    """A key with its times in the model."""

    measured: Measured
    stock_us: float
    schedule_us: float
    plan: str

    @property
    def stock_ratio(self) -> float:
        """Modelled over measured time of stock NCCL."""
        return self.stock_us / self.measured.stock_us

    @property
    def schedule_ratio(self) -> float:
        """The same for the schedule."""
        return self.schedule_us / self.measured.table_us

    @property
    def gain_ratio(self) -> float:
        """Modelled over measured gain."""
        return self.stock_ratio / self.schedule_ratio


def faked_nodes() -> Topology:
    """Two nodes of two H200, whose NIC is a thread of the host."""
    host = read_topology(shipped_machines()["h200-4gpu-measured"])
    left_out = {gpu.name for gpu in host.gpus[2:]}
    nics = {nic.name for nic in host.nics}
    links = tuple(
        replace(link, bandwidth_gb_per_s=2 * (LOOPBACK.bandwidth_gb_per_s or 0.0))
        if nics & {link.src, link.dst}
        else link
        for link in host.links
        if not left_out & {link.src, link.dst}
    )
    devices = tuple(device for device in host.devices if device.name not in left_out)
    limits = tuple(pair for pair in host.limits if not left_out & {pair.src, pair.dst})
    half = replace(host, name="two-h200", devices=devices, links=links, limits=limits)
    return replicate(half, 2, LOOPBACK)


def compare(topology: Topology) -> list[Compared]:
    """Time all keys in the model."""
    machine, grid = whole_machine(topology), grid_figures(topology)
    sizes = sorted({row.size_bytes for row in MEASURED})
    found = {
        operation: phased_candidates(operation, grid, machine, sizes)
        for operation in (ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER)
    }
    schedules = {c.content_hash: c for candidates in found.values() for c in candidates}
    backend = SimulatedBackend(topology, schedules, seed=0, spread=0.0)

    def time_us(task: Task, config: Config) -> float:
        return backend.measure(task, config, 0, 1).samples_us[0]

    compared = []
    for row in MEASURED:
        task = Task(row.operation, row.size_bytes, communicator_shape(topology))
        promising = [c for c in found[row.operation] if c.promises_for(row.size_bytes)]
        best_us, best = min(
            (time_us(task, config), config) for config in modelled_space(promising, row.size_bytes)
        )
        compared.append(Compared(row, time_us(task, STOCK), best_us, schedules[best.schedule].name))
    return compared


def main() -> None:
    """Print the table and its medians."""
    compared = compare(faked_nodes())
    for row in compared:
        key = f"{row.measured.operation.value} {row.measured.size_bytes >> 10}K"
        print(
            f"{key:22} stock {row.measured.stock_us:6.0f} us, model {row.stock_us:6.0f}; "
            f"table {row.measured.table_us:5.0f}, model {row.schedule_us:5.0f}; gain modelled over "
            f"measured {row.gain_ratio:.2f}  {row.plan}"
        )
    for what in ("stock_ratio", "schedule_ratio", "gain_ratio"):
        ratios = [getattr(row, what) for row in compared]
        print(f"{what}: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
