"""Tables whose sums do not move: every key that reduces has a winner, whatever NCCL takes.

Of such a key only calls are searched that add each element's parts in one order
(`tuccl.schedules.kept_sums`), and checks hold every finalist's bits against that order. NCCL's own
choice has none, so the fastest of these calls becomes the entry even where NCCL is faster, and its
entries reach over all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from tuccl.errors import MeasurementError
from tuccl.reports.kept_sums import short_order
from tuccl.schedules.kept_sums import kept_order
from tuccl.search.trials.config import Config, Task
from tuccl.tuning.decision import Comparison, Decision


def with_winner(
    task: Task,
    decision: Decision,
    is_right: Callable[[Task, Config], bool],
    compare: Callable[[Task, Config], Comparison],
) -> Decision:
    """Return a decision with a winner: the one that was proved faster, else the fastest call.

    Args:
        task: A key whose sums must not move.
        decision: Its decision.
        is_right: Whether a call runs, and adds in the order of the table.
        compare: Compares a call with NCCL's own choice, however much slower it is.

    Raises:
        MeasurementError: No call is left.
    """
    won = [each.config for each in decision.proved if not is_right(task, each.config)]
    rejected = [*decision.rejected, *decision.outdone]
    if won:
        decision = replace(
            decision,
            builtin=None if _is_of(decision.builtin, won) else decision.builtin,
            schedule=None if _is_of(decision.schedule, won) else decision.schedule,
        )
    if decision.has_entry:
        return decision
    known: dict[Config, Comparison] = {}
    for each in rejected:
        if not each.config.is_default and each.config not in won:
            known[each.config] = each  # The last one has most samples.
    right = [each for config, each in known.items() if is_right(task, config)]
    if not right:
        raise no_call(task)
    best = max(right, key=lambda each: (decision.gain_of(each), each.config))
    if not math.isfinite(best.interval.high) or best.reference == best.config:
        best = compare(task, best.config)
    kept = tuple(each for each in decision.rejected if each.config != best.config)
    if best.config.is_schedule:
        return replace(decision, schedule=best, rejected=kept, is_obliged=True)
    return replace(decision, builtin=best, rejected=kept, is_obliged=True)


def _is_of(comparison: Comparison | None, configs: Iterable[Config]) -> bool:
    return comparison is not None and comparison.config in configs


def no_call(task: Task) -> MeasurementError:
    """Return the error of a key that nothing here serves without moving its sums."""
    order = short_order(kept_order(task.shape) or "of ranks")
    return MeasurementError(
        f"--invariant: nothing here adds {task.operation.value} of {task.shape.ranks} ranks in the "
        f"order {order} at every size: NCCL's settings do not, and the executor's kernels, which "
        "do, need 2 to 16 GPUs of a node or two nodes of them, and `tuccl build-executor`; leave "
        "the operation or the shape out"
    )
