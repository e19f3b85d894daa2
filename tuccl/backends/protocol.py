"""The protocol that every measurement backend answers.

Search, table and reports know this protocol only, never which backend they talk to.
"""

from __future__ import annotations

from typing import Protocol

from tuccl.search.config import Config, Task


class Backend(Protocol):
    """Something that can time a configuration on a task."""

    @property
    def name(self) -> str:
        """As written on the command line: `simulated`, `nccl`, ..."""

    @property
    def versions(self) -> str:
        """What produced the figures: the backend, its NCCL, this release."""

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> tuple[float, ...]:
        """Samples number `first` to `first + repeats - 1` of a configuration, in us.

        Each sample is the mean of a launch of back-to-back calls. A search that resumes asks for
        the samples it does not have yet, so a backend with simulated noise derives the noise from
        the number of the sample.

        Raises:
            MeasurementError: when the configuration cannot run.
        """
