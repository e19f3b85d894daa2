"""Detours of PCIe traffic by access control, on a switch with three ports."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, permutations, sampled_from

from probes.host.access_control import Detour, detours
from probes.pci.inventory import PciFunction, PciInventory
from probes.pci.tree import DirectoryTree

UP, PORTS = "0000:01:00.0", ("0000:02:00.0", "0000:02:01.0", "0000:02:02.0")
DEVICES = ("0000:03:00.0", "0000:04:00.0", "0000:05:00.0")
FAR = "0000:83:00.0"
REDIRECT, COMPLETE, UPSTREAM = 1 << 2, 1 << 3, 1 << 4
ACCESS_CONTROL = 0x000D
INVENTORY = PciInventory(
    "host",
    (
        PciFunction(UP, "pci0000:00"),
        *(PciFunction(port, "pci0000:00", UP) for port in PORTS),
        *(
            PciFunction(device, "pci0000:00", port)
            for device, port in zip(DEVICES, PORTS, strict=True)
        ),
        PciFunction(FAR, "pci0000:80"),
    ),
)


def config(control: int, before: tuple[int, ...] = (), after: tuple[int, ...] = ()) -> bytes:
    """A configuration space with access control between other extended capabilities."""
    ids = (*before, ACCESS_CONTROL, *after)
    space = bytearray(4096)
    for place, number in enumerate(ids):
        at = 0x100 + 0x40 * place
        following = at + 0x40 if place + 1 < len(ids) else 0
        struct.pack_into("<I", space, at, number | 1 << 16 | following << 20)
        if number == ACCESS_CONTROL:
            struct.pack_into("<H", space, at + 6, control)
    return bytes(space)


def found_with(root: Path, spaces: dict[str, bytes]) -> tuple[Detour, ...]:
    for port, space in spaces.items():
        path = root / f"sys/bus/pci/devices/{port}/config"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(space)
    return detours(DirectoryTree(root), INVENTORY, (*DEVICES, FAR))


def test_pairs_of_a_switch_take_the_way_up_where_a_port_redirects(tmp_path: Path) -> None:
    spaces = {port: config(0) for port in PORTS} | {PORTS[1]: config(REDIRECT | UPSTREAM)}
    assert found_with(tmp_path, spaces) == (
        Detour((DEVICES[0], DEVICES[1]), (PORTS[1],), ()),
        Detour((DEVICES[1], DEVICES[2]), (PORTS[1],), ()),
    )


def test_functions_of_one_device_need_no_switch(tmp_path: Path) -> None:
    second = DEVICES[0].replace(".0", ".1")
    functions = (*INVENTORY.functions, PciFunction(second, "pci0000:00", PORTS[0]))
    inventory = PciInventory("host", functions)
    found_with(tmp_path, {port: config(REDIRECT) for port in PORTS})
    assert detours(DirectoryTree(tmp_path), inventory, (DEVICES[0], second)) == ()


@pytest.mark.parametrize("control", [0, UPSTREAM, 0b10011])
def test_other_bits_redirect_nothing_between_ports(tmp_path: Path, control: int) -> None:
    assert found_with(tmp_path, {port: config(control) for port in PORTS}) == ()


def test_what_root_alone_may_read_is_unknown(tmp_path: Path) -> None:
    spaces = {PORTS[0]: config(REDIRECT)[:64], PORTS[1]: config(0)}
    first, _, last = found_with(tmp_path, spaces)
    assert first == Detour((DEVICES[0], DEVICES[1]), (), (PORTS[0],))
    assert last.unknown == (PORTS[2],)


@pytest.mark.parametrize(
    "space",
    [
        b"\xff" * 4096,  # A port that does not answer.
        struct.pack("<I", 0x0001 | 1 << 16 | 0x100 << 20).rjust(0x104, b"\0").ljust(4096, b"\0"),
        config(REDIRECT, before=(0x0001,))[:0x144],
    ],
    ids=["silent", "loop", "cut"],
)
def test_a_list_that_does_not_end_leaves_a_port_unknown(tmp_path: Path, space: bytes) -> None:
    found = found_with(tmp_path, dict.fromkeys(PORTS, space))
    assert [each.unknown for each in found] == [PORTS[:2], (PORTS[0], PORTS[2]), PORTS[1:]]


def test_a_switch_without_access_control_redirects_nothing(tmp_path: Path) -> None:
    assert found_with(tmp_path, {port: bytes(4096) for port in PORTS}) == ()


@given(
    others=lists(sampled_from((0x0001, 0x0003, 0x0019, 0x0025)), max_size=6),
    control=integers(0, 0x7F),
    order=permutations(PORTS),
)
def test_the_register_is_found_in_any_list_of_capabilities(
    tmp_path_factory: pytest.TempPathFactory, others: list[int], control: int, order: list[str]
) -> None:
    half = len(others) // 2
    space = config(control, tuple(others[:half]), tuple(others[half:]))
    spaces = {port: config(0) for port in PORTS} | {order[0]: space}
    found = found_with(tmp_path_factory.mktemp("host"), spaces)
    assert len(found) == (2 if control & (REDIRECT | COMPLETE) else 0)


@given(length=integers(0, 600), at=integers(0x100, 0x108), value=integers(0, 255))
def test_damaged_spaces_end(
    tmp_path_factory: pytest.TempPathFactory, length: int, at: int, value: int
) -> None:
    space = bytearray(config(REDIRECT))
    space[at] = value
    found_with(tmp_path_factory.mktemp("host"), {port: bytes(space[:length]) for port in PORTS})
