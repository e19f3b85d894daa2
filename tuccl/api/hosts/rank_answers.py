"""One answer from every rank of an MPI job, for rank 0 to judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from probes.cluster.mpi_post import RANK_PAUSE_S, Post
from probes.cluster.mpi_start import join_mpi, run_ranks
from tuccl.errors import MeasurementError

AnswerT = TypeVar("AnswerT")


class RankAnswers(Generic[AnswerT]):
    """The answers of all ranks but the first, as rank 0 receives them."""

    def __init__(
        self, comm: Any, tags: tuple[int, int], parse: Callable[[int, bytes], AnswerT]
    ) -> None:
        """Prepare to receive.

        Args:
            comm: Communicator of all ranks.
            tags: MPI tags of answers and of the verdict.
            parse: Parses an answer, of a rank, and raises MeasurementError for a wrong one.
        """
        self._post = Post(comm)
        self._answer_tag, self._verdict_tag = tags
        self._parse = parse
        self._found: dict[int, AnswerT] = {}
        self._others = range(1, comm.Get_size())

    @property
    def answers(self) -> list[AnswerT]:
        """Return the answers by rank."""
        return [self._found[rank] for rank in self._others]

    def call_roll(self, timeout_s: float) -> None:
        """Wait for the answers.

        Raises:
            MeasurementError: A rank did not answer, or not in this release's form.
        """
        deadline = time.monotonic() + timeout_s
        while len(self._found) < len(self._others):
            if (letter := self._post.take(self._answer_tag)) is not None:
                self._found[letter[0]] = self._parse(*letter)
            elif time.monotonic() > deadline:
                raise MeasurementError(
                    f"MPI rank {min(self._silent())} did not report within {timeout_s:g} s; see "
                    "what its host is doing"
                )
            else:
                time.sleep(RANK_PAUSE_S)

    def dismiss(self, exit_code: int) -> Collection[int]:
        """Tell the ranks the exit code; return those that did not answer."""
        for rank in self._others:
            self._post.send(rank, self._verdict_tag, str(int(exit_code)).encode())
        if not self._silent():
            self._post.wait_until_sent()
        return self._silent()

    def _silent(self) -> set[int]:
        return set(self._others) - self._found.keys()


def answer_on_ranks(
    tasks: int,
    tags: tuple[int, int],
    own: bytes,
    parse: Callable[[int, bytes], AnswerT],
    lead: Callable[[RankAnswers[AnswerT]], int],
    code_of_error: Callable[[BaseException], int],
    timeout_s: float,
) -> int:
    """Send the own answer to rank 0, which judges all; return the exit code of all ranks.

    Args:
        tasks: Number of tasks that the launcher started.
        tags: MPI tags of answers and of the verdict.
        own: Answer of this rank.
        parse: Parses an answer of a rank.
        lead: Runs on rank 0 with the answers; returns the exit code.
        code_of_error: Returns the exit code of an error.
        timeout_s: Time limit for MPI to start, and for all answers.

    Raises:
        HostError: mpi4py is missing, or of another MPI than the launcher.
        MeasurementError: On rank 0: a rank did not answer.
    """

    def follow(comm: Any) -> int:
        post = Post(comm)
        post.send(0, tags[0], own)
        while (letter := post.take(tags[1])) is None:
            time.sleep(RANK_PAUSE_S)
        return int(letter[1])

    comm = join_mpi(tasks, timeout_s)

    def leader_of(joined: Any) -> RankAnswers[AnswerT]:
        return RankAnswers(joined, tags, parse)

    return run_ranks(comm, leader_of, lead, follow, code_of_error, timeout_s)
