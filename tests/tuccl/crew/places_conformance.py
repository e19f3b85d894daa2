"""What holds for all `Places`, whoever starts the processes: each check gets places of two or more.

Local and launched places are checked by `test_places.py` itself, those of MPI by `mpi_job.py`.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from lookup_tables.collective import Collective
from probes.host.probe import HostProbeOptions
from tuccl.crew.asking import Lost, Member, ask
from tuccl.crew.messages import Bye, Done, Failed
from tuccl.crew.places import Places
from tuccl.crew.probe_station import Look, Stop
from tuccl.measuring.workers.engine import Call
from tuccl.measuring.workers.requests import MakeGroupId, Split, Tell

_START_S = 60.0
_MIRROR = f"{__name__}:Mirror"
_HANGING = Split(0, 1, 0)
_CRASHING = Tell("ran_by", Call(Collective.ALL_REDUCE, 1024))


class Mirror:
    """An engine that says where it runs; asked for other things it hangs or crashes."""

    def make_group_id(self) -> bytes:
        return f"{os.getpid()} {os.environ.get('OWN', '')}".encode()

    def ran_by(self, _: object) -> str:
        os.abort()

    def close(self) -> None:
        pass

    def split(self, *_: int) -> None:
        time.sleep(3600)


def started(places: Places, *at: int, **environment: str) -> dict[int, Member]:
    """Start a worker at each of these places; return them by number."""
    numbers = [places.start(place, environment) for place in at]
    members: dict[int, Member] = {}
    deadline = time.monotonic() + _START_S
    while len(members) < len(at):
        assert time.monotonic() < deadline, [places.ended(number, 0.0) for number in numbers]
        if (found := places.listener.accept(0.1)) is not None:
            members[found[1].number] = Member(f"worker {found[1].number}", found[0])
    assert sorted(members) == sorted(numbers)
    return members


def ended(places: Places, members: dict[int, Member]) -> None:
    places.end(list(members), 0.0)
    for member in members.values():
        member.lose("it was ended")


def mirrored(members: dict[int, Member]) -> list[list[str]]:
    """Process id and variable of each worker."""
    answers = ask(members, dict.fromkeys(members, MakeGroupId(_MIRROR)), _START_S)
    return [bytes.fromhex(answer.text).decode().split(" ") for answer in answers.values()]


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def the_hosts_of_all_places_answer(places: Places) -> None:
    everywhere = range(len(places.places))
    assert len(everywhere) > 1
    answers = places.ask(dict.fromkeys(everywhere, Stop()), _START_S)
    assert answers == dict.fromkeys(everywhere, Done())


def a_host_that_fails_is_asked_again(places: Places) -> None:
    nothing = Look(HostProbeOptions(root="/no/such/place"))  # type: ignore[arg-type]
    answers = places.ask({0: nothing, 1: Stop()}, _START_S)
    assert isinstance(answers[0], Failed)
    assert "/no/such/place" in answers[0].reason
    assert answers[1] == places.ask({0: Stop()}, _START_S)[0] == Done()


def workers_have_their_environment_and_several_share_a_place(places: Places) -> None:
    first = started(places, 0, 1, 1, OWN="first")
    second = started(places, 0, OWN="second")
    found = mirrored(first | second)
    assert [variable for _, variable in found] == ["first"] * 3 + ["second"]
    assert len({pid for pid, _ in found}) == 4
    assert [places.ended(number, 0.0) for number in (*first, *second)] == [""] * 4
    ended(places, first | second)
    assert not any(is_running(int(pid)) for pid, _ in found)


def a_dismissed_worker_leaves_by_itself(places: Places) -> None:
    members = started(places, 0, 1)
    assert ask(members, dict.fromkeys(members, Bye()), _START_S) == dict.fromkeys(members, Done())
    assert [places.ended(number, _START_S) for number in members] == ["exit 0"] * 2
    ended(places, members)


def a_worker_that_crashes_is_noticed_at_once(places: Places) -> None:
    members = started(places, 1, 0)
    mirrored(members)
    crashing, other = members
    requests = {crashing: _CRASHING, other: _HANGING}
    began = time.monotonic()
    answers = ask(members, requests, _START_S, together=True)
    assert time.monotonic() - began < _START_S / 2
    assert list(answers) == [crashing]
    assert isinstance(answers[crashing], Lost)
    assert not answers[crashing].is_late
    assert "killed by signal 6 (SIGABRT)" in places.ended(crashing, 10.0)
    assert ask(members, {crashing: MakeGroupId(_MIRROR)}, 1.0) == answers, "it is not asked again"
    ended(places, members)


def a_worker_that_hangs_is_late_and_killed(places: Places) -> None:
    members = started(places, 0, 1)
    pids = [int(pid) for pid, _ in mirrored(members)]
    hanging = next(iter(members))
    answers = ask(members, {hanging: _HANGING}, 0.5)
    assert answers == {hanging: Lost(f"worker {hanging}", "no answer within 0.5 s")}
    assert answers[hanging].is_late
    ended(places, members)
    assert not any(map(is_running, pids))


def what_a_worker_refuses_is_an_answer(places: Places) -> None:
    members = started(places, 1)
    (number,) = members
    refused = ask(members, {number: MakeGroupId("no such engine")}, _START_S)[number]
    assert isinstance(refused, Failed)
    assert "no such engine" in refused.reason
    assert mirrored(members)[0][1] == ""
    ended(places, members)


CHECKS: dict[str, Callable[[Places], None]] = {
    check.__name__: check
    for check in (
        the_hosts_of_all_places_answer,
        a_host_that_fails_is_asked_again,
        workers_have_their_environment_and_several_share_a_place,
        a_dismissed_worker_leaves_by_itself,
        a_worker_that_crashes_is_noticed_at_once,
        a_worker_that_hangs_is_late_and_killed,
        what_a_worker_refuses_is_an_answer,
    )
}
