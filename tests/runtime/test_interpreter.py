"""The interpreter, compiled for host threads, against the emulator and the operations' definition.

The same source is compiled for GPUs; what a GPU does otherwise (memory operations, warps) is shown
by tests/runtime/gpu on machines that have them.
"""

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lookup_tables.collective import COLLECTIVES, Collective
from synthesizer.experts import expert_algorithms
from synthesizer.ir.algorithm import Algorithm
from synthesizer.plan.synthesize import synthesize
from synthesizer.programs.compiler import compile_program
from tests.runtime.builds import MEMORY, NATIVE, THREADS, compile_native, needs_sanitizer, run
from tests.runtime.host_node import (
    ALIGNED_GUARD,
    BFLOAT16,
    GUARD,
    INTERPRETER,
    LL,
    REDUCTIONS,
    SIMPLE,
    TYPES,
    Call,
    HostNode,
    RawCall,
    expected,
    make_inputs,
)
from tests.synthesizer.emulator import run as emulate
from tests.synthesizer.hand_sketches import hybrid_cube_mesh, switched
from tests.synthesizer.programs.schedules import chain, exchange, halves

pytestmark = pytest.mark.long

SKETCHES = {
    "1x2": switched(1, 2),
    "1x3": switched(1, 3),
    "1x4": switched(1, 4),
    "2x4": switched(2, 4),
    "1x8": switched(1, 8),
    "1x16": switched(1, 16),
    "cube": hybrid_cube_mesh(),
}
MakeNode = Callable[..., HostNode]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    output = tmp_path_factory.mktemp("interpreter") / "libinterpreter.so"
    sources = [*INTERPRETER, NATIVE / "host_interpreter.cc"]
    return ctypes.CDLL(str(compile_native(output, sources, "-O1", "-shared")))


def test_calls_are_as_long_as_those_of_c(library: ctypes.CDLL) -> None:
    assert library.host_node_call_bytes() == ctypes.sizeof(RawCall)


@pytest.fixture
def make_node(library: ctypes.CDLL) -> Iterator[MakeNode]:
    nodes = []

    def make(ranks: int, base: int = 0) -> HostNode:
        nodes.append(HostNode(library, ranks, base))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def schedules(name: str) -> list[Algorithm]:
    sketch = SKETCHES[name]
    found = [
        algorithm
        for collective in COLLECTIVES
        for algorithm in expert_algorithms(collective, sketch, root=sketch.ranks - 1)
    ]
    if name in {"1x3", "1x4"}:
        found += [
            synthesize(collective, sketch, 1 << 20, root=1 if collective.has_root else 0).algorithm
            for collective in COLLECTIVES
        ]
    return found


def check(node: HostNode, program: bytes, call: Call, seed: int, *, in_place: bool) -> None:
    inputs = make_inputs(call, node.ranks, seed)
    results = node.run(program, call, inputs, in_place=in_place)
    for got, want in zip(results, expected(call, inputs), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=str(call))


def random_calls(rng: random.Random, algorithm: Algorithm) -> Iterator[Call]:
    """Yield a call by each protocol."""
    for protocol in (LL, SIMPLE):
        yield Call(
            operation=algorithm.collective,
            count=rng.choice([1, 2, 3, 61, 127, 1000, 4099, 16, 48, 1024]),
            protocol=protocol,
            type=rng.randrange(len(TYPES)),
            root=algorithm.root,
            instances=rng.choice([1, 1, 2, 3]),
            threads=rng.choice([1, 1, 2]),
            buffer_bytes=rng.choice([1 << 15, 1 << 18, 1 << 22]),
            guard=rng.choice([GUARD, ALIGNED_GUARD]),
        )


@pytest.mark.parametrize("name", SKETCHES)
def test_every_schedule_computes_its_operation(name: str, make_node: MakeNode) -> None:
    """One node takes all of them after one another, so each finds what the last left behind.

    Most in moves, some step by step.
    """
    rng = random.Random(name)
    node = make_node(SKETCHES[name].ranks, rng.choice([0, 2**32 - 1000]))
    for seed, algorithm in enumerate(schedules(name)):
        program = compile_program(algorithm)
        for call in random_calls(rng, algorithm):
            in_place = algorithm.in_place and rng.random() < 0.5
            node.rearrange(rearranges=rng.random() < 0.7)
            check(node, program, call, seed, in_place=in_place)


@pytest.mark.parametrize("ranks", [16, 32])
def test_direct_schedules_of_many_ranks(ranks: int, make_node: MakeNode) -> None:
    """A DGX-2, and the most that is served."""
    node = make_node(ranks)
    for seed, collective in enumerate((Collective.ALL_GATHER, Collective.ALL_REDUCE)):
        algorithms = expert_algorithms(collective, switched(1, ranks))
        algorithm = next(each for each in algorithms if "all_pairs" in each.name)
        call = Call(collective, 1000, buffer_bytes=1 << 18)
        for _ in range(3):  # One after the other, so halves are used again.
            check(node, compile_program(algorithm), call, seed, in_place=False)


@pytest.mark.parametrize("name", ["1x2", "1x4", "1x8"])
def test_aligned_calls_of_one_tile(name: str, make_node: MakeNode) -> None:
    """Such calls take shorter code."""
    rng = random.Random(name)
    node = make_node(SKETCHES[name].ranks)
    for seed, algorithm in enumerate(schedules(name)):
        program = compile_program(algorithm)
        for call in random_calls(rng, algorithm):
            aligned = replace(
                call,
                count=16 * rng.choice([1, 3, 64, 257]),
                times=rng.choice([1, 3]),
                buffer_bytes=1 << 22,
                guard=ALIGNED_GUARD,
            )
            plan = node.plan(program, aligned)
            assert plan is not None
            assert plan[0] == 1
            check(node, program, aligned, seed, in_place=False)


def test_few_messages_share_the_slots_of_many(make_node: MakeNode) -> None:
    """A connection has 4 KB for each of 8 messages; one message alone may take all of it."""
    program, node = compile_program(exchange()), make_node(2)
    call = Call(Collective.ALL_REDUCE, 4096, SIMPLE, buffer_bytes=1 << 15, guard=ALIGNED_GUARD)
    assert node.plan(program, call) == (1, 1 << 14, 1 << 15)
    check(node, program, call, 1, in_place=False)
    more = Call(Collective.ALL_REDUCE, 8196, SIMPLE, buffer_bytes=1 << 15)
    assert node.plan(program, more) == (9, 1 << 12, 1 << 12)
    check(node, program, more, 1, in_place=False)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_it_does_what_the_emulator_does(collective: Collective, make_node: MakeNode) -> None:
    sketch = SKETCHES["1x4"]
    node = make_node(4)
    for algorithm in expert_algorithms(collective, sketch):
        parts = 4 if collective.divides else 1
        call = Call(collective, 6 * algorithm.chunks_per_loop // parts, protocol=SIMPLE)
        inputs = make_inputs(call, 4, 1)
        given = inputs
        if collective is Collective.BROADCAST:
            given = [inputs[0], *(array[:0] for array in inputs[1:])]
        wanted = emulate(algorithm, given)
        results = node.run(compile_program(algorithm), call, inputs)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reduction", range(len(REDUCTIONS)), ids=REDUCTIONS)
@pytest.mark.parametrize("kind", range(len(TYPES)), ids=TYPES)
def test_types_and_reductions(kind: int, reduction: int, make_node: MakeNode) -> None:
    node = make_node(3)
    sketch = SKETCHES["1x3"]
    for collective in (Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER):
        for algorithm in expert_algorithms(collective, sketch)[:5]:
            call = Call(collective, 37, type=kind, reduction=reduction)
            program = compile_program(algorithm)
            if (TYPES[kind], REDUCTIONS[reduction]) == ("float16", "avg"):
                assert node.plan(program, call) is None
            else:
                check(node, program, call, kind, in_place=False)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("reduction", "want"), [("max", [2, 3, 4, -1]), ("min", [1, 3, 4, -2])])
def test_maxima_and_minima_pass_over_nan(
    kind: str, reduction: str, want: list[int], make_node: MakeNode
) -> None:
    """Maxima and minima ignore a NaN, as fmax and fmin in NCCL; two NaN give a NaN."""
    inputs = [
        np.array([1, np.nan, 4, -1, np.nan], kind),
        np.array([2, 3, np.nan, -2, np.nan], kind),
    ]
    codes = {"type": TYPES.index(kind), "reduction": REDUCTIONS.index(reduction)}
    call = Call(Collective.ALL_REDUCE, 5, **codes)
    for result in make_node(2).run(compile_program(exchange()), call, inputs):
        np.testing.assert_array_equal(result, [*want, np.nan])


def test_bfloat16(make_node: MakeNode) -> None:
    """Small whole numbers, as the upper halves of 32-bit floats."""
    node = make_node(2)
    values = [np.arange(40, dtype="float32") + rank for rank in range(2)]
    inputs = [(array.view("uint32") >> 16).astype("uint16") for array in values]
    for reduction, want in (("sum", values[0] + values[1]), ("avg", (values[0] + values[1]) / 2)):
        call = Call(Collective.ALL_REDUCE, 40, type=BFLOAT16, reduction=REDUCTIONS.index(reduction))
        for result in node.run(compile_program(halves()), call, inputs):
            got = (result.astype("uint32") << 16).view("float32")
            np.testing.assert_array_equal(got, want)


def test_half_floats_round_to_even(make_node: MakeNode) -> None:
    """Every finite half, added to another: as numpy, which adds in 32 bits and rounds once."""
    node = make_node(2)
    every = np.arange(1 << 16, dtype="uint16").view("float16")
    finite = every[np.isfinite(every)]
    inputs = [finite, np.roll(finite, 12345)]
    call = Call(Collective.ALL_REDUCE, len(finite), type=TYPES.index("float16"))
    with np.errstate(over="ignore"):
        wanted = (inputs[0].astype("float32") + inputs[1].astype("float32")).astype("float16")
    for result in node.run(compile_program(halves()), call, inputs):
        np.testing.assert_array_equal(result, wanted)


def test_no_elements_are_no_work(make_node: MakeNode) -> None:
    node = make_node(2)
    check(node, compile_program(exchange()), Call(Collective.ALL_REDUCE, 0), 0, in_place=False)
    assert node.base(0) == 0


def test_large_buffers_go_round_their_slots_many_times(make_node: MakeNode) -> None:
    for algorithm, operation, ranks in (
        (exchange(), Collective.ALL_REDUCE, 2),
        (chain(), Collective.BROADCAST, 3),
    ):
        program, node = compile_program(algorithm), make_node(ranks)
        for protocol, rearranges in product((LL, SIMPLE), (True, False)):
            node.rearrange(rearranges=rearranges)
            call = Call(operation, 1 << 17, protocol, instances=2, buffer_bytes=1 << 15, times=2)
            plan = node.plan(program, call)
            assert plan is not None
            assert plan[0] > 3 * 8
            check(node, program, call, 1, in_place=False)


def test_ranks_take_the_same_stretch_of_numbers(make_node: MakeNode) -> None:
    node = make_node(3)
    program = compile_program(chain())
    call = Call(Collective.BROADCAST, 10_000, times=5)
    check(node, program, call, 1, in_place=False)
    plan = node.plan(program, call)
    assert plan is not None
    assert {node.base(rank) for rank in range(3)} == {5 * (plan[0] * 2 + 1)}


def test_old_lines_never_look_new(make_node: MakeNode) -> None:
    """A round of 2^32 numbers later the same flags come again; lines were renewed in between."""
    program = compile_program(exchange())
    long = Call(Collective.ALL_REDUCE, 1000)
    unrelated = Call(Collective.ALL_REDUCE, 2, SIMPLE)  # It leaves the lines alone.
    node = make_node(2)
    for _ in range(2):  # Into either half.
        check(node, program, long, 1, in_place=False)
    for base in range(2**29, 2**32, 2**29):
        node.set_base(base)
        for _ in range(2):
            check(node, program, unrelated, 3, in_place=False)
    node.set_base(2**32)
    inputs = make_inputs(long, 2, 7)
    results = [np.zeros(1000, "int32") for _ in range(2)]
    early = threading.Thread(target=node.run_raw, args=(program, long, inputs, results, range(1)))
    early.start()
    early.join(0.2)
    assert early.is_alive()  # It does not take the lines of the first launch for new ones.
    node.run_raw(program, long, inputs, results, range(1, 2))
    early.join()
    np.testing.assert_array_equal(results, expected(long, inputs))


@pytest.mark.parametrize(
    "call",
    [
        Call(Collective.ALL_GATHER, 10),
        Call(Collective.ALL_REDUCE, 10, instances=81),
        Call(Collective.ALL_REDUCE, 10, threads=17),
        Call(Collective.ALL_REDUCE, 10, threads=0),
        Call(Collective.ALL_REDUCE, 10, type=10),
        Call(Collective.ALL_REDUCE, 10, reduction=5),
        Call(Collective.ALL_REDUCE, 10, protocol=3),
        Call(Collective.ALL_REDUCE, 10, buffer_bytes=4095),
        Call(Collective.ALL_REDUCE, 1 << 60, buffer_bytes=4096),
    ],
    ids=str,
)
def test_calls_that_cannot_run_so(call: Call, make_node: MakeNode) -> None:
    assert make_node(2).plan(compile_program(exchange()), call) is None


def test_a_program_that_is_not_for_calls_in_place_is_for_none(make_node: MakeNode) -> None:
    program = compile_program(replace(exchange(), in_place=False))
    assert make_node(2).plan(program, Call(Collective.ALL_REDUCE, 10)) is None


def test_a_program_has_one_root(make_node: MakeNode) -> None:
    node, program = make_node(3), compile_program(chain())
    assert node.plan(program, Call(Collective.BROADCAST, 10, root=0)) is not None
    assert node.plan(program, Call(Collective.BROADCAST, 10, root=1)) is None


def test_slots_shrink_with_the_buffer(make_node: MakeNode) -> None:
    node, program = make_node(2), compile_program(exchange())
    for buffer_bytes in (1 << 14, 1 << 16):
        call = Call(Collective.ALL_REDUCE, 1 << 20, SIMPLE, buffer_bytes=buffer_bytes)
        plan = node.plan(program, call)
        assert plan is not None
        assert plan[1:] == (buffer_bytes // 8, buffer_bytes // 8)
        half = node.plan(program, Call(Collective.ALL_REDUCE, 1 << 20, buffer_bytes=buffer_bytes))
        assert half is not None
        assert half[1] == buffer_bytes // 16


def test_an_abort_ends_a_wait(make_node: MakeNode) -> None:
    """Rank 0 never calls."""
    node, program = make_node(3), compile_program(chain())
    call = Call(Collective.BROADCAST, 100)
    buffers = [np.zeros(100, "int32") for _ in range(3)]
    waiting = threading.Thread(
        target=node.run_raw, args=(program, call, buffers, buffers, range(1, 3))
    )
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    node.abort()
    waiting.join(20)
    assert not waiting.is_alive()


# The compiler takes a third of the time without optimization, and the run no longer.
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(MEMORY, id="memory"),
        pytest.param(THREADS, id="threads", marks=pytest.mark.slow),
    ],
)
def test_under_sanitizers(flags: tuple[str, ...], tmp_path: Path) -> None:
    needs_sanitizer(tmp_path, *flags)
    sources = [NATIVE / "drive_interpreter.cc", NATIVE / "host_interpreter.cc", *INTERPRETER]
    driver = compile_native(tmp_path / "drive_interpreter", sources, *flags)
    files = []
    for collective in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.BROADCAST):
        algorithm = expert_algorithms(collective, SKETCHES["1x3"], root=0)[-1]
        files.append(tmp_path / f"{algorithm.name}.program")
        files[-1].write_bytes(compile_program(algorithm))
    assert run(driver, *files) == f"{8 * len(files)} calls right\n"
