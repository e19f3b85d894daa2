"""Windows to the memory of GPUs."""

from pathlib import Path

import pytest

from probes.host.probe import HostProbeOptions, describe_host, read_inventory
from probes.nvidia.nvml import read_nvml
from probes.nvidia.nvml_inventory import small_window
from probes.pci.inventory import PciFunction
from probes.pci.tree import DirectoryTree
from tests.probes.host.sysfs_host import GPUS, write_host
from tests.probes.nvidia.nvml_session import RecordedNvml, session

H200_MEMORY = 150_754_820_096  # 140.4 GiB, as NVML says

WORDS = (
    "0000:3b:00.0: P2P over PCIe and GPUDirect RDMA map its {memory} of memory through a window "
    "(BAR1) of {window}: enable Resizable BAR (large BAR1, Above 4G Decoding) in the firmware if "
    "the part has it."
)


def gpu(window_bytes: int, kind: int | None = 0x030200) -> PciFunction:
    return PciFunction("0000:3b:00.0", "pci0000:3a", class_code=kind, window_bytes=window_bytes)


@pytest.mark.parametrize(
    ("window_bytes", "memory_bytes", "memory", "window"),
    [
        (256 << 20, H200_MEMORY, "140 GiB", "256 MiB"),
        (16 << 20, 16 << 30, "16 GiB", "16 MiB"),
        (32 << 30, 80 << 30, "80 GiB", "32 GiB"),
    ],
)
def test_a_window_smaller_than_the_memory_is_reported(
    window_bytes: int, memory_bytes: int, memory: str, window: str
) -> None:
    gap = small_window(gpu(window_bytes), memory_bytes)
    assert gap is not None
    assert gap.sentence() == WORDS.format(memory=memory, window=window)


@pytest.mark.parametrize(
    ("function", "memory_bytes"),
    [
        (gpu(256 << 30), H200_MEMORY),
        (gpu(16 << 30), 16 << 30),
        (gpu(256 << 20), 0),  # NVML does not say
        (gpu(0), H200_MEMORY),  # no range is known
        (gpu(256 << 20, kind=0x030000), 24 << 30),  # drives a display
        (gpu(256 << 20, kind=None), H200_MEMORY),
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
