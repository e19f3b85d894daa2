"""Placement of ranks."""

import pytest

from lookup_tables.table import Shape
from tuccl.crew.places import LocalPlaces, Place
from tuccl.errors import MeasurementError
from tuccl.measuring.workers.seating import seats_of, whole_shape

ONE_HOST = tuple(Place("a", number) for number in range(4))
TWO_HOSTS = tuple(Place(host, number) for host in "ab" for number in range(4))


def places_of(shape: Shape, places: tuple[Place, ...], faked: tuple[int, ...] = ()) -> list[int]:
    return [seat.place for seat in seats_of(shape, places, faked)]


def test_a_shape_takes_the_first_devices_of_the_first_nodes() -> None:
    assert whole_shape(ONE_HOST) == Shape(4, 1, 4)
    assert whole_shape(TWO_HOSTS) == Shape(8, 2, 4)
    assert places_of(Shape(4, 1, 4), ONE_HOST) == [0, 1, 2, 3]
    assert places_of(Shape(2, 1, 2), ONE_HOST) == [0, 1]
    assert places_of(Shape(4, 2, 2), TWO_HOSTS) == [0, 1, 4, 5]
    assert places_of(Shape(4, 1, 4), TWO_HOSTS) == [0, 1, 2, 3]


def test_nodes_that_differ_are_used_whole() -> None:
    places = (*ONE_HOST, Place("b", 0))
    assert whole_shape(places) == Shape(5, 2, 0)
    assert places_of(Shape(5, 2, 0), places) == [0, 1, 2, 3, 4]


def test_faked_nodes_differ_in_what_nccl_takes_for_the_host() -> None:
    assert whole_shape(ONE_HOST, (2, 2)) == Shape(4, 2, 2)
    seats = seats_of(Shape(4, 2, 2), ONE_HOST, (2, 2))
    assert [seat.environment["NCCL_HOSTID"] for seat in seats] == [
        "tuccl-node0", "tuccl-node0", "tuccl-node1", "tuccl-node1",
    ]  # fmt: skip
    assert {seat.environment["NCCL_NET"] for seat in seats} == {"Socket"}
    shares = [seat.environment["TUCCL_WORKER_SHARE"] for seat in seats]
    assert shares == ["0/4", "1/4", "2/4", "3/4"]
    assert places_of(Shape(2, 2, 1), ONE_HOST, (2, 2)) == [0, 2]
    assert seats_of(Shape(4, 1, 4), ONE_HOST)[0].environment == {}


def test_faked_nodes_may_differ_in_size() -> None:
    assert whole_shape(ONE_HOST, (3, 1)) == Shape(4, 2, 0)
    seats = seats_of(Shape(4, 2, 0), ONE_HOST, (3, 1))
    assert [seat.environment["NCCL_HOSTID"] for seat in seats] == [
        *(["tuccl-node0"] * 3), "tuccl-node1",
    ]  # fmt: skip
    assert [seat.place for seat in seats] == [0, 1, 2, 3]


def test_hosts_of_an_nvlink_domain_are_one_node() -> None:
    hosts = [Place(host, rank) for host in "abcd" for rank in range(2)]
    assert [seat.place for seat in seats_of(Shape(8, 2, 4), hosts, (), (2, 2))] == [*range(8)]
    assert [seat.place for seat in seats_of(Shape(8, 1, 8), hosts, (), (4,))] == [*range(8)]
    assert [seat.place for seat in seats_of(Shape(4, 1, 4), hosts, (), (2, 2))] == [0, 1, 2, 3]
    # A machine of other hosts than these is none of theirs.
    with pytest.raises(MeasurementError, match="does not fit"):
        seats_of(Shape(8, 1, 8), hosts, (), (3,))


def test_workers_of_faked_nodes_may_take_the_same_devices() -> None:
    shared, apart = LocalPlaces(4, devices=2), LocalPlaces(4)
    try:
        seats = seats_of(Shape(4, 2, 2), shared.places, (2, 2))
        assert [shared.places[seat.place].local_rank for seat in seats] == [0, 1, 0, 1]
        assert len({seat.environment["TUCCL_WORKER_SHARE"] for seat in seats}) == 4
        assert [place.local_rank for place in apart.places] == [0, 1, 2, 3]
    finally:
        shared.close()
        apart.close()


@pytest.mark.parametrize("shape", [Shape(8, 1, 8), Shape(4, 2, 2), Shape(0, 0, 0)])
def test_a_shape_that_does_not_fit_is_an_error(shape: Shape) -> None:
    with pytest.raises(MeasurementError, match=r"does not fit the devices here \(4\)"):
        seats_of(shape, ONE_HOST)


@pytest.mark.parametrize(
    ("places", "sizes"), [(ONE_HOST, (1, 1, 1)), (TWO_HOSTS, (4, 4)), (ONE_HOST, (4, 0))]
)
def test_nodes_that_cannot_be_faked(places: tuple[Place, ...], sizes: tuple[int, ...]) -> None:
    listed = " [+] ".join(map(str, sizes))
    with pytest.raises(MeasurementError, match=f"cannot appear as nodes of {listed}: "):
        whole_shape(places, sizes)
