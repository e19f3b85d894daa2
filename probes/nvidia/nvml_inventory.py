"""What sysfs and NVML say of the same GPUs, side by side: `join_nvml`.

Sysfs has the tree and NVML the GPUs; each fills what the other leaves open, and a GPU that only one
of them knows is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.nvidia.nvml import NvmlFacts, NvmlGpu
from probes.pci.inventory import Gap, PcieLink, PciFunction, PciInventory

_NVIDIA = 0x10DE
_DISPLAY = 0x03
"""Base class of GPUs."""
_CONTROLLER_3D = 0x0302
"""Class of GPUs that drive no display (PCI Code and ID Assignment Specification 1.11)."""
_UNLISTED = (
    "a GPU that NVML does not list was left out: it is not given to this container, bound to "
    "another driver, or lost"
)


def gpu_classes(inventory: PciInventory) -> dict[str, str]:
    """PCI class of every function by address, six hex digits, as `read_nvml` wants them."""
    return {
        function.address: f"{function.class_code:06x}"
        for function in inventory.functions
        if function.class_code is not None
    }


def join_nvml(inventory: PciInventory, facts: NvmlFacts) -> PciInventory:
    """The inventory with NVIDIA's GPUs as NVML has them: those that CUDA may see, and no other.

    Without NVML nothing changes, and that is said if there are such GPUs or nothing shows any.
    """
    if not facts.available:
        concerned = not inventory.functions or any(map(_is_gpu, inventory.functions))
        return replace(inventory, gaps=(*inventory.gaps, *(facts.gaps if concerned else ())))
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
            told = function.link or PcieLink(0.0, 0)
            link = _link(told, gpu)
            functions.append(replace(function, link=link))
            gaps += _differences(told, gpu, link)
            window = small_window(function, gpu.memory_bytes)
            gaps += [window] if window else []
    return replace(inventory, functions=tuple(functions), gaps=tuple(gaps))


def small_window(function: PciFunction, memory_bytes: int) -> Gap | None:
    """A data-centre GPU whose largest BAR does not hold its memory: a note with the remedy.

    Through that BAR (BAR1, as `nvidia-smi -q` shows it) other devices reach the memory. Parts with
    a display of their own (class 0300) have a small one by design and no P2P over PCIe; where the
    memory or every range is unknown, nothing is said.
    """
    largest = max((bar.size_bytes for bar in function.bars), default=0)
    is_data_centre = function.class_code is not None and function.class_code >> 8 == _CONTROLLER_3D
    if not is_data_centre or not 0 < largest < memory_bytes:
        return None
    window = _binary(largest)
    what = (
        f"P2P over PCIe and GPUDirect RDMA map its {_binary(memory_bytes)} of memory through a "
        f"window (BAR1) of {window}: enable Resizable BAR (large BAR1, Above 4G Decoding) in the "
        "firmware if the part has it"
    )
    return Gap(function.address, what)


def _binary(count: int) -> str:
    """`140 GiB`, `256 MiB`."""
    return f"{count / 2**30:.0f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _is_gpu(function: PciFunction) -> bool:
    base = None if function.class_code is None else function.class_code >> 16
    return base == _DISPLAY and function.vendor == _NVIDIA


def _link(told: PcieLink, gpu: NvmlGpu) -> PcieLink:
    """What sysfs says, and NVML where sysfs is silent."""
    return PcieLink(told.gt_per_s or gpu.pcie.gt_per_s, told.width or gpu.pcie.width)


def _differences(told: PcieLink, gpu: NvmlGpu, link: PcieLink) -> Iterator[Gap]:
    """NVML states the most of the GPU in its slot, so that sysfs may say less, but not more."""
    if link != told:
        yield Gap(gpu.address, f"its PCIe link ({_words(link)}) is told by NVML, not by sysfs")
    elif link.gt_per_s > gpu.pcie.gt_per_s > 0 or link.width > gpu.pcie.width > 0:
        what = f"sysfs says PCIe {_words(link)}, NVML at most {_words(gpu.pcie)}: sysfs is believed"
        yield Gap(gpu.address, what)


def _words(link: PcieLink) -> str:
    return f"{link.gt_per_s:g} GT/s x{link.width}"
