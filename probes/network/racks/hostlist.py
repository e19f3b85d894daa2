"""Lists of hosts as Slurm writes them: `rack1-[01-03,07],login` is rack1-01, -02, -03, -07, login.

A name may have several brackets (`r[1-2]n[1-8]`), which give every combination, the last varying
fastest. Numbers keep the leading zeros of the lower end of their range.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tuccl.errors import MachineError

MAX_HOSTS = 100_000
"""Hosts of one list, and of all lists of a file."""
MAX_LETTERS = 256
"""Characters of a name outside its brackets, and brackets of a name."""

_NAME = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])*")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand_host_list(text: str, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """Expand a list of hosts in its order; repetitions are kept.

    `limit` is the rest of `MAX_HOSTS` after earlier lists of a file.

    Raises:
        MachineError: brackets do not match, a range is invalid, a name is empty or too long, or
            there are more than `limit` hosts.
    """
    hosts: list[str] = []
    for name in _names(text):
        hosts += _expand(name, text, limit - len(hosts))
    return tuple(hosts)


def _names(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    end = -1
    while end < len(text):
        match = _NAME.match(text, end + 1)
        end = match.end() if match else end + 1
        if end < len(text) and text[end] != ",":
            raise MachineError(f"host list {text!a:.60}: unexpected {text[end]!a} in a name")
        name = match[0].strip() if match else ""
        if not name:
            raise MachineError(f"host list {text!a:.60}: a name is empty")
        yield name


def _expand(name: str, text: str, limit: int) -> list[str]:
    if len(re.sub(r"\[[^\[\]]*\]", "", name)) > MAX_LETTERS:
        raise MachineError(f"host list {text!a:.60}: a name has more than {MAX_LETTERS} letters")
    alternatives: list[list[str]] = []
    end, count = 0, 1
    while end < len(name):
        piece = _PIECE.match(name, end)
        if piece is None:
            raise MachineError(f"host list {text!a:.60}: unexpected {name[end]!a} in a name")
        end = piece.end()
        alternatives.append([piece[2]] if piece[1] is None else _numbers(piece[1], text, limit))
        count *= len(alternatives[-1])
        if count > limit:
            raise _too_many(text)
        if len(alternatives) > MAX_LETTERS:
            raise MachineError(f"host list {text!a:.60}: a name has too many brackets")
    return ["".join(segments) for segments in itertools.product(*alternatives)]


def _numbers(bracket: str, text: str, limit: int) -> list[str]:
    """Expand the numbers of a bracket."""
    numbers: list[str] = []
    for item in bracket.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise MachineError(f"host list {text!a:.60}: {item!a:.40} is no number or range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise MachineError(f"host list {text!a:.60}: range {item} runs backwards")
        if int(high) - int(low) >= limit - len(numbers):
            raise _too_many(text)
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _too_many(text: str) -> MachineError:
    return MachineError(f"host list {text!a:.60}: more than {MAX_HOSTS:,} hosts in all")
