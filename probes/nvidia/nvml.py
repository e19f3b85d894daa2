"""The GPUs of this host from NVIDIA's management library: `read_nvml`.

A value that NVML lacks stays unknown, a GPU that does not answer becomes a gap, and a host without
NVML gives no GPUs and a gap with the remedy. Only MIG is refused: TuCCL tunes for NCCL jobs on
whole GPUs.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from probes.nccl_xml.records import GpuRecord
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault
from probes.nvidia.nvml_links import HIDDEN, GpuLinks, pci_address, read_links
from probes.pci.address import address_key
from probes.pci.inventory import Gap, PcieLink
from probes.topology.bandwidth_class import PCIE_GT_PER_S
from tuccl.errors import MachineError

VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(value: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the GPUs that CUDA shows, in CUDA's order.

    `value` is CUDA_VISIBLE_DEVICES; if it is None, all are visible. `uuids` has all GPUs in CUDA's
    own order, empty if unknown. Entries are all numbers or all UUID prefixes. The first entry that
    names no GPU ends the list, and a repeated entry empties it, as in the CUDA programming guide
    and PyTorch 2.6 (torch/cuda/__init__.py).
    """
    if value is None:
        return tuple(range(len(uuids)))
    entries = [entry.strip() for entry in value.split(",")]
    by_uuid = entries[0].startswith("GPU-")
    indices: list[int] = []
    for entry in entries:
        index = _by_uuid(entry, uuids) if by_uuid else _by_number(entry, len(uuids))
        if index is None:
            break
        if index in indices:
            return ()
        indices.append(index)
    return tuple(indices)


def _by_number(entry: str, count: int) -> int | None:
    """Index of the GPU with this number, which may have text behind, as for C's strtoul."""
    number = re.match(r"\+?(\d{1,9})", entry, re.ASCII)
    return int(number[1]) if number and int(number[1]) < count else None


def _by_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    """Index of the only GPU whose UUID has this prefix; None for none or several."""
    found = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if entry.startswith("GPU-") and len(found) == 1 else None


_BY_DESIGN = (
    "right for parts sold with fewer NVLinks or without bridges; else see whether "
    "nvidia-fabricmanager runs"
)
_MAX_PAIRS = 8
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """NVML's data of one GPU."""

    index: int
    """NVML's index, as `nvidia-smi -i` takes it."""
    address: str
    """PCI address in sysfs's form: `0000:3b:00.0`."""
    name: str
    uuid: str
    memory_bytes: int
    """Size of the memory; 0 when unknown."""
    pcie: PcieLink
    """The maximum of this GPU in this machine; zeros if unknown."""
    record: GpuRecord
    """Record of NCCL's dump; `dev` is CUDA's number, None when CUDA may not see the GPU."""
    domain: str = ""
    """Name of the NVLink domain over hosts that it has joined; empty: of none."""


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """NVML's data of this host."""

    available: bool
    driver: str = ""
    """Version of the driver, such as `580.159.04`."""
    gpus: tuple[NvmlGpu, ...] = ()
    """GPUs that CUDA may see by CUDA's number, then the other GPUs by address."""
    gaps: tuple[Gap, ...] = ()

    @property
    def records(self) -> dict[str, GpuRecord]:
        """GPUs that CUDA may see, by address, in CUDA's order."""
        return {gpu.address: gpu.record for gpu in self.gpus if gpu.record.dev is not None}

    @property
    def domain(self) -> str:
        """Name of the NVLink domain over hosts of all GPUs that CUDA may see; empty: of none."""
        domains = {gpu.domain for gpu in self.gpus if gpu.record.dev is not None}
        return domains.pop() if len(domains) == 1 else ""


def read_nvml(
    nvml: NvmlCalls | None = None,
    environment: Mapping[str, str] = os.environ,
    classes: Mapping[str, str] | None = None,
) -> NvmlFacts:
    """Read all GPUs from NVML, by default NVIDIA's own binding; it takes a few ms per GPU.

    `classes` has the PCI class of devices by address (six hex digits), from sysfs.

    Raises:
        MachineError: a GPU that CUDA may see is partitioned into MIG instances, or will be.
    """
    calls = NvmlCalls() if nvml is None else nvml
    try:
        calls.start()
    except NvmlCallError as error:
        return NvmlFacts(available=False, gaps=(_no_nvml(error),))
    try:
        return _read(calls, environment, classes or {})
    except NvmlCallError as error:
        return NvmlFacts(available=False, gaps=(_no_nvml(error),))
    finally:
        with suppress(NvmlCallError):
            calls.stop()


@dataclass(frozen=True, slots=True)
class _ReadGpu:
    """A GPU without CUDA's number, with its links and MIG modes."""

    gpu: NvmlGpu
    links: GpuLinks
    mig: tuple[bool, bool]


def _read(nvml: NvmlCalls, environment: Mapping[str, str], classes: Mapping[str, str]) -> NvmlFacts:
    gaps: list[Gap] = []
    found: list[_ReadGpu] = []
    for index in range(nvml.gpu_count()):
        with _report_failure(index, gaps):
            found.append(_read_gpu(nvml, index, classes, gaps))
    found.sort(key=lambda item: address_key(item.gpu.address))
    visible = _visible(found, environment, gaps)
    for item in visible:
        _refuse_mig(item)
    gaps += [*_links_down(visible), *_no_access(nvml, visible)]
    numbered = [
        replace(item.gpu, record=replace(item.gpu.record, dev=dev, rank=dev))
        for dev, item in enumerate(visible)
    ]
    hidden = [item.gpu for item in found if item not in visible]
    driver = _optional(nvml.driver_version, "")
    return NvmlFacts(True, driver, (*numbered, *hidden), tuple(gaps))


def _read_gpu(nvml: NvmlCalls, index: int, classes: Mapping[str, str], gaps: list[Gap]) -> _ReadGpu:
    try:
        address = pci_address(nvml.pci_address(index))
    except ValueError as error:
        raise NvmlCallError(NvmlFault.OTHER, str(error)) from error
    if address == HIDDEN:
        raise NvmlCallError(NvmlFault.OTHER, "its PCI address is hidden")
    capability = nvml.compute_capability(index)
    links = read_links(nvml, index, capability, classes)
    name = _optional(lambda: nvml.name(index), "")
    uuid = _optional(lambda: nvml.uuid(index), "")
    memory_bytes = _optional(lambda: nvml.memory_bytes(index), 0)
    generation, width = _optional(lambda: nvml.pcie_maximum(index), (0, 0))
    facts = (("name", name), ("UUID", uuid), ("memory", memory_bytes), ("PCIe link", width))
    unknown = [fact for fact, value in facts if not value]
    missing = [f"NVML does not report its {', '.join(unknown)}"] if unknown else []
    gaps += [Gap(f"GPU {index} ({address})", problem) for problem in (*missing, *links.unknown)]
    gt_per_s = dict(enumerate(PCIE_GT_PER_S, start=1)).get(generation, 0.0)
    record = GpuRecord(None, None, capability, links.records)
    domain = _optional(lambda: nvml.domain(index), "")
    pcie = PcieLink(gt_per_s, width)
    gpu = NvmlGpu(index, address, name, uuid, memory_bytes, pcie, record, domain)
    return _ReadGpu(gpu, links, _mig_modes(nvml, gpu, gaps))


def _mig_modes(nvml: NvmlCalls, gpu: NvmlGpu, gaps: list[Gap]) -> tuple[bool, bool]:
    """Return whether MIG is on now, and after the next reset; False if unsupported."""
    try:
        return nvml.mig_mode(gpu.index)
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        if error.fault is not NvmlFault.ABSENT:
            problem = f"NVML does not report whether MIG is on ({error.words:.80}), taken as off"
            gaps.append(Gap(f"GPU {gpu.index} ({gpu.address})", problem))
        return False, False


def _visible(
    found: list[_ReadGpu], environment: Mapping[str, str], gaps: list[Gap]
) -> list[_ReadGpu]:
    """Return the GPUs that CUDA may see, in its order; remarks go to the gaps."""
    value = environment.get(VARIABLE)
    if value is not None and value.strip().startswith("MIG-"):
        raise MachineError(
            f"{VARIABLE}={value:.60} names a MIG instance, and TuCCL tunes whole GPUs; switch MIG "
            "off (`nvidia-smi -i N -mig 0`) and name GPUs"
        )
    visible = [found[index] for index in visible_gpus(value, [item.gpu.uuid for item in found])]
    hidden = [f"{item.gpu.index} ({item.gpu.address})" for item in found if item not in visible]
    if hidden:
        problem = f"leaves out GPU {', '.join(hidden)}; unset it to probe the whole host"
        gaps.append(Gap(f"{VARIABLE}={value:.200}", problem))
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if len({item.gpu.name for item in found}) > 1 and not by_bus:
        problem = (
            "not PCI_BUS_ID: CUDA numbers GPUs of different models fastest first, here they are "
            "numbered by PCI address; set it for the probe and for jobs"
        )
        gaps.append(Gap("CUDA_DEVICE_ORDER", problem))
    return visible


def _refuse_mig(item: _ReadGpu) -> None:
    gpu, (enabled, pending) = item.gpu, item.mig
    gpu_name = f"GPU {gpu.index} ({gpu.address}, {gpu.name or 'unknown model'})"
    reason = "and TuCCL tunes whole GPUs"
    command = f"nvidia-smi -i {gpu.index} -mig 0"
    if enabled and pending:
        raise MachineError(f"{gpu_name}: MIG is on, {reason}; switch it off: `{command}`")
    if enabled:
        raise MachineError(
            f"{gpu_name}: MIG stays on until the next reset, {reason}; stop what uses the GPU and "
            f"run `{command}` again, or reset it: `nvidia-smi -i {gpu.index} --gpu-reset`"
        )
    if pending:
        raise MachineError(
            f"{gpu_name}: MIG comes on at the next reset, {reason}; take that back: `{command}`"
        )


def _links_down(visible: list[_ReadGpu]) -> Iterator[Gap]:
    """Yield gaps for NVLinks that are down: equal on all GPUs by design, on one GPU a fault."""
    if len(visible) > 1 and len({(item.links.down, item.links.up) for item in visible}) == 1:
        if visible[0].links.down:
            yield Gap("every GPU", f"{_down_text(visible[0].links)}; {_BY_DESIGN}")
        return
    max_links: dict[str, int] = {}
    for item in visible:
        max_links[item.gpu.name] = max(max_links.get(item.gpu.name, 0), _link_count(item.links))
    for item in visible:
        count, expected = _link_count(item.links), max_links[item.gpu.name]
        if item.links.down:
            problem = _down_text(item.links)
        elif count < expected:
            problem = f"{count} NVLinks, others of its kind have {expected}"
        else:
            continue
        remedy = (
            f"see `nvidia-smi nvlink -s -i {item.gpu.index}` and `dmesg | grep -i xid`; a reset or "
            "a new seating of the board may help"
        )
        problem = f"{problem}; {remedy if item.links.up else _BY_DESIGN}"
        yield Gap(f"GPU {item.gpu.index} ({item.gpu.address})", problem)


def _link_count(links: GpuLinks) -> int:
    """Number of NVLinks, up or down."""
    return links.up + len(links.down)


def _no_access(nvml: NvmlCalls, visible: list[_ReadGpu]) -> Iterator[Gap]:
    """Yield a gap for pairs whose traffic goes through the host's memory according to NVML."""
    without = []
    for a, b in itertools.combinations([item.gpu.index for item in visible], 2):
        with suppress(NvmlCallError):
            if not nvml.may_access(a, b):
                without.append(f"{a}-{b}")
    if without:
        pairs = ", ".join(without[:_MAX_PAIRS]) + (", ..." if len(without) > _MAX_PAIRS else "")
        problem = (
            "no direct access (P2P), traffic goes through the host; see `nvidia-smi topo -p2p w`"
        )
        yield Gap(f"GPUs {pairs}", problem)


def _down_text(links: GpuLinks) -> str:
    down = ", ".join(map(str, links.down))
    verb = "link {} is down" if len(links.down) == 1 else "links {} are down"
    return f"{verb.format(down)}: {links.up} of {_link_count(links)} links"


@contextmanager
def _report_failure(index: int, gaps: list[Gap]) -> Iterator[None]:
    """Add a gap for a GPU that does not answer."""
    try:
        yield
    except NvmlCallError as error:
        remedy = {
            NvmlFault.LOST: "it fell off the bus; see `dmesg | grep -i xid`, then reset it or "
            "restart the host",
            NvmlFault.NO_PERMISSION: "its device file may not be opened; check the rights of "
            "/dev/nvidia* and the container's device list",
        }.get(error.fault, "see `nvidia-smi` and `dmesg`")
        gaps.append(Gap(f"GPU {index}", f"left out, NVML says {error.words!a:.80}: {remedy}"))


def _no_nvml(error: NvmlCallError) -> Gap:
    remedy = {
        NvmlFault.NO_LIBRARY: "install the NVIDIA driver (libnvidia-ml.so.1 comes with it), or in "
        "a container give NVIDIA_DRIVER_CAPABILITIES=utility,compute",
        NvmlFault.NO_DRIVER: "load the driver (`modprobe nvidia`)",
        NvmlFault.VERSION_MISMATCH: "driver and library are of different versions, as after an "
        "update; restart the host or reload the nvidia modules",
        NvmlFault.NO_PERMISSION: "check the rights of /dev/nvidiactl",
    }.get(error.fault, "see `nvidia-smi`")
    return Gap("NVML", f"no answer ({error.words:.80}), so NVLinks are not known: {remedy}")


def _optional(call: Callable[[], _T], unknown: _T) -> _T:
    """Return the answer, or `unknown` if NVML lacks it; raise if the GPU is lost."""
    try:
        return call()
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        return unknown
