"""Show what entries do to communicators of one shape whose ranks sit differently.

    python scripts/bench/bench_placement.py --data FOLDER

FOLDER holds bench_topologies.json, and dumps of NCCL's topology in nccl_topo. On each uneven
machine the communicators of a few shapes are tuned on the simulated backend, NCCL's settings alone,
without a process profile. For each class of communicators (where their ranks sit) the table says
whether the tuner plugin sees it apart, and the gain over stock NCCL, as geometric mean over the
keys and least key: of one entry for the whole shape, whatever it does elsewhere; of entries that
are slower nowhere; and of these with the entries of the class before them. Gains are the model's,
without noise. Behind them are the shape's entries: how many there would be, how many of them are
slower in some class, and how many are left.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from lookup_tables.lookup import PLACEMENT_TOLERANCE  # noqa: E402
from lookup_tables.table import Operation, Shape  # noqa: E402
from probes.topology.graph import Topology  # noqa: E402
from probes.topology.replicate import Network, replicate  # noqa: E402
from tuccl.measuring.backends.backend_choice import builtins_of  # noqa: E402
from tuccl.measuring.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.models.placements import PlacementClass, placements  # noqa: E402
from tuccl.options.machine_argument import read_machine_argument  # noqa: E402
from tuccl.options.run_options import RunOptions  # noqa: E402
from tuccl.search.trials.config import STOCK, Config, Task  # noqa: E402
from tuccl.search.trials.placement import ANYWHERE  # noqa: E402
from tuccl.search.trials.shapes import NamedShape, ShapeName  # noqa: E402
from tuccl.search.trials.space import Space  # noqa: E402
from tuccl.tuning.pipeline.stages import backend_request  # noqa: E402
from tuccl.tuning.run.results import PlacedResult, SearchSpaces, TuningResult  # noqa: E402
from tuccl.tuning.run.tune import tune  # noqa: E402
from tuccl.tuning.settings import RunSettings  # noqa: E402
from tuccl.workspace.measurement_log import MeasurementLog  # noqa: E402

OPERATIONS = (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
SIZES = tuple(1 << power for power in range(12, 29, 2))
SLOWER = 0.99
"""Ratio below which an entry counts as hurting a class."""
PAIRS, QUADS, EIGHTS, RAILS = Shape(2, 1, 2), Shape(4, 1, 4), Shape(8, 2, 4), Shape(2, 2, 1)


@dataclass(frozen=True)
class Case:
    """A machine and the shapes that jobs divide it into."""

    name: str
    machine: Topology
    shapes: tuple[Shape, ...]


def cases(data: Path) -> Iterator[Case]:
    """The uneven machines, and an even one."""
    bench, dumps = data / "bench_topologies.json", data / "nccl_topo"
    yield Case("DGX-1", read_machine_argument(f"{bench}#dgx1_8xV100"), (PAIRS, QUADS))
    yield Case(
        "2 x NDv2", read_machine_argument(f"{bench}#ndv2_2x8"), (PAIRS, QUADS, EIGHTS, RAILS)
    )
    one_nic = read_machine_argument(f"{bench}#v100_2x4_1nic")
    yield Case("2 x 4 V100, one NIC each", one_nic, (PAIRS, RAILS))
    for name in ("rtxa6000x4-2socket-dump", "rtx3090x8-dump"):
        yield Case(
            name.removesuffix("-dump"), read_machine_argument(f"{dumps / name}.xml"), (PAIRS,)
        )
    whole = read_machine_argument("shipped:a100-8gpu-8nic")
    even = replicate(whole, 2, Network(latency_us=2.0))
    yield Case("2 x 8 A100, a NIC down", without_nic(even), (PAIRS, RAILS))
    yield Case("2 x 8 A100", even, (PAIRS, RAILS))


def without_nic(machine: Topology) -> Topology:
    """The machine without the last NIC of each host."""
    last = {nic.node: nic.name for nic in machine.nics}
    lost = set(last.values())
    return replace(
        machine,
        name=f"{machine.name}, a NIC down",
        devices=tuple(device for device in machine.devices if device.name not in lost),
        links=tuple(link for link in machine.links if not {link.src, link.dst} & lost),
        limits=tuple(limit for limit in machine.limits if not {limit.src, limit.dst} & lost),
    )


def tuned(machine: Topology, shape: Shape, *, placed: bool) -> TuningResult:
    """Tune the keys of a shape, with classes or as if there were none."""
    settings = RunSettings(
        OPERATIONS,
        SIZES,
        RunOptions(backend="simulated", schedules=False, cycles=1),
        floor=None,
        shapes=(NamedShape(ShapeName.PAIRS, shape),),
    )
    request = backend_request(machine, settings, None)
    backend = SimulatedBackend(machine, {}, seed=0, spread=settings.spread)

    def classes(own: Shape) -> Sequence[PlacementClass]:
        return placements(machine, own).classes if placed else ()

    def without_profiles(task: Task) -> Space:
        space = builtins_of(request, task)
        families = tuple(
            replace(family, nthreads=(0,), buffer_bytes=(0,), min_nchannels=(0,))
            for family in space.families
        )
        return replace(space, families=families, between_min_nchannels=(), knobs=())

    spaces = SearchSpaces(
        without_profiles,
        lambda _: Space("no schedules", ()),
        placements=classes,
        estimate=backend.ring_estimate_us,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasurementLog(Path(folder) / "log", backend, "bench", several_shapes=True) as log,
    ):
        return tune(settings, communicator_shape(machine), spaces, log, lambda *_, **__: None)


def calls_of(result: TuningResult) -> dict[Task, Config]:
    """The entries of a shape."""
    return {key.task: key.decision.builtin.config for key in result.keys if key.decision.builtin}


def placed_calls_of(
    model: SimulatedBackend, result: TuningResult, own: PlacementClass
) -> dict[Task, Config]:
    """The entries that come first on a class, where its estimates tell it, by the shape's keys."""
    found = {}
    for placed in result.placed:
        for key in placed.keys if own in placed.seen.classes else ():
            task = replace(key.task, placement=own.placement)
            estimate_us = model.ring_estimate_us(task)
            like = [each for each in result.placed if is_like(each, task, estimate_us)]
            if like == [placed] and key.decision.builtin is not None:
                found[replace(task, placement=ANYWHERE)] = key.decision.builtin.config
    return found


def is_like(placed: PlacedResult, task: Task, estimate_us: float | None) -> bool:
    """Whether the plugin takes an estimate for that of a class."""
    expected_us = dict(placed.seen.lines)[task.operation].at(task.size_bytes)
    return estimate_us is not None and (
        abs(estimate_us - expected_us) <= PLACEMENT_TOLERANCE * expected_us
    )


def ratios(
    model: SimulatedBackend, shape: Shape, own: PlacementClass, calls: Mapping[Task, Config]
) -> list[float]:
    """Stock NCCL's time over a job's on a class, for each key."""
    found = []
    for operation in OPERATIONS:
        for size in SIZES:
            config = calls.get(Task(operation, size, shape), STOCK)
            task = Task(operation, size, shape, own.placement)
            times = [model.measure(task, each, 0, 1).samples_us[0] for each in (STOCK, config)]
            found.append(times[0] / times[1])
    return found


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(fmean(map(math.log, values)))


def lines_of(case: Case, shape: Shape) -> Iterator[str]:
    """Rows of the table for a shape of a machine."""
    found = placements(case.machine, shape)
    alone, result = (tuned(case.machine, shape, placed=placed) for placed in (False, True))
    model = SimulatedBackend(case.machine, {}, seed=0, spread=0.0)
    today, safe = calls_of(alone), calls_of(result)
    hurt = {
        task
        for own in found.classes
        for task, config in today.items()
        if min(ratios(model, shape, own, {task: config})) < SLOWER
    }
    name = f"{case.name} | {shape.ranks} on {shape.nodes}"
    for own in found.classes:
        seen = any(placed.seen.classes == (own,) for placed in result.placed)
        at = [
            ratios(model, shape, own, calls)
            for calls in (today, safe, safe | placed_calls_of(model, result, own))
        ]
        gains = " | ".join(f"{mean(each):.3f}, {min(each):.2f}" for each in at)
        apart = "-" if len(found.classes) == 1 else "yes" if seen else "no"
        counts = f"{len(today)}, {len(hurt)} | {len(safe)}"
        device = case.machine.device
        where = ", ".join(str(device[gpu].index) for gpu in own.example if not device[gpu].node)
        yield f"| {name} | {where} | {own.members} | {apart} | {gains} | {counts} |"
        name = " | "


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the machines")
    arguments = parser.parse_args()
    print(
        "| machine | ranks on nodes | class, such as GPUs | communicators | seen | one entry | "
        "safe | by class | entries, slower somewhere | left |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in cases(arguments.data):
        for shape in case.shapes:
            for line in lines_of(case, shape):
                print(line, flush=True)


if __name__ == "__main__":
    main()
