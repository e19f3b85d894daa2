"""Two groups of workers that start at the same time and report to one listener."""

from contextlib import closing

import pytest

from tuccl.crew.places import LocalPlaces
from tuccl.measuring.workers.leader import Leader, Seat

pytestmark = pytest.mark.long

SEATS = (Seat(0), Seat(1))


def test_groups_that_start_together_are_led_apart() -> None:
    with closing(LocalPlaces(2)) as places:
        first, second = Leader(places, "sockets"), Leader(places, "sockets")
        for leader in (first, second):
            leader.launch(SEATS)
        # The second gathers its own first, whoever has reported.
        for leader in (second, first):
            leader.join(30.0)
        versions = [leader.open(SEATS, 30.0).text for leader in (first, second)]
        assert versions[0] == versions[1] != ""
        second.end(0.0)
        assert len(places.pids) == 2
        first.end()
        assert not places.pids
