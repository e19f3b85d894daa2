"""The GPUs and NICs of a machine's hosts as a bundle names them: `hosts_of`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from lookup_tables.bundle_layout import MOST_HOST_DEVICES
from lookup_tables.bundles.host_devices import HostDevice, HostDeviceKind, HostDevices
from probes.topology.graph import NETWORK_NODE, Device, DeviceKind, Provenance, Topology

_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_MBIT_PER_GB = 8000
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
    kinds: dict[tuple[object, ...], HostDevices] = {}
    for _, own in sorted(devices.items()):
        found = tuple(sorted((*_gpus(own), *_nics(own))))
        if found:
            # Names may differ where nothing else does; those of the first host stand for all.
            kinds.setdefault(tuple((d.model, d.mbit_per_s, d.count) for d in found), found)
    if sum(map(len, kinds.values())) > MOST_HOST_DEVICES:
        return ()
    return tuple(sorted(kinds.values()))


def _gpus(devices: Iterable[Device]) -> list[HostDevice]:
    models = Counter(device.model for device in devices if device.kind is DeviceKind.GPU)
    return [HostDevice(HostDeviceKind.GPU, model, count=count) for model, count in models.items()]


def _nics(devices: Iterable[Device]) -> list[HostDevice]:
    cards: dict[tuple[str, str], list[Device]] = {}
    for device in devices:
        if device.kind is DeviceKind.NIC and device.bus_id:
            cards.setdefault((device.model, device.bus_id), []).append(device)
    return [
        HostDevice(HostDeviceKind.NIC, model, max(map(_mbit_per_s, ports)), name=ports[0].os_name)
        for (model, _), ports in cards.items()
    ]


def _mbit_per_s(port: Device) -> int:
    """Return the line rate that the system states for a port; 0 if it states none."""
    if port.line_rate_provenance is not Provenance.SYSFS:
        return 0
    return min(round(port.line_rate_gb_per_s * _MBIT_PER_GB), _MOST_MBIT_PER_S)
