"""How far the search's choice is from the best of its space, on the simulated backend.

For every key: the schedules' space is searched as `tuccl init` does, starting from the winners of
the size before; then every configuration of it is computed without noise. Prints the regret per
key, and how many samples the search took of those that measuring all of it would.

    python scripts/search_regret.py --operation reduce_scatter --cycles 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sketches.candidates import sketch_candidates, whole_machine  # noqa: E402
from synthesizer.ir.collectives import Collective  # noqa: E402
from synthesizer.plan.synthesize import SynthesisOptions  # noqa: E402
from tuccl.backends.simulated import SimulatedBackend  # noqa: E402
from tuccl.inputs.machine import MachineOptions, load_machine  # noqa: E402
from tuccl.models.figures import communicator_shape  # noqa: E402
from tuccl.schedules.candidates import make_candidates  # noqa: E402
from tuccl.search.meter import Meter  # noqa: E402
from tuccl.search.mraco import Mraco, MracoOptions  # noqa: E402
from tuccl.search.strategy import run_search  # noqa: E402
from tuccl.trials.config import Config, Task  # noqa: E402
from tuccl.trials.presets import executor_families  # noqa: E402
from tuccl.trials.space import Space  # noqa: E402
from tuccl.words.operation_names import parse_operation  # noqa: E402
from tuccl.words.sizes import format_size, size_ladder  # noqa: E402
from tuccl.workspace.measurement_log import MeasurementLog  # noqa: E402

MAX_REPEATS = 27


def main() -> None:
    """Search, compute, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operation", default="reduce_scatter")
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    operation = parse_operation(given.operation)
    topology = load_machine(MachineOptions("shipped:a100-8gpu-8nic", nodes=2))
    sizes = size_ladder(1 << 10, 1 << 30, 4)
    candidates = make_candidates(
        Collective(operation.value),
        sketch_candidates(topology),
        whole_machine(topology),
        sizes,
        SynthesisOptions().time_limit_s,
    )
    schedules = {c.content_hash: (c.algorithm, c.sketch) for c in candidates}
    noisy = SimulatedBackend(topology, schedules, seed=given.seed, spread=0.01)
    exact = SimulatedBackend(topology, schedules, seed=given.seed, spread=0.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasurementLog(Path(folder) / "log", noisy, "regret") as log,
    ):
        warm: list[Config] = []
        for size_bytes in sizes:
            task = Task(operation, size_bytes, communicator_shape(topology))
            hashes = [c.content_hash for c in candidates if c.promises_for(size_bytes)]
            space = Space("executor", executor_families(hashes))
            meter = Meter(partial(log.measure, task), MAX_REPEATS)
            strategy = Mraco(MracoOptions(max_cycles=given.cycles))
            found = run_search(strategy, space, meter, first=warm, seed=given.seed)
            warm = [ranked.config for ranked in found.ranking[:6]]
            best_us = min(exact.measure(task, config, 0, 1).samples_us[0] for config in space)
            chosen_us = exact.measure(task, found.ranking[0].config, 0, 1).samples_us[0]
            share = found.repeats_measured / (MAX_REPEATS * space.size)
            print(
                f"{operation.value:>15} {format_size(size_bytes):>5}: regret "
                f"{chosen_us / best_us - 1.0:6.2%}, {share:5.1%} of the grid's {space.size} x "
                f"{MAX_REPEATS} samples"
            )


if __name__ == "__main__":
    main()
