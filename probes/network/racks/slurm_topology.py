"""Slurm's topology.conf, or `scontrol show topology`: the leaf switch of every host.

    SwitchName=leaf1 Nodes=node[01-16]
    SwitchName=leaf2 Nodes=node[17-32]
    SwitchName=spine Switches=leaf[1-2]
    BlockName=block1 Nodes=node[01-18]      # topology/block: a block counts as a leaf

Keywords may be in any case; a backslash continues a line. topology.yaml (Slurm 25) is refused.
"""

from __future__ import annotations

import re

from probes.network.racks.rack_map import GroupedHosts, numbered_lines
from tuccl.errors import MachineError

_PAIR = re.compile(r"\b(\w+)=(\S*)")
_NOTHING = ("", "(null)")


def parse_slurm_topology(text: str, source: str = "topology.conf") -> dict[str, str]:
    """Return the leaf switch (or block) of every host, in the order of the file.

    Raises:
        MachineError: a line is malformed, a host is below two leaves, there are too many
            hosts, or it is a YAML file.
    """
    leaves = GroupedHosts()
    for number, line in numbered_lines(_joined(text)):
        where = f"{source} line {number}"
        if re.match(r"---|%YAML|-\s|\w+:(\s|$)", line):
            raise MachineError(
                f"{where}: looks like topology.yaml, which is not read; "
                "give the output of `scontrol show topology`, or a rack map"
            )
        keys = {key.lower(): value for key, value in _PAIR.findall(line)}
        if _PAIR.sub("", line).strip():
            raise MachineError(f"{where}: {line!a:.60}, expected keyword=value pairs")
        name = keys.get("switchname") or keys.get("blockname")
        if not name:
            if "blocksizes" in keys:
                continue
            raise MachineError(f"{where}: neither SwitchName nor BlockName")
        # For a spine, `scontrol` lists the nodes of its leaves as well.
        if keys.get("switches", "") not in _NOTHING:
            continue
        if keys.get("nodes", "") in _NOTHING:
            raise MachineError(f"{where}: {name} has neither Nodes nor Switches")
        leaves.add(keys["nodes"], name, where)
    return leaves.group_of


def _joined(text: str) -> str:
    """Join continued lines; empty lines keep the later line numbers unchanged."""
    joined: list[str] = []
    continued: list[str] = []
    *lines, last = text.split("\n")
    for line in lines:
        continued.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            joined += [" ".join(continued), *([""] * (len(continued) - 1))]
            continued = []
    return "\n".join([*joined, " ".join([*continued, last]), *([""] * len(continued))])
