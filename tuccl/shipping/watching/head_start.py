"""The beginning of a watch: its jobs start before the rest of TuCCL is imported.

What is needed for that is imported here and no more, as a start and the imports take most of a
watch's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from probes.nvidia.gpu_settings import GpuStates, read_gpu_states
from tuccl.errors import MeasurementError, NcclLibraryError, UsageError
from tuccl.measuring.engines.job_processes import Contender
from tuccl.measuring.engines.nccl_environment import count_gpus
from tuccl.measuring.engines.nccl_library import LIBRARY_VARIABLE, find_nccl
from tuccl.shipping.bench.surroundings import table_variables, without_table
from tuccl.shipping.sourcing import job_environment
from tuccl.shipping.watching.pair import Conditions, Pair
from tuccl.shipping.watching.stopwatch import Phase, Stopwatch

TABLE = "the table"
"""Name of the table's jobs."""


@dataclass
class HeadStart:
    """What was read and begun before all else; to be closed."""

    states: GpuStates
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    pair: Pair | None = None
    """Jobs that have begun; None: nothing is to be measured, or they cannot start."""
    conditions: Conditions | None = None
    """Conditions of these jobs."""
    failure: MeasurementError | None = None
    """Why they cannot start."""

    def close(self) -> None:
        """Kill what still runs."""
        if self.pair is not None:
            self.pair.close()


def begin_watch(directory: Path, environment: Mapping[str, str], *, measures: bool) -> HeadStart:
    """Read the states of the GPUs, and have the jobs start if nothing is in their way.

    Args:
        directory: Directory of `tuccl ship`.
        environment: Environment of this process, with the NCCL that the user names.
        measures: Whether keys are to be measured.
    """
    stopwatch = Stopwatch()
    if not measures:
        return HeadStart(read_gpu_states(), stopwatch)
    with ThreadPoolExecutor(1) as others:
        # The driver takes its time, and needs no Python meanwhile.
        gpus = others.submit(count_gpus)
        begun = HeadStart(read_gpu_states(), stopwatch)
        if any(each.processes for each in begun.states.conditions):
            return begun
        try:
            job = _with_nccl(job_environment(directory, environment))
            table = Contender(TABLE, table_variables(directory))
            begun.conditions = conditions_of(begun.states, job, table, gpus.result())
            begun.pair = Pair(begun.conditions)
            begun.pair.turns[0].begin()
        except MeasurementError as error:
            begun.close()
            begun.failure = error
        except UsageError:
            pass  # The directory is none: the watch says so.
        except BaseException:
            begun.close()
            raise
    stopwatch.end(Phase.LAUNCHING)
    return begun


def conditions_of(
    states: GpuStates, job: Mapping[str, str], table: Contender, gpus: int
) -> Conditions:
    """Return the conditions of a watch's jobs.

    Args:
        states: States of the GPUs.
        job: Environment of a job here, with the path of its NCCL if that is known.
        table: The table.
        gpus: Number of GPUs.
    """
    one_at_a_time = any(each.takes_one_process for each in states.conditions)
    return Conditions(gpus, without_table(job), table, one_at_a_time)


def _with_nccl(job: Mapping[str, str]) -> dict[str, str]:
    found = dict(job)
    with suppress(NcclLibraryError):
        found[LIBRARY_VARIABLE] = str(find_nccl(None, job).path)
    return found
