"""Reading the benchmark's report, and refusing impossible figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.p2p.report import Figure, P2pQuantity, read_p2p_report
from tests.probes.p2p.reports import bus_id, content, h200_figures
from tuccl.errors import MachineError

GOLDEN = Path(__file__).with_name("golden") / "h200-4gpu.json"


def good() -> dict[str, Any]:
    return content([bus_id(i) for i in range(4)], h200_figures())


def test_the_golden_report_gives_medians_spreads_and_identities() -> None:
    report = read_p2p_report(GOLDEN.read_text())
    assert [gpu.bus_id for gpu in report.gpus] == [f"0000:00:0{i}.0" for i in (6, 7, 8, 9)]
    figure = report.figure(P2pQuantity.COPY_ENGINE, 0, 1)
    # Samples 385.21, 386.01, 386.41: the quartiles lie half way between them.
    assert figure is not None
    assert figure.median == 386.01
    assert figure.spread == pytest.approx((386.21 - 385.61) / 386.01)
    assert report.flag_latency_us(3, 1) == report.flag_latency_us(1, 3)
    latency = report.figure(P2pQuantity.WRITE_LATENCY, 2, 0)
    assert latency is not None
    assert latency.median == 0.96
    assert latency.spread == pytest.approx(0.01 / 0.96)
    assert report.has_peer_access(3, 0)
    assert report.figure(P2pQuantity.KERNEL_WRITE, 0, 1) is None
    assert not report.failures


def test_a_single_sample_has_no_spread() -> None:
    assert Figure.of((7.0,)) == Figure(7.0, 0.0)


@given(cut=st.integers(0, 4000))
def test_a_report_cut_anywhere_is_refused(cut: int) -> None:
    text = GOLDEN.read_text().strip()
    with pytest.raises(MachineError, match="cut or not valid JSON"):
        read_p2p_report(text[: min(cut, len(text) - 1)])


def test_the_programs_own_error_is_passed_on() -> None:
    with pytest.raises(MachineError, match=r"^tuccl-p2p: no GPU is visible$"):
        read_p2p_report('{"error": "no GPU is visible"}')


def _sample(value: object) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        report["measurements"][0]["samples"][1] = value

    return change


def _set(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda report: report.update({key: value})


def _in_first(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda report: report["measurements"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_sample(-386.0), "greater than 0"),
        (_sample(0.0), "greater than 0"),
        (_sample(1e9), "beyond any link"),
        (_sample(None), "valid number"),
        (_sample("386"), "valid number"),
        (_set("schema_version", 2), "schema_version 2"),
        (_set("schema_version", True), "schema_version True"),
        (_set("surprise", 1), "Extra inputs"),
        (_in_first("what", "copy_motor"), "Input should be"),
        (_in_first("gpus", [0]), "copy_engine of GPUs"),
        (_in_first("gpus", [1, 1]), "copy_engine of GPUs"),
        (_in_first("gpus", [0, 9]), "a GPU beyond the 4"),
        (_in_first("gpus", [0, 2]), "given twice"),
        (_in_first("unit", "us"), "copy_engine in us"),
        (_in_first("samples", []), "with 0 samples"),
        (_in_first("status", "corrupt"), "'corrupt' with 3 samples"),
    ],
)
def test_impossible_reports_are_refused(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    report = good()
    change(report)
    with pytest.raises(MachineError, match=words) as caught:
        read_p2p_report(json.dumps(report))
    assert "\n" not in str(caught.value)


def test_two_gpus_of_one_address_are_refused() -> None:
    report = good()
    report["gpus"][1]["bus_id"] = report["gpus"][0]["bus_id"]
    with pytest.raises(MachineError, match="two GPUs of one PCI address"):
        read_p2p_report(json.dumps(report))


def test_a_corrupt_pair_has_no_figure_of_any_kind_in_any_direction() -> None:
    report = good()
    for measurement in report["measurements"]:
        if measurement["what"] == "copy_engine" and measurement["gpus"] == [2, 1]:
            measurement.update({"status": "corrupt", "samples": [], "detail": "not what was sent"})
    read = read_p2p_report(json.dumps(report))
    assert read.corrupt_pairs == {(1, 2)}
    assert read.figure(P2pQuantity.COPY_ENGINE, 1, 2) is None
    assert read.figure(P2pQuantity.COPY_ENGINE, 2, 1) is None
    assert read.flag_latency_us(1, 2) is None
    assert read.figure(P2pQuantity.COPY_ENGINE, 1, 3) is not None
