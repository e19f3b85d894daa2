"""Compiles expert schedules for one node into FOLDER/<ranks>/<name>.program.

write_programs.py FOLDER [RANKS ...]
"""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

from lookup_tables.program import compile_program
from sketches.sketch import Edge, EdgeKind, Port, Sketch
from synthesizer.collectives import Collective
from synthesizer.experts import expert_algorithms
from synthesizer.msccl_xml import write_msccl_xml


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


def main(folder: Path, counts: list[int]) -> None:
    """Write the programs of each number of ranks."""
    written = 0
    for ranks in counts:
        target = folder / str(ranks)
        target.mkdir(parents=True, exist_ok=True)
        for collective in Collective:
            if collective is Collective.CUSTOM:
                continue
            for algorithm in expert_algorithms(collective, switched(ranks)):
                data = compile_program(write_msccl_xml(algorithm))
                (target / f"{algorithm.name}.program").write_bytes(data)
                written += 1
    print(f"{written} programs in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(ranks) for ranks in sys.argv[2:]] or [2, 3, 4])
