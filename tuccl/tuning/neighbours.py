"""What was proved for the size above or below a key, as further calls that the key may try.

A search tries a few per cent of its space, so that it may miss a call that the next size found.
Such a call is compared like the key's own finalists, by samples of the key: no gain is borrowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tuccl.search.trials.config import Config, Task
from tuccl.tuning.decision import MIN_GAIN, Comparison, Decision
from tuccl.tuning.run_keys import ladder_of

_WORTH = 1.02
"""Ratio of a neighbour's gain to the key's own from which its winner is compared, too."""
_LUCK = 0.85
"""A call with a ratio below this in one start is slower. Over TCP the ratio of one start had a
standard deviation of 8 %, and calls that gain 12 % showed 0.94."""


def _keys_beside(task: Task, keys: Collection[Task]) -> list[Task]:
    """The keys of the size below and above."""
    alike = sorted(
        (key for key in keys if ladder_of(key) == ladder_of(task)), key=lambda key: key.size_bytes
    )
    at = alike.index(task)
    return [*alike[max(0, at - 1) : at], *alike[at + 1 :][:1]]


def faster_beside(task: Task, decisions: Mapping[Task, Decision]) -> list[Config]:
    """Winners of the sizes beside a key that gain more there than the key's own winner here.

    Those that the key was compared with are left out.
    """
    own = decisions[task]
    known = {comparison.config for comparison in (*own.proved, *own.rejected)}
    least = _WORTH * max(map(own.gain_of, own.proved), default=1.0)
    return [
        comparison.config
        for key in _keys_beside(task, decisions)
        for comparison in decisions[key].proved
        if comparison.config not in known and decisions[key].gain_of(comparison) > least
    ]


def joined(own: Decision, again: Decision, further: Collection[Config]) -> Decision:
    """Join a key's decision with one in which further calls were compared with its winners.

    The latter counts if a further call won there; else it only says what was tried.
    """
    if any(comparison.config in further for comparison in again.proved):
        compared = {comparison.config for comparison in (*again.proved, *again.rejected)}
        kept = tuple(c for c in own.rejected if c.config not in compared)
        return replace(again, rejected=(*kept, *again.rejected))
    tried = tuple(c for c in again.rejected if c.config in further)
    return replace(own, rejected=(*own.rejected, *tried))


def neighbour_winner(task: Task, decisions: Mapping[Task, Decision]) -> Comparison | None:
    """The built-in winner of the size above or below, where the key's own start may have missed it.

    A key with a built-in winner keeps it. Otherwise, if the key's start compared the neighbour's
    winner, that must not have been far slower, and no call may have gained; if it did not, the
    winner's lower bound must exceed the best ratio that the start showed.
    """
    nearby = (decisions[key].builtin for key in _keys_beside(task, decisions))
    proved = [comparison for comparison in nearby if comparison is not None]
    decision = decisions[task]
    if decision.builtin is not None or not proved:
        return None
    best = max(proved, key=lambda comparison: (comparison.lower_bound, comparison.config))
    own = {c.config: c.ratio for c in decision.rejected if not c.config.is_schedule}
    shown = max(own.values(), default=0.0)
    if best.config in own:
        is_promising = shown < MIN_GAIN and own[best.config] >= _LUCK
    else:
        is_promising = shown < best.lower_bound
    return best if is_promising else None
