"""Each limit of the runtimes, just met and just exceeded."""

from dataclasses import replace

from lookup_tables.collective import Collective
from synthesizer.ir.algorithm import Algorithm, Step, Threadblock
from synthesizer.ir.msccl_limits import check_limits
from tests.synthesizer.hand_schedules import algorithm, all_schedules, block, i, o, s, step


def one_rank(*blocks: Threadblock) -> Algorithm:
    return algorithm(Collective.CUSTOM, 4, [list(blocks), []], scratch=4)


def limits_of(*steps: Step) -> tuple[str, ...]:
    waits = block(1, -1, -1, step("nop", i(0)), step("cpy", i(0), o(0)))
    return check_limits(one_rank(block(0, -1, -1, *steps), waits))


def test_small_schedules_keep_all_limits() -> None:
    assert [check_limits(a) for a in all_schedules()] == [()] * len(all_schedules())


def test_steps_of_a_threadblock() -> None:
    assert limits_of(*[step("cpy", i(0), o(0))] * 256) == ()
    found = limits_of(*[step("cpy", i(0), o(0))] * 257)
    assert found == ("rank 0 threadblock 0: 257 steps, at most 256",)


def test_chunks_of_a_step() -> None:
    assert limits_of(step("cpy", i(0), o(0), count=71)) == ()
    found = limits_of(step("cpy", i(0), o(0), count=72))
    assert found == ("rank 0 threadblock 0: step 0: 72 chunks, at most 71",)


def test_threadblocks_and_channels() -> None:
    many = one_rank(*[block(n, -1, -1) for n in range(217)])
    assert check_limits(many) == ("rank 0: 217 threadblocks, at most 216",)
    busy = one_rank(*[block(n, 1, -1) for n in range(33)])
    assert check_limits(busy) == ("rank 0: 33 threadblocks send on channel 0, at most 32",)
    wide = replace(one_rank(), channels=33)
    assert check_limits(wide) == ("33 channels, at most 32",)


def test_what_the_runtime_makes_of_a_nop() -> None:
    good = limits_of(step("nop", i(0), dep=(1, 1)), step("cpy", i(0), o(0), dep=(1, 1)))
    assert good == ()
    assert limits_of(step("nop", i(0), dep=(1, 1)), step("cpy", i(0), o(0))) == (
        "rank 0 threadblock 0: step 1: follows a nop that waits, and must itself wait for a step",
    )
    assert limits_of(step("nop", i(0), dep=(1, 1))) == (
        "rank 0 threadblock 0: step 0: a nop at the end is dropped with its dependence",
    )
    (text,) = limits_of(step("cpy", i(0), o(0), dep=(1, 0)))
    assert text.startswith("rank 0 threadblock 1: step 0: a nop never reports that it is done")


def test_reductions_that_the_runtime_fuses_have_one_count() -> None:
    pair = step("re", s(0), o(0), count=2), step("re", s(2), o(0), count=1)
    assert limits_of(*pair) == (
        "rank 0 threadblock 0: step 1: fused with the reduction before it, which has another count",
    )
    assert limits_of(pair[0], replace(pair[1], dst=o(1))) == ()
    assert limits_of(pair[0], replace(pair[1], count=2)) == ()
