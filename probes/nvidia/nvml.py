"""What NVIDIA's management library knows of the GPUs of this host: `read_nvml`.

A fact that NVML does not have stays unknown, a GPU that does not answer is a named gap, and a host
without NVML gives no GPUs and a gap that says what to install. Only MIG is refused: a slice of a
GPU is another machine than the one that NCCL jobs of whole GPUs run on.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from probes.errors import MigEnabledError
from probes.nccl_xml.records import GpuRecord
from probes.nvidia.cuda_visible import VARIABLE, visible_gpus
from probes.nvidia.nvml_calls import NvmlCallError, NvmlCalls, NvmlFault
from probes.nvidia.nvml_links import HIDDEN, GpuLinks, pci_address, read_links
from probes.pci.address import address_key
from probes.pci.inventory import Gap, PcieLink

_GT_PER_S = (0.0, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
"""By PCIe generation."""
_BY_DESIGN = (
    "right for parts sold with fewer NVLinks or without bridges; else see whether "
    "nvidia-fabricmanager runs"
)
_MOST_PAIRS = 8
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One GPU."""

    index: int
    """NVML's, as `nvidia-smi -i` takes it."""
    address: str
    """As sysfs writes it: `0000:3b:00.0`."""
    name: str
    uuid: str
    memory_bytes: int
    """0 when unknown."""
    pcie: PcieLink
    """The most that this GPU does in this machine; zeros where NVML does not say."""
    record: GpuRecord
    """As NCCL's dump has it; `dev` is CUDA's number, None when CUDA may not see the GPU."""


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    """All that NVML said."""

    available: bool
    driver: str = ""
    """`580.159.04`."""
    gpus: tuple[NvmlGpu, ...] = ()
    """Those CUDA may see by CUDA's number, then the others by address."""
    gaps: tuple[Gap, ...] = ()

    @property
    def records(self) -> dict[str, GpuRecord]:
        """GPUs that CUDA may see, by address, in CUDA's order."""
        return {gpu.address: gpu.record for gpu in self.gpus if gpu.record.dev is not None}


def read_nvml(
    nvml: NvmlCalls | None = None,
    environment: Mapping[str, str] = os.environ,
    classes: Mapping[str, str] | None = None,
) -> NvmlFacts:
    """Ask NVML for everything; takes a few ms per GPU.

    Args:
        nvml: the library; NVIDIA's own binding by default.
        environment: where CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are looked for.
        classes: PCI class of devices by address (six hex digits), from sysfs.

    Raises:
        MigEnabledError: a GPU that CUDA may see is cut into MIG instances, or will be.
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
class _Seen:
    """One GPU as it was read, before it has CUDA's number."""

    gpu: NvmlGpu
    links: GpuLinks
    mig: tuple[bool, bool]


def _read(nvml: NvmlCalls, environment: Mapping[str, str], classes: Mapping[str, str]) -> NvmlFacts:
    gaps: list[Gap] = []
    found: list[_Seen] = []
    for index in range(nvml.gpu_count()):
        with _naming(index, gaps):
            found.append(_gpu(nvml, index, classes, gaps))
    found.sort(key=lambda seen: address_key(seen.gpu.address))
    visible = _visible(found, environment, gaps)
    for seen in visible:
        _refuse_mig(seen)
    gaps += [*_links_down(visible), *_no_access(nvml, visible)]
    numbered = [
        replace(seen.gpu, record=replace(seen.gpu.record, dev=dev, rank=dev))
        for dev, seen in enumerate(visible)
    ]
    hidden = [seen.gpu for seen in found if seen not in visible]
    driver = _optional(nvml.driver_version, "")
    return NvmlFacts(True, driver, (*numbered, *hidden), tuple(gaps))


def _gpu(nvml: NvmlCalls, index: int, classes: Mapping[str, str], gaps: list[Gap]) -> _Seen:
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
    told = [f"NVML does not tell its {', '.join(unknown)}"] if unknown else []
    gaps += [Gap(f"GPU {index} ({address})", what) for what in (*told, *links.unknown)]
    gt_per_s = _GT_PER_S[generation] if 0 <= generation < len(_GT_PER_S) else 0.0
    record = GpuRecord(None, None, capability, links.records)
    gpu = NvmlGpu(index, address, name, uuid, memory_bytes, PcieLink(gt_per_s, width), record)
    return _Seen(gpu, links, _mig(nvml, gpu, gaps))


def _mig(nvml: NvmlCalls, gpu: NvmlGpu, gaps: list[Gap]) -> tuple[bool, bool]:
    """MIG now and after the next reset; a GPU that does not know the word has none."""
    try:
        return nvml.mig_mode(gpu.index)
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        if error.fault is not NvmlFault.ABSENT:
            what = f"NVML does not tell whether MIG is on ({error.words:.80}), taken as off"
            gaps.append(Gap(f"GPU {gpu.index} ({gpu.address})", what))
        return False, False


def _visible(found: list[_Seen], environment: Mapping[str, str], gaps: list[Gap]) -> list[_Seen]:
    """GPUs that CUDA may see, in its order; what is to be said about that goes to the gaps."""
    value = environment.get(VARIABLE)
    if value is not None and value.strip().startswith("MIG-"):
        raise MigEnabledError(
            f"{VARIABLE}={value:.60} names a MIG instance, and TuCCL tunes whole GPUs; switch MIG "
            "off (`nvidia-smi -i N -mig 0`) and name GPUs"
        )
    visible = [found[place] for place in visible_gpus(value, [seen.gpu.uuid for seen in found])]
    left_out = [f"{seen.gpu.index} ({seen.gpu.address})" for seen in found if seen not in visible]
    if left_out:
        what = f"leaves out GPU {', '.join(left_out)}; unset it to probe the whole host"
        gaps.append(Gap(f"{VARIABLE}={value:.200}", what))
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if len({seen.gpu.name for seen in found}) > 1 and not by_bus:
        what = (
            "not PCI_BUS_ID: CUDA numbers GPUs of different models fastest first, here they are "
            "numbered by PCI address; set it for the probe and for jobs"
        )
        gaps.append(Gap("CUDA_DEVICE_ORDER", what))
    return visible


def _refuse_mig(seen: _Seen) -> None:
    gpu, (enabled, pending) = seen.gpu, seen.mig
    who = f"GPU {gpu.index} ({gpu.address}, {gpu.name or 'unknown model'})"
    why = "and TuCCL tunes whole GPUs"
    off = f"nvidia-smi -i {gpu.index} -mig 0"
    if enabled and pending:
        raise MigEnabledError(f"{who}: MIG is on, {why}; switch it off: `{off}`")
    if enabled:
        raise MigEnabledError(
            f"{who}: MIG stays on until the next reset, {why}; stop what uses the GPU and run "
            f"`{off}` again, or reset it: `nvidia-smi -i {gpu.index} --gpu-reset`"
        )
    if pending:
        raise MigEnabledError(
            f"{who}: MIG comes on at the next reset, {why}; take that back: `{off}`"
        )


def _links_down(visible: list[_Seen]) -> Iterator[Gap]:
    """NVLinks that are down or missing: of all GPUs alike it is the part, of one it is a fault."""
    if len(visible) > 1 and len({(seen.links.down, seen.links.up) for seen in visible}) == 1:
        if visible[0].links.down:
            yield Gap("every GPU", f"{_count_down(visible[0].links)}; {_BY_DESIGN}")
        return
    most: dict[str, int] = {}
    for seen in visible:
        most[seen.gpu.name] = max(most.get(seen.gpu.name, 0), _count(seen.links))
    for seen in visible:
        have, others = _count(seen.links), most[seen.gpu.name]
        if seen.links.down:
            what = _count_down(seen.links)
        elif have < others:
            what = f"{have} NVLinks, others of its kind have {others}"
        else:
            continue
        remedy = (
            f"see `nvidia-smi nvlink -s -i {seen.gpu.index}` and `dmesg | grep -i xid`; a reset or "
            "a new seating of the board may help"
        )
        what = f"{what}; {remedy if seen.links.up else _BY_DESIGN}"
        yield Gap(f"GPU {seen.gpu.index} ({seen.gpu.address})", what)


def _count(links: GpuLinks) -> int:
    """NVLinks that exist."""
    return links.up + len(links.down)


def _no_access(nvml: NvmlCalls, visible: list[_Seen]) -> Iterator[Gap]:
    """Pairs that NVML says must go through the host's memory."""
    apart = []
    for one, other in itertools.combinations([seen.gpu.index for seen in visible], 2):
        with suppress(NvmlCallError):
            if not nvml.may_access(one, other):
                apart.append(f"{one}-{other}")
    if apart:
        pairs = ", ".join(apart[:_MOST_PAIRS]) + (", ..." if len(apart) > _MOST_PAIRS else "")
        what = "no direct access (P2P), traffic goes through the host; see `nvidia-smi topo -p2p w`"
        yield Gap(f"GPUs {pairs}", what)


def _count_down(links: GpuLinks) -> str:
    down = ", ".join(map(str, links.down))
    verb = "link {} is down" if len(links.down) == 1 else "links {} are down"
    return f"{verb.format(down)}: {links.up} of {_count(links)} links"


@contextmanager
def _naming(index: int, gaps: list[Gap]) -> Iterator[None]:
    """A GPU that does not answer is left out and named."""
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


def _optional(call: Callable[[], _T], otherwise: _T) -> _T:
    """The answer, or what stands for unknown; a lost GPU is still lost."""
    try:
        return call()
    except NvmlCallError as error:
        if error.fault is NvmlFault.LOST:
            raise
        return otherwise
