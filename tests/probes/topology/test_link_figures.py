import pytest

from probes.topology.bandwidth_class import (
    cpu_link_gb_per_s,
    nvlink_gb_per_s,
    pcie_gb_per_s,
    pcie_generation_mbps,
    xgmi_gb_per_s,
)


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
