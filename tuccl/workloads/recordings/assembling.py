"""A workload from the communicators of a recording: figures of one rank and one step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from lookup_tables.collective import Collective
from tuccl.workloads.recordings.communicators import RecordedCommunicator, find_communicators
from tuccl.workloads.recordings.observed_calls import (
    CallForm,
    CallTime,
    Observed,
    RankCalls,
    TimeSum,
)
from tuccl.workloads.workload import (
    NotTuned,
    SourceKind,
    Workload,
    WorkloadCall,
    WorkloadSource,
    sorted_calls,
)

_LEAST_REPEATS = 4
"""Whole periods without which calls are not taken for periodic."""
_LEAST_SHARE = 0.75
"""Least share of all calls that are in the periodic part."""
_END_SHARE = 0.05
_END_CALLS = 8
"""Share and number of calls at the end that may belong to the job's end."""
_WINDOW = 200_000
"""Calls in which a period is looked for."""


def steps_by_period(sequence: Sequence[int]) -> float | None:
    """Return the number of steps that a rank's calls are of; None where that is not safe to say.

    But for some at the beginning and the end, the calls are one period over and over: no call is
    missing or of another kind. The period has two kinds of calls at least, since the layers of a
    model may make a row of equal calls in one step.

    Args:
        sequence: The rank's calls in their order, equal numbers for equal calls.
    """
    count = len(sequence)
    for end in (count, count - max(_END_CALLS, int(_END_SHARE * count))):
        period = _period_of_end(sequence[max(0, end - _WINDOW) : max(0, end)])
        if period is None:
            continue
        calls = _periodic_calls(sequence, end, period)
        if calls >= max(_LEAST_SHARE * count, _LEAST_REPEATS * period):
            several = len(set(sequence[end - period : end])) > 1
            return calls / period if several else None
    return None


def _period_of_end(sequence: Sequence[int]) -> int | None:
    """Return the period of the longest end that has one."""
    backwards = list(reversed(sequence))
    borders = _borders(backwards)
    for length in range(len(backwards), int(len(backwards) * _LEAST_SHARE), -1):
        period = length - borders[length - 1]
        if length >= _LEAST_REPEATS * period:
            return period
    return None


def _periodic_calls(sequence: Sequence[int], end: int, period: int) -> int:
    """Return the length of the part around a place that repeats with a period."""
    first = end - period
    while first > 0 and sequence[first - 1] == sequence[first - 1 + period]:
        first -= 1
    last = end
    while last < len(sequence) and sequence[last] == sequence[last - period]:
        last += 1
    return last - first


def _borders(sequence: Sequence[int]) -> list[int]:
    """Return for each beginning the length of its longest end that is also its beginning."""
    borders = [0] * len(sequence)
    length = 0
    for place in range(1, len(sequence)):
        while length and sequence[place] != sequence[length]:
            length = borders[length - 1]
        if sequence[place] == sequence[length]:
            length += 1
        borders[place] = length
    return borders


_DIGITS = 9


@dataclass(slots=True)
class _Calls:
    """The calls of one form on communicators of one shape."""

    by_member: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))
    """Calls per step of each member."""
    communicators: Counter[Hashable] = field(default_factory=Counter)
    """Communicators of each member that make them."""
    makers: int = 0
    """Number of communicators that make them."""
    times: dict[CallTime, TimeSum] = field(default_factory=lambda: defaultdict(TimeSum))

    def add_times(self, view: RankCalls, form: CallForm, *figures: CallTime) -> None:
        """Add these times of a rank's calls, as far as they are known."""
        for figure in figures:
            if (own := view.times.get((figure, form))) is not None:
                self.times[figure].add(own.sum_us, own.number)

    @property
    def mean_times(self) -> dict[str, float]:
        """Mean times by the members of `WorkloadCall`; a call in a job takes some time."""
        return {
            figure: _rounded(own.mean_us)
            for figure, own in self.times.items()
            if own.sum_us > 0 or figure is not CallTime.IN_JOB
        }


def assemble(
    kind: SourceKind,
    files: Sequence[str],
    observed: Observed,
    steps: float | None,
    ranks_per_node: int | None = None,
) -> Workload:
    """Return the workload of a recording.

    Args:
        kind: Its kind.
        files: Names of its files.
        observed: Its calls.
        steps: Number of steps that each rank's recording covers; None: as the recording says.
        ranks_per_node: Ranks of the job on each node; None: unknown.
    """
    views = [view for view in observed.views if view.ranks > 1]
    alone = sum(view.calls.total() for view in observed.views if view.ranks <= 1)
    if alone:
        observed.left_out["calls on communicators of one rank"] += alone
    ranks = _job_ranks(observed, views)
    found = find_communicators(views, ranks, ranks_per_node)
    covered = _steps(observed, views, steps)
    per_member = {view.member: covered.get(view.member, 1.0) for view in views}
    return Workload(
        source=WorkloadSource(kind, tuple(files), _left_out(observed.left_out)),
        ranks=ranks,
        nodes=_job_nodes(views, found, ranks, ranks_per_node),
        steps=max(covered.values(), default=None),
        calls=_tuned(found, per_member),
        not_tuned=_not_tuned(views, per_member),
    )


def _steps(
    observed: Observed, views: Sequence[RankCalls], steps: float | None
) -> Mapping[Hashable, float]:
    """Return the steps that the recording of each member covers; empty: unknown."""
    members = {view.member for view in views if view.calls}
    if steps is not None:
        return dict.fromkeys(members, steps)
    if members and members <= observed.steps.keys():
        return {member: observed.steps[member] for member in members}
    _, longest = min(
        observed.sequences.items(), key=lambda item: (-len(item[1]), str(item[0])), default=("", ())
    )
    by_period = steps_by_period(longest)
    return {} if by_period is None else dict.fromkeys(members, _rounded(by_period))


def _tuned(
    communicators: Sequence[RecordedCommunicator], steps: Mapping[Hashable, float]
) -> tuple[WorkloadCall, ...]:
    found: dict[tuple[int, int | None, CallForm], _Calls] = defaultdict(_Calls)
    for communicator in communicators:
        # All ranks record the same calls; the longest recording of them counts.
        longest = min(
            communicator.views,
            key=lambda view: (-view.calls.total() / steps[view.member], *view.place),
        )
        members = communicator.members
        for form, count in longest.calls.items():
            if not form.is_tuned:
                continue
            calls = found[communicator.ranks, communicator.nodes, form]
            calls.makers += 1
            for member in members:
                calls.by_member[member] += count / steps[longest.member]
            calls.communicators.update(members)
            for view in communicator.views:
                calls.add_times(view, form, CallTime.IN_JOB, CallTime.EXPOSED)
            beside = _last_to_come(communicator.views, form)
            if beside is not None:
                calls.add_times(beside, form, CallTime.COMPUTATION, CallTime.EXPOSED_COMPUTATION)
    return sorted_calls(
        WorkloadCall(
            operation=Collective.named(form.operation),
            datatype=form.datatype,
            reduction=form.reduction,
            size_bytes=form.size_bytes,
            ranks=ranks,
            nodes=nodes,
            siblings=math.ceil(calls.makers / max(calls.communicators.values())),
            in_place=form.in_place,
            graph=form.graph,
            calls_per_step=_rounded(max(calls.by_member.values())),
            **{"us_per_call": None, **calls.mean_times},
        )
        for (ranks, nodes, form), calls in found.items()
    )


def _last_to_come(views: Sequence[RankCalls], form: CallForm) -> RankCalls | None:
    """Return the rank whose calls took least; None: no rank's computation is known.

    The others wait for it in their calls, and what they compute meanwhile is not beside the
    communication.
    """
    wanted = {(CallTime.COMPUTATION, form), (CallTime.IN_JOB, form)}
    known = [view for view in views if wanted <= view.times.keys()]
    return min(
        known,
        key=lambda view: (view.times[CallTime.IN_JOB, form].mean_us, *view.place),
        default=None,
    )


def _not_tuned(views: Sequence[RankCalls], steps: Mapping[Hashable, float]) -> tuple[NotTuned, ...]:
    """Return operations that no table has: the mean over the recorded ranks."""
    calls: dict[str, float] = defaultdict(float)
    sizes: dict[str, float] = defaultdict(float)
    for view in views:
        for form, count in view.calls.items():
            if not form.is_tuned:
                calls[form.operation] += count / steps[view.member]
                sizes[form.operation] += form.size_bytes * count / steps[view.member]
    members = len({view.member for view in views if view.calls})
    return tuple(
        NotTuned(
            operation=operation,
            calls_per_step=_rounded(calls[operation] / members),
            bytes_per_step=_rounded(sizes[operation] / members),
        )
        for operation in sorted(calls)
    )


def _job_ranks(observed: Observed, views: Sequence[RankCalls]) -> int | None:
    """Return the ranks of the job: those of its largest communicator, or all that are known."""
    if observed.job_ranks is not None or not views:
        return observed.job_ranks
    return max(*(view.ranks for view in views), len({view.member for view in views}))


def _job_nodes(
    views: Sequence[RankCalls],
    communicators: Sequence[RecordedCommunicator],
    ranks: int | None,
    ranks_per_node: int | None,
) -> int | None:
    """Return the nodes of the job, if those of a communicator of all its ranks are known."""
    nodes = [view.nodes for view in views if view.ranks == ranks and view.nodes is not None]
    nodes += [
        communicator.nodes
        for communicator in communicators
        if communicator.ranks == ranks and communicator.nodes is not None
    ]
    if nodes:
        return nodes[0]
    if ranks is not None and ranks_per_node is not None:
        return math.ceil(ranks / ranks_per_node)
    hosts = {view.host for view in views}
    whole = len({view.member for view in views}) == ranks
    return len(hosts) if whole and "" not in hosts else None


def _left_out(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{what}: {count}" for what, count in sorted(counts.items()) if count)


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
