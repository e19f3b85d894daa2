"""Differences between the hosts of a cluster: `compare_hosts`.

A table is tuned for equal hosts. One host among many that lacks a NIC is a defect to name; hosts of
several kinds are a fact to list.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.comparison.changes import describe_changes
from probes.topology.graph import Topology
from probes.topology.hosts import folded, hosts_alike


def compare_hosts(cluster: Topology, hosts: Sequence[Topology]) -> tuple[str, ...]:
    """Return sentences about hosts that differ, none when all are alike.

    If more than half of the hosts are of one kind, the others are named with their differences;
    else the kinds are listed.

    Args:
        cluster: topology with the names of the hosts.
        hosts: topologies of the hosts by node, with devices named `n0/...`.
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
    """Shorten the devices' names, as the host is named already: `gpu3` for `n0/gpu3`."""
    return text.replace("n0/", "")
