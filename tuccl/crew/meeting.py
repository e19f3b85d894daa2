"""How ranks that a launcher started find rank 0 without MPI: by a file that all hosts see.

Those of launchers of MPI meet here where mpi4py is missing. Rank 0 writes its addresses and the key
of the run to a file that its user alone can read; the others wait for it. A file that an earlier
job of the same name left leads nowhere, so they read it again until one of its addresses answers.

Where hosts share no folder, nothing is written: the user gives all ranks a secret, TUCCL_JOB_KEY,
from which the key follows, and MASTER_ADDR and MASTER_PORT say where rank 0 listens.

Each rank reports its options to rank 0, because all must have the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuccl.crew.connection import Address
from tuccl.crew.started_rank import TORCHRUN_ID, StartedRank, whole_number
from tuccl.errors import HostError, UsageError

JOB_KEY = "TUCCL_JOB_KEY"
_LEAST_SECRET = 32
_LAST_PORT = 65535
_VERSION = 1
_PAUSE_S = 0.2
_FILES_OF_RANK_0 = ("--workspace", "--record", "--output", "-o")
"""Options that may differ from host to host, for rank 0 alone reads or writes what they name."""
_MOST_OPTIONS, _LONGEST_OPTION = 100, 80
"""What a greeting has of them: it is read before its sender has proved that it knows the key."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Where rank 0 listens, and the key of the run."""

    addresses: tuple[Address, ...]
    key: str


def agreed_leader(environment: Mapping[str, str], started: StartedRank) -> Leader | None:
    """Return where rank 0 is to listen, with which key; None without TUCCL_JOB_KEY.

    torchrun itself listens at MASTER_PORT, so rank 0 takes the next one there.

    Raises:
        UsageError: The secret is short, or a variable is missing.
    """
    secret = environment.get(JOB_KEY, "")
    if not secret:
        return None
    host, port = (
        environment.get("MASTER_ADDR", ""),
        whole_number(environment.get("MASTER_PORT", "")),
    )
    if len(secret) < _LEAST_SECRET:
        raise UsageError(
            f"{JOB_KEY} has {len(secret)} characters: {_LEAST_SECRET} at least, as from openssl "
            "rand -hex 32, the same on all hosts"
        )
    if not host or not 0 < port < _LAST_PORT:
        raise UsageError(
            f"{JOB_KEY} is set, but MASTER_ADDR and MASTER_PORT do not say where rank 0 is to "
            "listen: set them on all hosts"
        )
    text = f"TuCCL {started.job}".encode(errors="surrogateescape")
    key = hmac.new(secret.encode(errors="surrogateescape"), text, hashlib.sha256).hexdigest()
    return Leader(((host, port + (TORCHRUN_ID in environment)),), key)


def told_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the options of a command line, in which all ranks agree, each with its value."""
    options: list[str] = []
    for word in words:
        if word.startswith("-") or not options:
            options.append(word.replace("=", " ", 1))
        else:
            options[-1] += f" {word}"
    compared = [each for each in options if each.partition(" ")[0] not in _FILES_OF_RANK_0]
    return tuple(each[:_LONGEST_OPTION] for each in compared[:_MOST_OPTIONS])


def require_same_options(
    name: str, own: Sequence[str], of_ranks: Mapping[int, Sequence[str]]
) -> None:
    """Require all ranks to have been given rank 0's options, as `told_options` returns them.

    Raises:
        UsageError: A rank has others.
    """
    for rank, theirs in sorted(of_ranks.items()):
        if set(theirs) != set(own):
            there = " ".join(each for each in theirs if each not in own) or "nothing"
            here = " ".join(each for each in own if each not in theirs) or "nothing"
            raise UsageError(
                f"{name} rank {rank} was started with {there} where rank 0 has {here}: give all "
                "ranks the same options"
            )


class Meeting:
    """What the ranks of a job have in common: a file in a folder, or a leader that they know."""

    def __init__(self, folder: Path, started: StartedRank, agreed: Leader | None = None) -> None:
        """Name the file; nothing is read or written.

        Args:
            folder: The folder.
            started: This rank.
            agreed: See `agreed_leader`.
        """
        self.name, self.rank, self.size = started.launcher, started.rank, started.size
        self.agreed = agreed
        digest = hashlib.sha256(started.job.encode(errors="surrogateescape")).hexdigest()[:16]
        self._path = folder / f".job-{digest}.json"
        common = "where all hosts see one workspace" if agreed is None else f"with one {JOB_KEY}"
        self.hint = (
            f": start the command on every rank, {common}, or for this host alone unset its "
            "rank's variables"
        )
        """What to do about a rank that does not report."""

    def tell(self, leader: Leader) -> None:
        """Write where the leader is, for this user alone, unless all know it.

        Raises:
            HostError: The file cannot be written.
        """
        if self.agreed is not None:
            return
        content = {"version": _VERSION, "addresses": leader.addresses, "key": leader.key}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # mkstemp's files are readable by their owner alone.
            descriptor, partial = tempfile.mkstemp(prefix=".job-", dir=self._path.parent)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            Path(partial).replace(self._path)
        except OSError as error:
            raise HostError(
                f"rank 0 of {self.size} that {self.name} started cannot leave its address in "
                f"{self._path.parent}: {error.strerror or error}; let it write there, or give all "
                f"ranks one {JOB_KEY}"
            ) from error

    def go_on(self) -> None:
        """Do nothing: the file is there."""

    def hear(self, timeout_s: float) -> Iterator[Leader]:
        """Yield what the file says, or all know, again and again, until the time is over.

        Raises:
            HostError: Rank 0 left nothing in time.
        """
        deadline = time.monotonic() + timeout_s
        heard = False
        while time.monotonic() < deadline:
            if (leader := self.agreed or self._read()) is not None:
                heard = True
                yield leader
            time.sleep(_PAUSE_S)
        if not heard:
            raise HostError(
                f"rank {self.rank} of {self.size} that {self.name} started: rank 0 left no address "
                f"in {self._path.parent} within {timeout_s:g} s: all hosts must see that "
                f"directory, or have one {JOB_KEY}"
            )

    def _read(self) -> Leader | None:
        """Return what the file says; None where it is missing, another user's, or unknown."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            with self._path.open(encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    return None
                content = json.load(file)
            if content["version"] == _VERSION:
                addresses = [(str(host), int(port)) for host, port in content["addresses"]]
                return Leader(tuple(addresses), bytes.fromhex(content["key"]).hex())
        return None

    def close(self) -> None:
        """Remove the file; rank 0 calls it once all ranks have reported, or it gives up."""
        if self.agreed is None:
            with suppress(OSError):
                self._path.unlink()
