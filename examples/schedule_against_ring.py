"""Synthesize a schedule, prove it right, and compare it with the ring in the simulator.

python examples/schedule_against_ring.py [MACHINE]
"""

import sys

import tuccl


def main(machine: str = "shipped:h200-4gpu") -> None:
    """Find all_gathers of three sizes; print the gain over the ring and the share of the bound."""
    topology = tuccl.read_topology(machine)
    experts = tuccl.expert_schedules(topology, "all_gather")
    ring = next(schedule for schedule in experts if "ring" in schedule.name)
    for size in ("64K", "1M", "64M"):
        found = tuccl.synthesize(topology, "all_gather", size)
        verdict = tuccl.verify(found.schedule)
        ring_time = tuccl.simulate(ring, topology, size)
        found_time = tuccl.simulate(found.schedule, topology, size)
        print(f"all_gather of {size}: {found.schedule.name}, {verdict.describe()}")
        print(f"  {ring.name} takes {ring_time.time_us:.2f} us, this {found_time.time_us:.2f} us")
        print(f"  {ring_time.time_us / found_time.time_us:.2f}x, {found_time.gb_per_s:.0f} GB/s")
        if found_time.share_of_bound is not None:
            print(f"  {found_time.share_of_bound:.0%} of what no schedule on this machine beats")
    (written,) = tuccl.write_schedule(found.schedule, "all_gather.xml")
    print(f"{written}: {tuccl.verify(written).describe()}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
