"""Guided choices beside choices among all sketches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_tables.collective import Collective
from sketches.candidates import sketch_candidates, whole_machine
from sketches.guidance import SizeRange
from tests.sketches.machines import cluster, nvlink_path_with_pcie
from tuccl.errors import InfeasibleError
from tuccl.schedules.candidates import make_candidates
from tuccl.schedules.guidance import guided, worth_trying
from tuccl.schedules.schedule_choice import Request, choose_schedule

pytestmark = pytest.mark.long


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.ALLTOALL])
def test_the_guided_choice_is_as_good_with_fewer_sketches(collective: Collective) -> None:
    sketches = sketch_candidates(cluster(2, 2, 2))
    told = guided([collective], sketches)
    assert [sketch.name for sketch in told] == ["pruned", "one_nic", "full_mesh"]
    left_out: set[str] = set()
    for size_bytes in (1 << 10, 1 << 17, 1 << 28):
        request = Request(collective, size_bytes)
        free, choice = choose_schedule(request, sketches), choose_schedule(request, told)
        assert choice.best.weighed_us <= 1.005 * free.best.weighed_us
        assert {tried.sketch.name for tried in choice.tried}.isdisjoint(choice.left_out)
        assert all(choice.left_out.values())
        left_out |= choice.left_out.keys()
    assert left_out == {"one_nic", "full_mesh"}


def test_pcie_is_for_what_is_too_small_for_two_nvlinks() -> None:
    topology = nvlink_path_with_pcie()
    direct, pcie = guided([Collective.ALLTOALL], sketch_candidates(topology))
    assert (direct.name, pcie.name) == ("direct", "direct+pcie")
    sizes = pcie.sizes_of("alltoall")
    assert sizes is not None
    # Straight PCIe takes load off the NVLinks here, so it stays for large sizes.
    assert (sizes.min_bytes, sizes.max_bytes) == (0, None)
    narrow = replace(
        topology,
        links=tuple(
            replace(link, bandwidth_gb_per_s=0.1) if link.bandwidth_gb_per_s == 24.0 else link
            for link in topology.links
        ),
    )
    _, pcie = guided([Collective.ALL_GATHER], sketch_candidates(narrow))
    sizes = pcie.sizes_of("all_gather")
    assert sizes is not None
    # Two NVLinks take 1.4 us and bring two thirds of a buffer to an end at 50 GB/s: 75 GB/s.
    # What PCIe adds to that is a five-hundredth.
    assert sizes.max_bytes is not None
    assert sizes.max_bytes > 0.995 * 1.4 * 75e3 * 199


def test_when_the_guided_sketches_give_nothing_the_others_are_tried() -> None:
    pruned, relay, *_ = sketch_candidates(cluster(2, 4, 2))
    never = SizeRange("all_gather", 1, 0, "for no size")
    told = [replace(pruned, edges=pruned.edges[:3], symmetries=()), replace(relay, sizes=(never,))]
    choice = choose_schedule(Request(Collective.ALL_GATHER, 1 << 20), told)
    assert choice.best.sketch.name == "relay"
    assert not choice.left_out
    with pytest.raises(InfeasibleError):
        choose_schedule(Request(Collective.ALL_GATHER, 1 << 20), told[:1])


def test_one_sketch_many_ranks_and_no_such_root_are_left_as_they_are() -> None:
    sketches = sketch_candidates(cluster(2, 4, 2))
    large = sketch_candidates(cluster(9, 8, 8, rails_only=True))
    assert guided([Collective.ALL_GATHER], sketches[:1]) == sketches[:1]
    assert guided([Collective.ALL_GATHER], large) == large
    assert guided([Collective.BROADCAST], sketches, root=8) == sketches


def test_sketches_are_left_out_with_the_reason_for_sizes_that_they_are_not_for() -> None:
    first, second, *_ = sketch_candidates(cluster(2, 2, 1))
    small = replace(first, sizes=(SizeRange("all_gather", 0, 4095, "large ones are for others"),))
    gathers = (Collective.ALL_GATHER, (small, second))
    left_out = {first.name: "large ones are for others"}
    assert worth_trying(*gathers, [4096, 8192]) == ([second], left_out)
    assert worth_trying(*gathers, [4095, 8192]) == ([small, second], {})
    assert worth_trying(Collective.ALL_REDUCE, (small, second), [4096]) == ([small, second], {})
    assert worth_trying(Collective.ALL_GATHER, [small], [4096]) == ([small], {})


def test_a_run_leaves_out_sketches_that_are_worth_trying_for_none_of_its_sizes() -> None:
    topology = cluster(2, 2, 1)
    pruned, relay, *_ = sketch_candidates(topology)
    sizes_bytes = (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30)
    few = replace(relay, sizes=(SizeRange("all_gather", 1 << 24, 1 << 26, "some"),))
    between = SizeRange("all_gather", 1 << 26, 1 << 28, "none of them")
    never = replace(relay, name="never", sizes=(between,))
    done: list[int] = []
    found = make_candidates(
        Collective.ALL_GATHER,
        [pruned, few, never],
        whole_machine(topology),
        sizes_bytes,
        5.0,
        lambda sketches, _share: done.append(sketches),
    )
    origins = {candidate.origin for candidate in found}
    assert not any("never" in origin for origin in origins)
    assert any("relay" in origin for origin in origins)
    assert done == sorted(done)
    assert done[-1] == 3
