"""Fitting the constants: robust least squares of the logarithm of the time.

Levenberg-Marquardt works on the logarithms of the constants, so that they stay positive and each
counts by its ratio, with a Jacobian by differences. The loss is Huber's: quadratic up to a quarter,
linear beyond, so that an outlier among the sizes does not distort the fit. A weak pull to the
initial constants keeps those in place that the observations do not determine.

The fit is deterministic: the same observations in the same order give the same constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import islice

import numpy as np

from tuccl.errors import InputFileError
from tuccl.measuring.calibration.observations import Array, Observation, ObservationTable, tabulate
from tuccl.models.model_constants import SHIPPED, ModelConstants, ProtocolCosts

FEWEST_OBSERVATIONS = 8
_HUBER = 0.25
_PULL = 0.05
"""Weight of the pull to the initial constants: a few observations may double a constant."""
_DIFFERENCE = 1e-4
_LONGEST_STEP = 0.7
_FARTHEST = math.log(1000.0)
"""Largest distance from the initial constants: beyond it the measurements are of another kind."""
_MOST_STEPS = 40
_PER_PROTOCOL = len(fields(ProtocolCosts))
_ENOUGH = 1e-5
"""Relative gain of a step below which the fit is done."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants and their error on the observed times."""

    constants: ModelConstants
    observations: int
    error_before: float
    """Median of |predicted / measured - 1| with the initial constants."""
    error_after: float


def fit_constants(observations: Sequence[Observation], start: ModelConstants = SHIPPED) -> Fit:
    """Return the constants with which the model predicts the observed times best.

    Raises:
        InputFileError: there are too few observations.
        ConfigurationFailedError: an algorithm is not in the model.
    """
    if len(observations) < FEWEST_OBSERVATIONS:
        raise InputFileError(
            f"{len(observations)} measured times are too few to fit constants: "
            f"at least {FEWEST_OBSERVATIONS} are needed; measure more sizes"
        )
    table = tabulate(observations)
    first = np.log(numbers_of(start))
    found = _minimum(table, first)
    constants = constants_of(np.exp(found).tolist())
    return Fit(
        constants=constants,
        observations=len(observations),
        error_before=median_error(table, start),
        error_after=median_error(table, constants),
    )


def median_error(table: ObservationTable, constants: ModelConstants) -> float:
    """Return the median of |predicted / measured - 1|."""
    return float(np.median(np.abs(table.predicted_us(constants) / table.times_us - 1.0)))


def _minimum(table: ObservationTable, first: Array) -> Array:
    """Minimize by Levenberg-Marquardt, reweighted to Huber's loss."""

    def residuals(point: Array) -> Array:
        return np.log(table.predicted_us(constants_of(np.exp(point).tolist())) / table.times_us)

    point, damping = first, 1e-2
    seen = residuals(point)
    cost = _cost(seen, point - first, table.weights)
    for _ in range(_MOST_STEPS):
        jacobian = _jacobian(residuals, point, seen)
        weights = table.weights * np.minimum(1.0, _HUBER / np.maximum(np.abs(seen), 1e-12))
        # Without BLAS, whose threads sum in varying order and cost more than they save.
        weighted = jacobian * weights[:, None]
        normal = np.einsum("ki,kj->ij", weighted, jacobian) + _PULL * np.eye(len(point))
        gradient = np.einsum("ki,k->i", weighted, seen) + _PULL * (point - first)
        gained = 0.0
        while damping < 1e8:
            step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            tried = point + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
            tried = np.clip(tried, first - _FARTHEST, first + _FARTHEST)
            residual = residuals(tried)
            cheaper = _cost(residual, tried - first, table.weights)
            if cheaper < cost:
                gained = (cost - cheaper) / cost
                point, seen, cost = tried, residual, cheaper
                damping = max(damping / 4.0, 1e-9)
                break
            damping *= 4.0
        if gained < _ENOUGH:
            break
    return point


def _cost(residuals: Array, moved: Array, weights: Array) -> float:
    size = np.abs(residuals)
    huber = np.where(size < _HUBER, 0.5 * size**2, _HUBER * (size - 0.5 * _HUBER))
    return float(np.sum(weights * huber) + 0.5 * _PULL * np.sum(moved**2))


def _jacobian(residuals: Callable[[Array], Array], point: Array, at_point: Array) -> Array:
    columns = []
    for index in range(len(point)):
        moved = point.copy()
        moved[index] += _DIFFERENCE
        columns.append((residuals(moved) - at_point) / _DIFFERENCE)
    return np.stack(columns, axis=1)


def numbers_of(constants: ModelConstants) -> list[float]:
    """Return the constants in the order of their fields, those of a protocol one by one."""
    return [
        number
        for value in astuple(constants)
        for number in (value if isinstance(value, tuple) else (value,))
    ]


def constants_of(numbers: Iterable[float]) -> ModelConstants:
    """Return the constants of these `numbers_of`."""
    values = iter(numbers)
    ll, ll128, simple = (ProtocolCosts(*islice(values, _PER_PROTOCOL)) for _ in range(3))
    return ModelConstants(ll, ll128, simple, *values)
