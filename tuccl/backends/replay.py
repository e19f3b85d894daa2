"""The `replay` backend: measurements that were taken earlier, given out again.

Nothing runs, so a search costs what its own arithmetic costs, and many searches can be compared on
the very same machine. What they would have cost on it is counted all the same: each sample its
launch, each change of the process profile a restart of the workers.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from lookup_tables.provenance import Provenance
from tuccl.errors import ConfigurationFailedError
from tuccl.records.record import NOT_RECORDED, Record, Row
from tuccl.trials.backend import Measured
from tuccl.trials.config import Config, ProcessProfile, Task
from tuccl.trials.running_profiles import RunningProfiles
from tuccl.trials.space import Space, space_of
from tuccl.trials.timing import Timing

RESTART_S = 3.0
"""What four processes with NCCL take to start again on one host."""


class ReplayBackend:
    """Gives out the samples of a record.

    Sample number i of a configuration is the i-th that was recorded. Where more are asked for than
    were recorded, the same ones are given again, all of them in each round, in an order that is
    drawn anew for each round from the seed. So further samples of a record tell nothing new: what
    was recorded decides how well two configurations can be told apart.

    Raises, in `measure`, ConfigurationFailedError for a configuration that is not in the record and
    for one that failed when it was recorded; the latter costs what it cost then.
    """

    name = "replay"

    def __init__(self, record: Record, seed: int = 0, restart_s: float = RESTART_S) -> None:
        """A backend over a record.

        Args:
            record: What was measured.
            seed: Of the order in which samples are given again.
            restart_s: What measuring under another process profile costs; 0: nothing.
        """
        self._record = record
        self._seed = seed
        self._running = RunningProfiles()
        self.restart_s = restart_s

    @property
    def provenance(self) -> Provenance:
        """What produced the figures, when they were recorded."""
        return replace(self._record.provenance, replayed=True)

    @property
    def timing(self) -> Timing:
        """How calls were timed when they were recorded."""
        return self._record.timing

    def resume(self, running: ProcessProfile) -> None:
        """Go on as if workers had turned to this profile, after a search was stopped."""
        self._running.use(running)

    def measure(self, task: Task, config: Config, first: int, repeats: int) -> Measured:
        """Recorded samples and what they cost; see `Backend.measure`.

        The cost is counted launch by launch, as many calls each as `Record.timing` says; what a
        leader needs around them is not.
        """
        restart_s = self.restart_s if self._running.run(config) else 0.0
        row = self._record.row(task, config)
        if row is None:
            raise ConfigurationFailedError(NOT_RECORDED, seconds=restart_s)
        if row.failed and first + repeats > len(row.samples_us):
            paid = self._seconds(row, row.samples_us[:first])
            raise ConfigurationFailedError(
                row.failed, seconds=restart_s + max(0.0, row.seconds - paid)
            )
        samples = tuple(self._sample(row, number) for number in range(first, first + repeats))
        return Measured(samples, restart_s + self._seconds(row, samples))

    def check(self, task: Task, config: Config) -> None:
        """There is no data; what failed when it was recorded may have failed by it."""
        row = self._record.row(task, config)
        if row is not None and row.failed:
            raise ConfigurationFailedError(row.failed)

    def space_of(self, task: Task) -> Space:
        """Exactly the configurations of NCCL that were tried on a task, its own choice included."""
        configs = self._record.configs(task)
        return space_of("record", (config for config in configs if not config.is_schedule))

    def _seconds(self, row: Row, samples: tuple[float, ...]) -> float:
        return sum(samples) * 1e-6 * self._record.timing.calls(row.size_bytes)

    def _sample(self, row: Row, number: int) -> float:
        samples = row.samples_us
        turn, place = divmod(number, len(samples))
        if turn == 0:
            return samples[place]
        subject = f"{self._seed}:{turn}:{row.operation.value}:{row.size_bytes}:{row.config}"
        digest = hashlib.blake2b(subject.encode(), digest_size=8).digest()
        order = random.Random(digest).sample(range(len(samples)), len(samples))  # noqa: S311
        return samples[order[place]]
