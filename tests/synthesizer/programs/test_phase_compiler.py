"""The bytes of phased programs, and their reader."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lookup_tables.program_header import check_seal, is_phased, sealed
from lookup_tables.table import BuiltinConfig, NcclAlgorithm, NcclProtocol, StoredSchedule
from synthesizer.ir.collectives import Collective
from synthesizer.programs.compiler import compile_program, pattern_in
from synthesizer.programs.layout import Pattern
from synthesizer.programs.phase_compiler import compile_phases, read_phases
from synthesizer.programs.phase_plans import plan_by_name
from synthesizer.programs.phases import PhasedSchedule
from synthesizer.programs.reader import read_program
from synthesizer.programs.staged.program_check import check_programs
from tests.synthesizer.programs.schedules import exchange
from tests.synthesizer.programs.test_phase_plans import all_plans
from tuccl.errors import NoProgramError, TableError

GOLDEN = Path(__file__).parent / "golden" / "phased.program.hex"
PLAN = plan_by_name(Collective.REDUCE_SCATTER, "exchange", 2, 4)


def test_the_bytes_of_a_phased_program_are_fixed() -> None:
    """Deployed executors read these bytes: a change needs a new version."""
    wanted = bytes.fromhex(GOLDEN.read_text())
    assert compile_phases(PLAN) == wanted
    assert len(wanted) == 72 + 3 * 32


@pytest.mark.parametrize("plan", all_plans(3, 2) + all_plans(2, 1), ids=lambda plan: plan.name)
def test_a_phased_program_reads_back_as_its_schedule(plan: PhasedSchedule) -> None:
    program = compile_phases(plan)
    check_seal(program)
    assert is_phased(program)
    assert pattern_in(program) is Pattern.NONE
    assert read_phases(program, "p") == replace(plan, name="")


def test_the_programs_of_a_table_may_be_of_both_versions() -> None:
    sound = [
        StoredSchedule("aa", "exchange", "", compile_program(exchange())),
        StoredSchedule("bb", "exchange", "", compile_phases(PLAN)),
        StoredSchedule("cc", "for nine ranks", ""),
    ]
    check_programs(sound, "t")
    data = bytearray(compile_phases(PLAN))
    data[72 + 8] = 1  # The first phase writes one chunk further on.
    wrong = StoredSchedule("dd", "exchange", "", sealed(bytes(data)))
    with pytest.raises(TableError, match=r"t: schedule dd: .* damaged \(phase 1 reads a chunk"):
        check_programs([*sound, wrong], "t")


def test_each_reader_refuses_the_other_version() -> None:
    with pytest.raises(TableError, match=r"p: .* \(it has phases"):
        read_program(compile_phases(PLAN), "p")
    with pytest.raises(TableError, match=r"p: .* \(it has no phases"):
        read_phases(compile_program(exchange()), "p")


def test_mutated_bytes_are_refused_or_read_as_what_they_say() -> None:
    rng = random.Random(1)
    good = [compile_phases(plan) for plan in all_plans(2, 2)]
    for _ in range(3000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(16, len(data))] = rng.choice([0, 1, 2, 3, 127, 255])
        if rng.random() < 0.1:
            del data[rng.randrange(72, len(data)) :]
        changed = sealed(bytes(data))
        with contextlib.suppress(TableError):
            assert compile_phases(read_phases(changed, "p")) == changed


def test_a_rails_configuration_is_part_of_the_program_and_of_the_name() -> None:
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 2)
    rail = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.LL, 1)
    steered = plan.with_rails(rail)
    assert steered.name == "exchange@ring-LL-1"
    assert [phase.rail for phase in steered.phases] == [None, rail, None, None]
    data = compile_phases(steered)
    assert data != compile_phases(plan)
    # Ring, LL and one channel, behind the 29 bytes of the second phase's other fields.
    assert data[72 + 32 + 29 : 72 + 64] == bytes([2, 0, 1])
    assert read_phases(data, "there").phases == steered.phases


def test_nccl_does_not_ask_about_alltoall_and_takes_64_channels_at_most() -> None:
    wrong = BuiltinConfig(NcclAlgorithm.RING, NcclProtocol.SIMPLE, 65)
    plan = plan_by_name(Collective.ALL_REDUCE, "exchange", 2, 2)
    with pytest.raises(NoProgramError, match="phase 1 has a configuration of a rail"):
        compile_phases(plan.with_rails(wrong))
    spread = plan_by_name(Collective.ALLTOALL, "rails_last", 2, 2)
    right = replace(wrong, nchannels=2)
    assert spread.with_rails(right).phases == spread.phases
    local, rail = spread.phases
    with pytest.raises(NoProgramError, match="phase 1 has a configuration of a rail"):
        compile_phases(replace(spread, phases=(local, replace(rail, rail=right))))
