"""Communicators from what their ranks recorded.

The ranks of one communicator all record its calls, which count once. They are known by an identity
that the recording has; without one, by having made the same calls.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tuccl.workloads.recordings.observed_calls import CallForm, RankCalls


@dataclass(frozen=True, slots=True)
class RecordedCommunicator:
    """The ranks of a communicator that were recorded."""

    views: tuple[RankCalls, ...]
    nodes: int | None
    """Nodes of the communicator; None: unknown."""

    @property
    def ranks(self) -> int:
        """Ranks of the communicator, also those that were not recorded."""
        return self.views[0].ranks

    @property
    def members(self) -> frozenset[Hashable]:
        """Members that are known."""
        return frozenset(view.member for view in self.views).union(
            *(view.members for view in self.views)
        )


def find_communicators(
    views: Iterable[RankCalls], job_ranks: int | None, ranks_per_node: int | None
) -> tuple[RecordedCommunicator, ...]:
    """Return the communicators that collectives were called on.

    Args:
        views: The calls of ranks.
        job_ranks: Ranks of the job; None: unknown.
        ranks_per_node: Ranks of the job on each node; None: unknown.
    """
    known: dict[Hashable, list[RankCalls]] = defaultdict(list)
    unknown: dict[int, list[RankCalls]] = defaultdict(list)
    for view in views:
        if view.identity is not None:
            known[view.identity, view.ranks].append(view)
        elif _collectives(view):
            unknown[view.ranks].append(view)
    # A rank whose calls were not recorded still tells where it is.
    groups = [group for group in known.values() if any(map(_collectives, group))]
    for alike in unknown.values():
        groups += _by_calls(alike)
    return tuple(
        RecordedCommunicator(tuple(group), _nodes(group, job_ranks, ranks_per_node))
        for group in groups
    )


def _nodes(
    views: Sequence[RankCalls], job_ranks: int | None, ranks_per_node: int | None
) -> int | None:
    """Return the nodes of a communicator; None: unknown."""
    for view in views:
        if view.nodes is not None:
            return view.nodes
    ranks = views[0].ranks
    hosts = {view.host for view in views}
    if len(views) == ranks and "" not in hosts:
        return len(hosts)
    if ranks_per_node is None:
        return None
    if ranks == job_ranks:
        return math.ceil(ranks / ranks_per_node)
    members = {member for member in views[0].members if isinstance(member, int)}
    if len(members) == ranks:
        return len({member // ranks_per_node for member in members})
    return None


def _by_calls(views: Sequence[RankCalls]) -> list[list[RankCalls]]:
    """Divide ranks of communicators of one size into communicators, by their calls.

    A rank joins the first communicator that lacks a rank and whose calls contain its own: a log may
    end sooner for one rank than for another.
    """
    groups: list[list[RankCalls]] = []
    for view in sorted(views, key=lambda view: (-_collectives(view).total(), *view.place)):
        group = next((group for group in groups if _fits(view, group)), None)
        if group is None:
            groups.append([view])
        else:
            group.append(view)
    return groups


def _fits(view: RankCalls, group: Sequence[RankCalls]) -> bool:
    longest, own = _collectives(group[0]), _collectives(view)
    if len(group) == view.ranks or not own <= longest:
        return False
    if view.rank is not None and any(view.rank == joined.rank for joined in group):
        return False
    # Without INIT lines a process's GPUs have one name, and so have a GPU's communicators.
    return own == longest or all(view.member != joined.member for joined in group)


def _collectives(view: RankCalls) -> Counter[CallForm]:
    """Return the calls that all ranks of a communicator make, without what differs by rank."""
    made: Counter[CallForm] = Counter()
    for form, count in view.calls.items():
        if form.is_tuned:
            made[CallForm(form.operation, form.size_bytes, form.datatype, form.reduction)] += count
    return made
