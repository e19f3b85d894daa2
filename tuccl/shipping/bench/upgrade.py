"""The effect of another NCCL on a table: stock NCCL and the table, each under both releases.

All four contenders run in turn in the same rounds. An entry is worth less where the new release
chooses better by itself, or runs the entry's choice slower; its gain under the new release is held
against its gain under the old one, round by round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import geometric_mean

from lookup_tables.table import Shape
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, NcclLibrary
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import STOCK, Contender, ShippedTable
from tuccl.shipping.bench.ratios import Gain, key_gains, mean_gain
from tuccl.shipping.bench.rounds import Measured


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Two releases of NCCL."""

    old: NcclLibrary
    """The NCCL that jobs load today."""
    new: NcclLibrary


class Effect(StrEnum):
    """The effect of the new release on a key, beyond the noise; the worst that applies."""

    SLOWER_THAN_STOCK = "slower_than_stock"
    """Under the new release the table is slower than stock NCCL."""
    NO_GAIN = "no_gain"
    """The table gained under the old release, and does not any more."""
    SLOWER = "slower"
    """A job with the table is slower than under the old release."""
    LESS_GAIN = "less_gain"
    """The table gains less than under the old release."""

    @property
    def is_finding(self) -> bool:
        """Whether a job loses by it: gaining less than before over a faster stock NCCL is none."""
        return self is not Effect.LESS_GAIN


@dataclass(frozen=True, slots=True)
class UpgradedKey:
    """The outcome of a key; all times are geometric means over the rounds."""

    task: Task
    has_entry: bool
    stock_us: tuple[float, float]
    """Stock NCCL under the old and the new release."""
    table_us: tuple[float, float]
    old_gain: Gain
    """Gain of the table over stock NCCL under the old release."""
    new_gain: Gain
    stock_change: Gain
    """Stock NCCL's time under the old release over that under the new one."""
    table_change: Gain
    """The same with the table."""
    kept: Gain
    """Gain under the new release over the gain under the old one."""

    @property
    def effect(self) -> Effect | None:
        """The effect beyond the noise; None: there is none for the worse."""
        if self.new_gain.high < 1.0:
            return Effect.SLOWER_THAN_STOCK
        if self.old_gain.low > 1.0 >= self.new_gain.low and self.kept.high < 1.0:
            return Effect.NO_GAIN
        if self.table_change.high < 1.0:
            return Effect.SLOWER
        return Effect.LESS_GAIN if self.kept.high < 1.0 and self.new_gain.low > 1.0 else None


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The outcome of all keys."""

    upgrade: Upgrade
    table: ShippedTable
    shape: Shape
    timing: Timing
    versions: str
    rounds: int
    seconds: float
    keys: tuple[UpgradedKey, ...]
    old_gain: Gain
    """Mean over all keys, as the others."""
    new_gain: Gain
    stock_change: Gain
    table_change: Gain

    def with_effect(self, effect: Effect) -> list[UpgradedKey]:
        """Return the keys with this effect."""
        return [key for key in self.keys if key.effect is effect]

    def example(self, task: Task) -> str:
        """Return GPUs of a communicator of a placed key; empty for all siblings of its shape."""
        return self.table.example(task)

    @property
    def has_findings(self) -> bool:
        """Whether a job loses by the upgrade in any key."""
        return any(key.effect is not None and key.effect.is_finding for key in self.keys)


def upgrade_contenders(table: ShippedTable, upgrade: Upgrade) -> tuple[Contender, ...]:
    """Return stock NCCL and the table under the old release, then under the new one."""
    old = {LIBRARY_VARIABLE: str(upgrade.old.path)}
    new = {LIBRARY_VARIABLE: str(upgrade.new.path)}
    return (
        replace(STOCK, variables={**STOCK.variables, **old}),
        replace(table, variables={**table.variables, **old}),
        Contender(_renamed(STOCK.name, upgrade), {**STOCK.variables, **new}),
        replace(table, name=_renamed(table.name, upgrade), variables={**table.variables, **new}),
    )


def _renamed(name: str, upgrade: Upgrade) -> str:
    return f"{name} under NCCL {upgrade.new.version_text}"


def upgrade_result(
    measured: Measured, table: ShippedTable, upgrade: Upgrade, shape: Shape, timing: Timing
) -> UpgradeResult:
    """Return the result of the times of all four contenders.

    Args:
        measured: Times, two rounds at least.
        table: The table, by its own name.
        upgrade: The two releases.
        shape: Shape of the communicator.
        timing: Conditions under which calls were timed.
    """
    times = measured.times_us
    stock, stock_new = times[STOCK.name], times[_renamed(STOCK.name, upgrade)]
    own, own_new = times[table.name], times[_renamed(table.name, upgrade)]
    old_gains, new_gains = key_gains(stock, own), key_gains(stock_new, own_new)
    stock_changes, table_changes = key_gains(stock, stock_new), key_gains(own, own_new)
    kept = key_gains(_products(stock_new, own), _products(own_new, stock))
    keys = tuple(
        UpgradedKey(
            task,
            table.entry(task) is not None,
            (geometric_mean(stock[task]), geometric_mean(stock_new[task])),
            (geometric_mean(own[task]), geometric_mean(own_new[task])),
            old_gains[task],
            new_gains[task],
            stock_changes[task],
            table_changes[task],
            kept[task],
        )
        for task in old_gains
    )
    return UpgradeResult(
        upgrade,
        table,
        shape,
        timing,
        measured.versions,
        measured.rounds,
        measured.seconds,
        keys,
        mean_gain(stock, own),
        mean_gain(stock_new, own_new),
        mean_gain(stock, stock_new),
        mean_gain(own, own_new),
    )


def _products(
    first: Mapping[Task, Sequence[float]], second: Mapping[Task, Sequence[float]]
) -> dict[Task, list[float]]:
    """Return the products round by round: a ratio of two is a ratio of two gains."""
    return {
        task: [a * b for a, b in zip(values, second[task], strict=True)]
        for task, values in first.items()
    }
