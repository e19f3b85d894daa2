from __future__ import annotations

from probes.topology.graph import Device, DeviceKind, LinkKind, Topology
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from tests.sketches.machines import devices, machine


def _switched(links: dict[tuple[int, str], float]) -> Topology:
    """Return GPUs with links of these GB/s to NVSwitches."""
    gpus = 1 + max(gpu for gpu, _ in links)
    switches = sorted({switch for _, switch in links})
    parts = devices(0, DeviceKind.GPU, gpus)
    parts += [Device(name, DeviceKind.NVSWITCH, 0) for name in switches]
    cables = [
        (f"n0/gpu{gpu}", switch, LinkKind.NVLINK, gb_per_s, 0.35)
        for (gpu, switch), gb_per_s in links.items()
    ]
    return machine("switched", parts, cables)


def _direct(topology: Topology) -> Sketch:
    (sketch,) = sketch_candidates(topology)
    return sketch


def test_a_gpu_has_one_port_over_all_its_nvswitches_whatever_its_peer() -> None:
    links = {(gpu, switch): 150.0 for gpu in range(3) for switch in ("s0", "s1")}
    del links[2, "s1"]
    sketch = _direct(_switched(links))
    ports = {port.name: port.bandwidth_gb_per_s for port in sketch.ports}
    widths = {"n0/gpu0": 300.0, "n0/gpu1": 300.0, "n0/gpu2": 150.0}
    assert ports == {f"{way}:{gpu}": gb for way in ("in", "out") for gpu, gb in widths.items()}
    bandwidths = {pair: edge.bandwidth_gb_per_s for pair, edge in sketch.edge.items()}
    assert bandwidths == {(a, b): 150.0 if 2 in (a, b) else 300.0 for a, b in bandwidths}
    assert len(bandwidths) == 6


def test_every_nvswitch_carries_as_its_narrower_side() -> None:
    # 10 GB/s through each of the two, not the 110 that each GPU has in all.
    links = {(0, "s0"): 100.0, (0, "s1"): 10.0, (1, "s0"): 10.0, (1, "s1"): 100.0}
    sketch = _direct(_switched(links))
    assert sketch.edge[0, 1].bandwidth_gb_per_s == 20.0
    assert sketch.port["out:n0/gpu0"].bandwidth_gb_per_s == 110.0
    assert sketch.port["in:n0/gpu1"].bandwidth_gb_per_s == 110.0


def test_gpus_without_a_common_nvswitch_have_no_edge() -> None:
    links = {(0, "s0"): 50.0, (1, "s0"): 50.0, (1, "s1"): 50.0, (2, "s1"): 50.0}
    sketch = _direct(_switched(links))
    assert sorted(sketch.edge) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert [edge.reason for edge in sketch.dropped] == ["no way between them inside the node"] * 2
