"""A CSV log of link utilisation; the sampler drops pairs that were idle.

    # tuccl traffic log 1
    src_host,src_nic,dst_host,dst_nic,utilisation
    node01,mlx5_0,node02,mlx5_0,0.42

Utilisation is the share of the line rate over the logged time, 0 to 1. NICs have the operating
system's names. Empty lines and further comments are skipped.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from tuccl.errors import MachineError

TRAFFIC_LOG_VERSION = 1
HEADER = ("src_host", "src_nic", "dst_host", "dst_nic", "utilisation")

_FIRST_LINE = re.compile(r"# tuccl traffic log (\d{1,9})\s*")


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Utilisation of the path from one NIC to another."""

    src_host: str
    src_nic: str
    dst_host: str
    dst_nic: str
    utilisation: float
    """Share of the line rate, 0 to 1."""


def parse_traffic_log(text: str, source: str = "traffic log") -> tuple[LinkUse, ...]:
    """Parse the links in the order of the log.

    Raises:
        MachineError: another version, another header, a malformed or repeated line.
    """
    lines = text.splitlines()
    first = _FIRST_LINE.fullmatch(lines[0]) if lines else None
    if first is None or int(first[1]) != TRAFFIC_LOG_VERSION:
        raise MachineError(f"{source} line 1: expected '# tuccl traffic log {TRAFFIC_LOG_VERSION}'")
    links: dict[tuple[str, ...], LinkUse] = {}
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
        link = _link(fields, where)
        ends = tuple(fields[:4])
        if ends in links:
            raise MachineError(f"{where}: {' '.join(ends)} was given before")
        links[ends] = link
    if not header_seen:
        raise MachineError(f"{source}: no line {','.join(HEADER)}")
    return tuple(links.values())


def _link(fields: list[str], where: str) -> LinkUse:
    if len(fields) != len(HEADER) or not all(fields):
        raise MachineError(f"{where}: expected {len(HEADER)} fields, none of them empty")
    try:
        utilisation = float(fields[4])
    except ValueError:
        utilisation = -1.0
    if not 0 <= utilisation <= 1:
        raise MachineError(f"{where}: utilisation {fields[4]!a:.20} is not within 0 and 1")
    return LinkUse(fields[0], fields[1], fields[2], fields[3], utilisation)
