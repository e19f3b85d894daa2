"""`ibnetdiscover` (infiniband-diags): the leaf switch of every port of a host adapter.

    Switch  41 "S-0002c9020048" # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 7 lmc 0
    [1]     "H-0002c9030001"[1](2c9030001)      # "node01 mlx5_0" lid 9 4xHDR
    [25]    "S-0002c9020099"[3]                 # "MF0;spine1:MQM8700/U1" lid 8 4xHDR

    Ca      1 "H-0002c9030001"  # "node01 mlx5_0"
    [1](2c9030001)  "S-0002c9020048"[1]         # lid 9 lmc 0 "MF0;leaf1:MQM8700/U1" lid 7 4xHDR

Both blocks describe a cable and must agree. An adapter's description is the host's name and the
device by convention, but can be any text.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tuccl.errors import MachineError

_NODE = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([\w-]+)"\s*(?:#\s*"([^"]*)")?')
_CABLE = re.compile(
    r'\[(\d{1,9})\](?:\[\w+\])?(?:\((\w+)\))?\s+"([SHR]-\w+)"\[(\d{1,9})\]'
    r'(?:\(\w+\))?\s*#[^"]*"([^"]*)"'
)
_IN_SWITCHES = "Aggregation Node"
"""Description of SHARP engines, which appear as adapters of a switch."""


@dataclass(frozen=True, slots=True)
class AdapterPort:
    """A port of a host channel adapter."""

    port: int
    description: str
    """Description of the adapter: `node01 mlx5_0`."""
    switch: str
    """Name of the leaf switch, with its GUID if several share a name."""

    @property
    def host(self) -> str:
        """The first word of the description."""
        return self.description.partition(" ")[0]

    @property
    def device(self) -> str:
        """The rest of the description."""
        return self.description.partition(" ")[2]


def parse_ibnetdiscover(text: str, source: str = "ibnetdiscover") -> tuple[AdapterPort, ...]:
    """Parse the ports of host adapters, in order of the adapter's GUID and port.

    Raises:
        MachineError: a line is cut, there is no switch, or two blocks contradict each other.
    """
    names: dict[str, str] = {}
    leaf_of: dict[tuple[str, int], str] = {}
    node = ""
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source} line {number}"
        if heading := _NODE.match(line):
            node = heading[2]
            names[node] = heading[3] or names.get(node, "")
        elif line.startswith("["):
            cable = _CABLE.match(line)
            if cable is None or not node:
                raise MachineError(f"{where}: {line!a:.60} is cut or not the line of a port")
            _connect(leaf_of, names, node, cable, where)
    if not any(node.startswith("S-") for node in names):
        raise MachineError(f"{source}: no switch in it; write it with `ibnetdiscover`")
    labels = _labels({node: name for node, name in names.items() if node.startswith("S-")})
    return tuple(
        AdapterPort(port, names.get(adapter, ""), labels.get(leaf) or _guid(leaf))
        for (adapter, port), leaf in sorted(leaf_of.items())
        if _IN_SWITCHES not in names.get(adapter, "")
    )


def _connect(
    leaf_of: dict[tuple[str, int], str],
    names: dict[str, str],
    node: str,
    cable: re.Match[str],
    where: str,
) -> None:
    peer = cable[3]
    if not names.get(peer):
        names[peer] = cable[5]
    if node.startswith("S-") and peer.startswith("H-"):
        adapter, port, leaf = peer, int(cable[4]), node
    elif node.startswith("H-") and peer.startswith("S-"):
        adapter, port, leaf = node, int(cable[1]), peer
    else:
        return
    if leaf_of.setdefault((adapter, port), leaf) != leaf:
        raise MachineError(
            f"{where}: {adapter} port {port} is at {leaf}, above it was at "
            f"{leaf_of[adapter, port]}; take a new list"
        )


def _guid(node: str) -> str:
    return node.partition("-")[2].lower().zfill(16)


def _labels(names: dict[str, str]) -> dict[str, str]:
    """Return a name for each node: its description, with the GUID if several share it."""
    shared = Counter(names.values())
    return {
        node: name if shared[name] == 1 else f"{name} ({_guid(node)})" if name else _guid(node)
        for node, name in names.items()
    }
