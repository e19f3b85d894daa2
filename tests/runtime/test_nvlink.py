"""Which devices the executor takes for joined by NVLink, over a stand-in of NVML."""

from collections.abc import Callable

import pytest

from tests.runtime.builds import EXECUTOR, STAND_INS, compile_native, run

A, B, C, D = (f"0000:{bus}:00.0" for bus in ("1a", "3b", "5e", "86"))
GPU, SWITCH, UNKNOWN = "0", "2", "-"
Show = Callable[..., list[str]]


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Show:
    """One string of 0 and 1 for each device."""
    folder = tmp_path_factory.mktemp("nvlink")
    sources = [STAND_INS / "show_nvlink.cc", EXECUTOR / "nvlink.cc"]
    program = compile_native(folder / "show", sources)
    library = folder / "nvml" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    compile_native(library, [STAND_INS / "stand_in_nvml.c"], "-shared")

    def joined(
        devices: list[str], *links: tuple[str, int, int, str, str], nvml: bool = True
    ) -> list[str]:
        text = "".join(" ".join(map(str, link)) + ";" for link in links)
        path = str(library.parent) if nvml else str(folder)
        return run(program, *devices, LD_LIBRARY_PATH=path, STAND_IN_LINKS=text).split()

    return joined


def test_bridges_join_pairs_only(show: Show) -> None:
    pairs = [(A, 0, 1, GPU, B), (B, 0, 1, GPU, A), (C, 0, 1, GPU, D), (D, 3, 1, GPU, C)]
    assert show([A, B, C, D], *pairs) == ["1100", "1100", "0011", "0011"]


def test_switches_join_all(show: Show) -> None:
    switches = [(gpu, 17, 1, SWITCH, "0000:c1:00.0") for gpu in (A, B, C)]
    assert show([A, B, C], *switches) == ["111"] * 3
    hidden = [(gpu, 0, 1, UNKNOWN, "fffffff:ff:ff.0") for gpu in (A, B)]
    assert show([A, B, C], *hidden, (C, 0, 1, SWITCH, "none")) == ["111"] * 3


def test_links_that_are_down_or_lead_elsewhere_join_nothing(show: Show) -> None:
    down = [
        (A, 0, 0, GPU, B),
        (B, 0, 0, SWITCH, B),
        (C, 0, 1, GPU, D),
        (C, 1, 1, UNKNOWN, "0000:07:00.0"),
    ]
    assert show([A, B, C], *down) == ["100", "010", "001"]


def test_without_an_answer_nothing_is_joined(show: Show) -> None:
    assert show([A, B], (A, 0, 1, GPU, B)) == ["11", "01"]
    assert show([A, B], (A, 0, 1, GPU, B), nvml=False) == ["10", "01"]
    assert show(["", ""]) == ["00", "00"]
