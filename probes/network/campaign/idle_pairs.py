"""The traffic filter: pairs that earlier workloads left idle are not worth measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probes.network.campaign.traffic_log import LinkUse
from probes.network.ports import NetworkPort
from probes.network.results import PortPair

_EVIDENCE_PER_PORT = 2
"""Pairs that the traffic filter leaves a port, so that it can be told from its cables."""

Utilisation = Mapping[tuple[str, str, str, str], float]
"""Share of the line rate by (host, NIC, host, NIC), as `NetworkPort.host_name` and `os_name`."""


def utilisation_of(log: Sequence[LinkUse]) -> dict[tuple[str, str, str, str], float]:
    """The filter's view of a traffic log."""
    return {(u.src_host, u.src_nic, u.dst_host, u.dst_nic): u.utilisation for u in log}


def without_idle(
    ports: Sequence[NetworkPort],
    pairs: Sequence[PortPair],
    utilisation: Utilisation | None,
    idle_below: float,
) -> tuple[list[PortPair], tuple[str, ...]]:
    """The pairs that the log does not show idle, as many others as ports need, and notes.

    Args:
        ports: all ports of the cluster.
        pairs: the planned pairs, places in `ports`.
        utilisation: what the log says; a pair that it does not list is taken as used.
        idle_below: a pair used less than this share of the line rate is idle.
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
        "are, because a port of theirs needs them."
    )
    return kept, (note,) if idle else ()


def _idle(
    ports: Sequence[NetworkPort], pair: PortPair, utilisation: Utilisation, below: float
) -> bool:
    """Whether the log lists the pair, and no direction of it as used."""
    one, other = ports[pair.client], ports[pair.server]
    there = (one.host_name, one.os_name, other.host_name, other.os_name)
    back = (other.host_name, other.os_name, one.host_name, one.os_name)
    listed = [utilisation[key] for key in (there, back) if key in utilisation]
    return bool(listed) and max(listed) < below
