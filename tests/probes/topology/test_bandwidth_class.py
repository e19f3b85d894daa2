import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.topology.bandwidth_class import bandwidth_class, network_class
from probes.topology.graph import Link, LinkKind, Provenance

NOMINAL = [
    *[(LinkKind.NVLINK, lanes, lanes * each) for lanes in (1, 4, 12, 18) for each in (20, 25, 50)],
    (LinkKind.NVLINK, 4, 56.25),
    *[(LinkKind.XGMI, lanes, lanes * each) for lanes in (1, 2, 4) for each in (24, 36, 48)],
    # PCIe generations 3 to 6, as payload and on the wire.
    *[(LinkKind.PCIE, 16, gb_per_s) for gb_per_s in (12, 15.75, 24, 31.5, 48, 63, 96, 126)],
    *[(LinkKind.PCIE, 8, gb_per_s) for gb_per_s in (6, 7.88, 12, 15.75, 24, 31.5)],
    *[(LinkKind.NETWORK, 1, gbps / 8) for gbps in (10, 20, 25, 40, 50, 100, 200, 400, 800)],
    (LinkKind.NETWORK, 11, 11 * 25),
]


def _link(kind: LinkKind, lanes: int, gb_per_s: float) -> Link:
    return Link("a", "b", kind, gb_per_s, 0.0, Provenance.SPEC, lanes)


@pytest.mark.parametrize(("kind", "lanes", "gb_per_s"), NOMINAL)
def test_88_to_103_percent_of_nominal_is_one_class_and_half_is_another(
    kind: LinkKind, lanes: int, gb_per_s: float
) -> None:
    classes = {
        bandwidth_class(_link(kind, lanes, gb_per_s * percent / 100)) for percent in range(88, 104)
    }
    assert len(classes) == 1
    assert bandwidth_class(_link(kind, lanes, gb_per_s / 2)) not in classes


@pytest.mark.parametrize("gb_per_s", [6, 9, 10, 16, 22, 32, 40])
def test_socket_links_stand_three_percent(gb_per_s: float) -> None:
    classes = {
        bandwidth_class(_link(LinkKind.UPI, 1, gb_per_s * percent / 100)) for percent in (97, 103)
    }
    assert len(classes) == 1


@given(
    st.sampled_from([kind for kind in LinkKind if kind is not LinkKind.NETWORK]), st.floats(1, 1e4)
)
def test_halving_moves_any_octave_down_by_one(kind: LinkKind, gb_per_s: float) -> None:
    whole = bandwidth_class(_link(kind, 4, gb_per_s))
    assert bandwidth_class(_link(kind, 4, gb_per_s / 2)) == whole - 1


def test_network_classes_rise_and_unknown_has_its_own() -> None:
    classes = [network_class(gbps / 8) for gbps in (0, 1, 10, 25, 40, 56, 100, 180, 400, 5000)]
    assert classes == [-1, 0, 3, 5, 6, 7, 8, 9, 10, 13]
    # 180 Gb/s, as one cloud writes by hand for 200, is the class of 200.
    assert network_class(180 / 8) == network_class(200 / 8)
