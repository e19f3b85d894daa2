"""Read a topology and print its GPUs and the links between them.

    python examples/links_of_a_machine.py [MACHINE]

MACHINE is a file that NCCL wrote (NCCL_TOPO_DUMP_FILE), TuCCL's JSON, ... or shipped:NAME.
"""

import sys

import tuccl


def main(machine: str = "shipped:a100-8gpu-8nic") -> None:
    """Print the machine, its GPUs, and the slowest and fastest of its links by kind."""
    topology = tuccl.read_topology(machine)
    print(f"{topology.name}: {len(topology.gpus)} GPUs, {len(topology.nics)} NICs")
    print(f"fingerprint {topology.fingerprint()}")
    for gpu in topology.gpus:
        reached = ", ".join(link.dst for link in topology.links_from[gpu.name])
        print(f"  {gpu.name} (sm {gpu.compute_capability}) is linked to {reached}")
    speeds: dict[str, list[float]] = {}
    for link in topology.links:
        speeds.setdefault(link.kind, []).append(link.bandwidth_gb_per_s)
    for kind, found in sorted(speeds.items()):
        print(f"{len(found)} links of {kind}: {min(found):.1f} to {max(found):.1f} GB/s")
    for note in topology.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
