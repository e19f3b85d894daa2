"""What leader, workers and hosts say to each other: requests and replies, as JSON.

    {"kind": "Time", "call": {"operation": "all_reduce", ...}, "launches": 3}

Only who proved to know the key of the run is listened to (see `connection`), so a message that
cannot be read is a fault of this program or of the network, and ends the connection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, get_args

from lookup_tables.table import Operation
from tuccl.measuring.engine import Call
from tuccl.measuring.errors import MessageError


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """How a worker finds its leader, and who it is; handed to it on its standard input."""

    number: int
    """Unique in the run, whatever its rank."""
    engine: str
    addresses: tuple[tuple[str, int], ...]
    key: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class MakeGroupId:
    """To rank 0: `Engine.make_group_id`; answered by `Done` with hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class Open:
    """`Engine.open`; answered by `Opened`."""

    rank: int
    ranks: int
    local_rank: int
    group_id: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Time:
    """`Engine.time`; answered by `Timed`."""

    call: Call
    launches: int


@dataclass(frozen=True, slots=True)
class Check:
    """`Engine.check`; answered by `Done` with what was wrong."""

    call: Call


@dataclass(frozen=True, slots=True)
class RanBy:
    """`Engine.ran_by`; answered by `Done` with its name."""

    call: Call


@dataclass(frozen=True, slots=True)
class Bye:
    """Close the engine, or the host, and leave; not answered."""

    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class StartWorker:
    """To a host: start a worker; not answered.

    The host knows the address that this comes from, and the key, which is never sent.
    """

    number: int
    """As of `WorkerOrder`."""
    engine: str
    environment: dict[str, str]
    """Beyond the host's own."""


@dataclass(frozen=True, slots=True)
class EndWorkers:
    """To a host: end these of its workers; answered by `Done`."""

    numbers: tuple[int, ...]
    patience_s: float
    """How long they may take to leave by themselves."""


@dataclass(frozen=True, slots=True)
class TellEnd:
    """To a host: tell how a worker ended; answered by `Done`, empty while it runs."""

    number: int
    patience_s: float
    """How long to wait for the end."""


@dataclass(frozen=True, slots=True)
class Done:
    """It is done."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Of `Open`: the versions behind the figures."""

    text: str
    """Library, driver and device in one line, for people."""
    nccl: int | None
    """As NCCL counts; None: there is none."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Of `Time`, by launch, in us per call."""

    times_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done."""

    reason: str
    broken: bool
    """Whether the worker is of no further use."""


Request = MakeGroupId | Open | Time | Check | RanBy | StartWorker | EndWorkers | TellEnd | Bye
Reply = Done | Opened | Timed | Failed
Message = Request | Reply
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


def to_bytes(message: Message) -> bytes:
    """The content of a message."""
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode()


def from_bytes(content: bytes) -> Message:
    """The message of a content.

    Raises:
        MessageError: It is none.
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
    """A worker's order from its JSON."""
    addresses = tuple((str(host), int(port)) for host, port in fields["addresses"])
    return WorkerOrder(**{**fields, "addresses": addresses})
