"""The PCI functions and ports of an inventory that are GPUs and NICs: `endpoints`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probes.inputs.messages import shortened
from probes.inputs.natural_order import natural_key
from probes.nccl_xml.records import GpuRecord, NetRecord
from probes.pci.address import address_key, slot_of
from probes.pci.inventory import DISPLAY, NETWORK, NVIDIA, NicPort, PciFunction, PciInventory

_AMD = 0x1002
_GPU_VENDORS = frozenset({NVIDIA, _AMD})
_AMD_BOARD_CHIPS = frozenset({0x4752, 0x5159, 0x515E})
"""Rage XL, RV100 and ES1000, console adapters of old server boards (PCI ID database)."""
_VIRTIO_VENDOR = 0x1AF4
_INTEL = 0x8086
_COPROCESSOR, _ACCELERATOR, _INFINIBAND = 0x0B40, 0x1200, 0x0207
"""Base class and subclass (PCI Code and ID Assignment Specification 1.11)."""


@dataclass(frozen=True)
class Endpoints:
    """The future devices, by PCI address."""

    gpus: dict[str, GpuRecord | None]
    """Records of GPUs; None if only the class identifies it."""
    nets: dict[str, tuple[NetRecord, ...]]
    """Ports of NICs; empty if only the class identifies it."""
    unplaced: tuple[NetRecord, ...]
    """Ports without a PCI device."""


def endpoints(
    inventory: PciInventory, driver_gpus: Mapping[str, GpuRecord], notes: list[str]
) -> Endpoints:
    """Select GPUs and NICs; adds to `notes` what was left out or assumed."""
    nets, unplaced = _nets(inventory, notes)
    return Endpoints(_gpus(inventory, driver_gpus, notes), nets, unplaced)


def _gpus(
    inventory: PciInventory, driver_gpus: Mapping[str, GpuRecord], notes: list[str]
) -> dict[str, GpuRecord | None]:
    """Return GPUs by address: those of the driver, else those of a GPU's class."""
    by_class = [function.address for function in inventory.functions if _is_gpu(function)]
    if driver_gpus:
        hidden = [address for address in by_class if address not in driver_gpus]
        if hidden:
            notes.append(
                f"GPUs that the driver does not show to this process were left out: "
                f"{shortened(hidden)}."
            )
        return {address: driver_gpus[address] for address in sorted(driver_gpus, key=address_key)}
    if by_class:
        notes.append("The links of the GPUs cannot be read without NVML: NVLinks are not known.")
        return dict.fromkeys(by_class)
    accelerators = [
        function.address for function in inventory.functions if _is_accelerator(function)
    ]
    if accelerators:
        notes.append(
            "Processing accelerators that are not GPUs of NVIDIA or AMD count as GPUs; links "
            f"between them beside PCIe are not known: {shortened(accelerators)}."
        )
    return {
        address: GpuRecord(dev=number, rank=None, compute_capability=0, links=())
        for number, address in enumerate(accelerators)
    }


def _is_gpu(function: PciFunction) -> bool:
    is_display = function.base_class == DISPLAY or function.kind == _ACCELERATOR
    is_board_chip = function.vendor == _AMD and function.device in _AMD_BOARD_CHIPS
    return is_display and function.vendor in _GPU_VENDORS and not is_board_chip


def _is_accelerator(function: PciFunction) -> bool:
    """Whether it may be a GPU; Intel's co-processors compress and encrypt (QuickAssist)."""
    return function.kind in {_COPROCESSOR, _ACCELERATOR} and function.vendor != _INTEL


def _nets(
    inventory: PciInventory, notes: list[str]
) -> tuple[dict[str, tuple[NetRecord, ...]], tuple[NetRecord, ...]]:
    """Return ports by address of their function, numbered by name, and ports without a function."""
    ports = _used_ports(inventory, notes)
    _note_virtual(inventory, ports, notes)
    nets: dict[str, tuple[NetRecord, ...]] = {}
    unplaced: list[NetRecord] = []
    ordered = sorted(ports, key=lambda port: (natural_key(port.name), port.rdma_port))
    for number, port in enumerate(ordered):
        mbps = None if port.speed_gbit_per_s is None else round(port.speed_gbit_per_s * 1000)
        net = NetRecord(port.name, number, mbps, is_port=True)
        function = _device_of(inventory, port)
        # NCCL 2.30 attaches a port whose own bus is not PCI (virtio, USB) to the first CPU.
        if function is None or (function.vendor == _VIRTIO_VENDOR and not port.rdma_device):
            unplaced.append(net)
        else:
            nets[function.address] = (*nets.get(function.address, ()), net)
    silent = _silent_controllers(inventory)
    for number, address in enumerate(silent, start=len(ordered)):
        unnamed = NetRecord(f"nic@{address}", number, None, is_port=True)
        # If the inventory has no ports, the class makes it a NIC of unknown speed.
        nets[address] = (unnamed,) if inventory.ports else ()
    if silent:
        notes.append(
            "Network controllers that show no port (no driver, or a snapshot without class/"
            f"infiniband) are taken as NICs of one port each: {shortened(silent)}."
        )
    return nets, tuple(unplaced)


def _device_of(inventory: PciInventory, port: NicPort) -> PciFunction | None:
    """Return the function that represents the NIC of a port.

    Ports of one RDMA NIC and its virtual functions are separate functions that share one link: the
    first function represents them all, as in NCCL 2.30 (ncclIbGetPciPath of src/transport/net_ib).
    """
    function = inventory.by_address.get(port.function or "")
    if function is None or not port.rdma_device:
        return function
    slot = slot_of(function.address)
    firsts = [f"{slot}.0"]
    if function.parent is not None:  # a link leads to one device, a root bus to many
        firsts.insert(0, f"{slot.rpartition(':')[0]}:00.0")
    found = (inventory.by_address.get(address) for address in firsts)
    return next((first for first in found if first and _is_same_nic(function, first)), function)


def _is_same_nic(function: PciFunction, first: PciFunction) -> bool:
    is_network = first.base_class == NETWORK
    return is_network and (first.vendor, first.parent) == (function.vendor, function.parent)


def _used_ports(inventory: PciInventory, notes: list[str]) -> list[NicPort]:
    """Return active ports; if RDMA devices have any, only those, as in NCCL."""
    active = [port for port in inventory.ports if port.active]
    down = [f"{_label(port)} ({port.state})" for port in inventory.ports if not port.active]
    if down:
        notes.append(f"Network ports that are not up were left out: {shortened(down)}.")
    rdma = [port for port in active if port.rdma_device]
    plain = [port.name for port in active if not port.rdma_device]
    if rdma and plain:
        notes.append(
            "Interfaces beside RDMA devices were left out, because NCCL uses RDMA where it can: "
            f"{shortened(plain)}."
        )
    return rdma or active


def _note_virtual(inventory: PciInventory, ports: list[NicPort], notes: list[str]) -> None:
    functions = inventory.by_address
    virtual = [
        port.name
        for port in ports
        if port.function in functions and functions[port.function].is_virtual
    ]
    if virtual:
        notes.append(
            "Virtual functions (SR-IOV) count as NICs, as in NCCL, though each shares the wire of "
            f"its card: {shortened(virtual)}; if jobs do not use them, switch them off and probe "
            "again."
        )


def _label(port: NicPort) -> str:
    return f"{port.name}:{port.rdma_port}" if port.rdma_port > 1 else port.name


def _silent_controllers(inventory: PciInventory) -> list[str]:
    """Return controllers without a port: InfiniBand's, or all if the host has no ports.

    On a host with ports, an Ethernet controller without a port is unused: off or passed through.
    """
    known = {port.function for port in inventory.ports}
    wanted = {_INFINIBAND} if inventory.ports else set(range(0x0200, 0x0300))
    return [
        function.address
        for function in inventory.functions
        if function.kind in wanted
        and function.vendor != _VIRTIO_VENDOR
        and function.address not in known
    ]
