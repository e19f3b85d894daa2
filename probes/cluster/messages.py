"""Requests of the leader and replies of the hosts, as lines of JSON.

    {"version": "TuCCL 0.1.0, messages 1", "number": 3, "body": {"request": "measure", ...}}

Every line states its sender's version, and the receiver refuses any version but its own: two
releases may mean different things by the same figure.
"""

from __future__ import annotations

import functools
import json
from importlib import metadata
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from probes.host.probe import HostProbeOptions
from probes.inputs.first_fault import first_fault
from probes.network.instruments.endpoint import Figure, PairTask, ServerAnswer
from tuccl.errors import MessageError

MESSAGES_VERSION = 1


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Look(_Message):
    """Request to probe the host."""

    request: Literal["look"] = "look"
    options: HostProbeOptions


class Serve(_Message):
    """Request to start a server for each task, in place of the previous servers."""

    request: Literal["serve"] = "serve"
    tasks: tuple[PairTask, ...]


class Measure(_Message):
    """Request to run the clients of these tasks, all at once."""

    request: Literal["measure"] = "measure"
    what: Literal["latency", "bandwidth"]
    tasks: tuple[PairTask, ...]


class Stop(_Message):
    """Request to end the servers."""

    request: Literal["stop"] = "stop"


class Bye(_Message):
    """The last request."""

    request: Literal["bye"] = "bye"
    exit_code: int = 0


class Looked(_Message):
    """Reply to `Look`."""

    reply: Literal["looked"] = "looked"
    report: str
    """The report in the form of `probes.host.report_json`."""


class Served(_Message):
    """Reply to `Serve`, by task."""

    reply: Literal["served"] = "served"
    servers: tuple[ServerAnswer, ...]


class Measured(_Message):
    """Reply to `Measure`, by task."""

    reply: Literal["measured"] = "measured"
    figures: tuple[Figure, ...]


class Done(_Message):
    """Reply to `Stop` and `Bye`."""

    reply: Literal["done"] = "done"


class Failed(_Message):
    """Reply of a host that cannot fulfil a request."""

    reply: Literal["failed"] = "failed"
    reason: str


Request = Look | Serve | Measure | Stop | Bye
Reply = Looked | Served | Measured | Done | Failed

_REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="request")])
_REPLIES: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="reply")])
_Body = TypeVar("_Body", Request, Reply)


@functools.cache
def version() -> str:
    """Version of TuCCL and of the messages on this side."""
    try:
        release = metadata.version("tuccl")
    except metadata.PackageNotFoundError:
        release = "not installed"
    return f"TuCCL {release}, messages {MESSAGES_VERSION}"


def request_to_line(number: int, request: Request) -> bytes:
    """Encode a request as a line, newline included."""
    return _to_line(number, request)


def reply_to_line(number: int, reply: Reply) -> bytes:
    """Encode a reply as a line, newline included; `number` is that of the request."""
    return _to_line(number, reply)


def request_from_line(line: bytes) -> tuple[int, Request]:
    """Decode a line into number and request.

    Raises:
        MessageError: the line is not a message, or of another version.
    """
    return _from_line(line, _REQUESTS, "the leader")


def reply_from_line(line: bytes, sender: str) -> tuple[int, Reply]:
    """Decode a line into number and reply.

    Raises:
        MessageError: as `request_from_line`.
    """
    return _from_line(line, _REPLIES, sender)


def _to_line(number: int, body: Request | Reply) -> bytes:
    content = {"version": version(), "number": number, "body": body.model_dump(mode="json")}
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def _from_line(line: bytes, adapter: TypeAdapter[_Body], sender: str) -> tuple[int, _Body]:
    try:
        content = json.loads(line)
        sent_version, number, body = content["version"], content["number"], content["body"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageError(f"{sender} sent a line that is no message: {line[:60]!r}") from error
    if sent_version != version():
        raise MessageError(
            f"{sender} runs {sent_version!s:.60}, this side {version()}: install the same release "
            "on both"
        )
    if not isinstance(number, int):
        raise MessageError(f"{sender} sent a message without a number")
    try:
        return number, adapter.validate_python(body)
    except ValidationError as error:
        fault = first_fault(error, "the message")
        raise MessageError(f"{sender} sent a damaged message: {fault}") from error
