"""Write a schedule, prove it, and add it to the search.

python examples/own_schedule.py [MACHINE]
"""

import sys
from pathlib import Path

import tuccl
from lookup_tables.collective import Collective
from synthesizer.dsl import INPUT, OUTPUT, Schedule


def neighbours_first(ranks: int) -> Schedule:
    """Return an all_gather in which every rank sends its block to the nearest ranks first."""
    schedule = Schedule(Collective.ALL_GATHER, ranks)
    for distance in range(ranks):
        for rank in range(ranks):
            schedule.chunk(rank, INPUT, 0).copy((rank + distance) % ranks, OUTPUT, rank)
    return schedule


def main(machine: str = "shipped:h200-4gpu") -> None:
    """Tune all_gather with this schedule beside those of TuCCL."""
    topology = tuccl.read_topology(machine)
    mine = neighbours_first(len(topology.gpus))
    time_us = tuccl.simulate(mine, topology, "1M").time_us
    print(f"{tuccl.verify(mine).describe()}, {time_us:.2f} us for 1M on the wires alone")
    Path("own").mkdir(exist_ok=True)
    tuccl.write_schedule(mine, "own/neighbours_first.xml")
    result = tuccl.tune(
        topology,
        tuccl.RunOptions(
            operations="all_gather", min_size="64K", max_size="512K", step=8, own_schedules="own"
        ),
    )
    for entry in result.entries:
        won = "" if entry.apart is None else f", once it is measured {entry.apart.schedule}"
        print(f"{entry.min_bytes} to {entry.max_bytes} bytes: {entry.runs}{won}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
