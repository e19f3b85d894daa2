import json

import pytest

from probes.cluster.racks import LldpNeighbour, parse_lldp, switch_of_interface
from tuccl.errors import MachineError


def _seen(chassis: object, port_type: str = "ifname", port: str = "Ethernet4") -> dict[str, object]:
    port_facts = {"id": {"type": port_type, "value": port}, "descr": "to node 1", "ttl": "120"}
    return {"via": "LLDP", "rid": "1", "chassis": chassis, "port": port_facts}


LEAF1 = {"leaf1": {"id": {"type": "mac", "value": "0c:42:a1:00:00:01"}, "descr": "Cumulus"}}
UNNAMED = {"id": {"type": "mac", "value": "0c:42:a1:00:00:02"}, "capability": []}


def test_one_interface_is_an_object() -> None:
    text = json.dumps({"lldp": {"interface": {"eth0": _seen(LEAF1)}}})
    assert parse_lldp(text) == (LldpNeighbour("eth0", "leaf1", "Ethernet4"),)


def test_several_interfaces_are_a_list() -> None:
    interfaces = [{"eth0": _seen(LEAF1)}, {"eth1": _seen(UNNAMED, "mac", "0c:42:a1:00:00:09")}]
    assert parse_lldp(json.dumps({"lldp": {"interface": interfaces}})) == (
        LldpNeighbour("eth0", "leaf1", "Ethernet4"),
        LldpNeighbour("eth1", "0c:42:a1:00:00:02", "to node 1"),
    )


def test_keyvalue() -> None:
    text = """\
lldp.eth0.via=LLDP
lldp.eth0.chassis.mac=0c:42:a1:00:00:01
lldp.eth0.chassis.name=leaf1
lldp.eth0.chassis.descr=Cumulus Linux
 version 5
lldp.eth0.port.ifname=Ethernet4
lldp.eth0.100.via=LLDP
lldp.eth0.100.chassis.mac=0c:42:a1:00:00:02
lldp.eth0.100.port.descr=to node 1
"""
    assert parse_lldp(text) == (
        LldpNeighbour("eth0", "leaf1", "Ethernet4"),
        LldpNeighbour("eth0.100", "0c:42:a1:00:00:02", "to node 1"),
    )


def test_an_interface_that_sees_two_switches_has_none() -> None:
    seen = [LldpNeighbour(*each) for each in (("a", "s1", ""), ("a", "s2", ""), ("b", "s1", "p"))]
    assert switch_of_interface(seen) == {"b": "s1"}


@pytest.mark.parametrize("text", ["", '{"lldp": {}}', '{"lldp": {"interface": []}}'])
def test_no_neighbours(text: str) -> None:
    assert parse_lldp(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"lldp": {"interface": {"eth0": {"chas',
        '{"interface": {}}',
        '{"lldp": {"interface": {"eth0": {"chassis": "leaf1"}}}}',
        "[]",
    ],
)
def test_json_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="lldpctl: the JSON is cut or not that of"):
        parse_lldp(text)
