"""The GPUs and NICs that this host shows, against a table's hosts: the plugin's rules again.

`tuccl/runtime/machine.c` has them for jobs, docs/reference/runtime.md in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.host_devices import HostDevice, HostDeviceKind, HostDevices

_NETWORK, _DISPLAY, _ACCELERATOR, _VGA = 0x02, 0x03, 0x12, 0x0300
_GPU_VENDORS = frozenset({0x10DE, 0x1002})
_MOST_NAME_BYTES = 63
_MBIT_PER_GBIT = 1000


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU in PCI sysfs."""

    model: str
    is_vga: bool


@dataclass(frozen=True, slots=True)
class SeenNic:
    """A network function in PCI sysfs."""

    model: str
    mbit_per_s: int
    """Rate of its fastest port that is up; 0 if it is not known."""
    name: str


def see_devices(sysfs: Path) -> tuple[list[SeenGpu], list[SeenNic]]:
    """Return the GPUs and NICs in PCI sysfs, none where it cannot be read."""
    gpus, nics = [], []
    for function in _entries(sysfs / "bus" / "pci" / "devices"):
        kind, vendor, device = (_number(function / name) for name in ("class", "vendor", "device"))
        model = f"{vendor:04x}:{device:04x}"
        if device < 0:
            continue
        if kind >> 16 in {_DISPLAY, _ACCELERATOR} and vendor in _GPU_VENDORS:
            gpus.append(SeenGpu(model, kind >> 8 == _VGA))
        elif kind >> 16 == _NETWORK:
            nics.append(_nic(model, function))
    return gpus, nics


def difference(
    hosts: Sequence[HostDevices],
    gpus: Sequence[SeenGpu],
    nics: Sequence[SeenNic],
    *,
    across_hosts: bool,
) -> str:
    """Return what a host lacks of the table's host that it is most like; empty if nothing."""
    found = [list(_differences(host, gpus, nics if across_hosts else None)) for host in hosts]
    least = min(found, key=lambda each: sum(count for count, _ in each), default=[])
    return least[0][1] if least else ""


def _differences(
    host: HostDevices, gpus: Sequence[SeenGpu], nics: Sequence[SeenNic] | None
) -> Iterator[tuple[int, str]]:
    """Yield number and text of what is missing, model by model; NICs None: not compared."""
    for kind, model in dict.fromkeys((device.kind, device.model) for device in host):
        own = [device for device in host if (device.kind, device.model) == (kind, model)]
        wanted = sum(device.count for device in own)
        if kind is HostDeviceKind.GPU:
            here = sum(gpu.model == model for gpu in gpus)
            if here < wanted:
                yield wanted - here, f"{here} GPUs {model} here, {wanted} on its hosts"
        elif nics is not None:
            seen = [nic for nic in nics if nic.model == model]
            if len(seen) < wanted:
                names = {nic.name for nic in seen}
                text = f"{len(seen)} NICs {model} here, {wanted} on its hosts"
                yield wanted - len(seen), text + _missing_name(own, names)
            else:
                yield from _other_rates(own, seen)


def _missing_name(own: Sequence[HostDevice], names: set[str]) -> str:
    lost = (each.name for each in own if each.name and each.name not in names)
    fitting = (name for name in lost if len(name.encode()) <= _MOST_NAME_BYTES)
    name = next(fitting, "")
    return f": {name} is missing" if name else ""


def _other_rates(own: Sequence[HostDevice], seen: Sequence[SeenNic]) -> Iterator[tuple[int, str]]:
    """Yield how many NICs run at none of the rates, where even unknown ones cannot make up."""
    wanted = Counter[int]()
    for device in own:
        wanted[device.mbit_per_s] += device.count
    here = Counter(nic.mbit_per_s for nic in seen)
    lacking = {rate: n - here[rate] for rate, n in wanted.items() if rate and n > here[rate]}
    missing = sum(lacking.values()) - here[0]
    if missing > 0:
        rate = next(iter(lacking))
        yield (
            missing,
            (
                f"{here[rate]} NICs {own[0].model} at {rate / _MBIT_PER_GBIT:g} Gb/s here, "
                f"{wanted[rate]} on its hosts"
            ),
        )


def _nic(model: str, function: Path) -> SeenNic:
    """Return a NIC with the ports of its RDMA devices, else with its interfaces."""
    rdma = function / "infiniband"
    ports = []
    if rdma.is_dir():
        for device in _entries(rdma):
            ports.append((0, device.name))
            ports += [
                (_rdma_mbit_per_s(_line(port / "rate")), device.name)
                for port in _entries(device / "ports")
                if _line(port / "state") == "4: ACTIVE"
            ]
    else:
        for interface in _entries(function / "net"):
            up = _line(interface / "operstate") == "up"
            speed = _line(interface / "speed") if up else ""
            ports.append((int(speed) if speed.isdecimal() else 0, interface.name))
    rate = max((rate for rate, _ in ports), default=0)
    return SeenNic(model, rate, next((name for own, name in ports if own == rate), ""))


def _rdma_mbit_per_s(text: str) -> int:
    whole, _, fraction = text.partition(" ")[0].partition(".")
    if not whole.isdecimal():
        return 0
    return _MBIT_PER_GBIT * int(whole) + 100 * int(fraction[:1] or 0)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def _line(path: Path) -> str:
    try:
        return path.read_text().split("\n", 1)[0]
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> int:
    try:
        return int(_line(path), 16)
    except ValueError:
        return -1
