"""Reports of the P2P benchmark with figures that are easy to compute, and their machines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from probes.p2p.report import P2pReport, read_p2p_report
from probes.topology.graph import Device, DeviceKind, Link, LinkKind, Provenance, Topology
from tests.probes.machines import both_ways

Figures = Mapping[tuple[str, tuple[int, ...]], float]

_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


def bus_id(index: int) -> str:
    return f"0000:{index + 6:02x}:00.0"


def content(
    bus_ids: Sequence[str], figures: Figures, no_access: Sequence[tuple[int, int]] = ()
) -> dict[str, Any]:
    """The program's output, with three samples 1 % apart for every figure."""
    return {
        "schema_version": 1,
        "driver_version": 13000,
        "runtime_version": 13000,
        "seconds": 4.0,
        "bytes": 268435456,
        "repetitions": 3,
        "gpus": [
            {
                "bus_id": address,
                "name": "NVIDIA Test",
                "sm_count": 132,
                "compute_capability": 90,
                "memory_bytes": 1 << 37,
                "buffer_bytes": 268435456,
                "host_buffer_bytes": 67108864,
                "error": "",
            }
            for address in bus_ids
        ],
        "pairs": [
            {"gpus": [a, b], "peer_access": (a, b) not in no_access, "detail": ""}
            for a, b in itertools.combinations(range(len(bus_ids)), 2)
        ],
        "measurements": [
            {
                "what": what,
                "gpus": list(gpus),
                "unit": "us" if what.endswith("latency") else "GB/s",
                "status": "ok",
                "detail": "",
                "samples": [value * 0.99, value, value * 1.01],
            }
            for (what, gpus), value in figures.items()
        ],
        "notes": [],
    }


def report(
    bus_ids: Sequence[str], figures: Figures, no_access: Sequence[tuple[int, int]] = ()
) -> P2pReport:
    return read_p2p_report(json.dumps(content(bus_ids, figures, no_access)))


def all_pairs(count: int, what: str, value: float) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(what, pair): value for pair in itertools.permutations(range(count), 2)}


def h200_figures() -> dict[tuple[str, tuple[int, ...]], float]:
    figures = all_pairs(4, "copy_engine", 386.0)
    for place in range(4):
        figures["gpu_to_host", (place,)] = figures["host_to_gpu", (place,)] = 55.0
    for pair in itertools.combinations(range(4), 2):
        figures["flag_latency", pair] = 0.6
    return figures


def dgx1() -> Topology:
    """Eight V100 in a hybrid cube mesh, two PCIe switches below each of two sockets."""
    gpus = [_gpu(index, 70) for index in range(8)]
    links: list[Link] = []
    for lanes, pairs in ((2, _DOUBLE), (1, _SINGLE)):
        for a, b in pairs:
            links += both_ways(f"n0/gpu{a}", f"n0/gpu{b}", gb_per_s=25.0 * lanes, lanes=lanes)
    return Topology("dgx1", (*gpus, *_tree_devices(4)), (*links, *_tree(8, 2)))


def dgx1_figures() -> dict[tuple[str, tuple[int, ...]], float]:
    """NVLinks at 97 %, the rest over PCIe: 9 GB/s."""
    figures = all_pairs(8, "copy_engine", 9.0)
    for per_pair, pairs in ((48.4, _DOUBLE), (24.2, _SINGLE)):
        for a, b in pairs:
            figures["copy_engine", (a, b)] = figures["copy_engine", (b, a)] = per_pair
    for place in range(8):
        figures["gpu_to_host", (place,)] = figures["host_to_gpu", (place,)] = 12.4
    return figures


def pcie_box() -> Topology:
    """Four GPUs straight below one CPU, 16 lanes of PCIe 4 each."""
    links: list[Link] = []
    for index in range(4):
        links += [
            Link(src, dst, LinkKind.PCIE, 24.0, 0.1, Provenance.SYSFS, 16)
            for src, dst in ((f"n0/gpu{index}", "n0/cpu0"), ("n0/cpu0", f"n0/gpu{index}"))
        ]
    gpus = [_gpu(index, 86) for index in range(4)]
    return Topology("pcie box", (*gpus, Device("n0/cpu0", DeviceKind.CPU, 0)), tuple(links))


def pcie_figures(pair_gb_per_s: float = 8.0) -> dict[tuple[str, tuple[int, ...]], float]:
    figures = all_pairs(4, "copy_engine", pair_gb_per_s)
    for place in range(4):
        figures["gpu_to_host", (place,)] = figures["host_to_gpu", (place,)] = 25.0
    return figures


def _gpu(index: int, capability: int) -> Device:
    return Device(
        f"n0/gpu{index}",
        DeviceKind.GPU,
        0,
        index,
        bus_id=bus_id(index),
        compute_capability=capability,
    )


def _tree_devices(switches: int) -> list[Device]:
    made = [Device(f"n0/pcie{i}", DeviceKind.PCIE_SWITCH, 0, i) for i in range(switches)]
    return made + [Device(f"n0/cpu{i}", DeviceKind.CPU, 0, i) for i in range(2)]


def _tree(gpus: int, per_switch: int) -> list[Link]:
    """PCIe 3: 12 GB/s everywhere, 10 GB/s between the sockets."""
    switches = gpus // per_switch
    ends = [(f"n0/gpu{i}", f"n0/pcie{i // per_switch}") for i in range(gpus)]
    ends += [(f"n0/pcie{i}", f"n0/cpu{i * 2 // switches}") for i in range(switches)]
    links = [link for a, b in ends for link in both_ways(a, b, LinkKind.PCIE, 12.0, lanes=16)]
    return links + both_ways("n0/cpu0", "n0/cpu1", LinkKind.UPI, 10.0)
