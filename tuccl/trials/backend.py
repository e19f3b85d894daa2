"""The protocol that every measurement backend answers.

Search, table and reports know this protocol only, never which backend they talk to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuccl.trials.config import Config, Task


@dataclass(frozen=True, slots=True)
class Measured:
    """Samples of a configuration, and what taking them cost."""

    samples_us: tuple[float, ...]
    """Each the mean of one launch of back-to-back calls, of the slowest rank."""
    seconds: float
    """Of the machine's time, a restart of the workers included; modelled where the times are."""
    restart_s: float = 0.0
    """What `Backend.restart_s` was after it: added by the measurement log, for whoever plans."""


class Backend(Protocol):
    """Something that can time a configuration on a task."""

    @property
    def name(self) -> str:
        """As written on the command line: `simulated`, `nccl`, ..."""

    @property
    def versions(self) -> str:
        """What produced the figures: the backend, its NCCL, this release."""

    @property
    def restart_s(self) -> float:
        """What measuring under another process profile than the one before costs in addition."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Samples number `first` to `first + repeats - 1` of a configuration.

        A search that resumes asks for the samples it does not have yet, so a backend with simulated
        noise derives the noise from the number of the sample.

        Raises:
            ConfigurationFailedError: when this configuration cannot run; others can.
            MeasurementError: when the backend cannot go on.
        """

    def check(self, task: Task, config: Config) -> None:
        """Hold the data that a configuration delivers against what it must be.

        Models and records have no data and accept everything.

        Raises:
            ConfigurationFailedError: when a byte is wrong, or the configuration cannot run.
            MeasurementError: when the backend cannot go on.
        """

    def close(self) -> None:
        """Give back processes and devices."""
