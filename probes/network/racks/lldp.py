"""LLDP neighbours in the output of `lldpctl -f json` or `lldpctl -f keyvalue` (lldpd 1.0).

    {"lldp": {"interface": {"eth0": {"chassis": {"leaf1": {...}},
                                     "port": {"id": {"type": "ifname", "value": "Ethernet4"}}}}}}

    lldp.eth0.via=LLDP
    lldp.eth0.chassis.name=leaf1
    lldp.eth0.port.ifname=Ethernet4

Several interfaces are a list of such objects. A chassis without a name is identified by its id,
usually a MAC address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from tuccl.errors import MachineError

_KEY = re.compile(r"lldp\.(\S+?)\.(via|chassis\.\S+?|port\.\S+?)=(.*)")


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """The switch port at the remote end of an interface's cable."""

    interface: str
    switch: str
    port: str
    """Port of the switch; empty when unknown."""


class _Id(BaseModel):
    type: str = ""
    value: str = ""


class _Port(BaseModel):
    id: _Id = _Id()
    descr: str = ""

    @property
    def name(self) -> str:
        return (self.descr if self.id.type == "mac" else "") or self.id.value


class _Entry(BaseModel):
    chassis: dict[str, object]
    port: _Port = _Port()

    @property
    def switch(self) -> str:
        """The key below `chassis`; a chassis without a name has its properties there instead."""
        identity = self.chassis.get("id")
        if isinstance(identity, dict) and "value" in identity:
            return str(identity["value"])
        return next(iter(self.chassis), "")


_Interfaces = dict[str, _Entry | list[_Entry]]


class _Lldp(BaseModel):
    interface: _Interfaces | list[_Interfaces] = {}


class _Output(BaseModel):
    lldp: _Lldp


def parse_lldp(text: str, source: str = "lldpctl") -> tuple[LldpNeighbour, ...]:
    """Parse all neighbours in the order of the file; an interface may have several.

    Raises:
        MachineError: the text is cut, or of neither form.
    """
    if not text.strip():
        return ()
    if not text.lstrip().startswith(("{", "[")):
        return _parse_keyvalue(text, source)
    try:
        interfaces = _Output.model_validate_json(text).lldp.interface
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]["msg"]
        raise MachineError(
            f"{source}: the JSON is cut or not that of `lldpctl -f json`: {fault:.60}"
        ) from error
    return tuple(
        LldpNeighbour(interface, switch, entry.port.name)
        for group in (interfaces if isinstance(interfaces, list) else [interfaces])
        for interface, entries in group.items()
        for entry in (entries if isinstance(entries, list) else [entries])
        if (switch := entry.switch)
    )


def switch_of_interface(neighbours: Sequence[LldpNeighbour]) -> dict[str, str]:
    """Return the switch of every interface that has only one."""
    switches: dict[str, set[str]] = {}
    for neighbour in neighbours:
        switches.setdefault(neighbour.interface, set()).add(neighbour.switch)
    return {name: found.pop() for name, found in switches.items() if len(found) == 1}


def _parse_keyvalue(text: str, source: str) -> tuple[LldpNeighbour, ...]:
    """Parse the keyvalue form: every neighbour starts with `via`."""
    entries: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        match = _KEY.match(line)
        if match is None:
            continue
        if match[2] == "via" or not entries or entries[-1][0] != match[1]:
            entries.append((match[1], {}))
        entries[-1][1].setdefault(match[2], match[3].strip())
    if not entries:
        raise MachineError(f"{source}: neither JSON nor keyvalue; write it with `lldpctl -f json`")
    neighbours = []
    for interface, keys in entries:
        switch = _first(keys, "chassis.name", "chassis.mac", "chassis.local", "chassis.ifname")
        port = _first(keys, "port.ifname", "port.local", "port.descr", "port.mac")
        if switch:
            neighbours.append(LldpNeighbour(interface, switch, port))
    return tuple(neighbours)


def _first(keys: Mapping[str, str], *names: str) -> str:
    return next((keys[name] for name in names if keys.get(name)), "")
