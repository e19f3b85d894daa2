"""Groups of workers that start step by step, at the same time."""

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from tuccl.crew.places import LocalPlaces
from tuccl.measuring.sockets.sockets_engine import SocketsEngine
from tuccl.measuring.workers.leader import Leader, Seat

pytestmark = pytest.mark.long

LIMIT_S = 30.0


class NotedEngine(SocketsEngine):
    """Leaves a file for each device that it opens."""

    def prepare(self, local_rank: int) -> None:
        (Path(os.environ["OPENED"]) / str(local_rank)).touch()


def test_groups_that_start_together_are_led_apart_and_open_their_devices_first(
    tmp_path: Path,
) -> None:
    seats = [Seat(place, {"OPENED": str(tmp_path)}) for place in range(4)]
    with closing(LocalPlaces(4)) as places:
        leaders = [Leader(places, f"{__name__}:NotedEngine") for _ in range(2)]
        halves = [(leader, seats[2 * n : 2 * n + 2]) for n, leader in enumerate(leaders)]
        for leader, own in halves:
            leader.launch(own)
        # The second gathers its own first, whoever has reported.
        for leader, _ in reversed(halves):
            leader.prepare(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while len(list(tmp_path.iterdir())) < 4:  # Nobody has asked them to join.
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for leader, _ in halves:
            leader.join(LIMIT_S)
        versions = [leader.open(own, LIMIT_S).text for leader, own in halves]
        assert versions[0] == versions[1] != ""
        leaders[1].end(0.0)
        assert len(places.pids) == 2
        leaders[0].end()
        assert not places.pids
