"""A hand-made PCI tree with every relation of two functions: `hand_made`."""

from __future__ import annotations

from probes.pci.inventory import NumaNode, PciFunction, PciInventory


def bare_function(address: str, parent: str | None, root: str, numa: int | None) -> PciFunction:
    return PciFunction(address, root, parent, numa_node=numa)


def hand_made(
    nodes: tuple[NumaNode, ...] = (NumaNode(0, 0), NumaNode(1, 0), NumaNode(2, 1)),
) -> PciInventory:
    """Root bus 10: a switch with GPU 13, dual-port NIC 14 and a second switch (GPU 18, NIC 19).

    Root bus 20, as near: NIC 21 below a root port, its neighbour 21:01 on the same wire, and a
    function on the bus itself. Root bus 30: NUMA node 1, same socket. Root bus 40: other socket.
    """
    rows = [
        ("0000:10:00.0", None, "pci0000:10", 0),
        ("0000:11:00.0", "0000:10:00.0", "pci0000:10", 0),
        ("0000:12:01.0", "0000:11:00.0", "pci0000:10", 0),
        ("0000:12:02.0", "0000:11:00.0", "pci0000:10", 0),
        ("0000:12:03.0", "0000:11:00.0", "pci0000:10", 0),
        ("0000:13:00.0", "0000:12:01.0", "pci0000:10", 0),
        ("0000:14:00.0", "0000:12:02.0", "pci0000:10", 0),
        ("0000:14:00.1", "0000:12:02.0", "pci0000:10", 0),
        ("0000:16:00.0", "0000:12:03.0", "pci0000:10", 0),
        ("0000:17:01.0", "0000:16:00.0", "pci0000:10", 0),
        ("0000:17:02.0", "0000:16:00.0", "pci0000:10", 0),
        ("0000:18:00.0", "0000:17:01.0", "pci0000:10", 0),
        ("0000:19:00.0", "0000:17:02.0", "pci0000:10", 0),
        ("0000:10:01.0", None, "pci0000:10", 0),
        ("0000:1b:00.0", "0000:10:01.0", "pci0000:10", 0),
        ("0000:20:00.0", None, "pci0000:20", 0),
        ("0000:21:00.0", "0000:20:00.0", "pci0000:20", None),
        ("0000:21:01.0", "0000:20:00.0", "pci0000:20", None),
        ("0000:20:05.0", None, "pci0000:20", 0),
        ("0000:31:00.0", None, "pci0000:30", 1),
        ("0000:41:00.0", None, "pci0000:40", 2),
        ("0000:51:00.0", None, "pci0000:50", None),
    ]
    functions = tuple(bare_function(*row) for row in rows)
    return PciInventory("hand-made", functions, numa_nodes=nodes)
