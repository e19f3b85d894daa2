"""Lists of hosts as Slurm writes them: `rack1-[01-03,07],login` is rack1-01, -02, -03, -07, login.

A name may hold several brackets (`r[1-2]n[1-8]`): every combination, the last varies fastest.
Numbers keep the zeros in front that the lower end of their range has.
"""

from __future__ import annotations

import itertools
import re

from probes.network.errors import HostListError

MAX_HOSTS = 100_000

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


def expand_host_list(text: str) -> tuple[str, ...]:
    """The hosts of a list in its order; repeated ones stay repeated.

    Raises:
        HostListError: brackets do not match, a range is not one, a name is empty, or there are more
            than `MAX_HOSTS`.
    """
    hosts: list[str] = []
    for name in _split(text):
        hosts += _expand(name, text, MAX_HOSTS - len(hosts))
    return tuple(hosts)


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    names = [name.strip() for name in re.split(r",(?![^\[\]]*\])", text)]
    if not all(names):
        raise HostListError(f"host list {text!a:.60}: a name is empty")
    return names


def _expand(name: str, text: str, most: int) -> list[str]:
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
            raise HostListError(f"host list {text!a:.60}: more than {MAX_HOSTS:,} hosts")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(bracket: str, text: str, most: int) -> list[str]:
    """What stands in a bracket, one by one."""
    numbers: list[str] = []
    for part in bracket.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise HostListError(f"host list {text!a:.60}: {part!a} is no number or range")
        low, high = found[1], found[2] or found[1]
        if int(high) < int(low):
            raise HostListError(f"host list {text!a:.60}: range {part} runs backwards")
        if int(high) - int(low) >= most - len(numbers):
            raise HostListError(f"host list {text!a:.60}: more than {MAX_HOSTS:,} hosts")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers
