"""Windows to the memory of GPUs, by hand-worked ranges of addresses."""

from pathlib import Path

import pytest

from probes.host.probe import HostProbeOptions, describe_host, read_inventory
from probes.nvidia.nvml import read_nvml
from probes.nvidia.nvml_inventory import small_window
from probes.pci.inventory import BarRange, PciFunction
from probes.pci.tree import DirectoryTree
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session

REGISTERS = BarRange(0, 0x1040_0200_0000, 0x1040_02FF_FFFF)  # 16 MiB
H200_MEMORY = 150_754_820_096  # 140.4 GiB, as NVML says
OF_H200 = BarRange(2, 0x1000_0000_0000, 0x103F_FFFF_FFFF)  # 256 GiB
SMALL = BarRange(2, 0xE000_0000, 0xEFFF_FFFF)  # 256 MiB

WORDS = (
    "0000:3b:00.0: P2P over PCIe and GPUDirect RDMA map its {memory} of memory through a window "
    "(BAR1) of {window}: enable Resizable BAR (large BAR1, Above 4G Decoding) in the firmware if "
    "the part has it."
)


def gpu(*bars: BarRange, kind: int | None = 0x030200) -> PciFunction:
    return PciFunction("0000:3b:00.0", "pci0000:3a", class_code=kind, vendor=0x10DE, bars=bars)


@pytest.mark.parametrize(
    ("bars", "memory_bytes", "memory", "window"),
    [
        ((REGISTERS, SMALL), 16 * 2**30, "16 GiB", "256 MiB"),
        ((REGISTERS, SMALL), H200_MEMORY, "140 GiB", "256 MiB"),
        ((REGISTERS,), 16 * 2**30, "16 GiB", "16 MiB"),
        ((BarRange(1, 0, 32 * 2**30 - 1), REGISTERS), 80 * 2**30, "80 GiB", "32 GiB"),
    ],
)
def test_a_window_smaller_than_the_memory_is_reported(
    bars: tuple[BarRange, ...], memory_bytes: int, memory: str, window: str
) -> None:
    gap = small_window(gpu(*bars), memory_bytes)
    assert gap is not None
    assert gap.sentence() == WORDS.format(memory=memory, window=window)


@pytest.mark.parametrize(
    ("function", "memory_bytes"),
    [
        (gpu(REGISTERS, OF_H200), H200_MEMORY),
        (gpu(BarRange(1, 0, 16 * 2**30 - 1)), 16 * 2**30),
        (gpu(REGISTERS, SMALL), 0),  # NVML does not say
        (gpu(), H200_MEMORY),  # no range is known
        (gpu(REGISTERS, SMALL, kind=0x030000), 24 * 2**30),  # drives a display
        (gpu(REGISTERS, SMALL, kind=None), H200_MEMORY),
    ],
)
def test_a_window_that_is_wide_enough_or_unknown_is_not(
    function: PciFunction, memory_bytes: int
) -> None:
    assert small_window(function, memory_bytes) is None


def notes_with(tmp_path: Path, resource: str) -> list[str]:
    root = write_host(tmp_path / "root")
    for address in GPUS:
        (root / f"sys/devices/pci0000:00/{address}/resource").write_text(resource)
    inventory = read_inventory(DirectoryTree(root), HostProbeOptions(root))
    facts = read_nvml(RecordedNvml(session()), {})
    notes = describe_host(inventory, facts, "node7").notes
    return [note for note in notes if "BAR1" in note]


def test_all_gpus_of_a_host_share_one_note(tmp_path: Path) -> None:
    small = (
        "0x00000000d0000000 0x00000000d0ffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n"
    )
    (note,) = notes_with(tmp_path, small)
    assert all(address in note for address in GPUS[:3])
    assert "its 140 GiB of memory through a window (BAR1) of 256 MiB" in note


def test_the_ranges_of_a_real_h200_give_no_note(tmp_path: Path) -> None:
    real = (
        "0x0000104002000000 0x0000104002ffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000100000000000 0x0000103fffffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000104000000000 0x0000104001ffffff 0x000000000014220c\n"
    )
    assert notes_with(tmp_path, real) == []
