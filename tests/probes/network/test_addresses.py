import socket
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from probes.network.addresses import (
    InterfaceAddress,
    gid_index,
    interface_addresses,
    link_local_gid_index,
    management_address,
    rdma_subnet,
)


class Entry(NamedTuple):
    family: int
    address: str
    netmask: str | None


ENTRIES = {
    "eth1": [
        Entry(socket.AF_INET6, "fe80::1%eth1", "ffff:ffff:ffff:ffff::"),
        Entry(socket.AF_INET6, "fd00::1", "ffff:ffff:ffff:ffff::"),
        Entry(socket.AF_INET, "10.2.0.9", "255.255.255.0"),
        Entry(socket.AF_INET, "10.1.0.1", "255.255.0.0"),
        Entry(psutil.AF_LINK, "0C:42:A1:00:00:01", None),
    ],
    "eth0": [Entry(psutil.AF_LINK, "", None)],
}


def test_addresses_come_with_their_prefix_the_least_useful_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: ENTRIES)
    found = interface_addresses()
    assert list(found) == ["eth0", "eth1"]
    assert found["eth0"] == ()
    assert found["eth1"] == (
        InterfaceAddress("10.1.0.1", 16),
        InterfaceAddress("10.2.0.9", 24),
        InterfaceAddress("fd00::1", 64),
        InterfaceAddress("fe80::1%eth1", 64),
    )
    assert [address.is_link_local for address in found["eth1"]] == [False, False, False, True]


def test_this_host_has_its_loopback_address() -> None:
    assert InterfaceAddress("127.0.0.1", 8) in interface_addresses()["lo"]


def _gid(infiniband: Path, index: int, gid: str, speaks: str) -> None:
    port = infiniband / "mlx5_0" / "ports" / "1"
    for folder, text in ((port / "gids", gid), (port / "gid_attrs" / "types", speaks)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(index)).write_text(f"{text}\n")


def test_the_gid_of_an_address_is_of_type_roce_v2(tmp_path: Path) -> None:
    _gid(tmp_path, 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1")
    _gid(tmp_path, 1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2")
    _gid(tmp_path, 2, "0000:0000:0000:0000:0000:ffff:0a01:0001", "IB/RoCE v1")
    _gid(tmp_path, 3, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v2")
    assert gid_index("mlx5_0", 1, "10.1.0.1", tmp_path) == 3
    assert gid_index("mlx5_0", 1, "fe80::e42:a1ff:fe00:1%eth0", tmp_path) == 1
    assert gid_index("mlx5_0", 1, "10.1.0.2", tmp_path) is None
    assert gid_index("mlx5_0", 2, "10.1.0.1", tmp_path) is None
    assert gid_index("mlx5_0", 1, "", tmp_path) is None


def test_without_an_address_a_roce_port_uses_its_link_local_gid(tmp_path: Path) -> None:
    _gid(tmp_path, 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1")
    assert link_local_gid_index("mlx5_0", 1, tmp_path) is None
    assert rdma_subnet("mlx5_0", 1, "Ethernet", tmp_path) == ""
    _gid(tmp_path, 1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2")
    assert link_local_gid_index("mlx5_0", 1, tmp_path) == 1
    assert rdma_subnet("mlx5_0", 1, "Ethernet", tmp_path) == "RoCE fe80::/64"
    assert rdma_subnet("mlx5_1", 1, "Ethernet", tmp_path) == ""


@pytest.mark.parametrize(
    ("gid", "subnet"),
    [
        ("fe80:0000:0000:0000:0c42:a103:00a1:0001", "InfiniBand fe80::/64"),
        ("fec0:0000:0000:0007:0c42:a103:00a1:0001", "InfiniBand fec0:0:0:7::/64"),
        ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ("no gid", ""),
    ],
)
def test_the_subnet_of_an_infiniband_port_is_the_prefix_of_its_first_gid(
    tmp_path: Path, gid: str, subnet: str
) -> None:
    _gid(tmp_path, 0, gid, "IB/RoCE v1")
    assert rdma_subnet("mlx5_0", 1, "InfiniBand", tmp_path) == subnet
    assert rdma_subnet("mlx5_1", 1, "InfiniBand", tmp_path) == ""
    assert link_local_gid_index("mlx5_0", 1, tmp_path) is None


def test_a_host_is_reached_by_a_routable_address_that_of_a_nic_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = {
        "docker0": (InterfaceAddress("172.17.0.1", 16),),
        "eno1": (InterfaceAddress("fd00::7", 64), InterfaceAddress("fe80::7%eno1", 64)),
        "lo": (InterfaceAddress("127.0.0.1", 8), InterfaceAddress("::1", 128)),
    }
    no_route: tuple[str, ...] = ()
    monkeypatch.setattr("probes.network.addresses._OUTSIDE", no_route)
    assert management_address(addresses) == "172.17.0.1"
    assert management_address(addresses, ["eno1"]) == "fd00::7"
    assert management_address({"lo": addresses["lo"], "ib0": ()}) == ""


def test_the_default_route_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own_address = management_address(interface_addresses())
    if not own_address:
        pytest.skip("this host has no routable address")
    # The kernel speaks to an address of this host from that address.
    monkeypatch.setattr("probes.network.addresses._OUTSIDE", ("127.0.0.1", own_address))
    addresses = {
        "a": (InterfaceAddress("10.255.255.254", 8),),
        "b": (InterfaceAddress(own_address, 24),),
        "lo": (InterfaceAddress("127.0.0.1", 8),),
    }
    assert management_address(addresses, ["a"]) == own_address
