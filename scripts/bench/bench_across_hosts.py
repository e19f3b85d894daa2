#!/usr/bin/env python3
"""Which candidates across hosts win at which size, in the model, on machines that are not even.

    scripts/bench/bench_across_hosts.py [--machines ndv2,slow_rail] [--operations all_gather]

Candidates are those of `tuccl init`; each is timed under the best of its parameters by the model
of the simulated backend, without noise. `nccl` is stock NCCL, `plan` the best plan of phases,
`expert` the best expert algorithm in rounds, `searched` the best schedule that was synthesized on a
sketch. Of these three only what is near the fastest is a candidate; times are us. `ILP gain` is the
best of the others over `searched`, `to before` the better of NCCL and plans, which were all that
there was before sketches, over the winner. `search s` are seconds by the clock to make the
candidates. The last table has the winner of each key with `to before`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.collective import COLLECTIVES, Collective, parse_collective  # noqa: E402
from probes.topology.graph import Topology  # noqa: E402
from probes.topology.replicate import Network, NetworkLayout, replicate  # noqa: E402
from sketches.candidates import whole_machine  # noqa: E402
from tests.sketches.machines import DGX1_MESH, host, slowed, without  # noqa: E402
from tuccl.crew.pool import Workers, worker_processes  # noqa: E402
from tuccl.measuring.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.quantities import format_size, parse_size  # noqa: E402
from tuccl.schedules.candidates import Candidate  # noqa: E402
from tuccl.schedules.executor_schedules import executor_space  # noqa: E402
from tuccl.schedules.staged_candidates import (  # noqa: E402
    RoundsRequest,
    candidates_across_hosts,
)
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402

KINDS = ("plan", "expert", "searched")
SIZES = "64K,1M,16M,256M"
_SEARCH_S = 10.0


def cluster(
    machine: Topology,
    nodes: int,
    nic_gb_per_s: float,
    *,
    node_gpus: Sequence[int] | None = None,
    racks: tuple[int, ...] = (),
    oversubscription: float = 1.0,
) -> Topology:
    """Return nodes on one fabric, or in racks."""
    network = Network(1.7, NetworkLayout.FABRIC, nic_gb_per_s, racks, oversubscription)
    return replicate(machine, nodes, network, node_gpus)


def a100(gpus: int, nics: int) -> Topology:
    """Return a host of A100."""
    return host(gpus, nics, capability=80)


MACHINES: dict[str, tuple[str, Callable[[], Topology]]] = {
    "a100": ("2 x 8 A100, 8 NICs of 25 GB/s", lambda: cluster(a100(8, 8), 2, 25.0)),
    "a100_less_nic": (
        "the same less a NIC",
        lambda: without(cluster(a100(8, 8), 2, 25.0), "n0/nic0"),
    ),
    "sixteen_less_nic": (
        "16 x 8 A100, 8 NICs of 25 GB/s, one of them down",
        lambda: without(cluster(a100(8, 8), 16, 25.0), "n0/nic0"),
    ),
    "four_nics_less_one": (
        "2 x 8 A100, 4 NICs of 12.5 GB/s, one of them down",
        lambda: without(cluster(a100(8, 4), 2, 12.5), "n0/nic0"),
    ),
    "slow_rail": (
        "2 x 4 A100, 4 NICs of 12.5 GB/s, one of them at half its rate",
        lambda: slowed(cluster(a100(4, 4), 2, 12.5), "n0/nic0", 0.5),
    ),
    "two_slow_rail": (
        "2 x 2 A100, 2 NICs of 3 GB/s, one of them at half its rate",
        lambda: slowed(cluster(a100(2, 2), 2, 3.0), "n0/nic0", 0.5),
    ),
    "ndv2": (
        "2 x 8 V100 in the mesh of a DGX-1, a NIC of 12.5 GB/s",
        lambda: cluster(host(8, 1, mesh=DGX1_MESH, capability=70), 2, 12.5),
    ),
    "dgx2": (
        "2 x 16 V100, NVSwitch of 125 GB/s, 8 NICs of 12.5 GB/s",
        lambda: cluster(host(16, 8, nvlink_gb_per_s=125.0, capability=70), 2, 12.5),
    ),
    "ragged": (
        "8 + 4 A100, 4 NICs of 12.5 GB/s a host",
        lambda: cluster(a100(8, 4), 2, 12.5, node_gpus=(8, 4)),
    ),
    "two_nics": ("2 x 8 A100, 2 NICs of 25 GB/s", lambda: cluster(a100(8, 2), 2, 25.0)),
    "racks": (
        "8 x 4 A100 in racks of 4 + 4, 4 NICs of 12.5 GB/s, uplinks 4:1",
        lambda: cluster(a100(4, 4), 8, 12.5, racks=(4, 4), oversubscription=4.0),
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Times of the best candidate of each kind."""

    machine: str
    operation: str
    size_bytes: int
    nccl_us: float
    plan_us: float
    expert_us: float
    searched_us: float
    winner: str
    ilp_gain: float
    """The best of NCCL, plan and expert over the searched schedule; 0 if there is none."""
    to_before: float
    """The better of NCCL and plan over the winner."""
    search_s: float


def kind_of(candidate: Candidate) -> str:
    """Return which of `KINDS` a candidate is."""
    if candidate.phases is not None:
        return "plan"
    return "searched" if candidate.origin.startswith("synthesized") else "expert"


def cells(
    name: str, operation: Collective, sizes_bytes: Sequence[int], workers: Workers
) -> Iterator[Cell]:
    """Yield the cells of a machine and an operation."""
    topology = MACHINES[name][1]()
    started = time.perf_counter()
    request = RoundsRequest(
        operation, topology, whole_machine(topology), sizes_bytes, search_s=_SEARCH_S
    )
    candidates = candidates_across_hosts(request, workers=workers)
    search_s = time.perf_counter() - started
    schedules = {each.content_hash: each for each in candidates}
    backend = SimulatedBackend(topology, schedules, seed=0, spread=0.0)
    shape = communicator_shape(topology)
    for size_bytes in sizes_bytes:
        task = Task(operation, size_bytes, shape)

        def time_us(configs: Iterable[Config], task: Task = task) -> float:
            return min(
                (backend.measure(task, each, 0, 1).samples_us[0] for each in configs), default=inf
            )

        best = dict.fromkeys(KINDS, inf)
        for candidate in candidates:
            if candidate.promises_for(size_bytes):
                found_us = time_us(executor_space([candidate], size_bytes))
                best[kind_of(candidate)] = min(best[kind_of(candidate)], found_us)
        best = {"nccl": time_us([STOCK]), **best}
        winner = min(best, key=lambda kind: best[kind])
        others_us = min(us for kind, us in best.items() if kind != "searched")
        yield Cell(
            name,
            operation.value,
            size_bytes,
            **{f"{kind}_us": us for kind, us in best.items()},
            winner=winner,
            ilp_gain=others_us / best["searched"],
            to_before=min(best["nccl"], best["plan"]) / best[winner],
            search_s=search_s,
        )


def winners(cells: Sequence[Cell]) -> pd.DataFrame:
    """Return the winner of each key, a column for each size."""
    frame = pd.DataFrame(cells)
    frame["won"] = frame["winner"] + frame["to_before"].map(" {:.2f}".format)
    keys = ["machine", "operation"]
    table = frame.pivot_table("won", keys, "size_bytes", aggfunc="first", sort=False)
    return table.rename(columns=format_size)


def main() -> None:
    """Print a table, or its rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--operations", default=",".join(each.value for each in COLLECTIVES))
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes_bytes = [parse_size(size) for size in arguments.sizes.split(",")]
    everything: list[Cell] = []
    with worker_processes(arguments.workers) as workers:
        for name in arguments.machines.split(","):
            rows = []
            for operation in arguments.operations.split(","):
                found = list(cells(name, parse_collective(operation), sizes_bytes, workers))
                rows += found
                if arguments.json:
                    for cell in found:
                        print(json.dumps(asdict(cell)), flush=True)
            everything += rows
            if not arguments.json:
                print(f"{name}: {MACHINES[name][0]}")
                frame = pd.DataFrame(rows).drop(columns="machine")
                frame["size_bytes"] = frame["size_bytes"].map(format_size)
                names = {each: str(each).replace("_us", "").replace("_", " ") for each in frame}
                print(frame.rename(columns=names).round(2).to_string(index=False), flush=True)
    if not arguments.json:
        print(winners(everything).to_string())
        won = Counter(cell.winner for cell in everything)
        print(", ".join(f"{kind}: {count}" for kind, count in won.most_common()))
        print(f"least to before: {min(cell.to_before for cell in everything):.3f}")


if __name__ == "__main__":
    main()
