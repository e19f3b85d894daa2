"""The devices of a machine's hosts as a bundle names them."""

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.host_devices import HostDevice, HostDeviceKind
from probes.files.read import read_topology
from probes.topology.graph import Device, DeviceKind, Provenance, Topology
from tuccl.shipping.host_facts import hosts_of

MACHINES = Path(__file__).parents[3] / "probes" / "machines"


def gpu(node: int, index: int, model: str = "10de:2335") -> Device:
    return Device(f"n{node}/gpu{index}", DeviceKind.GPU, node, index, model)


def nic(node: int, index: int, bus_id: str, gb_per_s: float, **fields: object) -> Device:
    name = f"n{node}/nic{index}"
    device = Device(name, DeviceKind.NIC, node, index, "15b3:1021", bus_id)
    device = replace(device, line_rate_gb_per_s=gb_per_s, os_name=f"mlx5_{index}")
    return replace(device, **fields)  # type: ignore[arg-type]


def card(mbit_per_s: int, name: str) -> HostDevice:
    return HostDevice(HostDeviceKind.NIC, "15b3:1021", mbit_per_s, name=name)


def test_ports_of_a_card_are_one_nic_at_its_fastest_rate() -> None:
    """A card of two ports, at 100 and 200 Gb/s, and one whose rate is an assumption."""
    devices = (
        gpu(0, 0),
        gpu(0, 1),
        nic(0, 0, "0000:3b:00.0", 12.5),
        nic(0, 1, "0000:3b:00.0", 25.0),
        nic(0, 2, "0000:5e:00.0", 1.25, line_rate_provenance=Provenance.ASSUMED),
    )
    assert hosts_of(Topology("m", devices, ())) == (
        (
            HostDevice(HostDeviceKind.GPU, "10de:2335", count=2),
            card(0, "mlx5_2"),
            card(200_000, "mlx5_0"),
        ),
    )


def test_hosts_alike_are_one_kind_and_other_hosts_another() -> None:
    devices = (
        *(gpu(node, 0) for node in range(3)),
        *(nic(node, node, "0000:3b:00.0", 50.0) for node in range(2)),
    )
    one = HostDevice(HostDeviceKind.GPU, "10de:2335")
    found = hosts_of(Topology("m", devices, ()))
    assert found == ((one,), (one, card(400_000, "mlx5_0")))
    assert hosts_of(Topology("m", tuple(reversed(devices)), ()))[0] == (one,)


def test_each_host_of_an_nvlink_domain_counts_by_itself() -> None:
    devices = tuple(replace(gpu(0, index), host_in_node=index // 4) for index in range(8))
    (host,) = hosts_of(Topology("m", devices, ()))
    assert host == (HostDevice(HostDeviceKind.GPU, "10de:2335", count=4),)


def test_what_has_no_model_is_left_out() -> None:
    assert hosts_of(Topology("m", (gpu(0, 0, ""),), ())) == ()


def test_a_machine_of_too_many_kinds_has_none() -> None:
    models = [f"10de:{number:04x}" for number in range(1025)]
    devices = tuple(gpu(node, 0, model) for node, model in enumerate(models))
    assert hosts_of(Topology("m", devices, ())) == ()
    assert len(hosts_of(Topology("m", devices[1:], ()))) == 1024


@pytest.mark.parametrize(
    ("file", "gpus", "nics"), [("a100-8gpu-8nic.xml", 8, 8), ("h200-4gpu-measured.json", 4, 0)]
)
def test_the_machines_of_this_release(file: str, gpus: int, nics: int) -> None:
    (host,) = hosts_of(read_topology(MACHINES / file))
    assert sum(each.count for each in host if each.kind is HostDeviceKind.GPU) == gpus
    assert sum(each.count for each in host if each.kind is HostDeviceKind.NIC) == nics
    assert all(each.mbit_per_s == 200_000 for each in host if each.kind is HostDeviceKind.NIC)
