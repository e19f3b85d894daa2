"""Messages between a leader and the processes that it asks: dataclasses, as JSON.

    {"number": 3, "duty": "engine", "kind": "Time", "fields": {"call": {...}, "launches": 3}}
    {"number": 3, "kind": "Timed", "fields": {"times_us": [20.1, 20.3, 20.2]}}

A request names the duty that performs it (`tuccl.crew.duties`) and the type of its answer. Its
number is that of the answer, so that a late answer is not taken for another request's. Only peers
of this run send messages, so an unreadable one is a fault of this program or of the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from tuccl.errors import MessageError


@dataclass(frozen=True, slots=True)
class Done:
    """A request was performed."""

    text: str = ""
    """What there is to report, if anything."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request cannot be performed; any request may be answered by this."""

    reason: str
    broken: bool = False
    """Whether the process must be replaced before it can perform anything."""


@dataclass(frozen=True, slots=True)
class Request:
    """Root of all requests."""

    duty: ClassVar[str] = ""
    """Name of the duty that performs it."""
    answer: ClassVar[type[Any]] = Done
    """Type of its answer."""


@dataclass(frozen=True, slots=True)
class Bye(Request):
    """Finish everything and leave."""

    exit_code: int = 0


def to_bytes(number: int, message: Any) -> bytes:
    """Encode a message, a dataclass, with the number of its request."""
    envelope = {"number": number, "kind": type(message).__name__, "fields": message}
    if isinstance(message, Request):
        envelope["duty"] = message.duty
    return json.dumps(envelope, default=_plain).encode()


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that was received, with fields that are not converted yet."""

    number: int
    kind: str
    fields: dict[str, Any]
    duty: str = ""

    def content(self, kind: type[Any]) -> Any:
        """Return the message, of this type.

        Raises:
            MessageError: The message is of another type, or damaged.
        """
        if kind.__name__ != self.kind:
            raise MessageError(f"received {self.kind}, not {kind.__name__}")
        try:
            return _converted(self.fields, kind)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MessageError(f"received a damaged {self.kind}: {error!r:.200}") from error


def from_bytes(content: bytes) -> Envelope:
    """Decode the envelope of a message.

    Raises:
        MessageError: The content is no message.
    """
    try:
        found: Envelope = _converted(json.loads(content), Envelope)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"received something that is not a message: {content[:60]!r}") from error
    return found


def _plain(value: Any) -> Any:
    """Return what JSON has for a value."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in a message")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _converted(value: Any, hint: Any) -> Any:  # noqa: PLR0911 - one for each kind of type
    """Return a value of JSON as the type of this annotation; an error if it is of another."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Literal and value in arguments:
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in arguments:
            return None
        (only,) = (argument for argument in arguments if argument is not type(None))
        return _converted(value, only)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_converted(each, kind) for each, kind in zip(value, arguments, strict=True))
    if origin in (tuple, frozenset):
        return origin(_converted(each, arguments[0]) for each in value)
    if origin in (dict, Mapping):
        return {name: _converted(each, arguments[1]) for name, each in value.items()}
    if is_dataclass(hint):
        hints = _hints(hint)  # type: ignore[arg-type]
        return hint(**{name: _converted(each, hints[name]) for name, each in value.items()})  # type: ignore[operator]
    if hint is float and type(value) is int:
        return float(value)
    if isinstance(hint, type) and issubclass(hint, Enum | Path):
        return hint(value)
    if type(value) is not hint:
        raise TypeError(f"{value!r:.40} is no {hint}")
    return value
