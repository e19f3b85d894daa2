"""The strategies by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from tuccl.errors import UsageError
from tuccl.search.strategies.algorithm_1 import Algorithm1
from tuccl.search.strategies.baselines import Grid, OptunaHyperband, Random, Tpe
from tuccl.search.strategies.coordinate import Coordinate
from tuccl.search.strategies.mraco import Mraco
from tuccl.search.strategies.strategy import Strategy

_OWN_REPEATS: dict[str, Callable[[], Strategy]] = {
    "mraco": Mraco,
    "algorithm-1": Algorithm1,
    "optuna-hyperband": OptunaHyperband,
}
_PLAIN: dict[str, Callable[[int], Strategy]] = {
    "tpe": Tpe,
    "coordinate": Coordinate,
    "random": Random,
    "grid": Grid,
}
"""They measure everything equally, and take `@N` repetitions: `tpe@1`."""


def make_strategy(name: str) -> Strategy:
    """A strategy as written on the command line.

    Raises:
        UsageError: for an unknown name or number of repetitions.
    """
    plain, at, repeats = name.partition("@")
    if not at and name in _OWN_REPEATS:
        return _OWN_REPEATS[name]()
    if plain in _PLAIN and (not at or re.fullmatch(r"[1-9][0-9]{0,2}", repeats)):
        return _PLAIN[plain](int(repeats or 0))
    known = ", ".join(_OWN_REPEATS) + ", " + ", ".join(f"{strategy}[@N]" for strategy in _PLAIN)
    raise UsageError(f"strategy {name!a:.60} is unknown: use one of {known}")
