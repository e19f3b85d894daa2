"""Hyperband's plan as a pure function.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization" (JMLR 2018),
Algorithm 1. TuCCL's Algorithm 1 prints the plan with the roles of n and R exchanged (line 3 against
line 4: the bracket with the most configurations would run them all at full cost); this is the
original, see docs/reference/deviations.md.

A budget is a number of repetitions of one measurement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rung:
    """One halving step: so many configurations reach so many repetitions each."""

    configs: int
    repeats: int
    """Repetitions that each of them has in total at the end of the rung."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Successive halving from many cheap measurements to few expensive ones."""

    rungs: tuple[Rung, ...]


def hyperband_plan(max_repeats: int, eta: int) -> tuple[Bracket, ...]:
    """Brackets from the most exploring to the plain one.

    With `max_repeats` 27, `eta` 3: 27 configurations at 1 repetition, 9 at 3, 3 at 9, 1 at 27; then
    brackets that start at 3, 9 and 27 repetitions.

    Raises:
        ValueError: unless max_repeats >= 1 and eta >= 2.
    """
    if max_repeats < 1 or eta < 2:
        raise ValueError(f"{max_repeats} repeats and eta {eta}, but at least 1 and 2 are needed")
    deepest = 0
    while eta ** (deepest + 1) <= max_repeats:
        deepest += 1
    brackets = []
    for s in range(deepest, -1, -1):
        configs = -(-(deepest + 1) * eta**s // (s + 1))  # ceil((s_max + 1) / (s + 1) * eta^s)
        rungs = tuple(
            Rung(configs=max(1, configs // eta**i), repeats=max(1, max_repeats // eta ** (s - i)))
            for i in range(s + 1)
        )
        brackets.append(Bracket(rungs))
    return tuple(brackets)


def rung_repeats(max_repeats: int, eta: int) -> tuple[int, ...]:
    """Repetitions from 1 to `max_repeats` in steps of `eta`: 1, 3, 9, 27."""
    steps = []
    step = 1
    while step < max_repeats:
        steps.append(step)
        step *= eta
    return (*steps, max_repeats)
