"""Join of the GPUs in sysfs and in NVML: `join_nvml`.

Sysfs has the PCI tree, NVML the GPUs; each fills the gaps of the other, and a GPU that only one of
them shows is noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.nvidia.nvml import NvmlFacts, NvmlGpu
from probes.pci.inventory import DISPLAY, NVIDIA, Gap, PcieLink, PciFunction, PciInventory

_CONTROLLER_3D = 0x0302
"""Class of GPUs that drive no display (PCI Code and ID Assignment Specification 1.11)."""
_UNLISTED = (
    "a GPU that NVML does not list was left out: it is not given to this container, bound to "
    "another driver, or lost"
)


def gpu_classes(inventory: PciInventory) -> dict[str, str]:
    """PCI classes by address, six hex digits each, as `read_nvml` takes them."""
    return {
        function.address: f"{function.class_code:06x}"
        for function in inventory.functions
        if function.class_code is not None
    }


def join_nvml(inventory: PciInventory, facts: NvmlFacts) -> PciInventory:
    """Return the inventory with only those NVIDIA GPUs that CUDA may see according to NVML.

    Without NVML the inventory is unchanged but for a gap, if it has NVIDIA GPUs or no functions.
    """
    if not facts.available:
        is_relevant = not inventory.functions or any(map(_is_gpu, inventory.functions))
        return replace(inventory, gaps=(*inventory.gaps, *(facts.gaps if is_relevant else ())))
    by_address = {gpu.address: gpu for gpu in facts.gpus}
    usable = facts.records
    functions: list[PciFunction] = []
    gaps: list[Gap] = [*inventory.gaps, *facts.gaps]
    for function in inventory.functions:
        gpu = by_address.get(function.address)
        if gpu is None and _is_gpu(function):
            gaps.append(Gap(function.address, _UNLISTED))
        elif gpu is None:
            functions.append(function)
        elif gpu.address in usable:
            sysfs_link = function.link or PcieLink(0.0, 0)
            link = _link(sysfs_link, gpu)
            functions.append(replace(function, link=link))
            gaps += _differences(sysfs_link, gpu, link)
            window = small_window(function, gpu.memory_bytes)
            gaps += [window] if window else []
    return replace(inventory, functions=tuple(functions), gaps=tuple(gaps))


def small_window(function: PciFunction, memory_bytes: int) -> Gap | None:
    """Return a gap with the remedy for a data-centre GPU whose memory exceeds its largest BAR.

    Other devices reach the memory through that BAR (BAR1 in `nvidia-smi -q`). Display GPUs (class
    0300) have a small BAR1 by design and no P2P over PCIe; None for these, and if the memory or the
    window is unknown.
    """
    is_data_centre = function.kind == _CONTROLLER_3D
    if not is_data_centre or not 0 < function.window_bytes < memory_bytes:
        return None
    window = _binary(function.window_bytes)
    problem = (
        f"P2P over PCIe and GPUDirect RDMA map its {_binary(memory_bytes)} of memory through a "
        f"window (BAR1) of {window}: enable Resizable BAR (large BAR1, Above 4G Decoding) in the "
        "firmware if the part has it"
    )
    return Gap(function.address, problem)


def _binary(count: int) -> str:
    """Format bytes: `140 GiB`, `256 MiB`."""
    return f"{count / 2**30:.0f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _is_gpu(function: PciFunction) -> bool:
    return function.base_class == DISPLAY and function.vendor == NVIDIA


def _link(sysfs_link: PcieLink, gpu: NvmlGpu) -> PcieLink:
    """The link from sysfs, completed from NVML."""
    return PcieLink(sysfs_link.gt_per_s or gpu.pcie.gt_per_s, sysfs_link.width or gpu.pcie.width)


def _differences(sysfs_link: PcieLink, gpu: NvmlGpu, link: PcieLink) -> Iterator[Gap]:
    """Compare with NVML, which states the maximum of the slot: sysfs may say less, not more."""
    if link != sysfs_link:
        yield Gap(gpu.address, f"its PCIe link ({_link_text(link)}) is given by NVML, not sysfs")
    elif link.gt_per_s > gpu.pcie.gt_per_s > 0 or link.width > gpu.pcie.width > 0:
        problem = (
            f"sysfs says PCIe {_link_text(link)}, NVML at most {_link_text(gpu.pcie)}: sysfs is "
            "believed"
        )
        yield Gap(gpu.address, problem)


def _link_text(link: PcieLink) -> str:
    return f"{link.gt_per_s:g} GT/s x{link.width}"
