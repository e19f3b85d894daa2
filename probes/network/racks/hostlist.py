"""Lists of hosts as Slurm writes them: `rack1-[01-03,07],login` is rack1-01, -02, -03, -07, login.

A name may hold several brackets (`r[1-2]n[1-8]`): every combination, the last varies fastest.
Numbers keep the zeros in front that the lower end of their range has.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from probes.network.errors import HostListError

MAX_HOSTS = 100_000
"""Of one list, and of all lists of a file."""
MAX_LETTERS = 256
"""Of a name that is written in a list, and of a name in it."""

_NAME = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])*")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand_host_list(text: str, most: int = MAX_HOSTS) -> tuple[str, ...]:
    """The hosts of a list in its order; repeated ones stay repeated.

    Args:
        text: The list.
        most: Hosts it may have: what the lists before it in a file left of `MAX_HOSTS`.

    Raises:
        HostListError: brackets do not match, a range is not one, a name is empty or too long, or
            there are more than `most` hosts.
    """
    hosts: list[str] = []
    for name in _names(text):
        hosts += _expand(name, text, most - len(hosts))
    return tuple(hosts)


def _names(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    end = -1
    while end < len(text):
        found = _NAME.match(text, end + 1)
        end = found.end() if found else end + 1
        if end < len(text) and text[end] != ",":
            raise HostListError(f"host list {text!a:.60}: unexpected {text[end]!a} in a name")
        name = found[0].strip() if found else ""
        if not name:
            raise HostListError(f"host list {text!a:.60}: a name is empty")
        yield name


def _expand(name: str, text: str, most: int) -> list[str]:
    if len(re.sub(r"\[[^\[\]]*\]", "", name)) > MAX_LETTERS:
        raise HostListError(f"host list {text!a:.60}: a name has more than {MAX_LETTERS} letters")
    choices: list[list[str]] = []
    end, count = 0, 1
    while end < len(name):
        piece = _PIECE.match(name, end)
        if piece is None:
            raise HostListError(f"host list {text!a:.60}: unexpected {name[end]!a} in a name")
        end = piece.end()
        choices.append([piece[2]] if piece[1] is None else _numbers(piece[1], text, most))
        count *= len(choices[-1])
        if count > most:
            raise _too_many(text)
        if len(choices) > MAX_LETTERS:
            raise HostListError(f"host list {text!a:.60}: a name has too many brackets")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(bracket: str, text: str, most: int) -> list[str]:
    """What stands in a bracket, one by one."""
    numbers: list[str] = []
    for part in bracket.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise HostListError(f"host list {text!a:.60}: {part!a:.40} is no number or range")
        low, high = found[1], found[2] or found[1]
        if int(high) < int(low):
            raise HostListError(f"host list {text!a:.60}: range {part} runs backwards")
        if int(high) - int(low) >= most - len(numbers):
            raise _too_many(text)
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _too_many(text: str) -> HostListError:
    return HostListError(f"host list {text!a:.60}: more than {MAX_HOSTS:,} hosts in all")
