import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_tables.program_header import sealed
from lookup_tables.table import StoredSchedule
from synthesizer.ir.algorithm import Algorithm, Buffer, ChunkRef, Step, StepRef, StepType
from synthesizer.ir.collectives import Collective
from synthesizer.programs.compiler import compile_program
from synthesizer.programs.reader import read_program
from synthesizer.programs.staged.program_check import check_programs
from synthesizer.prove.verifier import verify
from tests.synthesizer.programs.schedules import chain, exchange, halves
from tuccl.errors import TableError


def test_a_program_reads_back_as_the_schedule_that_it_was() -> None:
    algorithm = read_program(compile_program(exchange()), "p")
    assert algorithm.collective is Collective.ALL_REDUCE
    assert (algorithm.chunks_per_loop, algorithm.in_place, algorithm.ranks) == (1, True, 2)
    talking, adding = algorithm.programs[1].threadblocks
    assert (talking.send_peer, talking.recv_peer, talking.channel) == (0, 0, 0)
    assert [step.type.value for step in talking.steps] == ["s", "r", "cpy"]
    scratch, output = ChunkRef(Buffer.SCRATCH, 0), ChunkRef(Buffer.OUTPUT, 0)
    assert adding.steps == (Step(StepType.REDUCE, scratch, output, 1, StepRef(0, 2)),)


@pytest.mark.parametrize("algorithm", [exchange(), halves(), chain()])
def test_what_is_read_back_is_proved_like_any_schedule(algorithm: Algorithm) -> None:
    assert verify(read_program(compile_program(algorithm), "p")).proved


@pytest.mark.long
@given(st.data())
def test_a_wrong_program_never_escapes_as_another_error(data: st.DataObject) -> None:
    bad = bytearray(compile_program(data.draw(st.sampled_from([exchange(), halves(), chain()]))))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(bad) - 1))
        bad[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TableError):
        assert compile_program(read_program(sealed(bytes(bad)), "p"))


def test_a_program_that_computes_something_else_is_found_by_its_schedule() -> None:
    sound = StoredSchedule("aa", "chain", "", compile_program(chain()))
    data = bytearray(compile_program(exchange()))
    data[-24] = 7  # The last step copies what it had to add.
    wrong = StoredSchedule("bb", "exchange", "", sealed(bytes(data)))
    check_programs([sound, StoredSchedule("cc", "for nine ranks", "")], "t")
    with pytest.raises(TableError, match="t: schedule bb: the program is damaged"):
        check_programs([sound, wrong], "t")
