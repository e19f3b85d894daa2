"""Time a communicator's start in the tuner plugin, with and without the comparison of hosts.

    python scripts/bench/bench_machine_check.py [FUNCTIONS]

The host is a stand-in sysfs of 8 GPUs and 8 NICs, two of each below a switch, and bridges:
FUNCTIONS of PCI, 300 if none are given. On another machine a NIC is below a switch without GPUs.
A file of it takes longer or less than one of sysfs, which is printed beside the times.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lookup_tables.bundles.bundle_writer import bundle_bytes
from lookup_tables.bundles.host_devices import NO_FACTS, BundleFacts, HostDevice, HostDeviceKind
from lookup_tables.table import Table
from tuccl.runtime import plugin_path

_GPU, _NIC, _BRIDGE = "10de:2335", "15b3:1021", "8086:352a"
_HOST = (
    HostDevice(HostDeviceKind.GPU, _GPU, 0, 8, "", 18, 1, 3),
    *(
        HostDevice(HostDeviceKind.NIC, _NIC, 400_000, 1, f"mlx5_{each}", 0, 1, 3)
        for each in range(8)
    ),
)
_REPEATS = 500


class _Tuner(ctypes.Structure):
    """`ncclTuner_v4_t` up to `init`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        (
            "init",
            ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
            ),
        ),
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _make_sysfs(root: Path, functions: int, *, moved: bool = False) -> None:
    listed = root / "bus" / "pci" / "devices"
    listed.mkdir(parents=True)
    for number in range(functions):
        address = f"0000:{number // 8:02x}:{number % 8:02x}.0"
        switch = 9 if moved and number == 15 else number % 8 // 2
        bridges = (f"0000:{switch:02x}:1{level}.0" for level in range(3))
        folder = root.joinpath("devices", "pci0000:00", *bridges, address)
        _write(folder / "numa_node", f"{number % 8 // 4}")
        (listed / address).symlink_to(os.path.relpath(folder, listed))
        model, kind = _BRIDGE, "0x060400"
        if number < 16:
            model, kind = (_GPU, "0x030200") if number < 8 else (_NIC, "0x020700")
        vendor, device = model.split(":")
        for name, text in (("class", kind), ("vendor", f"0x{vendor}"), ("device", f"0x{device}")):
            _write(folder / name, text)
        if model == _NIC:
            port = folder / "infiniband" / f"mlx5_{number - 8}" / "ports" / "1"
            _write(port / "state", "4: ACTIVE")
            _write(port / "rate", "400 Gb/sec (4X NDR)")


def _quartile_us(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begin) / 1000)
    return statistics.quantiles(times, n=4)[0]


def main(functions: int) -> None:
    """Print the first time in this process, and the lower quartiles of later ones."""
    library = ctypes.CDLL(str(plugin_path()))
    tuner = _Tuner.in_dll(library, "ncclTunerPlugin_v4")
    context = ctypes.c_void_p()
    table = Table("m", "v1-0", (_GPU,), ())
    with tempfile.TemporaryDirectory() as folder:
        root, moved, bundle = (Path(folder) / name for name in ("sys", "moved", "b.tuccl"))
        _make_sysfs(root, functions)
        _make_sysfs(moved, functions, moved=True)
        os.environ["TUCCL_BUNDLE"] = str(bundle)
        for what, facts in (("GPU models", NO_FACTS), ("hosts", BundleFacts((_HOST,)))):
            bundle.write_bytes(bundle_bytes(table, facts))
            os.environ["TUCCL_SYSFS"] = str(root)
            for nodes in (1, 2):
                start = partial(tuner.init, 8 * nodes, nodes, None, ctypes.byref(context))
                begin = time.perf_counter_ns()
                start()
                first = (time.perf_counter_ns() - begin) / 1000
                later = _quartile_us(start)
                print(f"comparing {what}, {nodes} nodes: {first:.0f} us, later {later:.0f} us")
        os.environ["TUCCL_SYSFS"] = str(moved)
        start = partial(tuner.init, 16, 2, None, ctypes.byref(context))
        print(f"refusing another machine, 2 nodes: {_quartile_us(start):.0f} us")
        files = [next((root / "bus" / "pci" / "devices").iterdir()) / "class"]
        files += [path / "class" for path in sorted(Path("/sys/bus/pci/devices").glob("*"))[:1]]
        for file in files:
            print(f"one file of {file.parts[1]}: {_quartile_us(file.read_bytes):.1f} us")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
