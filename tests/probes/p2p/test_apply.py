"""Measured figures in a topology: replaced figures, notes, and robustness against noise."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.p2p.apply import apply_p2p
from probes.p2p.report import read_p2p_report
from probes.topology.graph import LinkKind, PairLimit, Provenance, Topology
from probes.topology.paths import local_path
from probes.topology.validation import validate
from tests.probes.machines import shipped
from tests.probes.p2p.reports import (
    Figures,
    bus_id,
    content,
    dgx1,
    dgx1_figures,
    h200_figures,
    pcie_box,
    pcie_figures,
    report,
)
from tuccl.errors import InvalidTopologyError

GOLDEN = Path(__file__).with_name("golden") / "h200-4gpu.json"
H200 = [f"0000:00:0{i}.0" for i in (6, 7, 8, 9)]
NAMES = [f"n0/gpu{i}" for i in range(4)]
BUSES = [bus_id(i) for i in range(8)]


def applied(topology: Topology, bus_ids: list[str], figures: Figures) -> Topology:
    found = apply_p2p(topology, report(bus_ids, figures))
    validate(found)
    return found


def test_h200_behind_nvswitch_keeps_its_class_and_gets_the_measured_figures() -> None:
    before = shipped("h200-4gpu")
    found = apply_p2p(before, read_p2p_report(GOLDEN.read_text()))
    assert found.notes == before.notes
    links = [link for link in found.links if link.kind is LinkKind.NVLINK]
    assert len(links) == 8
    for link in links:
        # The best of a GPU's pairs lie between 386.1 and 386.14: one median.
        assert link.bandwidth_gb_per_s == pytest.approx(386.12, abs=0.03)
        assert (link.provenance, link.latency_provenance) == (Provenance.MEASURED,) * 2
        assert link.latency_us == pytest.approx(0.57 / 2)
        assert link.spread > 0
    assert len({link.bandwidth_gb_per_s for link in links}) == 1
    pcie = {link.bandwidth_gb_per_s for link in found.links if link.lanes == 16}
    assert len(pcie) == 1
    assert pcie.pop() == pytest.approx(55.1)
    assert found.fingerprint() == before.fingerprint()
    path = local_path(found, "n0/gpu0", "n0/gpu3")
    assert path is not None
    assert path.latency_us == pytest.approx(0.57)


def test_direct_links_get_the_figures_of_their_pair_by_direction() -> None:
    figures = dgx1_figures()
    figures["copy_engine", (3, 0)] = 47.0
    found = applied(dgx1(), BUSES, figures)
    between = found.links_between
    assert between["n0/gpu0", "n0/gpu3"][0].bandwidth_gb_per_s == 48.4
    assert between["n0/gpu3", "n0/gpu0"][0].bandwidth_gb_per_s == 47.0
    assert between["n0/gpu0", "n0/gpu1"][0].bandwidth_gb_per_s == 24.2
    assert between["n0/gpu0", "n0/pcie0"][0].bandwidth_gb_per_s == 12.4
    assert between["n0/cpu0", "n0/cpu1"][0].bandwidth_gb_per_s == 10.0
    assert (found.notes, found.limits) == ((), ())
    assert found.fingerprint() == dgx1().fingerprint()


def test_a_false_nvlink_is_reported_and_gets_the_measured_figure() -> None:
    figures = dgx1_figures()
    figures["copy_engine", (0, 3)] = figures["copy_engine", (3, 0)] = 9.0
    found = applied(dgx1(), BUSES, figures)
    assert [note.split(":")[0] for note in found.notes] == [
        "n0/gpu0 -> n0/gpu3",
        "n0/gpu3 -> n0/gpu0",
    ]
    assert "as over PCIe" in found.notes[0]
    assert found.links_between["n0/gpu0", "n0/gpu3"][0].bandwidth_gb_per_s == 9.0


def test_pairs_limited_by_the_host_bridge_get_limits_and_links_stay() -> None:
    found = applied(pcie_box(), BUSES[:4], pcie_figures(8.0))
    assert len(found.limits) == 12
    limit = found.limit_between["n0/gpu0", "n0/gpu1"]
    assert limit.bandwidth_gb_per_s == 8.0
    assert limit.spread == pytest.approx(0.01)
    assert {link.bandwidth_gb_per_s for link in found.links} == {25.0}
    assert "slower than the topology shows" in found.notes[0]


def test_pairs_that_reach_their_links_get_no_limit() -> None:
    found = applied(pcie_box(), BUSES[:4], pcie_figures(22.0))
    assert (found.limits, found.notes) == ((), ())


def test_pairs_that_slow_each_other_down_are_noted() -> None:
    figures = pcie_figures(22.0)
    for pair, speed in {(0, 1): 11.0, (2, 3): 11.5, (1, 0): 21.0}.items():
        figures["copy_engine_concurrent", pair] = speed
    found = applied(pcie_box(), BUSES[:4], figures)
    (note,) = found.notes
    assert note.startswith("Copies that share a link on their way slow each other down")
    assert note.endswith(
        "at once: 'n0/gpu0 -> n0/gpu1 (22 GB/s alone, 11 beside others)', "
        "'n0/gpu2 -> n0/gpu3 (22 GB/s alone, 11.5 beside others)'."
    )
    assert found.limits == ()


def test_limits_of_pairs_measured_anew_are_replaced() -> None:
    old = PairLimit("n0/gpu0", "n0/gpu1", 3.0), PairLimit("n0/gpu0", "n0/cpu0", 4.0)
    topology = replace(pcie_box(), limits=old)
    found = applied(topology, BUSES[:4], pcie_figures(22.0))
    assert found.limits == (old[1],)


def test_one_slow_pair_behind_an_nvswitch_is_limited_alone() -> None:
    figures = h200_figures()
    figures["copy_engine", (0, 3)] = 51.0
    found = applied(shipped("h200-4gpu"), H200, figures)
    assert [(limit.src, limit.dst) for limit in found.limits] == [("n0/gpu0", "n0/gpu3")]
    assert len(found.notes) == len(shipped("h200-4gpu").notes) + 1
    fast = {link.bandwidth_gb_per_s for link in found.links if link.lanes == 18}
    assert fast == {386.0}


def test_a_pair_below_its_expected_class_has_its_own_figure() -> None:
    figures = h200_figures()
    figures["copy_engine", (0, 3)] = 300.0  # below 75 % of 450, above 60 % of 386
    figures["copy_engine", (1, 2)] = 350.0  # within what such links do
    found = applied(shipped("h200-4gpu"), H200, figures)
    assert [note.split(":")[0] for note in found.notes[-1:]] == ["n0/gpu0 -> n0/gpu3"]
    paths = {pair: local_path(found, *pair) for pair in itertools.permutations(NAMES, 2)}
    speeds = {pair: path.bandwidth_gb_per_s for pair, path in paths.items() if path is not None}
    assert speeds.pop(("n0/gpu0", "n0/gpu3")) == 300.0
    assert set(speeds.values()) == {386.0}


def test_an_uplink_at_a_quarter_is_reported_and_applied() -> None:
    figures = pcie_figures(22.0)
    figures["gpu_to_host", (1,)] = 6.0
    for place in (0, 2, 3):
        figures["copy_engine", (1, place)] = 6.0
    found = applied(pcie_box(), BUSES[:4], figures)
    assert found.links_between["n0/gpu1", "n0/cpu0"][0].bandwidth_gb_per_s == 6.0
    assert found.links_between["n0/cpu0", "n0/gpu1"][0].bandwidth_gb_per_s == 25.0
    assert found.limits == ()
    assert any(words.startswith("n0/gpu1 -> n0/cpu0: ") for words in found.notes)


def test_a_slow_path_to_host_memory_does_not_slow_a_link_that_neighbours_use_faster() -> None:
    figures = pcie_figures(22.0)
    figures["gpu_to_host", (1,)] = 6.0
    found = applied(pcie_box(), BUSES[:4], figures)
    assert found.links_between["n0/gpu1", "n0/cpu0"][0].bandwidth_gb_per_s == 22.0


def test_a_link_that_sleeps_when_idle_is_raised_and_one_that_is_no_pcie_is_not() -> None:
    box = pcie_box()
    asleep = replace(box, links=tuple(replace(link, bandwidth_gb_per_s=3.0) for link in box.links))
    found = applied(asleep, BUSES[:4], pcie_figures(22.0))
    assert {link.bandwidth_gb_per_s for link in found.links} == {25.0}
    assert "n0/gpu0 -> n0/cpu0 takes the measurement" in "".join(found.notes)
    coherent = {**pcie_figures(22.0), ("gpu_to_host", (0,)): 350.0}
    found = applied(box, BUSES[:4], coherent)
    assert found.links_between["n0/gpu0", "n0/cpu0"][0].bandwidth_gb_per_s == 24.0
    assert ["more than PCIe allows" in words for words in found.notes] == [True]


def test_assumed_links_that_a_pair_exceeds_are_raised() -> None:
    box = pcie_box()
    slow = [replace(link, bandwidth_gb_per_s=6.0) for link in box.links]
    assumed = [replace(link, provenance=Provenance.ASSUMED) for link in slow]
    figures = {key: value for key, value in pcie_figures(20.0).items() if "host" not in key[0]}
    raised = applied(replace(box, links=tuple(assumed)), BUSES[:4], figures)
    assert {link.bandwidth_gb_per_s for link in raised.links} == {20.0}
    assert len(raised.notes) == 12
    kept = applied(replace(box, links=tuple(slow)), BUSES[:4], figures)
    assert {link.bandwidth_gb_per_s for link in kept.links} == {6.0}
    assert len(kept.notes) == 12


def test_nvlinks_that_the_topology_lacks_do_not_raise_pcie_links() -> None:
    figures = pcie_figures(200.0)
    box = pcie_box()
    links = tuple(replace(link, provenance=Provenance.ASSUMED) for link in box.links)
    found = applied(replace(box, links=links), BUSES[:4], figures)
    assert {link.bandwidth_gb_per_s for link in found.links} == {25.0}
    assert "that were not seen" in found.notes[0]


def test_a_corrupt_pair_keeps_its_class_and_is_reported() -> None:
    text = content(H200, h200_figures())
    for measurement in text["measurements"]:
        if measurement["gpus"] == [1, 2] and measurement["what"] == "copy_engine":
            measurement.update({"status": "corrupt", "samples": [], "detail": "other data"})
    found = apply_p2p(shipped("h200-4gpu"), read_p2p_report(json.dumps(text)))
    (note,) = (note for note in found.notes if note.startswith("n0/gpu1 and n0/gpu2"))
    assert "data that was copied" in note
    assert found.fingerprint() == shipped("h200-4gpu").fingerprint()


def test_without_peer_access_pairs_are_limited_to_what_the_host_forwards() -> None:
    every = list(itertools.combinations(range(4), 2))
    found = apply_p2p(pcie_box(), report(BUSES[:4], pcie_figures(11.0), every))
    assert len(found.notes) == 12
    assert all("no access to each other's memory" in note for note in found.notes)
    assert {limit.bandwidth_gb_per_s for limit in found.limits} == {11.0}


def test_hidden_and_reordered_gpus_are_matched_by_address() -> None:
    figures: Figures = {("copy_engine", (0, 1)): 100.0, ("copy_engine", (1, 0)): 350.0}
    found = apply_p2p(shipped("h200-4gpu"), report(["00000000:00:09.0", "0000:00:07.0"], figures))
    path = local_path(found, "n0/gpu3", "n0/gpu1")
    assert path is not None
    assert path.bandwidth_gb_per_s == 100.0
    assert "CUDA does not show" in found.notes[-1]
    assert "'n0/gpu0', 'n0/gpu2'" in found.notes[-1]
    strange = apply_p2p(shipped("h200-4gpu"), report(["0000:aa:00.0"], {}))
    assert any("are not in the topology: '0000:aa:00.0'" in note for note in strange.notes)


def test_a_cluster_is_refused() -> None:
    box = pcie_box()
    second_host = [replace(device, name=f"n1/{device.name}", node=1) for device in box.devices]
    cluster = replace(box, devices=(*box.devices, *second_host))
    with pytest.raises(InvalidTopologyError, match="2 hosts"):
        apply_p2p(cluster, report(H200, {}))


MACHINES = {
    "nvswitch": (shipped("h200-4gpu"), H200, h200_figures()),
    "mesh": (dgx1(), BUSES, dgx1_figures()),
    "limited": (pcie_box(), BUSES[:4], pcie_figures(8.0)),
}


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=20)
@given(seed=st.randoms(use_true_random=False))
def test_noise_of_three_percent_leaves_the_fingerprint_alone(machine: str, seed: Random) -> None:
    topology, bus_ids, figures = MACHINES[machine]
    noisy = {key: value * seed.uniform(0.97, 1.03) for key, value in figures.items()}
    quiet = applied(topology, bus_ids, figures)
    assert applied(topology, bus_ids, noisy).fingerprint() == quiet.fingerprint()


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_pair_at_half_speed_changes_the_fingerprint(machine: str, data: st.DataObject) -> None:
    topology, bus_ids, figures = MACHINES[machine]
    pairs = [key for key in figures if key[0] == "copy_engine"]
    slow = data.draw(st.sampled_from(pairs))
    quiet = applied(topology, bus_ids, figures)
    changed = applied(topology, bus_ids, {**figures, slow: figures[slow] / 2})
    assert changed.fingerprint() != quiet.fingerprint()


@given(place=st.integers(0, 3))
def test_a_gpu_whose_pairs_are_all_at_half_speed_changes_the_fingerprint(place: int) -> None:
    figures = h200_figures()
    slow = {
        key: value / 2 if key[0] == "copy_engine" and place in key[1] else value
        for key, value in figures.items()
    }
    quiet = applied(shipped("h200-4gpu"), H200, figures)
    assert applied(shipped("h200-4gpu"), H200, slow).fingerprint() != quiet.fingerprint()
