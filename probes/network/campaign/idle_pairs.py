"""The traffic filter, which drops pairs that earlier workloads left idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.network.campaign.traffic_log import LinkUse
from probes.network.ports import NetworkPort
from probes.network.results import PortPair

_EVIDENCE_PER_PORT = 2
"""Pairs per port that the filter keeps, to distinguish a port's faults from its cables'."""

Utilisation = Mapping[tuple[str, str, str, str], float]
"""Share of the line rate by (host, NIC, host, NIC), as `NetworkPort.host_name` and `os_name`."""


def utilisation_of(log: Sequence[LinkUse]) -> dict[tuple[str, str, str, str], float]:
    """Return the utilisation by pair from a traffic log."""
    return {(u.src_host, u.src_nic, u.dst_host, u.dst_nic): u.utilisation for u in log}


def without_idle(
    ports: Sequence[NetworkPort],
    pairs: Sequence[PortPair],
    utilisation: Utilisation | None,
    idle_below: float,
) -> tuple[list[PortPair], tuple[str, ...]]:
    """Return the pairs that are not idle, the idle pairs that ports need, and notes.

    Args:
        ports: all ports of the cluster.
        pairs: the planned pairs, as indices in `ports`.
        utilisation: utilisation from the log; unlisted pairs are taken as used.
        idle_below: share of the line rate below which a pair is idle.
    """
    if utilisation is None:
        return list(pairs), ()
    idle = {pair for pair in pairs if _idle(ports, pair, utilisation, idle_below)}
    evidence = [0] * len(ports)
    for pair in pairs:
        if pair not in idle:
            evidence[pair.client] += 1
            evidence[pair.server] += 1
    kept = []
    for pair in pairs:
        if pair in idle:
            if min(evidence[pair.client], evidence[pair.server]) >= _EVIDENCE_PER_PORT:
                continue
            evidence[pair.client] += 1
            evidence[pair.server] += 1
        kept.append(pair)
    dropped = len(pairs) - len(kept)
    note = (
        f"The traffic log shows {len(idle):,} of {len(pairs):,} planned pairs idle (below "
        f"{idle_below:.1%} of the line rate): {dropped:,} are not measured, the others "
        "are, because one of their ports needs them."
    )
    return kept, (note,) if idle else ()


def _idle(
    ports: Sequence[NetworkPort], pair: PortPair, utilisation: Utilisation, below: float
) -> bool:
    """Whether the log lists the pair, and neither direction as used."""
    client, server = ports[pair.client], ports[pair.server]
    forward = (client.host_name, client.os_name, server.host_name, server.os_name)
    back = (server.host_name, server.os_name, client.host_name, client.os_name)
    listed = [utilisation[key] for key in (forward, back) if key in utilisation]
    return bool(listed) and max(listed) < below
