"""scripts/bench_peers.py: published figures that no schedule on their links can reach."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_peers import ndv2, ndv2_15gpus, problems, verdict
from bench_synthesis import SIZES

from synthesizer.bounds.time_bounds import time_bound


def test_a_figure_is_ruled_out_only_if_what_it_was_rounded_from_is() -> None:
    assert verdict(ours=2.9, peer=2.95, bound=2.944) == "ruled out by bound"
    assert verdict(ours=2.9, peer=2.95, bound=2.946) == "short"
    assert verdict(ours=2.9, peer=2.95, bound=3.0) == "short"
    assert verdict(ours=2.95, peer=2.95, bound=3.0) == "ahead"
    assert verdict(ours=90.0, peer=93.0, bound=92.96) == "short"
    assert verdict(ours=90.0, peer=93.0, bound=92.94) == "ruled out by bound"


def test_these_figures_are_ruled_out() -> None:
    ruled_out = set()
    for problem in problems():
        bound = time_bound(problem.collective, problem.sketch)
        for size, size_bytes in SIZES.items():
            most = size_bytes * 1e-3 / bound.time_us(float(size_bytes * problem.share))
            peer = max(figures[size] for figures in problem.published.values())
            if verdict(0.0, peer, most) == "ruled out by bound":
                ruled_out.add((problem.sketch.name, problem.collective.value, size))
    assert ruled_out == {
        # 64 blocks over one link, then its alpha; TE-CCL has 56, see `ndv2_15gpus`.
        *(("ndv2_2x8", "alltoall", size) for size in ("64KB", "1MB", "64MB", "1GB")),
        # 31 blocks into one GPU, then an alpha that TE-CCL leaves out.
        *(("dgx2_2x16", "all_gather", size) for size in ("64MB", "1GB")),
    }


def test_without_gpu_0_others_go_through_it_where_they_have_no_link() -> None:
    whole, rest = ndv2(), ndv2_15gpus()
    assert rest.ranks == 15
    # Ranks 0 to 3 are GPUs 1 to 4, which GPU 0 has links to; rank 8 is GPU 9.
    assert rest.edge[0, 1] == replace(whole.edge[1, 2], src=0, dst=1)
    assert (1, 4) not in whole.edge
    through = rest.edge[0, 3]
    assert through.alpha_us == pytest.approx(1.4)
    assert through.bandwidth_gb_per_s == 50.0
    assert through.ports == ("1>0", "0>4")
    across = [edge for edge in rest.edges if (edge.src < 7) != (edge.dst < 7)]
    assert {(edge.src, edge.dst) for edge in across} == {(0, 8), (1, 8), (2, 8), (3, 8), (7, 0)}
    assert all("0>9" in edge.ports for edge in across if edge.dst == 8)
