import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.topology.bandwidth_class import (
    bandwidth_class,
    cpu_link_gb_per_s,
    network_class,
    nvlink_gb_per_s,
    pcie_gb_per_s,
    pcie_generation_mbps,
    xgmi_gb_per_s,
)
from probes.topology.figure_text import gfx_name, gfx_number
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


@pytest.mark.parametrize(
    ("text", "mbps"),
    [
        ("2.5 GT/s", 15),
        ("8 GT/s", 60),
        ("8.0 GT/s PCIe", 60),
        ("16 GT/s", 120),
        ("32.0 GT/s PCIe", 240),
        ("64.0 GT/s PCIe", 480),
        ("", None),
        ("Unknown", None),
        ("Unknown speed", None),
        ("17 GT/s", None),
        ("nan GT/s", None),
        ("16", None),
    ],
)
def test_pcie_speeds_as_the_kernel_writes_them(text: str, mbps: int | None) -> None:
    assert pcie_generation_mbps(text) == mbps


def test_pcie_gen_4_x16_carries_24_gb_per_s() -> None:
    assert pcie_gb_per_s(120, 16) == 24.0


@pytest.mark.parametrize(
    ("capability", "gb_per_s"),
    [
        (0, 25.0),
        (60, 20.0),
        (70, 25.0),
        (80, 25.0),
        (86, 14.0625),
        (89, 25.0),
        (90, 25.0),
        (100, 50.0),
    ],
)
def test_nvlink_per_link(capability: int, gb_per_s: float) -> None:
    assert nvlink_gb_per_s(capability) == gb_per_s


@pytest.mark.parametrize(
    ("gcn", "gb_per_s"),
    [(0, 24.0), (906, 24.0), (908, 24.0), (910, 36.0), (940, 48.0), (950, 48.0)],
)
def test_xgmi_per_link(gcn: int, gb_per_s: float) -> None:
    assert xgmi_gb_per_s(gcn) == gb_per_s


@pytest.mark.parametrize(
    ("arch", "vendor", "model", "gb_per_s"),
    [
        ("x86_64", "GenuineIntel", 79, 6.0),
        ("x86_64", "GenuineIntel", 85, 10.0),
        ("x86_64", "GenuineIntel", 143, 22.0),
        ("x86_64", "GenuineIntel", 207, 40.0),
        ("x86_64", "AuthenticAMD", 49, 16.0),
        ("ppc64", "", 0, 32.0),
        ("arm64", "", 0, 6.0),
    ],
)
def test_between_sockets(arch: str, vendor: str, model: int, gb_per_s: float) -> None:
    assert cpu_link_gb_per_s(arch, vendor, 6, model) == gb_per_s


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("gfx700", 700),
        ("gfx803", 803),
        ("gfx906", 906),
        ("gfx908", 908),
        ("gfx90a", 910),
        ("gfx90c", 912),
        ("gfx940", 940),
        ("gfx942", 942),
        ("gfx950", 950),
        ("gfx1010", 1010),
        ("gfx1100", 1100),
        ("gfx1201", 1201),
    ],
)
def test_a_name_is_a_number_and_back(name: str, number: int) -> None:
    assert gfx_number(name) == number
    assert gfx_name(number) == name
    assert gfx_number(f"{name.upper()}:sramecc+:xnack-") == number


def test_what_is_no_name_has_no_number() -> None:
    for text in ("", "gfx", "gfx9", "gfx9-generic", "gfx94a", "gfx110a", "942", "sm90", "gfx304x"):
        assert gfx_number(text) is None, text


def test_nvidias_numbers_have_no_name() -> None:
    assert not any(gfx_name(capability) for capability in range(600))
