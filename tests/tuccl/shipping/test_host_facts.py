"""The devices of a machine's hosts as a bundle names them."""

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.bundles.host_devices import HostDevice, HostDeviceKind, HostDevices
from probes.files.read import read_topology
from probes.topology.graph import Device, DeviceKind, Provenance, Topology
from tuccl.shipping.host_facts import hosts_as_shown, hosts_of

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


def test_what_is_close_to_what_is_that_of_the_tree() -> None:
    """Two CPUs with two switches each, below each of which two GPUs and two NICs are."""
    (host,) = hosts_of(read_topology(MACHINES / "h100-8gpu-8nic.xml"))
    (gpus,) = (each for each in host if each.kind is HostDeviceKind.GPU)
    assert (gpus.count, gpus.nvlinks, gpus.gpus_at_switch, gpus.gpus_at_numa_node) == (8, 18, 1, 3)
    nics = [each for each in host if each.kind is HostDeviceKind.NIC]
    assert {(each.nvlinks, each.gpus_at_switch, each.gpus_at_numa_node) for each in nics} == {
        (0, 2, 4)
    }


def test_a_host_of_one_cpu_says_nothing_of_numa_nodes() -> None:
    (host,) = hosts_of(read_topology(MACHINES / "h200-4gpu.xml"))
    assert host == (HostDevice(HostDeviceKind.GPU, "10de:2335", count=4, nvlinks=18),)


def placed(nvlinks: int, at_switch: int, at_numa_node: int) -> HostDevices:
    return tuple(
        HostDevice(
            HostDeviceKind.GPU, "10de:2335", count=count, nvlinks=links,
            gpus_at_switch=at_switch, gpus_at_numa_node=at_numa_node,
        )
        for count, links in ((1, nvlinks), (3, 18))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        (None, True),
        (placed(18, 1, 1), True),
        (placed(18, 3, 2), True),
        # Not shown, which is no contradiction.
        (placed(18, 0, 0), True),
        (placed(17, 1, 1), False),
        ((HostDevice(HostDeviceKind.GPU, "10de:2335", count=4, gpus_at_numa_node=1),), True),
        ((HostDevice(HostDeviceKind.GPU, "10de:2335", count=3, gpus_at_switch=1),), False),
    ],
)
def test_what_the_measured_host_does_not_show_is_left_out(
    shown: HostDevices | None, kept: bool
) -> None:
    known = placed(18, 1, 1)
    bare = (HostDevice(HostDeviceKind.GPU, "10de:2335", count=4),)
    assert hosts_as_shown([known], shown) == (known if kept else bare,)
