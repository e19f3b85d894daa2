"""Programs of all forms as bytes: read back as they were written, and refused if damaged."""

from __future__ import annotations

import contextlib
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.collective import COLLECTIVES, Collective
from lookup_tables.program_header import HEADER, check_seal, header_of, sealed
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, StoredSchedule
from synthesizer.experts.halving_doubling import doubling_all_reduce
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepRef, StepType
from synthesizer.lower.lowering import lower
from synthesizer.programs.compiler import check_programs, compile_program, read_program
from synthesizer.programs.cutting import cut
from synthesizer.programs.layout import (
    AVERAGES,
    COMPLETES,
    IS_UNIFORM,
    PHASE,
    RANK,
    RUNS_IN_PLACE,
    Pattern,
    pattern_in,
    unpacked,
)
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.prove.verifier import verify
from tests.synthesizer.programs import phased_schedules
from tests.synthesizer.programs.phased_schedules import (
    all_plans,
    has_rounds,
    is_uniform,
    over_gateways,
    read_phases,
)
from tests.synthesizer.programs.schedules import chain, exchange, halves, read_steps
from tests.synthesizer.programs.statement_runs import run_in_order
from tuccl.errors import TableError

HERE = Path(__file__).parent
GOLDEN = {
    "steps": HERE.parents[1] / "lookup_tables" / "golden" / "exchange.program.hex",
    "uniform": HERE / "golden" / "uniform.program.hex",
    "rounds": HERE / "golden" / "rounds.program.hex",
}
UNIFORM = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 2, 4)
PHASED = [compile_program(UNIFORM), compile_program(phased_schedules.by_hand())]
FORMS: dict[str, tuple[Algorithm | PhasedSchedule, int]] = {
    "steps": (exchange(), 88 + 2 * 16 + 32 + 4 * 24 + 8 * 24),
    "uniform": (UNIFORM, 88 + 16 + 3 * 32),
    "rounds": (phased_schedules.by_hand(), 88 + 3 * 16 + 3 * 32 + 8 * 24),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_of_a_program_are_fixed(form: str) -> None:
    """Deployed loaders read these bytes: a change needs a new version."""
    schedule, size = FORMS[form]
    wanted = bytes.fromhex(GOLDEN[form].read_text())
    assert compile_program(schedule) == wanted
    assert len(wanted) == size


def test_a_program_reads_back_as_the_schedule_that_it_was() -> None:
    algorithm = read_steps(compile_program(exchange()))
    assert algorithm.collective is Collective.ALL_REDUCE
    assert (algorithm.chunks_per_loop, algorithm.in_place, algorithm.ranks) == (1, True, 2)
    talking, adding = algorithm.programs[1].threadblocks
    assert (talking.send_peer, talking.recv_peer, talking.channel) == (0, 0, 0)
    assert [step.type.value for step in talking.steps] == ["s", "r", "cpy"]
    scratch, output = ChunkRef(Buffer.SCRATCH, 0), ChunkRef(Buffer.OUTPUT, 0)
    assert adding.steps == (Step(StepType.REDUCE, scratch, output, 1, StepRef(0, 2)),)


@pytest.mark.parametrize("algorithm", [exchange(), halves(), chain()])
def test_what_is_read_back_is_proved_like_any_schedule(algorithm: Algorithm) -> None:
    assert verify(read_steps(compile_program(algorithm))).proved


@pytest.mark.parametrize(
    "phased", [*all_plans(3, 2), *all_plans(2, 1), *map(over_gateways, COLLECTIVES)]
)
def test_phases_read_back_as_their_schedule(phased: PhasedSchedule) -> None:
    program = compile_program(phased)
    check_seal(program)
    assert (is_uniform(program), has_rounds(program)) == (phased.is_uniform, not phased.is_uniform)
    assert pattern_in(program) is Pattern.NONE
    assert read_phases(program) == replace(phased, name="")


def test_the_header_says_how_a_program_may_run() -> None:
    def flags(phased: PhasedSchedule) -> int:
        return header_of(compile_program(phased)).flags

    averages = RUNS_IN_PLACE | AVERAGES
    assert flags(UNIFORM) == averages | IS_UNIFORM
    assert flags(plan_by_name(Collective.ALL_GATHER, "rails_first", 2, 4)) == 1 | IS_UNIFORM
    doubling = cut(lower(doubling_all_reduce(((0, 1), (2, 3))), "doubling"), (2, 2))
    assert flags(doubling) == averages
    marked = [each.flags & COMPLETES for each in unpacked(compile_program(doubling)).statements]
    assert sum(map(bool, marked)) == 4
    assert flags(over_gateways(Collective.ALL_GATHER)) == RUNS_IN_PLACE
    assert flags(over_gateways(Collective.ALLTOALL)) == 0


def test_a_rails_configuration_is_part_of_the_program_and_of_the_name() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 2)
    rail = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 1)
    steered = plan.with_rails(rail)
    assert steered.name == "exchange@ring-LL-1"
    assert [phase.rail for phase in steered.calls] == [None, rail, None, None]
    data = compile_program(steered)
    assert data != compile_program(plan)
    assert unpacked(data).phases[1][-3:] == (2, 0, 1)
    assert read_phases(data).phases == steered.phases


@pytest.mark.long
@given(st.data())
def test_a_wrong_program_never_escapes_as_another_error(data: st.DataObject) -> None:
    good = [*map(compile_program, (exchange(), halves(), chain())), *PHASED]
    bad = bytearray(data.draw(st.sampled_from(good)))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(bad) - 1))
        bad[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TableError):
        assert compile_program(read_program(sealed(bytes(bad)), "p"))


@pytest.mark.slow
def test_mutated_phases_are_refused_or_run_right() -> None:
    rng = random.Random(1)
    good = [compile_program(each) for each in (*all_plans(2, 2), *map(over_gateways, COLLECTIVES))]
    read = 0
    for _ in range(4_000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(32, len(data))] = rng.choice([0, 1, 2, 3, 4, 127, 255])
        if rng.random() < 0.1:
            del data[rng.randrange(HEADER.size, len(data)) :]
        changed = sealed(bytes(data))
        with contextlib.suppress(TableError):
            phased = read_phases(changed)
            read += 1
            assert compile_program(phased) == changed
            if not phased.is_uniform:
                for in_place in (False, True)[: 1 + phased.must_run_in_place]:
                    run_in_order(phased, in_place=in_place)
    assert 100 < read < 3_600


def changed(data: bytes, at: int, form: str, *values: int) -> bytes:
    altered = bytearray(data)
    struct.pack_into(form, altered, at, *values)
    return sealed(bytes(altered))


FIRST = HEADER.size + 4 * RANK.size + 3 * PHASE.size
BROKEN: dict[str, tuple[int, str, int]] = {
    "another operation": (32, "B", 2),
    "another root": (34, "<H", 1),
    "no nodes": (40, "<I", 0),
    "more phases": (48, "<I", 4),
    "a node that is none": (HEADER.size, "<I", 2),
    "a wrong result": (FIRST + 4, "<I", 1),
    "a flag that it has not": (FIRST, "B", 3),
    "steps": (HEADER.size + 4 * RANK.size, "B", 0),
    "another version": (8, "<I", 2),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_whatever_is_wrong_is_refused(defect: str) -> None:
    at, form, value = BROKEN[defect]
    data = changed(compile_program(over_gateways(Collective.ALL_REDUCE)), at, form, value)
    with pytest.raises(TableError, match=r"t: the program is damaged \("):
        read_program(data, "t")


def test_programs_of_a_table_that_compute_something_else_are_found() -> None:
    sound = [
        StoredSchedule("aa", "exchange", "", compile_program(exchange())),
        StoredSchedule("bb", "exchange", "", compile_program(UNIFORM)),
        StoredSchedule("cc", "for nine ranks", ""),
    ]
    check_programs(sound, "t")
    data = changed(compile_program(UNIFORM), HEADER.size + RANK.size + 8, "<I", 1)
    wrong = StoredSchedule("dd", "exchange", "", data)
    with pytest.raises(TableError, match=r"t: schedule dd: .* damaged \(phase 1 reads a chunk"):
        check_programs([*sound, wrong], "t")
    steps = bytearray(compile_program(exchange()))
    steps[-24] = 7  # The last step copies what it had to add.
    wrong = StoredSchedule("ee", "exchange", "", sealed(bytes(steps)))
    with pytest.raises(TableError, match="t: schedule ee: the program is damaged"):
        check_programs([*sound, wrong], "t")
