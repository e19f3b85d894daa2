"""MSCCL++ plans: results, format, and limits of expression."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
import pytest

from lookup_tables.collective import Collective
from sketches.sketch import Sketch
from synthesizer.experts import expert_algorithms
from synthesizer.experts.ring import ring_all_reduce as rings_all_reduce
from synthesizer.formats.mscclpp_plan import (
    MAX_THREADBLOCKS,
    mscclpp_plan,
    write_mscclpp_plan,
)
from synthesizer.formats.mscclpp_plan_file import (
    OperationName,
    Plan,
    plan_text,
)
from synthesizer.formats.mscclpp_stream import MAX_OPERATIONS
from synthesizer.ir.algorithm import Algorithm, Protocol
from synthesizer.lower.lowering import lower
from synthesizer.plan.synthesize import SynthesisOptions, synthesize
from tests.shared_data import SHARED_DATA, requires_shared_data
from tests.synthesizer.emulator import expected_outputs
from tests.synthesizer.formats.mscclpp_emulator import ELEMENTS, Emulator, StuckError
from tests.synthesizer.formats.mscclpp_plan_reader import read_mscclpp_plan
from tests.synthesizer.hand_schedules import (
    algorithm,
    all_pairs_all_gather,
    all_pairs_all_reduce,
    all_schedules,
    block,
    chain_broadcast,
    i,
    o,
    ring_all_gather,
    ring_all_reduce,
    s,
    step,
)
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, switched
from tuccl.errors import FormatError, ScheduleError

PUBLISHED = SHARED_DATA / "msccl_xml" / "mscclpp-plan"
LL, SIMPLE = Protocol.LL, Protocol.SIMPLE


def _computes(
    plan: Plan, collective: Collective, root: int = 0, calls: int = 3, seed: int = 0
) -> bool:
    """Return whether all calls of a plan, run in sequence, end with the right buffers."""
    rng = np.random.default_rng(seed)
    inputs = [
        [rng.integers(0, 1000, (gpu.input_chunks, ELEMENTS)) for gpu in plan.gpus]
        for _ in range(calls)
    ]
    try:
        outputs = Emulator(plan, seed).run(inputs)
    except StuckError:
        return False
    return all(
        np.array_equal(wanted, got.reshape(-1))
        for given, found in zip(inputs, outputs, strict=True)
        for wanted, got in zip(
            expected_outputs(collective, [array.reshape(-1) for array in given], root),
            found,
            strict=True,
        )
    )


def _expressible() -> Iterator[tuple[Algorithm, bool]]:
    for a in all_schedules():
        for protocol in (SIMPLE, LL):
            for in_place in (True, False):
                claimed = a.in_place if in_place else a.out_of_place
                unfit = a.collective is Collective.REDUCE or (
                    a.collective is Collective.BROADCAST and protocol is LL
                )
                if claimed and not unfit:
                    yield replace(a, protocol=protocol), in_place


@pytest.mark.parametrize(
    ("a", "in_place"),
    [
        pytest.param(*case, id=f"{case[0].collective}-{n}-{case[0].protocol}-{case[1]}")
        for n, case in enumerate(_expressible())
    ],
)
def test_plans_of_hand_written_schedules_compute_the_right_buffers(
    a: Algorithm, in_place: bool
) -> None:
    plan = mscclpp_plan(a, in_place=in_place)
    assert _computes(plan, a.collective, a.root)
    assert read_mscclpp_plan(plan_text(plan)) == plan


@pytest.mark.long
@pytest.mark.parametrize("protocol", [SIMPLE, LL])
@pytest.mark.parametrize(
    "collective", [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER]
)
def test_plans_of_expert_schedules_compute_the_right_buffers(
    collective: Collective, protocol: Protocol
) -> None:
    algorithms = expert_algorithms(collective, switched(1, 4))
    assert algorithms
    for a in algorithms:
        plan = mscclpp_plan(replace(a, protocol=protocol))
        assert _computes(plan, collective, calls=2), a.name


@pytest.mark.long
@pytest.mark.parametrize(
    ("collective", "sketch"),
    [
        (Collective.ALL_REDUCE, switched(1, 4)),
        (Collective.BROADCAST, switched(1, 4)),
        (Collective.ALL_GATHER, hybrid_cube_mesh()),
    ],
    ids=["all_reduce", "broadcast", "all_gather"],
)
def test_plans_of_synthesized_schedules_compute_the_right_buffers(
    collective: Collective, sketch: Sketch
) -> None:
    options = SynthesisOptions(time_limit_s=0.5, gap=0.1, trees_per_rank=1, pieces_per_tree=1)
    a = synthesize(collective, sketch, 1 << 20, options, root=3).algorithm
    assert _computes(mscclpp_plan(a), collective, a.root, calls=2)


def test_a_threadblock_too_long_goes_on_in_another_one() -> None:
    a = lower(rings_all_reduce([tuple(range(8))]), "ring")
    plan = mscclpp_plan(a)
    lengths = [len(tb.ops) for gpu in plan.gpus for tb in gpu.threadblocks]
    assert max(lengths) <= MAX_OPERATIONS
    assert len(plan.gpus[0].threadblocks) > len(a.programs[0].threadblocks)
    assert _computes(plan, Collective.ALL_REDUCE, calls=2)


def _without(plan: Plan, threadblock: int, operation: int) -> Plan:
    """Return the plan without one operation of rank 0."""
    data = json.loads(plan_text(plan))
    del data["gpus"][0]["threadblocks"][threadblock]["ops"][operation]
    return read_mscclpp_plan(json.dumps(data))


@pytest.mark.long
@pytest.mark.parametrize("protocol", [SIMPLE, LL])
@pytest.mark.parametrize(
    "a", [ring_all_gather(3), all_pairs_all_reduce(2)], ids=["ring_gather", "all_pairs"]
)
def test_an_operation_left_out_shows(a: Algorithm, protocol: Protocol) -> None:
    """The emulator detects missing synchronisation; only a nop or a first wait may be implied."""
    plan = mscclpp_plan(replace(a, protocol=protocol))
    unseen: Counter[OperationName] = Counter()
    seen: Counter[OperationName] = Counter()
    for number, tb in enumerate(plan.gpus[0].threadblocks):
        for position, operation in enumerate(tb.ops):
            mutant = _without(plan, number, position)
            right = all(_computes(mutant, a.collective, seed=seed) for seed in range(8))
            (unseen if right else seen)[operation.name] += 1
    assert set(unseen) <= {OperationName.NOP, OperationName.RELAXED_WAIT}
    assert seen[OperationName.NOP] > 0


def test_messages_go_straight_to_where_they_are_wanted_when_that_is_free() -> None:
    plan = mscclpp_plan(all_pairs_all_gather(4))
    assert [gpu.scratch_chunks for gpu in plan.gpus] == [0] * 4
    names = Counter(op.name for gpu in plan.gpus for tb in gpu.threadblocks for op in tb.ops)
    assert names[OperationName.PUT] == 12
    assert OperationName.COPY not in names


def test_a_message_whose_destination_may_be_in_use_waits_in_a_slot() -> None:
    """Scratch chunk 0 takes both messages; the second may be sent before the first is reduced."""
    steps = [step("cpy", i(0), o(0), 2)]
    for chunk in range(2):
        steps += [step("s", i(chunk)), step("r", s(0)), step("re", s(0), o(chunk))]
    a = algorithm(
        Collective.ALL_REDUCE,
        2,
        [[block(0, 1 - rank, 1 - rank, *steps)] for rank in range(2)],
        scratch=1,
        in_place=False,
    )
    plan = mscclpp_plan(a)
    assert [gpu.scratch_chunks for gpu in plan.gpus] == [2, 2]  # one own, one for message two
    assert _computes(plan, Collective.ALL_REDUCE)


def test_sizes_go_into_the_plan() -> None:
    a = replace(all_pairs_all_gather(2), min_bytes=1024, max_bytes=4096)
    plan = mscclpp_plan(a)
    assert (plan.min_message_size, plan.max_message_size) == (1024, 4096)


def test_a_plan_is_for_sizes_that_the_executors_offsets_reach() -> None:
    """All_gather needs no scratch; ring all_reduce with packets has 14 chunks of it for 4."""
    assert mscclpp_plan(all_pairs_all_gather(2)).max_message_size == 2**32 - 1
    ring = replace(ring_all_reduce(4), protocol=LL)
    assert mscclpp_plan(ring).gpus[0].scratch_chunks == 14
    assert mscclpp_plan(ring).max_message_size == (2**32 - 1) * 4 // (14 * 4)
    with pytest.raises(FormatError, match="32-bit offsets end at 306783378"):
        mscclpp_plan(replace(ring, min_bytes=1 << 30))


def _many_threadblocks(copies: int) -> Algorithm:
    """Return two ranks that gather over one connection and copy each chunk in a threadblock."""
    programs = []
    for rank in range(2):
        send, take = step("s", i(0), count=copies), step("r", o((1 - rank) * copies), count=copies)
        talk = block(0, 1 - rank, 1 - rank, send, take)
        copying = [
            block(1 + k, -1, -1, step("cpy", i(k), o(rank * copies + k))) for k in range(copies)
        ]
        programs.append([talk, *copying])
    return algorithm(Collective.ALL_GATHER, 2 * copies, programs, in_place=False)


class PlanOptions(TypedDict, total=False):
    in_place: bool
    node_of_rank: Sequence[int]


@pytest.mark.parametrize(
    ("a", "options"),
    [
        (chain_broadcast(2, 1), {}),
        (replace(ring_all_reduce(2), protocol=Protocol.LL128), {}),
        (replace(ring_all_reduce(2), collective=Collective.REDUCE), {}),
        (replace(ring_all_reduce(2), in_place=False), {"in_place": True}),
        (ring_all_reduce(4), {"node_of_rank": (0, 0, 1, 1)}),
        (ring_all_reduce(4), {"node_of_rank": (0, 0)}),
        (_many_threadblocks(MAX_THREADBLOCKS), {}),
    ],
)
def test_what_a_plan_cannot_say_is_refused_by_name(a: Algorithm, options: PlanOptions) -> None:
    if a.collective is Collective.BROADCAST:
        a = replace(a, protocol=LL)
    with pytest.raises(FormatError, match=r"^[^\n]*$") as error:
        write_mscclpp_plan(a, **options)
    assert f"{a.name}: no MSCCL++ plan: " in str(error.value)


def test_a_wrong_schedule_is_not_exported() -> None:
    a = ring_all_reduce(2)
    program = replace(a.programs[0], threadblocks=())
    with pytest.raises(ScheduleError, match="hand_all_reduce"):
        write_mscclpp_plan(replace(a, programs=(program, a.programs[1])))


@requires_shared_data
@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("allreduce_packet.json", Collective.ALL_REDUCE),
        ("transfer_pack.json", Collective.ALL_GATHER),
    ],
)
def test_published_plans(name: str, collective: Collective) -> None:
    text = (PUBLISHED / name).read_text()
    plan = read_mscclpp_plan(text, name)
    assert plan_text(plan) == text
    assert all(_computes(plan, collective, seed=seed) for seed in range(3))


def _form(value: object) -> object:
    """Return the keys in order with JSON types; lists as sets of their elements' forms."""
    if isinstance(value, dict):
        return tuple((key, _form(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return frozenset(_form(inner) for inner in value)
    return type(value).__name__


def _forms(plan: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "plan", tuple(plan)
    for gpu in plan["gpus"]:
        yield "gpu", tuple(gpu)
        yield "channels", _form(gpu["channels"])
        yield "remote_buffers", _form(gpu["remote_buffers"])
        for tb in gpu["threadblocks"]:
            yield "threadblock", tuple(tb)
            if tb["channels"]:
                yield "threadblock channels", _form(tb["channels"])
            if tb["remote_buffer_refs"]:
                yield "refs", _form(tb["remote_buffer_refs"])
            for op in tb["ops"]:
                yield op["name"], _form(op)


@requires_shared_data
def test_packet_plans_have_the_form_of_the_published_ones() -> None:
    known: dict[str, set[object]] = {}
    for path in sorted(PUBLISHED.glob("*.json")):
        for kind, form in _forms(json.loads(path.read_text())):
            known.setdefault(kind, set()).add(form)
    plans = [
        json.loads(write_mscclpp_plan(replace(a, protocol=LL)))
        for a in (ring_all_reduce(2), all_pairs_all_gather(3), ring_all_reduce(3))
    ]
    checked: set[str] = set()
    for plan in plans:
        for kind, form in _forms(plan):
            if kind != "nop":
                assert form in known[kind], kind
                checked.add(kind)
    assert checked >= {"ppkt", "respkt", "upkt", "rppkt", "plan", "gpu", "refs"}


LOCAL = (("type", "str"), ("index", "int"), ("size", "int"))
REMOTE = (("buffer_id", "int"), ("index", "int"), ("size", "int"))
ON_CHANNEL = (("channel_ids", frozenset({"int"})), ("channel_type", "str"))
ON_SEMAPHORE = (("semaphore_ids", frozenset({"int"})),)
BETWEEN = ("dst_buff", frozenset({LOCAL, REMOTE}))
FORMS = {
    "nop": (),
    **dict.fromkeys(("signal", "wait", "rlxsignal", "rlxwait"), ON_CHANNEL),
    **dict.fromkeys(("sem_acquire", "sem_release"), ON_SEMAPHORE),
    "put": (
        ("src_buff", frozenset({LOCAL})),
        ("dst_buff", frozenset({REMOTE})),
        ("channel_type", "str"),
    ),
    "copy": (("src_buff", frozenset({LOCAL})), ("dst_buff", frozenset({LOCAL}))),
    "re": (
        ("src_buff", frozenset({LOCAL})),
        ("dst_buff", frozenset({LOCAL})),
        ("reduce_op", "str"),
    ),
    "res": (
        ("src_buff", frozenset({LOCAL})),
        BETWEEN,
        ("channel_type", "str"),
        ("reduce_op", "str"),
    ),
}
"""Forms of MSCCL++ 0.9's own writer (python/mscclpp/language/internal/operations.py)."""


def test_plans_with_signals_have_the_form_that_mscclpp_writes() -> None:
    checked: set[str] = set()
    for a in (ring_all_reduce(3), all_pairs_all_reduce(3), ring_all_gather(3)):
        for kind, form in _forms(json.loads(write_mscclpp_plan(a, in_place=False))):
            if kind in FORMS:
                assert form == (("name", "str"), *FORMS[kind])
                checked.add(kind)
    assert checked == set(FORMS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", "["),
        ('"Simple"', '"HB"'),
        ('"rlxwait"', '"sleep"'),
        ('"inplace": true', '"inplace": 1'),
        ('"size": 1', '"size": 0'),
        ('"size": 1', '"length": 1'),
        ('"id": 0', '"id": 1'),
        ('"connected_to": [\n            1', '"connected_to": [\n            0'),
        ('"buffer_id": 0', '"buffer_id": 5'),
        ('"index": 0', '"index": 2'),
        ('"channel_ids": [\n                0', '"channel_ids": [\n                7'),
    ],
)
def test_a_malformed_plan_gets_one_line(old: str, new: str) -> None:
    text = write_mscclpp_plan(all_pairs_all_gather(2))
    damaged = text.replace(old, new, 1)
    assert damaged != text
    with pytest.raises(FormatError, match=r"^p\.json: [^\n]*$"):
        read_mscclpp_plan(damaged, "p.json")
