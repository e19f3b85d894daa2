"""The effect of another NCCL on a table: stock NCCL and the table, each under both releases.

All four contenders run in turn in the same rounds. An entry is worth less if the new release
chooses better by itself, or runs the entry's choice slower; its gain under the new release is
compared with its gain under the old one, round by round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from lookup_tables.table import Shape
from tuccl.measuring.engines.job_processes import STOCK, Contender
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, NcclLibrary
from tuccl.reports.json_form import member
from tuccl.reports.keys import TunedCall
from tuccl.reports.ratios import MeasuredGain, key_gains, mean_gain
from tuccl.search.trials.config import Task
from tuccl.search.trials.timing import Timing
from tuccl.shipping.bench.contenders import ShippedTable
from tuccl.shipping.bench.result import Conditions, conditions_of, named
from tuccl.shipping.bench.rounds import BenchTimes


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Two releases of NCCL."""

    old: NcclLibrary
    """The NCCL that jobs load today."""
    new: NcclLibrary


class UpgradeEffect(StrEnum):
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
        return self is not UpgradeEffect.LESS_GAIN


@dataclass(frozen=True, slots=True)
class UpgradedTimes:
    """Times under the old and the new NCCL: geometric means over the rounds."""

    old_us: float
    new_us: float


@dataclass(frozen=True, kw_only=True)  # Classes with slots cannot be inherited together.
class Changes:
    """Gains and changes of a key, or the geometric means over all keys."""

    old_gain: MeasuredGain
    """Gain of the table over stock NCCL under the old release."""
    new_gain: MeasuredGain
    stock_change: MeasuredGain
    """Stock NCCL's time under the old release over that under the new one."""
    table_change: MeasuredGain
    """The same with the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedKey(TunedCall, Changes):
    """One operation and size under both releases."""

    entry: bool
    """Whether the table has an entry for it."""
    stock: UpgradedTimes
    table: UpgradedTimes
    kept: MeasuredGain
    """Gain under the new release over that under the old one."""

    @member
    def effect(self) -> UpgradeEffect | None:
        """The worst that the new release does to the key beyond the noise; None: nothing."""
        if self.new_gain.high < 1.0:
            return UpgradeEffect.SLOWER_THAN_STOCK
        if self.old_gain.low > 1.0 >= self.new_gain.low and self.kept.high < 1.0:
            return UpgradeEffect.NO_GAIN
        if self.table_change.high < 1.0:
            return UpgradeEffect.SLOWER
        return UpgradeEffect.LESS_GAIN if self.kept.high < 1.0 and self.new_gain.low > 1.0 else None


@dataclass(frozen=True, slots=True)
class NcclRelease:
    """A release of NCCL."""

    version: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeResult(Conditions, Changes):
    """`bench --nccl` with another release than jobs load: what the upgrade changes."""

    place: str
    """The directory that was given."""
    bundle_crc: str
    profile: Mapping[str, str]
    old: NcclRelease
    new: NcclRelease
    keys: tuple[UpgradedKey, ...]

    def with_effect(self, effect: UpgradeEffect) -> list[UpgradedKey]:
        """Return the keys with this effect."""
        return [key for key in self.keys if key.effect is effect]

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
    measured: BenchTimes, table: ShippedTable, upgrade: Upgrade, shape: Shape, timing: Timing
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
    pairs = {
        "old_gain": (stock, own),
        "new_gain": (stock_new, own_new),
        "stock_change": (stock, stock_new),
        "table_change": (own, own_new),
    }
    gains = {name: key_gains(*pair) for name, pair in pairs.items()}
    means: dict[str, Any] = {name: mean_gain(*pair) for name, pair in pairs.items()}
    kept = key_gains(_products(stock_new, own), _products(own_new, stock))
    keys = tuple(
        UpgradedKey(
            **named(task, table) | {name: of_keys[task] for name, of_keys in gains.items()},
            entry=table.entry(task) is not None,
            stock=UpgradedTimes(geometric_mean(stock[task]), geometric_mean(stock_new[task])),
            table=UpgradedTimes(geometric_mean(own[task]), geometric_mean(own_new[task])),
            kept=kept[task],
        )
        for task in kept
    )
    return UpgradeResult(
        **conditions_of(measured, shape, timing),
        **means,
        place=table.name,
        bundle_crc=f"{table.bundle.crc:08x}",
        profile=dict(table.bundle.profile),
        old=NcclRelease(upgrade.old.version_text, Path(upgrade.old.path)),
        new=NcclRelease(upgrade.new.version_text, Path(upgrade.new.path)),
        keys=keys,
    )


def _products(
    first: Mapping[Task, Sequence[float]], second: Mapping[Task, Sequence[float]]
) -> dict[Task, list[float]]:
    """Return the products round by round: a ratio of two is a ratio of two gains."""
    return {
        task: [a * b for a, b in zip(values, second[task], strict=True)]
        for task, values in first.items()
    }
