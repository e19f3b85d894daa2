"""NVLinks and C2C of one GPU, in the form of NCCL's dump: `read_links`.

The queries and their order are those of NCCL 2.30 src/graph/xml.cc, ncclTopoGetXmlFromGpu. Links
that are down are counted as well, because NCCL ignores them silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probes.nccl_xml.records import GpuLinkRecord
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault, RemoteType
from probes.pci.address import is_address

HIDDEN = "fffffff:ff:ff.0"
"""NCCL's address of an NVSwitch that the machine hides."""
_SWITCH_CLASS = "068000"
_CPU_CLASS = "068001"
_GPU_CLASS = "030200"
_DOWN = ("", "")
_C2C_FROM = 90
"""Compute capability times ten of the first GPU with C2C, Hopper beside Grace."""


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one GPU."""

    records: tuple[GpuLinkRecord, ...]
    down: tuple[int, ...] = ()
    """Indices of NVLinks that exist and are down."""
    up: int = 0
    """Number of NVLinks that are up and lead to a known device."""
    unknown: tuple[str, ...] = ()
    """Links that could not be read, with the reasons."""


def pci_address(nvml_address: str) -> str:
    """Convert NVML's address to sysfs's form, `0000:3b:00.0`; all ones give `HIDDEN`.

    Raises:
        ValueError: the text is not a PCI address.
    """
    domain, _, rest = nvml_address.strip().lower().partition(":")
    if domain in {"fffffff", "ffffffff"}:
        return HIDDEN
    address = f"{domain.lstrip('0').zfill(4)}:{rest}"
    if not is_address(address):
        raise ValueError(f"{nvml_address!a:.40} is not a PCI address")
    return address


def read_links(nvml: NvmlCalls, gpu: int, capability: int, classes: Mapping[str, str]) -> GpuLinks:
    """Read every link of the GPU with NVML's index `gpu`.

    Its compute capability times ten determines the number of NVLinks. The PCI classes by address
    (six hex digits) are used if NVML does not report the type of the remote device.

    Raises:
        NvmlCallError: the GPU was lost meanwhile.
    """
    counts: dict[tuple[str, str], int] = {}
    down: list[int] = []
    unknown: dict[str, list[int]] = {}
    for link in range(_max_links(capability)):
        try:
            remote = _remote_end(nvml, gpu, link, classes)
        except ValueError as error:
            unknown.setdefault(str(error), []).append(link)
            continue
        if remote == _DOWN:
            down.append(link)
        elif remote is not None:
            counts[remote] = counts.get(remote, 0) + 1
    records = [
        GpuLinkRecord("nvlink", target, target_class, count, mb_per_s=0)
        for (target, target_class), count in counts.items()
    ]
    gaps = [f"NVLink {', '.join(map(str, links))}: {reason}" for reason, links in unknown.items()]
    if capability >= _C2C_FROM:
        try:
            records += _c2c(nvml, gpu)
        except ValueError as error:
            gaps.append(f"C2C links: {error}")
    return GpuLinks(tuple(records), tuple(down), sum(counts.values()), tuple(gaps))


def _max_links(capability: int) -> int:
    """Number of NVLinks that NCCL queries: Pascal 4, Volta 6, Ampere 12, Hopper and later 18."""
    steps = ((90, 18), (80, 12), (70, 6), (60, 4))
    return next((count for least, count in steps if capability >= least), 0)


def _remote_end(
    nvml: NvmlCalls, gpu: int, link: int, classes: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return address and class of the remote device, `_DOWN`, or None if there is no such link.

    Raises:
        ValueError: the remote device is unknown.
    """
    try:
        if not nvml.link_carries_p2p(gpu, link):
            return None
    except NvmlCallError as error:
        if error.fault is NvmlFault.ABSENT:
            return None  # the GPU has no such link
        raise _unknown(error) from error
    try:
        is_up = nvml.link_is_up(gpu, link)
    except NvmlCallError as error:
        raise _unknown(error) from error
    return _remote_of_link(nvml, gpu, link, classes) if is_up else _DOWN


def _remote_of_link(
    nvml: NvmlCalls, gpu: int, link: int, classes: Mapping[str, str]
) -> tuple[str, str]:
    """Return address and class of the remote device of a link that is up; errors as above."""
    try:
        kind = nvml.link_remote_type(gpu, link)
    except NvmlCallError as error:
        _unknown(error)
        kind = RemoteType.UNKNOWN
    try:
        address = pci_address(nvml.link_remote_address(gpu, link))
    except NvmlCallError as error:
        unknown = _unknown(error)
        if kind is not RemoteType.SWITCH:
            raise unknown from error
        address = HIDDEN
    if kind is RemoteType.SWITCH or (kind is RemoteType.UNKNOWN and address == HIDDEN):
        return address, _SWITCH_CLASS
    if kind is RemoteType.CPU:
        return address, _CPU_CLASS
    if kind is RemoteType.GPU and address != HIDDEN:
        return address, classes.get(address) or _GPU_CLASS
    if address not in classes:
        raise ValueError(f"it leads to {address}, and neither NVML nor sysfs says what that is")
    return address, classes[address]


def _c2c(nvml: NvmlCalls, gpu: int) -> list[GpuLinkRecord]:
    """Return one record for all links that are up, with the bandwidth of the last, as NCCL does."""
    try:
        links = nvml.c2c_links(gpu)
    except NvmlCallError as error:
        raise _unknown(error) from error
    up = [mb_per_s for is_up, mb_per_s in links if is_up]
    return [GpuLinkRecord("c2c", "", "", len(up), up[-1])] if up else []


def _unknown(error: NvmlCallError) -> ValueError:
    """Return the error for a value that NVML does not provide; raise it if the GPU is lost."""
    if error.fault is NvmlFault.LOST:
        raise error
    return ValueError(f"NVML reports nothing ({error.words})")
