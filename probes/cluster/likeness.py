"""Which hosts of a cluster are not like the others, and in what: `compare_hosts`.

A tuned table serves hosts that are alike. One host of many with a NIC less is a defect that its
owner wants named; hosts of several kinds are a fact that he wants listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.comparison.changes import describe_changes
from probes.topology.graph import Topology
from probes.topology.hosts import folded, hosts_alike


def compare_hosts(cluster: Topology, hosts: Sequence[Topology]) -> tuple[str, ...]:
    """Sentences about hosts that differ, empty when all are alike.

    Where more than half of the hosts are of one kind, the others are named with what sets them
    apart; else the kinds are listed.

    Args:
        cluster: with the names of the hosts.
        hosts: by node, devices named `n0/...` in each.
    """
    kinds = [group.nodes for group in hosts_alike(cluster)]
    if len(kinds) < 2:
        return ()
    names = [folded(cluster.hosts[node] for node in kind) for kind in kinds]
    usual = max(kinds, key=len)
    if 2 * len(usual) <= len(hosts):
        listed = "; ".join(
            f"{name} ({len(hosts[kind[0]].gpus)} GPUs, {len(hosts[kind[0]].nics)} NICs)"
            for name, kind in zip(names, kinds, strict=True)
        )
        return (f"The hosts are of {len(kinds)} kinds: {listed}.",)
    return tuple(
        f"{name} (unlike {len(usual)} of {len(hosts)} hosts): "
        + without_host(" ".join(describe_changes(hosts[usual[0]], hosts[kind[0]])))
        for name, kind in zip(names, kinds, strict=True)
        if kind is not usual
    )


def without_host(text: str) -> str:
    """Devices of a host that is named already: `gpu3` for `n0/gpu3`."""
    return text.replace("n0/", "")
