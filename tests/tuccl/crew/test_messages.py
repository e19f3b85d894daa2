"""Messages arrive as they were sent, and what is none is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from lookup_tables.collective import Collective
from probes.host.probe import HostProbeOptions
from probes.network.instruments.endpoint import PairTask, ServerAnswer
from probes.network.instruments.tools import Figure, Tool
from probes.network.ports import Failure, NetworkPort
from tuccl.api.hosts.settled_nccl import FindNccl, HostNccl
from tuccl.api.hosts.shipped_hosts import CheckTable
from tuccl.crew.duties import Duties
from tuccl.crew.hosting import EndWorkers, HowEnded, StartWorker
from tuccl.crew.messages import Bye, Done, Failed, Request, from_bytes, to_bytes
from tuccl.crew.pieces import Piece
from tuccl.crew.probe_station import Look, Measure, Measured, Serve, Served, Stop
from tuccl.errors import MessageError
from tuccl.measuring.workers.engine import Call
from tuccl.measuring.workers.requests import (
    MakeGroupId,
    Open,
    Opened,
    Split,
    Tell,
    Time,
    Timed,
)
from tuccl.shipping.doctor.ship_check import CheckedHost

PORT = NetworkPort(1, "b", 0, "eth0", "eth0", address="10.0.0.1", prefix_length=24)
TASK = PairTask(PORT, PORT, Tool.IPERF3, tcp_port=7, timeout_s=3)
CALL = Call(Collective.REDUCE_SCATTER, 4096, "ring", "LL", 2, computation_us=1.5)
REQUESTS: tuple[Request, ...] = (
    StartWorker(3, {"A": "b"}, (("10.0.0.1", 80),), "ab"), EndWorkers((1, 2), 0.5),
    HowEnded(1, 1.0), FindNccl(), CheckTable("/a b"), Piece("x"), Serve((TASK,)),
    Look(HostProbeOptions(Path("/x"))), Measure("latency", (TASK, TASK)), Stop(),
    MakeGroupId("sockets"), Open("nccl", 0, 2, 1, "ff"), Split(0, 2, 1), Time(CALL, 3),
    Tell("check", CALL), Tell("cost_table", CALL),
)  # fmt: skip
ANSWERS = (
    Done("text"), Failed("why", True), HostNccl("a", "2.28.9", unclear=True),
    CheckedHost(host="a", failure="why"),
    Done("report"), Served((ServerAnswer(5), ServerAnswer(0, Failure.TIMEOUT, "late"))),
    Measured((Figure(1.5, "iperf3"), Figure(None, "ping", Failure.FILTERED, "", (1.0, 2.0)))),
    Opened("NCCL", 22809), Opened("none", None), Timed((1.0, 2.5)), Bye(3),
)  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_arrives_at_its_duty_as_it_was_sent(request_: Request) -> None:
    envelope = from_bytes(to_bytes(7, request_))
    assert envelope.number == 7
    assert Duties({}).request_from(envelope) == request_


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda each: type(each).__name__)
def test_an_answer_arrives_as_it_was_sent(answer: Any) -> None:
    assert from_bytes(to_bytes(7, answer)).content(type(answer)) == answer


@pytest.mark.parametrize(
    "changed",
    [
        {"fields": {"call": {"operation": "none", "size_bytes": 1}, "launches": 1}},
        {"fields": {"call": {"operation": "all_reduce", "size_bytes": "1"}, "launches": 1}},
        {"fields": {"launches": 1}},
        {"fields": {"more": 1}},
        {"kind": "Engine"},
        {"kind": "Stop"},
        {"duty": "os"},
        {"number": "7"},
    ],
)
def test_a_damaged_request_is_refused(changed: dict[str, Any]) -> None:
    members = json.loads(to_bytes(7, Time(CALL, 3)))
    with pytest.raises(MessageError):
        Duties({}).request_from(from_bytes(json.dumps(members | changed).encode()))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b"null"])
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(MessageError):
        from_bytes(content)


def test_an_answer_of_another_type_is_refused() -> None:
    with pytest.raises(MessageError, match="received Done, not Timed"):
        from_bytes(to_bytes(7, Done())).content(Timed)
