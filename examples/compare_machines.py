"""Compare two machines, and the tables that are tuned for them.

python examples/compare_machines.py [OLD NEW]
"""

import sys

import tuccl


def main(old: str = "shipped:h200-4gpu", new: str = "shipped:h200-4gpu-measured") -> None:
    """Print the differences between two machines and between their tuned tables."""
    for sentence in tuccl.compare(old, new, figures=True) or ("the machines are alike",):
        print(sentence)
    results = []
    for machine in (old, new):
        options = tuccl.RunOptions(
            operations="all_reduce", min_size="64K", max_size="4M", schedules=False
        )
        result = tuccl.tune(machine, options)
        results.append(result)
        print(f"{result.table.topology_name}: {result.speedup:.3f}x, run {result.run.root.name}")
    before, now = results
    for was, is_now in zip(before.keys, now.keys, strict=True):
        same = "as before" if was.runs == is_now.runs else f"was {was.runs}"
        print(f"all_reduce of {is_now.size_bytes} bytes: {is_now.runs} ({same})")
        print(f"  {was.table_us:.2f} us, now {is_now.table_us:.2f} us")


if __name__ == "__main__":
    main(*sys.argv[1:3])
