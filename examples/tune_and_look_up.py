"""Tune a machine on the simulated backend and look calls up in the table.

    python examples/tune_and_look_up.py [MACHINE]

On GPUs, `tuccl.tune()` without a machine measures real NCCL on this host.
"""

import sys

import tuccl


def show(stage: tuccl.Stage) -> None:
    """Print a line at the end of each stage."""
    if stage.done == stage.total:
        print(f"{stage.name}: done")


def main(machine: str = "shipped:h200-4gpu") -> None:
    """Tune all_gather at three sizes; print what a job gets, and why."""
    topology = tuccl.read_topology(machine)
    result = tuccl.tune(
        topology,
        tuccl.RunOptions(operations="all_gather", min_size="64K", max_size="4M", step=8),
        on_stage=show,
    )
    name = result.table.topology_name
    print(f"{name}: {len(result.entries)} entries, {result.speedup:.3f}x ({result.times})")
    for key in result.gains.keys:
        print(f"{key.operation} of {key.size_bytes} bytes: {key.runs}, {key.gain.ratio:.2f}x")
    asked = tuccl.lookup(result, "all_gather", "3M", ranks=4, nodes=1)
    print(f"all_gather of 3M, {asked.runner}: {asked.runs}\n  {asked.why}")
    untuned = tuccl.lookup(result, "all_gather", "3M", ranks=16, nodes=2)
    print(f"on 16 ranks, {untuned.runner}: {untuned.why}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
