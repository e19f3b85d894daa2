"""Racks of ports by host, and leaf switches from ibnetdiscover and LLDP."""

import json

import pytest

from probes.cluster.racks import not_in_fabric, parse_lldp, place_in_racks
from probes.network.ports import NetworkPort
from probes.network.racks.ibnetdiscover import AdapterPort
from tuccl.errors import MachineError


def port(
    host: str,
    device: str = "mlx5_0",
    *,
    rdma_device: str | None = None,
    rdma_port: int = 1,
    rack: str = "",
) -> NetworkPort:
    rdma_device = device if rdma_device is None else rdma_device
    return NetworkPort(0, host, 0, device, rdma_device=rdma_device, rdma_port=rdma_port, rack=rack)


def adapter(description: str, switch: str, number: int = 1) -> AdapterPort:
    return AdapterPort(number, description, switch)


FABRIC = (
    adapter("n1 mlx5_0", "leaf1"),
    adapter("n1 mlx5_1", "leaf2"),
    adapter("n2 HCA-1", "leaf1"),
)


def test_a_host_is_in_its_rack_with_or_without_its_domain() -> None:
    ports = [port("n1.cluster"), port("n2"), port("n3", rack="heard by LLDP"), port("n4")]
    placed = place_in_racks(ports, {"n1": "r1", "n2": "r2"})
    assert [each.rack for each in placed] == ["r1", "r2", "heard by LLDP", ""]


def test_a_port_is_at_its_leaf_or_else_in_the_rack_of_its_host() -> None:
    ports = [
        port("n1.cluster", "mlx5_0"),
        port("n1.cluster", "mlx5_1"),
        port("n1.cluster", "mlx5_1", rdma_port=2),
        port("n2", "mlx5_0"),
    ]
    placed = place_in_racks(ports, {"n1": "r1", "n2": "r2"}, FABRIC)
    assert [each.rack for each in placed] == ["leaf1", "leaf2", "r1", "r2"]


def test_ports_that_the_fabric_does_not_name_are_noted() -> None:
    ports = [port("n1", "mlx5_0"), port("n2", "mlx5_0"), port("n3", rdma_device="", rdma_port=0)]
    (note,) = not_in_fabric(ports, FABRIC)
    assert note == (
        "Not in the list of ibnetdiscover by `HOST DEVICE`, so at a leaf switch unknown to it: "
        "n2/mlx5_0."
    )
    assert not_in_fabric(ports[:1], FABRIC) == ()
    assert not_in_fabric(ports, ()) == ()


LEAF1 = {"leaf1": {"id": {"type": "mac", "value": "0c:42:a1:00:00:01"}, "descr": "Cumulus"}}
UNNAMED = {"id": {"type": "mac", "value": "0c:42:a1:00:00:02"}, "capability": []}


def _seen(*chassis: object) -> list[dict[str, object]]:
    return [{"via": "LLDP", "rid": "1", "chassis": each, "port": {}} for each in chassis]


@pytest.mark.parametrize(
    ("interfaces", "switches"),
    [
        ({"eth0": _seen(LEAF1)[0]}, {"eth0": "leaf1"}),
        (
            [{"eth0": _seen(LEAF1)[0]}, {"eth1": _seen(UNNAMED)[0]}],
            {"eth0": "leaf1", "eth1": "0c:42:a1:00:00:02"},
        ),
        ({"eth0": _seen(LEAF1, UNNAMED), "eth1": _seen(LEAF1, LEAF1)}, {"eth1": "leaf1"}),
        ([], {}),
    ],
)
def test_lldp_names_the_only_switch_of_an_interface(
    interfaces: object, switches: dict[str, str]
) -> None:
    assert parse_lldp(json.dumps({"lldp": {"interface": interfaces}})) == switches


def test_lldpd_without_neighbours() -> None:
    assert parse_lldp("") == parse_lldp('{"lldp": {}}') == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"lldp": {"interface": {"eth0": {"chas',
        '{"interface": {}}',
        '{"lldp": {"interface": {"eth0": {"chassis": "leaf1"}}}}',
        "[]",
        "lldp.eth0.chassis.name=leaf1",
    ],
)
def test_lldp_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="lldpctl: the JSON is cut or not that of"):
        parse_lldp(text)
