"""Facts of collectives, written out by hand, and their names."""

import pytest

from lookup_tables.collective import ASKED_ABOUT, COLLECTIVES, Collective, parse_collective
from tuccl.errors import UsageError


def names_of(fact: str) -> set[str]:
    return {each.value for each in COLLECTIVES if getattr(each, fact)}


def test_the_facts() -> None:
    assert names_of("has_root") == {"broadcast", "reduce"}
    assert names_of("reduces") == {"all_reduce", "reduce_scatter", "reduce"}
    assert names_of("divides") == {"all_gather", "reduce_scatter", "alltoall"}
    assert names_of("input_is_part") == {"all_gather"}
    assert names_of("output_is_part") == {"reduce_scatter"}
    assert names_of("is_paired") == {"alltoall"} == names_of("since")
    assert names_of("has_place") == {each.value for each in COLLECTIVES} - {"alltoall"}
    assert names_of("asks_tuner") == {each.value for each in ASKED_ABOUT}
    assert [each.passes for each in COLLECTIVES] == [1, 1, 1, 1, 2, 1]
    assert [each.parts(4) for each in COLLECTIVES] == [1, 1, 4, 4, 1, 4]
    assert [each.bus_factor(4) for each in COLLECTIVES] == [1.0, 1.0, 0.75, 0.75, 1.5, 0.75]
    assert [each.code for each in COLLECTIVES] == list(range(len(COLLECTIVES)))


@pytest.mark.parametrize("name", ["all_gather", "AllGather", "all-gather", "ALLGATHER"])
def test_usual_names_are_known(name: str) -> None:
    assert parse_collective(name) is Collective.ALL_GATHER


@pytest.mark.parametrize("name", ["", "custom", "sendrecv", "all gather"])
def test_other_names_are_refused_with_the_list(name: str) -> None:
    with pytest.raises(UsageError, match=r"use one of broadcast, reduce, .*, alltoall$"):
        parse_collective(name)
    with pytest.raises(ValueError, match="is not a collective of NCCL"):
        Collective.named(name)
