"""Expected and measured class of pairs."""

from __future__ import annotations

import pytest

from probes.p2p.classify import ExpectedPair, PairClass, compare_pair, expected_pair
from probes.p2p.report import Figure
from tests.probes.machines import shipped
from tests.probes.p2p.reports import dgx1, pcie_box


@pytest.mark.parametrize(
    ("pair", "kind", "lanes", "promised"),
    [
        ((0, 3), PairClass.NVLINK, 2, 50.0),
        ((0, 1), PairClass.NVLINK, 1, 25.0),
        ((0, 5), PairClass.SOCKETS, 0, 10.0),
        ((0, 7), PairClass.SOCKETS, 0, 10.0),
    ],
)
def test_expected_class_of_pairs_of_a_dgx1(
    pair: tuple[int, int], kind: PairClass, lanes: int, promised: float
) -> None:
    expected = expected_pair(dgx1(), f"n0/gpu{pair[0]}", f"n0/gpu{pair[1]}")
    assert (expected.kind, expected.lanes, expected.promised_gb_per_s) == (kind, lanes, promised)


def test_expected_class_of_other_pairs() -> None:
    assert expected_pair(pcie_box(), "n0/gpu0", "n0/gpu1").kind is PairClass.HOST_BRIDGE
    switched = expected_pair(shipped("h200-4gpu"), "n0/gpu0", "n0/gpu3")
    assert switched == ExpectedPair(PairClass.NVSWITCH, 18, 450.0, 48.0, 25.0)


SWITCHED = ExpectedPair(PairClass.NVSWITCH, 18, 450.0, 48.0, 25.0)
BRIDGED = ExpectedPair(PairClass.NVLINK, 4, 100.0, 24.0, 25.0)
PCIE = ExpectedPair(PairClass.HOST_BRIDGE, 0, 48.0, 48.0, 25.0)


@pytest.mark.parametrize(
    ("expected", "speed", "found", "words"),
    [
        (SWITCHED, 386.0, PairClass.NVSWITCH, ""),
        (SWITCHED, 51.0, PairClass.PCIE, "as over PCIe"),
        (SWITCHED, 193.0, PairClass.NVSWITCH, "as over about 9 links"),
        (SWITCHED, 800.0, PairClass.NVSWITCH, "more or faster links"),
        (BRIDGED, 96.0, PairClass.NVLINK, ""),
        (BRIDGED, 48.0, PairClass.NVLINK, "as over about 2 links"),
        (BRIDGED, 12.0, PairClass.PCIE, "as over PCIe"),
        (PCIE, 48.0, PairClass.HOST_BRIDGE, ""),
        (PCIE, 55.0, PairClass.HOST_BRIDGE, ""),
        (PCIE, 20.0, PairClass.PCIE, "slower than the topology shows"),
        (PCIE, 386.0, PairClass.NVLINK, "about 17 links that were not seen"),
    ],
)
def test_measured_class(expected: ExpectedPair, speed: float, found: PairClass, words: str) -> None:
    finding = compare_pair("a", "b", expected, Figure(speed, 0.0), peer_access=True)
    assert finding.measured is found
    assert words in finding.disagreement
    assert bool(finding.disagreement) == bool(words)


def test_a_disagreement_names_pair_nominal_bandwidth_and_figure() -> None:
    finding = compare_pair("n0/gpu0", "n0/gpu3", SWITCHED, Figure(51.0, 0.0), peer_access=True)
    assert finding.disagreement.startswith(
        "n0/gpu0 -> n0/gpu3: NVSwitch 18 links promise 450 GB/s, 51 GB/s measured: "
    )


def test_without_peer_access_a_fabric_is_contradicted_and_pcie_is_not() -> None:
    speed = Figure(40.0, 0.0)
    fabric = compare_pair("a", "b", SWITCHED, speed, peer_access=False)
    assert fabric.measured is PairClass.STAGED
    assert "no access to each other's memory" in fabric.disagreement
    plain = compare_pair("a", "b", PCIE, speed, peer_access=False)
    assert (plain.measured, plain.disagreement) == (PairClass.STAGED, "")


def test_without_a_figure_nothing_is_claimed() -> None:
    finding = compare_pair("a", "b", SWITCHED, None, peer_access=True)
    assert (finding.copy_engine, finding.measured, finding.disagreement) == (None, None, "")
