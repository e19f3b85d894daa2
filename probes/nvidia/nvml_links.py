"""NVLinks and C2C of one GPU, in the form of NCCL's dump: `read_links`.

What NCCL asks and in which order: 2.30 src/graph/xml.cc, ncclTopoGetXmlFromGpu. Beyond it, links
that should be up and are not are kept count of, because NCCL passes over them in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probes.nccl_xml.records import GpuLinkRecord
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault, RemoteType
from probes.pci.address import is_address

HIDDEN = "fffffff:ff:ff.0"
"""How NCCL writes the address of an NVSwitch that the machine does not show."""
_SWITCH_CLASS = "068000"
_CPU_CLASS = "068001"
_GPU_CLASS = "030200"
_DOWN = ("", "")
_C2C_FROM = 90
"""Compute capability of the first GPU with C2C, Hopper beside Grace."""


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What leaves one GPU."""

    records: tuple[GpuLinkRecord, ...]
    down: tuple[int, ...] = ()
    """NVLinks that exist and are not up."""
    up: int = 0
    """NVLinks that are up and lead to something known."""
    unknown: tuple[str, ...] = ()
    """What could not be learnt, and why."""


def pci_address(nvml_address: str) -> str:
    """NVML's address as sysfs writes it: `0000:3b:00.0`; `HIDDEN` for one that is all ones.

    Raises:
        ValueError: it is no PCI address.
    """
    domain, _, place = nvml_address.strip().lower().partition(":")
    if domain in {"fffffff", "ffffffff"}:
        return HIDDEN
    address = f"{domain.lstrip('0').zfill(4)}:{place}"
    if not is_address(address):
        raise ValueError(f"{nvml_address!a:.40} is no PCI address")
    return address


def read_links(nvml: NvmlCalls, gpu: int, capability: int, classes: Mapping[str, str]) -> GpuLinks:
    """Ask for every link of a GPU.

    Args:
        nvml: the library, started.
        gpu: NVML's index.
        capability: compute capability times ten, which says how many NVLinks to ask for.
        classes: PCI class of devices by address, six hex digits; needed where NVML does not tell
            what an NVLink leads to.

    Raises:
        NvmlCallError: the GPU was lost on the way.
    """
    counts: dict[tuple[str, str], int] = {}
    down: list[int] = []
    unknown: dict[str, list[int]] = {}
    for link in range(_most_links(capability)):
        try:
            end = _end(nvml, gpu, link, classes)
        except ValueError as error:
            unknown.setdefault(str(error), []).append(link)
            continue
        if end == _DOWN:
            down.append(link)
        elif end is not None:
            counts[end] = counts.get(end, 0) + 1
    records = [
        GpuLinkRecord("nvlink", target, target_class, count, mb_per_s=0)
        for (target, target_class), count in counts.items()
    ]
    told = [f"NVLink {', '.join(map(str, links))}: {why}" for why, links in unknown.items()]
    if capability >= _C2C_FROM:
        try:
            records += _c2c(nvml, gpu)
        except ValueError as error:
            told.append(f"C2C links: {error}")
    return GpuLinks(tuple(records), tuple(down), sum(counts.values()), tuple(told))


def _most_links(capability: int) -> int:
    """As many as NCCL asks for: 4 from Pascal on, 6 from Volta, 12 from Ampere, 18 from Hopper."""
    steps = ((90, 18), (80, 12), (70, 6), (60, 4))
    return next((count for least, count in steps if capability >= least), 0)


def _end(
    nvml: NvmlCalls, gpu: int, link: int, classes: Mapping[str, str]
) -> tuple[str, str] | None:
    """Address and class of the other end, `_DOWN`, or None where there is no such link.

    Raises:
        ValueError: nothing says what it is.
    """
    try:
        if not nvml.link_carries_p2p(gpu, link):
            return None
    except NvmlCallError as error:
        if error.fault is NvmlFault.ABSENT:
            return None  # a GPU that has no such link does not know the question
        raise _untold(error) from error
    try:
        is_up = nvml.link_is_up(gpu, link)
    except NvmlCallError as error:
        raise _untold(error) from error
    return _remote(nvml, gpu, link, classes) if is_up else _DOWN


def _remote(nvml: NvmlCalls, gpu: int, link: int, classes: Mapping[str, str]) -> tuple[str, str]:
    """Address and class of the other end of a link that is up; errors as above."""
    try:
        kind = nvml.link_remote_type(gpu, link)
    except NvmlCallError as error:
        _untold(error)
        kind = RemoteType.UNKNOWN
    try:
        address = pci_address(nvml.link_remote_address(gpu, link))
    except NvmlCallError as error:
        untold = _untold(error)
        if kind is not RemoteType.SWITCH:
            raise untold from error
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
    """One record for all links that are up, with the bandwidth of the last, as NCCL has it."""
    try:
        links = nvml.c2c_links(gpu)
    except NvmlCallError as error:
        raise _untold(error) from error
    up = [mb_per_s for is_up, mb_per_s in links if is_up]
    return [GpuLinkRecord("c2c", "", "", len(up), up[-1])] if up else []


def _untold(error: NvmlCallError) -> ValueError:
    """The error for something that NVML does not tell; a lost GPU stays lost."""
    if error.fault is NvmlFault.LOST:
        raise error
    return ValueError(f"NVML does not tell ({error.words})")
