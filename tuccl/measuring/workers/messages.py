"""Messages between leader, workers and hosts: requests and replies, as JSON.

    {"kind": "Time", "call": {"operation": "all_reduce", ...}, "launches": 3}

Only peers that know the run's key send messages (see `connection`), so an unreadable message is a
fault of this program or of the network, and ends the connection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, get_args

from lookup_tables.table import Operation
from tuccl.errors import MessageError
from tuccl.measuring.workers.engine import Call


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """A worker's number, engine and leader, passed on its standard input."""

    number: int
    """Unique in the run, whatever its rank."""
    engine: str
    addresses: tuple[tuple[str, int], ...]
    key: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class MakeGroupId:
    """Request to rank 0: `Engine.make_group_id`; answered by `Done` with hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Open:
    """`Engine.open`; answered by `Opened`."""

    rank: int
    ranks: int
    local_rank: int
    group_id: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Split:
    """`Engine.split`; answered by `Done`."""

    colour: int
    ranks: int
    rank: int


@dataclass(frozen=True, slots=True)
class Time:
    """`Engine.time`; answered by `Timed`."""

    call: Call
    launches: int


@dataclass(frozen=True, slots=True)
class Check:
    """`Engine.check`; answered by `Done` with the finding."""

    call: Call


@dataclass(frozen=True, slots=True)
class RanBy:
    """`Engine.ran_by`; answered by `Done` with the runner's name."""

    call: Call


@dataclass(frozen=True, slots=True)
class Estimate:
    """`Engine.ring_estimate_us`; answered by `Done` with the estimate, empty for none."""

    call: Call


@dataclass(frozen=True, slots=True)
class Bye:
    """Close the engine, or the host, and leave; not answered."""

    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Request to a host: start a worker; not answered.

    The host knows the leader's address and the key, which is never sent.
    """

    number: int
    """The worker's number, as in `WorkerOrder`."""
    engine: str
    environment: dict[str, str]
    """Variables in addition to the host's own."""


@dataclass(frozen=True, slots=True)
class EndWorkers:
    """Request to a host: end some of its workers; answered by `Done`."""

    numbers: tuple[int, ...]
    patience_s: float
    """Time for them to leave by themselves."""


@dataclass(frozen=True, slots=True)
class TellEnd:
    """Request to a host: report how a worker ended; answered by `Done`, empty while it runs."""

    number: int
    patience_s: float
    """Time to wait for the end."""


@dataclass(frozen=True, slots=True)
class Done:
    """Reply to a request that was performed."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Reply to `Open`: the versions of library, driver and device."""

    text: str
    """Versions in one line, for display."""
    nccl: int | None
    """NCCL's version code; None without NCCL."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Reply to `Time`: us per call, by launch."""

    times_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Reply to a request that cannot be performed."""

    reason: str
    broken: bool
    """Whether the worker must be restarted."""


OnCall = Check | RanBy | Estimate
"""Requests about a call, answered by `Done` with text."""
Request = MakeGroupId | Open | Split | Time | OnCall | StartWorker | EndWorkers | TellEnd | Bye
Reply = Done | Opened | Timed | Failed
Message = Request | Reply
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


def to_bytes(message: Message) -> bytes:
    """Encode a message."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode()


def from_bytes(content: bytes) -> Message:
    """Decode a message.

    Raises:
        MessageError: The content is no message.
    """
    try:
        fields = json.loads(content)
        kind = _KINDS[fields.pop("kind")]
        if "call" in fields:
            call = fields["call"]
            fields["call"] = Call(**{**call, "operation": Operation(call["operation"])})
        if "numbers" in fields:
            fields["numbers"] = tuple(fields["numbers"])
        if "times_us" in fields:
            fields["times_us"] = tuple(map(float, fields["times_us"]))
        message: Message = kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"received what is no message: {content[:60]!r}") from error
    return message


def order_from(fields: dict[str, Any]) -> WorkerOrder:
    """Return a worker's order from its JSON."""
    addresses = tuple((str(host), int(port)) for host, port in fields["addresses"])
    return WorkerOrder(**{**fields, "addresses": addresses})
