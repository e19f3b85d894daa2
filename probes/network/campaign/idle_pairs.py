"""The traffic filter, which drops pairs that earlier workloads left idle."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from probes.network.ports import NetworkPort, PortPair
from tuccl.errors import MachineError

TRAFFIC_LOG_VERSION = 1
HEADER = ("src_host", "src_nic", "dst_host", "dst_nic", "utilisation")

_FIRST_LINE = re.compile(r"# tuccl traffic log (\d{1,9})\s*")


Utilisation = Mapping[tuple[str, ...], float]
"""Share of the line rate, 0 to 1, by (host, NIC, host, NIC): the sender's `host_name` and `os_name`
as in `NetworkPort`, then the receiver's."""


def parse_traffic_log(text: str, source: str = "traffic log") -> Utilisation:
    """Parse a traffic log.

    Raises:
        MachineError: another version, another header, a malformed or repeated line.
    """
    lines = text.splitlines()
    first = _FIRST_LINE.fullmatch(lines[0]) if lines else None
    if first is None or int(first[1]) != TRAFFIC_LOG_VERSION:
        raise MachineError(f"{source} line 1: expected '# tuccl traffic log {TRAFFIC_LOG_VERSION}'")
    links: dict[tuple[str, ...], float] = {}
    header_seen = False
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{source} line {number}"
        try:
            fields = [field.strip() for field in next(csv.reader([line]), [])]
        except csv.Error as error:
            raise MachineError(f"{where}: {error}; correct it") from error
        if not header_seen:
            header_seen = True
            if tuple(fields) != HEADER:
                raise MachineError(f"{where}: expected {','.join(HEADER)}")
            continue
        share = _share(fields, where)
        ends = tuple(fields[:4])
        if ends in links:
            raise MachineError(f"{where}: {' '.join(ends)} was given before")
        links[ends] = share
    if not header_seen:
        raise MachineError(f"{source}: no line {','.join(HEADER)}")
    return links


def _share(fields: list[str], where: str) -> float:
    if len(fields) != len(HEADER) or not all(fields):
        raise MachineError(f"{where}: expected {len(HEADER)} fields, none of them empty")
    try:
        utilisation = float(fields[4])
    except ValueError:
        utilisation = -1.0
    if not 0 <= utilisation <= 1:
        raise MachineError(f"{where}: utilisation {fields[4]!a:.20} is not within 0 and 1")
    return utilisation


_IDLE_BELOW = 0.01
"""Share of the line rate below which a pair is idle."""
_EVIDENCE_PER_PORT = 2
"""Pairs per port that the filter keeps, to distinguish a port's faults from its cables'."""


def without_idle(
    ports: Sequence[NetworkPort],
    pairs: Sequence[PortPair],
    utilisation: Utilisation | None,
) -> tuple[list[PortPair], tuple[str, ...]]:
    """Return the pairs that are not idle, the idle pairs that ports need, and notes.

    A pair is idle if it used less than 1 % of the line rate; pairs that the log does not
    list are taken as used.
    """
    if utilisation is None:
        return list(pairs), ()
    idle = {pair for pair in pairs if _idle(ports, pair, utilisation)}
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
        f"{_IDLE_BELOW:.1%} of the line rate): {dropped:,} are not measured, the others "
        "are, because one of their ports needs them."
    )
    return kept, (note,) if idle else ()


def _idle(ports: Sequence[NetworkPort], pair: PortPair, utilisation: Utilisation) -> bool:
    """Whether the log lists the pair, and neither direction as used."""
    client, server = ports[pair.client], ports[pair.server]
    forward = (client.host_name, client.os_name, server.host_name, server.os_name)
    back = (server.host_name, server.os_name, client.host_name, client.os_name)
    listed = [utilisation[key] for key in (forward, back) if key in utilisation]
    return bool(listed) and max(listed) < _IDLE_BELOW
