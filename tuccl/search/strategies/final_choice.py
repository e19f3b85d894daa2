"""The final choice, the same for every strategy.

What looked best on few samples often is not (winner's curse): of many configurations alike the
luckiest stands first. So the elites are measured at full budget, then whatever may still be the
best is measured on, the least known first, until it is out of the question or known well enough.
Everything is ranked by the upper confidence bound of its time: among equals the one that is better
known wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuccl.search.strategies.meter import Meter
from tuccl.search.trials.config import Config

RESERVE = 0.1
"""Share of the budget that the final choice keeps for itself."""
_ELITES = 3
_MOST = 6
"""Measurements at full budget that the final choice makes at most."""
_ERRORS = 1.0
_RIVALS = 8
"""Configurations that may turn out to be the best."""
_RIVAL_ERRORS = 1.0
"""A rival is out of the question when so many standard errors of its own below its time are still
above the best by so many of the best's."""
_KNOWN = 0.003
"""Relative standard error at which a time is known well enough."""
_MOST_BUDGETS = 4
"""Full budgets that are spent on one rival at most."""


def ranked_by_bound(meter: Meter) -> list[Config]:
    """Everything measured, by the upper bound of its time; of equals the smaller as a value."""
    return sorted(meter.configs, key=lambda config: (meter.bound_us(config, _ERRORS), config))


def confirm_elites(meter: Meter) -> None:
    """Measure the fastest at full budget until they all are.

    Raises:
        BudgetSpentError: The budget ends before.
    """
    for _ in range(_MOST):
        thin = _thin(meter)
        if not thin:
            return
        meter.reach(thin[0], meter.max_repeats)


def confirm_rivals(meter: Meter) -> None:
    """Make sure of the choice with what budget is left; what would cost more is passed over."""
    for _ in range(_MOST):
        if not _lengthen(meter, _thin(meter), meter.max_repeats):
            break
    for _ in range(_RIVALS * _MOST_BUDGETS):
        if not _lengthen(meter, _rivals(meter), 0):
            break


def _lengthen(meter: Meter, configs: Sequence[Config], repeats: int) -> bool:
    """Measure the first that is affordable, to so many repetitions or by another full budget."""
    for config in configs:
        wanted = repeats or meter.count(config) + meter.max_repeats
        if meter.affords(config, wanted):
            meter.reach(config, wanted)
            return True
    return False


def _rivals(meter: Meter) -> list[Config]:
    """Configurations that may still be the best and are not well known, the least known first."""
    ahead = chosen(meter)
    if ahead is None:
        return []
    bound_us = meter.bound_us(ahead, _RIVAL_ERRORS)
    rivals = [
        config
        for config in meter.best(_RIVALS)
        if meter.bound_us(config, -_RIVAL_ERRORS) <= bound_us
        and not meter.settled(config, _MOST_BUDGETS * meter.max_repeats)
        and meter.error(meter.count(config)) > _KNOWN
    ]
    # A single one that nothing comes near needs no better figure.
    if rivals == [ahead]:
        return []
    return _least_known(meter, rivals)


def _thin(meter: Meter) -> list[Config]:
    """Elites without full budget, the least known first."""
    return _least_known(
        meter,
        [config for config in meter.best(_ELITES) if not meter.settled(config, meter.max_repeats)],
    )


def _least_known(meter: Meter, configs: Sequence[Config]) -> list[Config]:
    return sorted(configs, key=lambda config: (meter.count(config), meter.time_us(config), config))


def chosen(meter: Meter) -> Config | None:
    """The first of the ranking; None if everything failed."""
    return min(
        meter.configs,
        key=lambda config: (meter.bound_us(config, _ERRORS), config),
        default=None,
    )


def best_confirmed_us(meter: Meter) -> float:
    """Fastest time of those with full budget; infinite for none."""
    return min(
        (
            meter.time_us(config)
            for config in meter.configs
            if meter.settled(config, meter.max_repeats)
        ),
        default=math.inf,
    )
