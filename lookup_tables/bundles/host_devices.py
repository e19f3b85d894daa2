"""`BundleFacts`: what a bundle says of the hosts and variables that its table was measured with.

The plugin compares it with a job's host and environment; docs/reference/runtime.md has the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Any

from lookup_tables import bundle_layout as layout


class HostDeviceKind(IntEnum):
    """Kinds of devices that a host shows without a measurement."""

    GPU = 0
    NIC = 1


@dataclass(frozen=True, slots=True, order=True)
class HostDevice:
    """GPUs of a model on one host, or one of its NICs, whatever the number of its ports."""

    kind: HostDeviceKind
    model: str
    """PCI `vendor:device`, four hexadecimal digits each."""
    mbit_per_s: int = 0
    """NICs: line rate of the fastest port that is up; 0 if it is not known."""
    count: int = 1
    name: str = ""
    """NICs: name of a port, for people."""
    nvlinks: int = 0
    """GPUs: NVLinks that are up; 0 if they are not known."""
    gpus_at_switch: int = 0
    """Further GPUs of the host below the PCIe switches above it; 0 if that is not known."""
    gpus_at_numa_node: int = 0
    """Further GPUs of its NUMA node; 0 if that is not known."""


HostDevices = tuple[HostDevice, ...]
"""Devices of one kind of host, sorted."""


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """Facts about the machine and the environment; none are known by default."""

    hosts: tuple[HostDevices, ...] = ()
    """The distinct kinds of hosts, sorted; empty: not known."""
    variables: Mapping[str, str] | None = None
    """NCCL's variables that every process had; None: not known."""


NO_FACTS = BundleFacts()


@dataclass(frozen=True, slots=True)
class Shortage:
    """Fewer devices than wanted that have as much of something."""

    least: int
    """As much as that."""
    here: int
    wanted: int

    @property
    def missing(self) -> int:
        """The number of devices that lack some."""
        return self.wanted - self.here


def short_of(
    wanted: Sequence[tuple[int, int]], here: Collection[int], unknown: int = 0
) -> Shortage | None:
    """Return the value that most devices here do not reach; None if each of the table's is here.

    Args:
        wanted: What devices of the table have, 0 if that is not known, and their number.
        here: What each device here has.
        unknown: Number of further devices here, which may have any.
    """
    shortages = (
        Shortage(
            least,
            unknown + sum(own >= least for own in here),
            sum(count for own, count in wanted if own >= least),
        )
        for least, _ in wanted
        if least
    )
    found = max(shortages, key=lambda each: each.missing, default=None)
    return found if found is not None and found.missing > 0 else None


def host_device_record(host: int, device: HostDevice, name: tuple[int, int]) -> bytes:
    """Return a record of HOST_DEVICES; `name` is its place in the section TEXT."""
    vendor, model = (int(number, 16) for number in device.model.split(":"))
    figures = (vendor, model, device.count, device.mbit_per_s)
    close = (device.nvlinks, device.gpus_at_switch, device.gpus_at_numa_node)
    return layout.HOST_DEVICE.pack(host, device.kind, *figures, *name, *close, 0)


def hosts_of_records(
    records: Iterable[tuple[tuple[Any, ...], str]],
) -> tuple[HostDevices, ...]:
    """Return the kinds of hosts of the records, each given with its name.

    Raises:
        ValueError: A record is invalid, or the kinds are not numbered from 0 in order.
    """
    numbered = list(_numbered(records))
    if len(numbered) > layout.MOST_HOST_DEVICES:
        raise ValueError(f"{len(numbered)} devices of hosts")
    hosts = [
        (number, tuple(device for _, device in group))
        for number, group in groupby(numbered, key=lambda each: each[0])
    ]
    if [number for number, _ in hosts] != list(range(len(hosts))):
        raise ValueError("kinds of hosts are not numbered in order")
    return tuple(devices for _, devices in hosts)


def _numbered(
    records: Iterable[tuple[tuple[Any, ...], str]],
) -> Iterator[tuple[int, HostDevice]]:
    for (host, kind, vendor, device, count, mbit_per_s, _, _, *figures, zero), name in records:
        if count == 0 or zero != 0:
            raise ValueError(f"{count} devices of a host")
        model = f"{vendor:04x}:{device:04x}"
        yield host, HostDevice(HostDeviceKind(kind), model, mbit_per_s, count, name, *figures)
