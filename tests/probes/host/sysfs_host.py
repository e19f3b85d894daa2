"""The files of a virtual machine with 4 H200: `write_host`."""

from pathlib import Path

GPUS = tuple(f"0000:00:0{device}.0" for device in range(6, 10))


def write_host(root: Path, *, rdma_state: str = "") -> Path:
    """Write `sys` and `proc` below the root; with a state, also an RDMA device."""
    _files(
        root / "proc",
        {
            "cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\n",
            "cmdline": "root=/dev/vda console=ttyS0\n",
            "sys/kernel/hostname": "node7\n",
            "sys/kernel/random/boot_id": "6f1c0e5a-0001\n",
        },
    )
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for address in (*GPUS, "0000:00:03.0"):
        is_gpu = address in GPUS
        files = {
            "class": "0x030200" if is_gpu else "0x020000",
            "vendor": "0x10de" if is_gpu else "0x1af4",
            "device": "0x2335" if is_gpu else "0x1041",
            "numa_node": "-1",
            "resource": "0x0000000000000000 0x0000000000000000 0x0000000000000000",
        }
        if is_gpu:
            files["max_link_speed"] = "32.0 GT/s PCIe"
        _files(root / "sys/devices/pci0000:00" / address, files)
        (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    nic = root / "sys/devices/pci0000:00/0000:00:03.0"
    interface = {"operstate": "up", "carrier": "1", "type": "1", "speed": "100000"}
    _files(nic / "net/eth0", interface)
    (nic / "net/eth0/device").symlink_to("../../../0000:00:03.0")
    _link(root / "sys/class/net/eth0", "../../devices/pci0000:00/0000:00:03.0/net/eth0")
    if rdma_state:
        port = {"state": rdma_state, "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet"}
        _files(nic / "infiniband/mlx5_0/ports/1", port)
        (nic / "infiniband/mlx5_0/device").symlink_to("../../../0000:00:03.0")
        target = "../../devices/pci0000:00/0000:00:03.0/infiniband/mlx5_0"
        _link(root / "sys/class/infiniband/mlx5_0", target)
    return root


def _files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
