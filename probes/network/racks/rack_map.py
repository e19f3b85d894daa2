"""Racks from a rack map or from Slurm's topology.

A rack map gives the rack of each host, one line per host or list of hosts:

    # comment
    node[01-16],login  rack-a
    node17,rack-b

The last word or field is the rack; a line `host,rack` or `host rack` at the top is taken as a
heading. Host lists are Slurm's: `rack1-[01-03,07],login`. A name may have several brackets
(`r[1-2]n[1-8]`), which give every combination, the last varying fastest. Numbers keep the leading
zeros of the lower end of their range.
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
            raise MachineError(f"host list {text!a:.60}: {item!a:.40} is not a number or range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise MachineError(f"host list {text!a:.60}: range {item} runs backwards")
        if int(high) - int(low) >= limit - len(numbers):
            raise _too_many(text)
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _too_many(text: str) -> MachineError:
    return MachineError(f"host list {text!a:.60}: more than {MAX_HOSTS:,} hosts in all")


_PAIR = re.compile(r"\b(\w+)=(\S*)")
_NOTHING = ("", "(null)")


def parse_slurm_topology(text: str, source: str = "topology.conf") -> dict[str, str]:
    """Return the leaf switch (or block) of every host, in the order of the file.

    Raises:
        MachineError: a line is malformed, a host is below two leaves, there are too many
            hosts, or it is a YAML file.
    """
    leaves = GroupedHosts()
    for number, line in numbered_lines(_joined(text)):
        where = f"{source} line {number}"
        if re.match(r"---|%YAML|-\s|\w+:(\s|$)", line):
            raise MachineError(
                f"{where}: looks like topology.yaml, which is not read; "
                "give the output of `scontrol show topology`, or a rack map"
            )
        keys = {key.lower(): value for key, value in _PAIR.findall(line)}
        if _PAIR.sub("", line).strip():
            raise MachineError(f"{where}: {line!a:.60}, expected keyword=value pairs")
        name = keys.get("switchname") or keys.get("blockname")
        if not name:
            if "blocksizes" in keys:
                continue
            raise MachineError(f"{where}: neither SwitchName nor BlockName")
        # For a spine, `scontrol` lists the nodes of its leaves as well.
        if keys.get("switches", "") not in _NOTHING:
            continue
        if keys.get("nodes", "") in _NOTHING:
            raise MachineError(f"{where}: {name} has neither Nodes nor Switches")
        leaves.add(keys["nodes"], name, where)
    return leaves.group_of


def _joined(text: str) -> str:
    """Join continued lines; empty lines keep the later line numbers unchanged."""
    joined: list[str] = []
    continued: list[str] = []
    *lines, last = text.split("\n")
    for line in lines:
        continued.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            joined += [" ".join(continued), *([""] * (len(continued) - 1))]
            continued = []
    return "\n".join([*joined, " ".join([*continued, last]), *([""] * len(continued))])


_LINE = re.compile(r"(\S+?)(?:\s*,\s*|\s+)([^\s,\[\]]+)")
_HEADING = re.compile(r"hosts?[\s,]+racks?", re.IGNORECASE)


def parse_rack_map(text: str, source: str = "rack map") -> dict[str, str]:
    """Parse the rack of every host, in the order of the file.

    Raises:
        MachineError: a line is malformed, puts a host into a second rack, or is beyond
            `MAX_HOSTS`; names the line.
    """
    racks = GroupedHosts()
    for first, (number, line) in enumerate(numbered_lines(text)):
        if not first and _HEADING.fullmatch(line):
            continue
        words = _LINE.fullmatch(line)
        if words is None:
            raise MachineError(
                f"{source} line {number}: {line!a:.60}, expected hosts and their rack"
            )
        racks.add(words[1], words[2], f"{source} line {number}")
    return racks.group_of


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines without comments, with their numbers from 1."""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if content:
            yield number, content


class GroupedHosts:
    """The rack or switch of every host of a file, at most `MAX_HOSTS` in all its lists."""

    def __init__(self) -> None:
        self.group_of: dict[str, str] = {}
        """Groups by host, in the order of the file."""
        self._left = MAX_HOSTS

    def add(self, hosts: str, group: str, where: str) -> None:
        """Assign the hosts of a list to a group.

        Raises:
            MachineError: the list is malformed or too long, or a host is in another group.
        """
        try:
            names = expand_host_list(hosts, self._left)
        except MachineError as error:
            raise MachineError(f"{where}: {error}") from error
        self._left -= len(names)
        for name in names:
            if self.group_of.setdefault(name, group) != group:
                raise MachineError(
                    f"{where}: host {name} is in {self.group_of[name]!a:.60} and in "
                    f"{group!a:.60}; leave it in one"
                )
