"""The benchmark's figures under the names of a topology's GPUs."""

from dataclasses import replace
from pathlib import Path

import pytest

from probes.p2p.figures import GpuFigures, P2pFigures, p2p_figures
from probes.p2p.report import Figure, read_p2p_report
from tests.probes.machines import shipped
from tests.probes.p2p.reports import report

GOLDEN = Path(__file__).with_name("golden") / "h200-4gpu.json"
H200 = [f"0000:00:0{i}.0" for i in (6, 7, 8, 9)]
MACHINE = shipped("h200-4gpu")


def three_samples(median: float) -> Figure:
    """Figure of the samples in `report`: 1 % apart, quartiles half of that."""
    return Figure(pytest.approx(median), pytest.approx(0.01))  # type: ignore[arg-type]  # equals what is near


def test_a_real_report_gives_every_pair_and_gpu_its_figures() -> None:
    figures = p2p_figures(MACHINE, read_p2p_report(GOLDEN.read_text()))
    names = [f"n0/gpu{i}" for i in range(4)]
    assert [(p.src, p.dst) for p in figures.pairs] == [
        (a, b) for a in names for b in names if a != b
    ]
    assert [gpu.gpu for gpu in figures.gpus] == names
    first, last = figures.pairs[0], figures.pairs[-1]
    assert first.copy_engine_gb_per_s is not None
    assert first.copy_engine_gb_per_s.median == pytest.approx(386.1, abs=0.1)
    assert first.flag_latency_us is not None
    assert first.flag_latency_us.median == pytest.approx(0.57, abs=0.01)
    # That run left kernels out.
    assert (first.kernel_write_gb_per_s, last.kernel_read_gb_per_s) == (None, None)
    for gpu in figures.gpus:
        assert gpu.to_host_gb_per_s is not None
        assert 54 < gpu.to_host_gb_per_s.median < 56


def test_directions_are_kept_apart_and_gpus_matched_by_address() -> None:
    measured = report(
        [H200[1], H200[0]],  # CUDA's order is another one
        {
            ("kernel_write", (0, 1)): 300.0,
            ("kernel_write", (1, 0)): 200.0,
            ("kernel_read", (0, 1)): 310.0,
            ("write_latency", (1, 0)): 0.9,
            ("flag_latency", (0, 1)): 0.6,
            ("fan_in", (1,)): 380.0,
        },
    )
    figures = p2p_figures(MACHINE, measured)
    forward, back = figures.pairs
    assert (forward.src, forward.dst) == ("n0/gpu0", "n0/gpu1")
    assert forward.kernel_write_gb_per_s == three_samples(200.0)
    assert (forward.kernel_read_gb_per_s, forward.copy_engine_gb_per_s) == (None, None)
    assert forward.write_latency_us == three_samples(0.9)
    assert forward.flag_latency_us == back.flag_latency_us == three_samples(0.6)
    assert (back.src, back.dst, back.write_latency_us) == ("n0/gpu1", "n0/gpu0", None)
    assert back.kernel_write_gb_per_s == three_samples(300.0)
    assert back.kernel_read_gb_per_s == three_samples(310.0)
    assert figures.gpus == (GpuFigures("n0/gpu0", None, None, None, three_samples(380.0)),)


def test_what_has_no_figure_is_left_out() -> None:
    measured = report(H200[:3], {("copy_engine", (0, 1)): 300.0})
    figures = p2p_figures(MACHINE, measured)
    assert [(pair.src, pair.dst) for pair in figures.pairs] == [("n0/gpu0", "n0/gpu1")]
    assert figures.gpus == ()
    stranger = replace(measured, gpus=tuple(replace(gpu, bus_id="") for gpu in measured.gpus))
    assert p2p_figures(MACHINE, stranger) == P2pFigures((), ())


def test_a_host_of_a_cluster_has_figures_of_its_own_gpus() -> None:
    figures = p2p_figures(MACHINE, read_p2p_report(GOLDEN.read_text())).on_node(12)
    assert (figures.pairs[0].src, figures.pairs[0].dst) == ("n12/gpu0", "n12/gpu1")
    assert figures.gpus[3].gpu == "n12/gpu3"
