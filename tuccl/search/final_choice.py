"""The final choice, the same for every strategy.

What looked best on few samples often is not (winner's curse): of many configurations alike the
luckiest stands first. So the elites are measured at full budget, the least known of them first, and
everything is ranked by the upper confidence bound of its time: among equals the one that is better
known wins.
"""

from __future__ import annotations

import math

from tuccl.search.config import Config
from tuccl.search.meter import Meter

RESERVE = 0.1
"""Share of the budget that the final choice keeps for itself."""
_ELITES = 3
_MOST = 6
"""Measurements at full budget that the final choice makes at most."""
_ERRORS = 1.0


def ranked_by_bound(meter: Meter) -> list[Config]:
    """Everything measured, by the upper bound of its time; of equals the smaller as a value."""
    return sorted(meter.configs, key=lambda config: (meter.bound_us(config, _ERRORS), config))


def confirm_elites(meter: Meter) -> None:
    """Measure the fastest at full budget until they all are.

    Raises:
        BudgetSpentError: when the budget ends before.
    """
    for _ in range(_MOST):
        thin = _thin(meter)
        if not thin:
            return
        meter.reach(thin[0], meter.max_repeats)


def confirm_affordable(meter: Meter) -> None:
    """The same with what is left: an elite that would cost more is passed over."""
    for _ in range(_MOST):
        thin = [config for config in _thin(meter) if meter.affords(config, meter.max_repeats)]
        if not thin:
            return
        meter.reach(thin[0], meter.max_repeats)


def _thin(meter: Meter) -> list[Config]:
    """Elites without full budget, the least known first."""
    return sorted(
        (config for config in meter.best(_ELITES) if meter.count(config) < meter.max_repeats),
        key=lambda config: (meter.count(config), meter.time_us(config), config),
    )


def chosen(meter: Meter) -> Config | None:
    """The first of the ranking; None when everything failed."""
    return min(
        meter.configs,
        key=lambda config: (meter.bound_us(config, _ERRORS), config),
        default=None,
    )


def best_confirmed_us(meter: Meter) -> float:
    """Fastest time of those with full budget."""
    return min(
        (
            meter.time_us(config)
            for config in meter.configs
            if meter.count(config) >= meter.max_repeats
        ),
        default=math.inf,
    )
