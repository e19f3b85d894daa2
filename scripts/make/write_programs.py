"""Compiles expert schedules for one node into FOLDER/<ranks>/<name>.program.

write_programs.py FOLDER [RANKS ...]

Beside the folders bundle.tuccl, which holds all of them for the executor, and runners.json: what a
rule calls them when they are to be interpreted, by ranks and operation.
"""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from programs.compiler import compile_program  # noqa: E402
from sketches.sketch import Edge, EdgeKind, Port, Sketch  # noqa: E402
from synthesizer.experts import expert_algorithms  # noqa: E402
from synthesizer.ir.algorithm import Algorithm  # noqa: E402
from synthesizer.ir.collectives import Collective  # noqa: E402
from tuccl.schedules.executor_schedules import executor_programs  # noqa: E402


def switched(ranks: int) -> Sketch:
    """GPUs behind one NVSwitch."""
    ports = [Port(f"g{rank}/{way}", 400.0) for rank in range(ranks) for way in ("out", "in")]
    edges = [
        Edge(a, b, EdgeKind.NVLINK, 0.7, 400.0, (f"g{a}/out", f"g{b}/in"))
        for a, b in permutations(range(ranks), 2)
    ]
    return Sketch(
        name=f"switched_{ranks}",
        why="every GPU reaches every other",
        node_of_rank=(0,) * ranks,
        edges=tuple(edges),
        ports=tuple(ports),
        symmetries=(tuple((rank + 1) % ranks for rank in range(ranks)),),
    )


def write_bundle(folder: Path, algorithms: list[Algorithm]) -> None:
    """All of them; a schedule that a kernel runs is interpreted too."""
    schedules = {algorithm.content_hash(): algorithm for algorithm in algorithms}
    programs = executor_programs(schedules)
    (folder / "bundle.tuccl").write_bytes(programs.bundle)
    runners: dict[int, dict[str, list[str]]] = {}
    for content_hash, runner in programs.runners.items():
        algorithm = schedules[content_hash]
        of_ranks = runners.setdefault(algorithm.ranks, {})
        named = of_ranks.setdefault(algorithm.collective.value, [])
        named.append(":".join(runner.split(":")[:2]))
    (folder / "runners.json").write_text(json.dumps(runners, indent=1), encoding="utf-8")


def main(folder: Path, counts: list[int]) -> None:
    """Write the programs of each number of ranks."""
    algorithms: list[Algorithm] = []
    for ranks in counts:
        target = folder / str(ranks)
        target.mkdir(parents=True, exist_ok=True)
        for collective in Collective:
            if collective is Collective.CUSTOM:
                continue
            for algorithm in expert_algorithms(collective, switched(ranks)):
                data = compile_program(algorithm)
                (target / f"{algorithm.name}.program").write_bytes(data)
                algorithms.append(algorithm)
    write_bundle(folder, algorithms)
    alone = len({algorithm.content_hash() for algorithm in algorithms})
    print(f"{len(algorithms)} programs in {folder}, {alone} of them different")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(ranks) for ranks in sys.argv[2:]] or [2, 3, 4])
