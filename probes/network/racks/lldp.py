"""LLDP neighbours as `lldpctl -f json` or `lldpctl -f keyvalue` (lldpd 1.0) print them.

    {"lldp": {"interface": {"eth0": {"chassis": {"leaf1": {...}},
                                     "port": {"id": {"type": "ifname", "value": "Ethernet4"}}}}}}

    lldp.eth0.via=LLDP
    lldp.eth0.chassis.name=leaf1
    lldp.eth0.port.ifname=Ethernet4

`interface` is a list of such objects where there are several. A chassis that gives no name goes by
its id, which is a MAC address mostly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from probes.network.errors import HierarchyFileError

_KEY = re.compile(r"lldp\.(\S+?)\.(via|chassis\.\S+?|port\.\S+?)=(.*)")


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """What is at the other end of an interface's cable."""

    interface: str
    switch: str
    port: str
    """Of the switch; empty when it does not say."""


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
        """The key below `chassis`; without a name the chassis' properties stand there instead."""
        told = self.chassis.get("id")
        if isinstance(told, dict) and "value" in told:
            return str(told["value"])
        return next(iter(self.chassis), "")


_Interfaces = dict[str, _Entry | list[_Entry]]


class _Lldp(BaseModel):
    interface: _Interfaces | list[_Interfaces] = {}


class _Output(BaseModel):
    lldp: _Lldp


def parse_lldp(text: str, source: str = "lldpctl") -> tuple[LldpNeighbour, ...]:
    """All neighbours in the order of the file; an interface may have several.

    Raises:
        HierarchyFileError: the text is cut, or of neither form.
    """
    if not text.strip():
        return ()
    if not text.lstrip().startswith(("{", "[")):
        return _of_keys(text, source)
    try:
        told = _Output.model_validate_json(text).lldp.interface
    except ValidationError as error:
        what = error.errors(include_url=False)[0]["msg"]
        raise HierarchyFileError(
            f"{source}: the JSON is cut or not that of `lldpctl -f json`: {what:.60}"
        ) from error
    return tuple(
        LldpNeighbour(interface, switch, entry.port.name)
        for group in (told if isinstance(told, list) else [told])
        for interface, seen in group.items()
        for entry in (seen if isinstance(seen, list) else [seen])
        if (switch := entry.switch)
    )


def switch_of_interface(neighbours: Sequence[LldpNeighbour]) -> dict[str, str]:
    """The switch of every interface; those that see several switches are left out."""
    switches: dict[str, set[str]] = {}
    for neighbour in neighbours:
        switches.setdefault(neighbour.interface, set()).add(neighbour.switch)
    return {name: found.pop() for name, found in switches.items() if len(found) == 1}


def _of_keys(text: str, source: str) -> tuple[LldpNeighbour, ...]:
    """Every neighbour starts with `via`; other lines continue a description."""
    seen: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if found is None:
            continue
        if found[2] == "via" or not seen or seen[-1][0] != found[1]:
            seen.append((found[1], {}))
        seen[-1][1].setdefault(found[2], found[3].strip())
    if not seen:
        raise HierarchyFileError(
            f"{source}: neither JSON nor keyvalue; write it with `lldpctl -f json`"
        )
    neighbours = []
    for interface, keys in seen:
        switch = _first(keys, "chassis.name", "chassis.mac", "chassis.local", "chassis.ifname")
        port = _first(keys, "port.ifname", "port.local", "port.descr", "port.mac")
        if switch:
            neighbours.append(LldpNeighbour(interface, switch, port))
    return tuple(neighbours)


def _first(keys: Mapping[str, str], *names: str) -> str:
    return next((keys[name] for name in names if keys.get(name)), "")
