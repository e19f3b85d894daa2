"""Which schedule wins, and what happens when solvers, time or bytes are missing."""

from __future__ import annotations

from dataclasses import replace

import pulp
import pytest

from lookup_tables.collective import Collective
from sketches.candidates import sketch_candidates
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms, rails_suffice
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepType, Threadblock
from synthesizer.prove.verifier import verify
from synthesizer.simulate.simulator import simulate_us
from tests.sketches.machines import cluster
from tuccl.errors import InfeasibleError, ScheduleError, UsageError
from tuccl.quantities import parse_seconds
from tuccl.schedules import making
from tuccl.schedules.schedule_choice import WIRES_ALONE, Request, Tried, choose_schedule

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sketches() -> tuple[Sketch, ...]:
    return sketch_candidates(cluster(2, 2, 1))


def request(**changes: object) -> Request:
    return replace(Request(Collective.ALL_GATHER, 1 << 20), **changes)  # type: ignore[arg-type]


def test_the_fastest_of_all_sketches_wins_and_is_proved(sketches: tuple[Sketch, ...]) -> None:
    choice = choose_schedule(request(), sketches)
    times = [tried.weighed_us for tried in choice.tried]
    assert times == sorted(times)
    assert choice.best is choice.tried[0]
    assert {tried.sketch.name for tried in choice.tried} == {sketch.name for sketch in sketches}
    assert {tried.synthesis is None for tried in choice.tried} == {True, False}
    assert verify(choice.best.algorithm).proved
    again = simulate_us(choice.best.algorithm, choice.best.sketch, 1 << 20, WIRES_ALONE)
    assert choice.best.time_us == again
    assert {"routing", "experts", "simulating", "verifying"} <= choice.seconds.keys()
    assert all(seconds >= 0 for seconds in choice.seconds.values())


def test_the_chunks_of_a_sketch_are_kept(sketches: tuple[Sketch, ...]) -> None:
    wanted = replace(sketches[0], chunks_per_rank=2)
    choice = choose_schedule(request(), [wanted])
    synthesized = next(tried for tried in choice.tried if tried.synthesis is not None)
    assert synthesized.algorithm.chunks_per_loop % (2 * wanted.ranks) == 0


def test_when_the_time_is_over_sketches_are_left_out_by_name(
    sketches: tuple[Sketch, ...],
) -> None:
    choice = choose_schedule(request(time_limit_s=1e-5), sketches)
    names = ", ".join(sketch.name for sketch in sketches[1:])
    assert choice.notes == (
        f"sketches not tried, because time was over; another run may differ: {names}",
    )
    assert {tried.sketch.name for tried in choice.tried} == {sketches[0].name}


def test_refused_and_wrong_schedules_are_left_out_by_name(sketches: tuple[Sketch, ...]) -> None:
    free = choose_schedule(request(), sketches[:1])
    first = free.best.algorithm.name

    def refusal(tried: Tried) -> str | None:
        return f"{first} is not wanted" if tried.algorithm.name == first else None

    choice = choose_schedule(request(), sketches[:1], refusal=refusal)
    assert choice.best.algorithm.name == free.tried[1].algorithm.name
    assert choice.notes == (f"left out on sketch {sketches[0].name}: {first} is not wanted",)
    with pytest.raises(InfeasibleError, match=r"^no$"):
        choose_schedule(request(), sketches[:1], refusal=lambda _: "no")


def test_an_expert_algorithm_that_is_wrong_is_left_out(
    sketches: tuple[Sketch, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def idle(*_: object) -> tuple[Algorithm, ...]:
        algorithm, *_others = expert_algorithms(Collective.ALL_GATHER, sketches[0])
        own = Step(StepType.COPY, ChunkRef(Buffer.INPUT, 0), ChunkRef(Buffer.OUTPUT, 0))
        block = Threadblock(0, -1, -1, 0, (own,))
        programs = tuple(replace(gpu, threadblocks=(block,)) for gpu in algorithm.programs)
        return (replace(algorithm, name="idle", programs=programs),)

    monkeypatch.setattr(making, "expert_algorithms", idle)
    choice = choose_schedule(request(), sketches[:1])
    assert {tried.synthesis is None for tried in choice.tried} == {False}
    (note,) = choice.notes
    assert note.startswith(f"left out on sketch {sketches[0].name}: idle is wrong, ")


def test_without_a_solver_an_expert_algorithm_wins_and_a_note_says_why(
    sketches: tuple[Sketch, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for solver in (pulp.HiGHS, pulp.COIN_CMD, pulp.PULP_CBC_CMD):
        monkeypatch.setattr(solver, "available", lambda _self: False)
    choice = choose_schedule(request(), sketches)
    assert choice.best.synthesis is None
    assert any(
        note.startswith("no MILP solver: neither HiGHS nor CBC is installed")
        for note in choice.notes
    )
    # A mesh with one direction only has no expert algorithm.
    node = sketches[0].node_of_rank
    ahead = tuple(
        edge for edge in sketches[0].edges if edge.src != 1 and node[edge.src] <= node[edge.dst]
    )
    one_way = replace(sketches[0], edges=ahead, symmetries=())
    with pytest.raises(InfeasibleError, match="no path from rank 1 to rank 0"):
        choose_schedule(request(), [one_way])
    with pytest.raises(ScheduleError):
        choose_schedule(request(collective=Collective.BROADCAST), [one_way])


def test_a_machine_too_large_to_search_gets_rail_exchanges_and_notes() -> None:
    large = sketch_candidates(cluster(17, 8, 8, rails_only=True))
    assert [sketch.name for sketch in large] == ["pruned", "one_nic"]
    choice = choose_schedule(request(size_bytes=1 << 20), large)
    assert {tried.synthesis for tried in choice.tried} == {None}
    assert {tried.sketch.name for tried in choice.tried} == {"pruned"}
    assert "routing" not in choice.seconds
    alone, left_out = choice.notes
    assert alone.startswith("expert algorithms alone were tried on sketch pruned: a search is for ")
    assert left_out.startswith("all_gather was not tried on sketch one_nic: 136 GPUs and ")
    with pytest.raises(InfeasibleError, match="not tried on sketch one_nic: 136 GPUs"):
        choose_schedule(request(), large[1:])
    # What has one root grows with the ranks alone.
    rooted = choose_schedule(request(collective=Collective.BROADCAST), large[1:])
    assert rooted.best.algorithm.name.startswith("broadcast_tree")


def test_many_nodes_joined_by_rails_get_rail_exchanges_without_a_search() -> None:
    many = sketch_candidates(cluster(12, 8, 8, rails_only=True))
    choice = choose_schedule(request(size_bytes=4 << 20), many)
    assert {tried.synthesis for tried in choice.tried} == {None}
    assert choice.best.algorithm.name.startswith("all_gather_rails_12_")
    assert choice.left_out == {
        "one_nic": "the rail exchanges on pruned keep all NICs busy at this size"
    }
    (note,) = choice.notes
    assert "finds nothing faster on 96 GPUs" in note
    assert choice.seconds.keys() == {"experts", "simulating", "verifying"}


@pytest.mark.parametrize(
    ("nodes", "size_bytes", "suffices"),
    [(12, 4 << 20, True), (12, (4 << 20) - 1, False), (8, 1 << 30, False)],
)
def test_a_search_is_left_out_on_many_nodes_and_at_large_sizes_alone(
    nodes: int, size_bytes: int, *, suffices: bool
) -> None:
    pruned, *_ = sketch_candidates(cluster(nodes, 8, 8, rails_only=True))
    assert rails_suffice(Collective.ALL_REDUCE, pruned, size_bytes) is suffices
    assert not rails_suffice(Collective.ALLTOALL, pruned, size_bytes)
    assert not rails_suffice(Collective.BROADCAST, pruned, size_bytes)


def test_chunks_have_a_byte_at_least(sketches: tuple[Sketch, ...]) -> None:
    choice = choose_schedule(request(size_bytes=4), sketches)
    assert max(tried.algorithm.chunks_per_loop for tried in choice.tried) <= 4
    with pytest.raises(InfeasibleError, match="3 bytes are less than one byte for each of 4"):
        choose_schedule(request(size_bytes=3), sketches)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("30", 30.0), ("500ms", 0.5), ("1.5m", 90.0), ("168h", 604800.0)],
)
def test_time_limits(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1 day", "nan", "inf", "1e3", "169h", "٣s"])
def test_time_limits_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"^time limit "):
        parse_seconds(text)
