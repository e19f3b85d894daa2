"""NVLinks and C2C of one GPU, in the form of NCCL's dump: `read_links`.

What NCCL asks and in which order: 2.30 src/graph/xml.cc, ncclTopoGetXmlFromGpu. Beyond it, links
that should be up and are not are kept count of, because NCCL passes over them in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probes.nccl_xml_records import GpuLinkRecord
from probes.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault, RemoteType
from probes.pci.address import is_address

HIDDEN = "fffffff:ff:ff.0"
"""How NCCL writes the address of an NVSwitch that the machine does not show."""
_SWITCH_CLASS = "068000"
_CPU_CLASS = "068001"
_GPU_CLASS = "030200"


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What leaves one GPU."""

    records: tuple[GpuLinkRecord, ...]
    down: tuple[int, ...] = ()
    """NVLinks that exist and are not up."""
    up: int = 0
    """NVLinks that are up, those of an unknown end too."""
    unknown: tuple[str, ...] = ()
    """NVLinks whose other end could not be learnt, and why."""


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
    down, unknown = [], []
    up = 0
    for link in range(_most_links(capability)):
        if not _or_absent(nvml, gpu, link):
            continue
        if not nvml.link_is_up(gpu, link):
            down.append(link)
            continue
        up += 1
        try:
            target = _remote(nvml, gpu, link, classes)
        except ValueError as error:
            unknown.append(f"NVLink {link}: {error}")
            continue
        counts[target] = counts.get(target, 0) + 1
    records = [
        GpuLinkRecord("nvlink", target, target_class, count, mb_per_s=0)
        for (target, target_class), count in counts.items()
    ]
    if capability >= 90:
        records += _c2c(nvml, gpu)
    return GpuLinks(tuple(records), tuple(down), up, tuple(unknown))


def _most_links(capability: int) -> int:
    """As many as NCCL asks for: 4 from Pascal on, 6 from Volta, 12 from Ampere, 18 from Hopper."""
    steps = ((90, 18), (80, 12), (70, 6), (60, 4))
    return next((count for least, count in steps if capability >= least), 0)


def _or_absent(nvml: NvmlCalls, gpu: int, link: int) -> bool:
    """Whether the link is there: a GPU without it does not know the question."""
    try:
        return nvml.link_carries_p2p(gpu, link)
    except NvmlCallError as error:
        if error.fault is NvmlFault.ABSENT:
            return False
        raise


def _remote(nvml: NvmlCalls, gpu: int, link: int, classes: Mapping[str, str]) -> tuple[str, str]:
    """Address and class of the other end.

    Raises:
        ValueError: nothing says what it is.
    """
    try:
        kind = nvml.link_remote_type(gpu, link)
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        kind = RemoteType.UNKNOWN
    try:
        address = pci_address(nvml.link_remote_address(gpu, link))
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        if kind is not RemoteType.SWITCH:
            raise ValueError(f"NVML does not say where it leads ({error.words})") from error
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
    up = [mb_per_s for is_up, mb_per_s in nvml.c2c_links(gpu) if is_up]
    return [GpuLinkRecord("c2c", "", "", len(up), up[-1])] if up else []
