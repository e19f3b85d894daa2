"""The GPUs and NICs that this host shows, against a table's hosts: the plugin's rules again.

`tuccl/runtime/machine.c` has them for jobs, docs/reference/runtime.md in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lookup_tables.bundles.host_devices import (
    HostDevice,
    HostDeviceKind,
    HostDevices,
    short_of,
)
from probes.pci.address import is_address, is_root

_NETWORK, _DISPLAY, _ACCELERATOR = 0x02, 0x03, 0x12
_INFINIBAND, _VGA = 0x0C06, 0x0300
_GPU_VENDORS = frozenset({0x10DE, 0x1002})
_MOST_NAME_BYTES = 63
_MBIT_PER_GBIT = 1000


@dataclass(frozen=True, slots=True)
class SeenPlace:
    """Where a function sits."""

    address: str
    switches: frozenset[str] = frozenset()
    """Addresses of the PCIe switches above it; none as well if they are not known."""
    numa_node: int | None = None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU in PCI sysfs."""

    model: str
    is_vga: bool
    place: SeenPlace


@dataclass(frozen=True, slots=True)
class SeenNic:
    """A network function in PCI sysfs."""

    model: str
    mbit_per_s: int
    """Rate of its fastest port that is up; 0 if it is not known."""
    name: str
    place: SeenPlace


_Closeness = tuple[str, Callable[[HostDevice], int], Mapping[str, int]]
"""Where GPUs are close, how many the table's device has there, and how many have those here."""


def sysfs_of(environment: Mapping[str, str]) -> Path:
    """Return /sys, or what TUCCL_SYSFS names in its place."""
    return Path(environment.get("TUCCL_SYSFS") or "/sys")


def see_devices(sysfs: Path) -> tuple[list[SeenGpu], list[SeenNic]]:
    """Return the GPUs and NICs in PCI sysfs, none where it cannot be read."""
    gpus, nics = [], []
    for function in _entries(sysfs / "bus" / "pci" / "devices"):
        kind, vendor, device = (_number(function / name) for name in ("class", "vendor", "device"))
        model = f"{vendor:04x}:{device:04x}"
        if device < 0:
            continue
        if kind >> 16 in {_DISPLAY, _ACCELERATOR} and vendor in _GPU_VENDORS:
            gpus.append(SeenGpu(model, kind >> 8 == _VGA, _place(function)))
        elif kind >> 16 == _NETWORK or kind >> 8 == _INFINIBAND:
            nics.append(_nic(model, function))
    return gpus, nics


def strange_gpu(gpus: Sequence[SeenGpu], gpu_models: Collection[str]) -> str:
    """Return the model of a GPU that shows a host to be of another machine; empty if none does.

    The rules are those of the plugin (`tuccl_machine_matches`); without models nothing is compared.
    """
    if not gpu_models or any(gpu.model in gpu_models for gpu in gpus):
        return ""
    vendors = {model.split(":")[0] for model in gpu_models}
    known = [gpu for gpu in gpus if gpu.model.split(":")[0] in vendors]
    others = [gpu for gpu in gpus if gpu not in known and not gpu.is_vga]
    return next((gpu.model for gpu in sorted(known, key=lambda gpu: gpu.is_vga) + others), "")


def pci_classes(sysfs: Path) -> dict[str, str]:
    """Return the classes of all functions in PCI sysfs by address, as `read_nvml` takes them."""
    functions = _entries(sysfs / "bus" / "pci" / "devices")
    return {each.name: _line(each / "class").removeprefix("0x") for each in functions}


def lacking_nvlinks(
    hosts: Sequence[HostDevices], gpus: Sequence[SeenGpu], nvlinks: Mapping[str, int]
) -> str | None:
    """Return which NVLinks a host lacks of the table's host that it is most like.

    Args:
        hosts: The kinds of hosts of the table.
        gpus: GPUs here.
        nvlinks: NVLinks that are up, by the address of a GPU; GPUs without may have any number.

    Returns:
        The sentence, empty if none are lacking; None if that is not known.
    """
    found = [list(_lacking_nvlinks(host, gpus, nvlinks)) for host in hosts]
    if not nvlinks or not any(device.nvlinks for host in hosts for device in host):
        return None
    least = min(found, key=lambda each: sum(count for count, _ in each))
    return least[0][1] if least else ""


def _lacking_nvlinks(
    host: HostDevices, gpus: Sequence[SeenGpu], nvlinks: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    for model in dict.fromkeys(device.model for device in host if device.nvlinks):
        own = [(device.nvlinks, device.count) for device in host if device.model == model]
        here = [gpu.place.address for gpu in gpus if gpu.model == model]
        known = {address: nvlinks[address] for address in here if address in nvlinks}
        others = max(len(here), sum(count for _, count in own)) - len(known)
        short = short_of(own, known.values(), others)
        if short is not None:
            least = min(known, key=lambda address: (known[address], address))
            yield (
                short.missing,
                (
                    f"{short.here} GPUs {model} with {short.least} or more NVLinks here, "
                    f"{short.wanted} on its hosts: {least} has {known[least]}"
                ),
            )


def difference(
    hosts: Sequence[HostDevices],
    gpus: Sequence[SeenGpu],
    nics: Sequence[SeenNic],
    *,
    across_hosts: bool,
) -> str:
    """Return what a host lacks of the table's host that it is most like; empty if nothing."""
    known = {(device.kind, device.model) for host in hosts for device in host}
    gpus = [gpu for gpu in gpus if (HostDeviceKind.GPU, gpu.model) in known]
    nics = [nic for nic in nics if across_hosts and (HostDeviceKind.NIC, nic.model) in known]
    close = _close_gpus(gpus, nics)
    found = [
        list(_differences(host, gpus, nics if across_hosts else None, close)) for host in hosts
    ]
    least = min(found, key=lambda each: sum(count for count, _ in each), default=[])
    return least[0][1] if least else ""


def _differences(
    host: HostDevices,
    gpus: Sequence[SeenGpu],
    nics: Sequence[SeenNic] | None,
    close: Sequence[_Closeness],
) -> Iterator[tuple[int, str]]:
    """Yield number and text of what is missing, model by model; NICs None: not compared."""
    for kind, model in dict.fromkeys((device.kind, device.model) for device in host):
        own = [device for device in host if (device.kind, device.model) == (kind, model)]
        wanted = sum(device.count for device in own)
        if kind is HostDeviceKind.GPU:
            found = [gpu for gpu in gpus if gpu.model == model]
            if len(found) < wanted:
                yield wanted - len(found), f"{len(found)} GPUs {model} here, {wanted} on its hosts"
            else:
                yield from _too_far("GPUs", own, {gpu.place.address: "" for gpu in found}, close)
        elif nics is not None:
            seen = [nic for nic in nics if nic.model == model]
            if len(seen) < wanted:
                text = f"{len(seen)} NICs {model} here, {wanted} on its hosts"
                yield wanted - len(seen), text + _missing_name(own, {nic.name for nic in seen})
            else:
                names = {nic.place.address: nic.name for nic in seen}
                yield from list(_other_rates(own, seen)) or _too_far("NICs", own, names, close)


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


def _close_gpus(gpus: Sequence[SeenGpu], nics: Sequence[SeenNic]) -> list[_Closeness]:
    """Return by the address of each device how many further GPUs are close to it."""
    places = [gpu.place for gpu in gpus] + [nic.place for nic in nics]
    has_numa_nodes = all(place.numa_node is not None for place in places)

    def counts(is_close: Callable[[SeenPlace, SeenPlace], bool]) -> dict[str, int]:
        return {
            own.address: sum(
                gpu.place.address != own.address and is_close(own, gpu.place) for gpu in gpus
            )
            for own in places
        }

    at_switch = counts(lambda one, other: not one.switches.isdisjoint(other.switches))
    at_numa_node = counts(lambda one, other: has_numa_nodes and one.numa_node == other.numa_node)
    return [
        ("below their PCIe switches", lambda device: device.gpus_at_switch, at_switch),
        ("of their NUMA node", lambda device: device.gpus_at_numa_node, at_numa_node),
    ]


def _too_far(
    kind: str, own: Sequence[HostDevice], here: Mapping[str, str], close: Sequence[_Closeness]
) -> Iterator[tuple[int, str]]:
    """Yield how many devices have fewer GPUs close to them than the table's, where any has some.

    Args:
        kind: What they are.
        own: The table's devices of a model.
        here: Names of those here, by address.
        close: GPUs that are close.
    """
    for where, wanted_of, counted in close:
        found = {address: counted[address] for address in here}
        short = short_of([(wanted_of(device), device.count) for device in own], found.values())
        if short is None or not any(found.values()):
            continue
        lonely = min(found, key=lambda address: (found[address], address))
        yield (
            short.missing,
            (
                f"{short.here} {kind} {own[0].model} with {short.least} or more GPUs {where} here, "
                f"{short.wanted} on its hosts: {here[lonely] or lonely} has {found[lonely]}"
            ),
        )
        return


def _place(function: Path) -> SeenPlace:
    """Return the place of a function: every second bridge above it is the port of a switch."""
    numa_node = _line(function / "numa_node")
    try:
        path = str(function.readlink()).split("/")
    except OSError:
        path = []
    roots = [at for at, name in enumerate(path) if is_root(name)]
    below = path[roots[-1] + 1 :] if roots else []
    above = below[-3::-2] if all(map(is_address, below)) else []
    return SeenPlace(
        function.name, frozenset(above), int(numa_node) if numa_node.isdecimal() else None
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
    name = next((name for own, name in ports if own == rate), "")
    return SeenNic(model, rate, name, _place(function))


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
