"""The GPUs and NICs of a machine's hosts, and what is close to what, as a bundle has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lookup_tables.bundle_layout import MOST_HOST_DEVICES, MOST_OF_A_HOST
from lookup_tables.bundles.host_devices import HostDevice, HostDeviceKind, HostDevices, short_of
from probes.topology.device_tree import Branch, host_trees
from probes.topology.graph import (
    NETWORK_NODE,
    Device,
    DeviceKind,
    LinkKind,
    Provenance,
    Topology,
)

_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_MBIT_PER_GB = 8000
_FIGURES: tuple[Callable[[HostDevice], int], ...] = (
    lambda device: device.nvlinks,
    lambda device: device.gpus_at_switch,
    lambda device: device.gpus_at_numa_node,
)
_MOST_MBIT_PER_S = 2**32 - 1


def hosts_of(machine: Topology) -> tuple[HostDevices, ...]:
    """Return the distinct kinds of hosts of a machine, by what sysfs shows of their devices.

    Devices without a PCI model, as virtual machines have them, are left out, and so is a host
    without any other; a machine of too many kinds has none. Ports of one card count as one NIC:
    they share its first PCI function.
    """
    devices: dict[tuple[int, int], list[Device]] = {}
    for device in machine.devices:
        if device.node != NETWORK_NODE and _MODEL.fullmatch(device.model):
            devices.setdefault((device.node, device.host_in_node), []).append(device)
    places = _Places(machine)
    kinds: dict[HostDevices, HostDevices] = {}
    for _, own in sorted(devices.items()):
        gpus = [device for device in own if device.kind is DeviceKind.GPU]
        found = tuple(sorted((*_gpus(machine, gpus, places), *_nics(own, gpus, places))))
        if found:
            # Names may differ where nothing else does; those of the first host stand for all.
            kinds.setdefault(tuple(sorted(replace(each, name="") for each in found)), found)
    if sum(map(len, kinds.values())) > MOST_HOST_DEVICES:
        return ()
    return tuple(sorted(kinds.values()))


def hosts_as_shown(
    hosts: Sequence[HostDevices], shown: HostDevices | None
) -> tuple[HostDevices, ...]:
    """Return the kinds of hosts as far as a host may be held against them.

    A file that describes a machine, as clouds have them for NCCL, may state a PCI tree that its
    hosts do not show. If the host that was measured has the NVLinks, switches and NUMA nodes of no
    kind, they are left out of all.

    Args:
        hosts: The kinds of hosts.
        shown: The host that was measured, as it shows itself; None: not known.
    """
    if shown is None or any(_has_places_of(kind, shown) for kind in hosts):
        return tuple(hosts)
    return tuple(sorted(dict.fromkeys(map(_without_places, hosts))))


def _has_places_of(kind: HostDevices, shown: HostDevices) -> bool:
    return not any(
        any(here := _figures(_of_model(shown, model), figure))
        and short_of([(figure(own), own.count) for own in _of_model(kind, model)], here)
        for model in kind
        for figure in _FIGURES
    )


def _of_model(host: HostDevices, model: HostDevice) -> list[HostDevice]:
    return [own for own in host if (own.kind, own.model) == (model.kind, model.model)]


def _figures(devices: Sequence[HostDevice], figure: Callable[[HostDevice], int]) -> list[int]:
    return [figure(device) for device in devices for _ in range(device.count)]


def _without_places(host: HostDevices) -> HostDevices:
    numbers = Counter[HostDevice]()
    for device in host:
        bare = replace(device, count=1, nvlinks=0, gpus_at_switch=0, gpus_at_numa_node=0)
        numbers[bare] += device.count
    return tuple(sorted(replace(device, count=count) for device, count in numbers.items()))


class _Places:
    """Where devices sit in the PCI trees of their hosts."""

    def __init__(self, machine: Topology) -> None:
        self._switches: dict[str, frozenset[str]] = {}
        self._cpu: dict[str, str] = {}
        for root in host_trees(machine).roots:
            is_cpu = root.device.kind is DeviceKind.CPU
            self._place(root, frozenset(), root.device.name if is_cpu else "")

    def _place(self, branch: Branch, switches: frozenset[str], cpu: str) -> None:
        name = branch.device.name
        self._switches[name], self._cpu[name] = switches, cpu
        if branch.device.kind is DeviceKind.PCIE_SWITCH:
            switches |= {name}
        for child in branch.children:
            self._place(child, switches, cpu)

    def close_gpus(self, own: Device, gpus: Sequence[Device]) -> tuple[int, int]:
        """Return how many further GPUs share a PCIe switch with a device, and how many its CPU.

        The latter is 0 in a host of one CPU: its NUMA nodes need not be known.
        """
        others = [gpu.name for gpu in gpus if gpu.name != own.name]
        switches, cpu = self._switches[own.name], self._cpu[own.name]
        at_switch = sum(not switches.isdisjoint(self._switches[other]) for other in others)
        of_cpu = sum(bool(cpu) and cpu == self._cpu[other] for other in others)
        has_cpus = len({self._cpu[gpu.name] for gpu in gpus}) > 1
        return min(at_switch, MOST_OF_A_HOST), min(of_cpu, MOST_OF_A_HOST) if has_cpus else 0


def _gpus(machine: Topology, gpus: Sequence[Device], places: _Places) -> list[HostDevice]:
    alike = Counter(
        HostDevice(
            HostDeviceKind.GPU,
            gpu.model,
            0,
            1,
            "",
            _nvlinks(machine, gpu),
            *places.close_gpus(gpu, gpus),
        )
        for gpu in gpus
    )
    return [replace(gpu, count=count) for gpu, count in alike.items()]


def _nvlinks(machine: Topology, gpu: Device) -> int:
    links = (link.lanes for link in machine.links_from[gpu.name] if link.kind is LinkKind.NVLINK)
    return min(sum(links), MOST_OF_A_HOST)


def _nics(devices: Iterable[Device], gpus: Sequence[Device], places: _Places) -> list[HostDevice]:
    cards: dict[tuple[str, str], list[Device]] = {}
    for device in devices:
        if device.kind is DeviceKind.NIC and device.bus_id:
            cards.setdefault((device.model, device.bus_id), []).append(device)
    return [
        HostDevice(
            HostDeviceKind.NIC,
            model,
            max(map(_mbit_per_s, ports)),
            1,
            ports[0].os_name,
            0,
            *places.close_gpus(ports[0], gpus),
        )
        for (model, _), ports in cards.items()
    ]


def _mbit_per_s(port: Device) -> int:
    """Return the line rate that the system states for a port; 0 if it states none."""
    if port.line_rate_provenance is not Provenance.SYSFS:
        return 0
    return min(round(port.line_rate_gb_per_s * _MBIT_PER_GB), _MOST_MBIT_PER_S)
